"""``python -m tests.differential --pods 5000 --seed 1``: compare trimtab's placement with kube-scheduler's."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import yaml

from tests.differential.comparison import differences
from tests.differential.environment import Environment, running_environment
from tests.differential.generator.cluster import FEATURES
from tests.differential.profiles import DEFAULT, PROFILES
from tests.differential.report import Disagreement, Progress, Tally
from tests.differential.shrinking import shrink_case
from tests.differential.suite import PER_CLUSTER, compare_pods


def main() -> int:
    options = _options()
    with running_environment(options.profile) as environment:
        return _run(environment, options) if options.case is None else _rerun_case(environment, options.case)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--pods", type=int, default=1000, help="number of pods to compare (default: 1000)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first random cluster (default: 1)")
    parser.add_argument("--per-cluster", type=int, default=PER_CLUSTER, help="pods to compare in each cluster")
    parser.add_argument("--without", action="append", default=[], choices=FEATURES, help="feature to exclude")
    parser.add_argument("--shrink", type=int, default=3, help="disagreements to shrink per kind (default: 3)")
    parser.add_argument("--output", type=Path, help="write the shrunk cases to YAML files in this directory")
    parser.add_argument("--case", type=Path, help="compare only this case, a YAML file that --output wrote")
    parser.add_argument("--profile", choices=tuple(PROFILES), default=DEFAULT, help="profile of both schedulers")
    return parser.parse_args()


def _run(environment: Environment, options: argparse.Namespace) -> int:
    progress = Progress(options.pods)
    before = time.monotonic()
    tally = compare_pods(
        environment,
        pods=options.pods,
        seed=options.seed,
        without=options.without,
        per_cluster=options.per_cluster,
        report_progress=lambda tally: progress.update(tally.compared, f"{len(tally.disagreements)} disagreements"),
    )
    print(tally.render())
    print(f"{time.monotonic() - before:.0f} s", flush=True)
    _report_cases(environment, tally, options)
    return 0 if tally.passed else 1


def _rerun_case(environment: Environment, case: Path) -> int:
    """Compare the last object of the file, a pod, in a cluster of all other objects."""
    *objects, pod = yaml.safe_load_all(case.read_text("utf-8"))
    placer = environment.load(objects)
    expected = environment.scheduler.evaluate(pod)
    actual = placer.evaluate(expected.created)
    print(f"kube-scheduler: {expected.node or expected.message}")
    print(f"trimtab: {', '.join(sorted(actual.best)) or actual.message}")
    found = differences(expected, actual)
    for difference in found:
        print(f"{difference.kind}: {difference.text}")
    return 1 if found else 0


def _report_cases(environment: Environment, tally: Tally, options: argparse.Namespace) -> None:
    """Shrink the first disagreements of each kind and plugin, and print them or write them to files."""
    by_kind: dict[str, list[Disagreement]] = {}
    for found in tally.disagreements:
        by_kind.setdefault("-".join(filter(None, (found.difference.kind, found.difference.plugin))), []).append(found)
    for kind, cases in sorted(by_kind.items()):
        for number, found in enumerate(cases[: options.shrink]):
            text = shrink_case(environment, found).render()
            if options.output is None:
                print(f"---\n{text}", flush=True)
            else:
                options.output.mkdir(parents=True, exist_ok=True)
                (options.output / f"{kind}-{number}-seed-{found.seed}.yaml").write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
