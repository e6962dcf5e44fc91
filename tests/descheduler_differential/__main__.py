"""``python -m tests.descheduler_differential --clusters 200 --seed 1``: our plans against the real descheduler's."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import yaml

from tests.descheduler_differential.binary import binary
from tests.descheduler_differential.report import Tally, Unexplained, words
from tests.descheduler_differential.shrinking import shrunk
from tests.descheduler_differential.suite import POLICIES, Examination, examine
from tests.descheduler_differential.theirs import Descheduler
from tests.descheduler_differential.world import SETTINGS, World
from tests.differential.report import Progress
from trimtab.local.cluster import LocalCluster
from trimtab.local.progress import for_terminal


def main() -> int:
    options = _options()
    executable = binary(for_terminal())
    with tempfile.TemporaryDirectory() as directory:
        cluster = LocalCluster(f"descheduler-{os.getpid()}", directory=Path(directory))
        try:
            cluster.up(SETTINGS, nodes=0, die_with_parent=True)
            world = World(cluster)
            descheduler = Descheduler(executable, world.kubeconfig)
            try:
                if options.case is not None:
                    return _again(world, descheduler, options.case)
                return _run(world, descheduler, options)
            finally:
                world.close()
        finally:
            cluster.down()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.descheduler_differential", description=__doc__)
    parser.add_argument("--clusters", type=int, default=200, help="how many (default: 200)")
    parser.add_argument("--seed", type=int, default=1, help="of the first cluster (default: 1); the next has the next")
    parser.add_argument("--policies", type=int, default=POLICIES, help="asked about in one cluster")
    parser.add_argument("--shrink", type=int, default=2, help="how many unexplained differences of a kind to shrink")
    parser.add_argument(
        "--output", type=Path, help="a directory for the cases as YAML files, in place of printing them"
    )
    parser.add_argument("--case", type=Path, help="compare in this case alone: a YAML file as --output writes it")
    return parser.parse_args()


def _run(world: World, descheduler: Descheduler, options: argparse.Namespace) -> int:
    progress = Progress(options.clusters, "clusters", every=20)
    before = time.monotonic()
    tally = examine(
        world,
        descheduler,
        clusters=options.clusters,
        seed=options.seed,
        policies=options.policies,
        tell=lambda tally: progress.at(tally.clusters, f"{len(tally.unexplained)} differences unexplained"),
    )
    print(tally.told())
    print(f"{time.monotonic() - before:.0f} s", flush=True)
    _cases(world, descheduler, tally, options)
    return 0 if tally.passed else 1


def _again(world: World, descheduler: Descheduler, file: Path) -> int:
    """Compare in the cluster of the file, under the policy that comes last in it."""
    *objects, policy = yaml.safe_load_all(file.read_text("utf-8"))
    policy.pop("metadata", None)
    case, found = Examination(world, descheduler, objects).sure(policy)
    print(f"the descheduler evicts {', '.join(sorted(case.theirs)) or 'nothing'}")
    print(f"we evict {', '.join(sorted(case.ours.moves)) or 'nothing'}")
    for difference, name in found:
        only = "they" if difference.side == "theirs" else "we"
        said = words(case, difference)
        print(f"{name or 'unexplained'}: only {only} evict {difference.pod} ({difference.strategy}); we: {said}")
    return 1 if any(name is None for _, name in found) else 0


def _cases(world: World, descheduler: Descheduler, tally: Tally, options: argparse.Namespace) -> None:
    """Print the first unexplained differences of each strategy and side, as small as they get."""
    sorts: dict[str, list[Unexplained]] = {}
    for found in tally.unexplained:
        sorts.setdefault(found.sort, []).append(found)
    for sort, cases in sorted(sorts.items()):
        for number, found in enumerate(cases[: options.shrink]):
            text = shrunk(world, descheduler, found).told()
            if options.output is None:
                print(f"---\n{text}", flush=True)
            else:
                options.output.mkdir(parents=True, exist_ok=True)
                (options.output / f"{sort}-{number}-seed-{found.seed}.yaml").write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
