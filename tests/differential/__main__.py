"""``python -m tests.differential --pods 5000 --seed 1``: our placement against kube-scheduler's, on random clusters."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import yaml

from tests.differential.comparison import differences
from tests.differential.generator.cluster import SUBJECTS
from tests.differential.report import Disagreement, Progress, Tally
from tests.differential.scheduler import LEAST_ALLOCATED, MOST_ALLOCATED, settings
from tests.differential.shrinking import shrunk
from tests.differential.suite import PER_CLUSTER, examine
from tests.differential.world import World
from trimtab.local.cluster import LocalCluster
from trimtab.placement import registry

PROFILES = {LEAST_ALLOCATED: registry.DEFAULT, MOST_ALLOCATED: registry.MOST_ALLOCATED}


def main() -> int:
    options = _options()
    with tempfile.TemporaryDirectory() as directory:
        cluster = LocalCluster(f"differential-{os.getpid()}", directory=Path(directory))
        try:
            cluster.up(settings(Path(directory), options.scoring), nodes=0, die_with_parent=True)
            world = World(cluster, PROFILES[options.scoring])
            try:
                return _run(world, options) if options.case is None else _again(world, options.case)
            finally:
                world.close()
        finally:
            cluster.down()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--pods", type=int, default=1000, help="how many pods to judge (default: 1000)")
    parser.add_argument("--seed", type=int, default=1, help="of the first cluster (default: 1); the next has the next")
    parser.add_argument("--per-cluster", type=int, default=PER_CLUSTER, help="pods judged in one cluster")
    parser.add_argument("--without", action="append", default=[], choices=SUBJECTS, help="leave a subject out")
    parser.add_argument("--shrink", type=int, default=3, help="how many disagreements to shrink and print (default: 3)")
    parser.add_argument(
        "--output", type=Path, help="a directory for the cases as YAML files, in place of printing them"
    )
    parser.add_argument("--case", type=Path, help="judge this case alone: a YAML file as --output writes it")
    parser.add_argument("--scoring", choices=tuple(PROFILES), default=LEAST_ALLOCATED, help="of NodeResourcesFit")
    return parser.parse_args()


def _run(world: World, options: argparse.Namespace) -> int:
    progress = Progress(options.pods)
    before = time.monotonic()
    tally = examine(
        world,
        pods=options.pods,
        seed=options.seed,
        without=options.without,
        per_cluster=options.per_cluster,
        tell=lambda tally: progress.at(tally.judged, f"{len(tally.disagreements)} disagreements"),
    )
    print(tally.told())
    print(f"{time.monotonic() - before:.0f} s", flush=True)
    _cases(world, tally, options)
    return 0 if tally.passed else 1


def _again(world: World, case: Path) -> int:
    """Ask both about the last object of the file, a pod, in the cluster of all others."""
    *objects, pod = yaml.safe_load_all(case.read_text("utf-8"))
    ours = world.load(objects)
    verdict = world.scheduler.judge(pod)
    word = ours.judge(verdict.created)
    print(f"kube-scheduler: {verdict.node or verdict.message}")
    print(f"we: {', '.join(sorted(word.best)) or word.message}")
    found = differences(verdict, word)
    for difference in found:
        print(f"{difference.kind}: {difference.text}")
    return 1 if found else 0


def _cases(world: World, tally: Tally, options: argparse.Namespace) -> None:
    """Print the first disagreements of each kind, scores plugin by plugin, as small as they get."""
    sorts: dict[str, list[Disagreement]] = {}
    for found in tally.disagreements:
        sorts.setdefault("-".join(filter(None, (found.difference.kind, found.difference.plugin))), []).append(found)
    for sort, cases in sorted(sorts.items()):
        for number, found in enumerate(cases[: options.shrink]):
            text = shrunk(world, found).told()
            if options.output is None:
                print(f"---\n{text}", flush=True)
            else:
                options.output.mkdir(parents=True, exist_ok=True)
                (options.output / f"{sort}-{number}-seed-{found.seed}.yaml").write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
