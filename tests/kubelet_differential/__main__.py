"""``python -m tests.kubelet_differential --timelines 1000 --seed 1``: compare plans with the kubelet's evictions."""

from __future__ import annotations

import argparse

from tests.kubelet_differential.binary import binary, outcomes_of
from tests.kubelet_differential.comparison import compare, empty_comparison
from tests.kubelet_differential.recorded import RECORDED, record
from tests.kubelet_differential.timelines import random_timeline
from trimtab_local.progress import for_terminal

BATCH = 100
SHOWN = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kubelet_differential", description=__doc__)
    parser.add_argument("--timelines", type=int, default=1000, help="number of timelines (default: 1000)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first timeline (default: 1)")
    parser.add_argument(
        "--record", action="store_true", help=f"store the outcomes of the first {RECORDED} seeds for the unit test"
    )
    options = parser.parse_args()
    executable = binary(for_terminal())
    if options.record:
        record(outcomes_of(executable, [random_timeline(seed) for seed in range(RECORDED)]))
        return 0
    found = empty_comparison()
    end = options.seed + options.timelines
    for first in range(options.seed, end, BATCH):
        timelines = {seed: random_timeline(seed) for seed in range(first, min(first + BATCH, end))}
        outcomes = outcomes_of(executable, list(timelines.values()))
        for (seed, timeline), outcome in zip(timelines.items(), outcomes, strict=True):
            known = len(found.unexplained)
            compare(timeline, outcome, found)
            found.unexplained[known:] = [f"seed {seed}, {each}" for each in found.unexplained[known:]]
    named = ", ".join(f"{count} {name}" for name, count in sorted(found.named.items())) or "none"
    print(f"{options.timelines} timelines, {found.readings} readings, {found.evictions} evictions by the kubelet")
    print(f"explained differences: {named}; unexplained: {len(found.unexplained)}")
    for each in found.unexplained[:SHOWN]:
        print(f"  {each}")
    return 1 if found.unexplained else 0


if __name__ == "__main__":
    raise SystemExit(main())
