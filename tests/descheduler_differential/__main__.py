"""``python -m tests.descheduler_differential --clusters 200 --seed 1``: compare plans with the descheduler's."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import yaml

from tests.descheduler_differential.binary import binary
from tests.descheduler_differential.descheduler import Descheduler
from tests.descheduler_differential.environment import SETTINGS, Environment
from tests.descheduler_differential.report import Tally, Unexplained, trimtab_decision
from tests.descheduler_differential.shrinking import shrink_case
from tests.descheduler_differential.suite import POLICIES, ClusterComparison, compare_policies
from tests.differential.report import Progress
from trimtab_local.cluster import LocalCluster
from trimtab_local.progress import for_terminal


def main() -> int:
    options = _options()
    executable = binary(for_terminal())
    with tempfile.TemporaryDirectory() as directory:
        cluster = LocalCluster(f"descheduler-{os.getpid()}", directory=Path(directory))
        try:
            cluster.up(SETTINGS, nodes=0, die_with_parent=True)
            environment = Environment(cluster)
            descheduler = Descheduler(executable, environment.kubeconfig)
            try:
                if options.case is not None:
                    return _rerun_case(environment, descheduler, options.case)
                return _run(environment, descheduler, options)
            finally:
                environment.close()
        finally:
            cluster.down()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.descheduler_differential", description=__doc__)
    parser.add_argument("--clusters", type=int, default=200, help="number of clusters (default: 200)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first random cluster (default: 1)")
    parser.add_argument("--policies", type=int, default=POLICIES, help="policies to compare in each cluster")
    parser.add_argument("--shrink", type=int, default=2, help="unexplained differences to shrink per kind")
    parser.add_argument("--output", type=Path, help="write the shrink_case cases to YAML files in this directory")
    parser.add_argument("--case", type=Path, help="compare only this case, a YAML file that --output wrote")
    return parser.parse_args()


def _run(environment: Environment, descheduler: Descheduler, options: argparse.Namespace) -> int:
    progress = Progress(options.clusters, "clusters", every=20)
    before = time.monotonic()
    tally = compare_policies(
        environment,
        descheduler,
        clusters=options.clusters,
        seed=options.seed,
        policies=options.policies,
        report_progress=lambda tally: progress.update(
            tally.clusters, f"{len(tally.unexplained)} unexplained differences"
        ),
    )
    print(tally.render())
    print(f"{time.monotonic() - before:.0f} s", flush=True)
    _report_cases(environment, descheduler, tally, options)
    return 0 if tally.passed else 1


def _rerun_case(environment: Environment, descheduler: Descheduler, file: Path) -> int:
    """Compare in the cluster of the file with the policy, which is its last document."""
    *objects, policy = yaml.safe_load_all(file.read_text("utf-8"))
    policy.pop("metadata", None)
    case, found = ClusterComparison(environment, descheduler, objects).compare_reliably(policy)
    print(f"descheduler: evicts {', '.join(sorted(case.descheduler)) or 'nothing'}")
    print(f"trimtab: evicts {', '.join(sorted(case.trimtab.moves)) or 'nothing'}")
    for difference, name in found:
        text = trimtab_decision(case, difference)
        print(f"{name or 'unexplained'}: only {difference.side} evicts {difference.pod} ({difference.strategy})")
        print(f"trimtab: {text}")
    return 1 if any(name is None for _, name in found) else 0


def _report_cases(
    environment: Environment, descheduler: Descheduler, tally: Tally, options: argparse.Namespace
) -> None:
    """Shrink the first unexplained differences of each strategy and side, and print them or write them to files."""
    by_group: dict[str, list[Unexplained]] = {}
    for found in tally.unexplained:
        by_group.setdefault(found.group, []).append(found)
    for sort, cases in sorted(by_group.items()):
        for number, found in enumerate(cases[: options.shrink]):
            text = shrink_case(environment, descheduler, found).render()
            if options.output is None:
                print(f"---\n{text}", flush=True)
            else:
                options.output.mkdir(parents=True, exist_ok=True)
                (options.output / f"{sort}-{number}-seed-{found.seed}.yaml").write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
