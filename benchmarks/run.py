"""Benchmarks: ``python benchmarks/run.py [--json] [NAME…]``.

Each runs in a process of its own, so that its peak memory is its own. ``seconds`` is the work alone: the cluster is
made before, in memory, without an API server.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "operator"), str(ROOT)]

Result = dict[str, Any]


def snapshot_5k() -> Result:
    """Build the snapshot of 5,000 nodes and 150,000 pods from decoded objects."""
    from benchmarks.clusters import Shape, cluster
    from trimtab.cluster.snapshot import Snapshot

    shape = Shape()
    objects = list(cluster(shape))
    started = time.perf_counter()
    snapshot = Snapshot(objects)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "params": {"nodes": len(snapshot.nodes), "pods": len(snapshot.pods)}}


def plan_5k() -> Result:
    """Plan all four strategies on 5,000 nodes and 150,000 pods, two fifths of the nodes overfull."""
    return _plan(picky=0)


def plan_5k_anti_affinity() -> Result:
    """The same, with every fifth owner's pods stating anti-affinity to their siblings."""
    return _plan(picky=5)


def plan_5k_full() -> Result:
    """The same with targets that leave room for few of the pods: most that are considered stay, and are told why."""
    return _plan(picky=0, target=22)


def _plan(*, threshold: int = 20, target: int = 50, **shape: Any) -> Result:
    from benchmarks.clusters import Shape, cluster
    from trimtab.cluster.snapshot import Snapshot
    from trimtab.descheduling.planner import plan

    form = Shape(**shape)
    snapshot = Snapshot(cluster(form))
    started = time.perf_counter()
    made = plan(snapshot, [_policy(threshold, target)], now=1_795_176_000.0)
    seconds = time.perf_counter() - started
    by_strategy: dict[str, int] = {}
    for action in made.actions:
        by_strategy[action.strategy] = by_strategy.get(action.strategy, 0) + 1
    params = {"nodes": form.nodes, "pods": form.pods, "evictions": by_strategy, "kept": len(made.kept)}
    return {"seconds": seconds, "params": params}


def _policy(threshold: int, target: int) -> Any:
    import msgspec

    from trimtab.api.descheduler_policy import DeschedulerPolicy

    resources = ("cpu", "memory", "pods")
    thresholds = {
        "thresholds": dict.fromkeys(resources, threshold),
        "targetThresholds": dict.fromkeys(resources, target),
    }
    strategies = {
        "RemoveDuplicates": {"enabled": True},
        "LowNodeUtilization": {"enabled": True, "params": {"nodeResourceUtilizationThresholds": thresholds}},
        "RemovePodsViolatingInterPodAntiAffinity": {"enabled": True},
        "RemovePodsViolatingNodeAffinity": {
            "enabled": True,
            "params": {"nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]},
        },
    }
    return msgspec.convert({"metadata": {"name": "default"}, "spec": {"strategies": strategies}}, DeschedulerPolicy)


BENCHMARKS: dict[str, Callable[[], Result]] = {
    "snapshot-5k": snapshot_5k,
    "plan-5k": plan_5k,
    "plan-5k-anti-affinity": plan_5k_anti_affinity,
    "plan-5k-full": plan_5k_full,
}


def measure(name: str) -> Result:
    """Run one benchmark in this process."""
    result = BENCHMARKS[name]()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "name": name,
        "seconds": round(result["seconds"], 3),
        "peak_rss_mb": round(peak),
        "params": result["params"],
    }


def measure_apart(name: str) -> Result:
    """Run one benchmark in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--json", "--here", name], check=True, stdout=subprocess.PIPE, text=True
    )
    found: Result = json.loads(done.stdout)
    return found


def main() -> None:
    """Run the benchmarks named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(BENCHMARKS)}; all without one")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    for name in options.names or BENCHMARKS:
        result = measure(name) if options.here else measure_apart(name)
        if options.json:
            print(json.dumps(result), flush=True)
        else:
            params = json.dumps(result["params"])
            print(f"{name:24} {result['seconds']:8.3f} s {result['peak_rss_mb']:6} MB  {params}", flush=True)


if __name__ == "__main__":
    main()
