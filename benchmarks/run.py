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
    """Build the snapshot of 5,000 nodes and 150,000 pods from decoded objects, then change 10,000 pods one by one."""
    from msgspec.structs import replace

    from benchmarks.clusters import Shape, cluster
    from trimtab.cluster.snapshot import Snapshot

    shape = Shape()
    objects = list(cluster(shape))
    started = time.perf_counter()
    snapshot = Snapshot(objects)
    seconds = time.perf_counter() - started
    pods = list(snapshot.pods.values())[::15]
    moved = [replace(pod, node=f"node-{number % shape.nodes:05}") for number, pod in enumerate(pods)]
    ended = [replace(pod, phase="Succeeded") for pod in moved]
    each = (_per_change(snapshot, moved) + _per_change(snapshot, ended)) / 2
    snapshot.affinity  # noqa: B018 (once some rule asked for it, every change goes to the affinity index as well)
    indexed = (_per_change(snapshot, moved) + _per_change(snapshot, ended)) / 2
    params = {
        "nodes": len(snapshot.nodes),
        "pods": len(snapshot.pods),
        "change_us": round(1e6 * each, 1),
        "change_indexed_us": round(1e6 * indexed, 1),
    }
    return {"seconds": seconds, "params": params}


def _per_change(snapshot: Any, changed: list[Any]) -> float:
    started = time.perf_counter()
    for pod in changed:
        snapshot.put(pod)
    return (time.perf_counter() - started) / len(changed)


def place_plain() -> Result:
    """Place 10,000 pods of 50 classes on 5,000 nodes that hold 150,000 pods, each reserving its place."""
    from benchmarks import placement

    return placement.place(placement.plain)


def place_owned() -> Result:
    """The same with the pods' ReplicaSets in the picture, which kube-scheduler spreads without being asked."""
    from benchmarks import placement

    return placement.place(placement.plain, owned=True)


def place_spread() -> Result:
    """The same with topology spread over zones, every other class over hosts as well."""
    from benchmarks import placement

    return placement.place(placement.spread)


def place_affinity() -> Result:
    """The same with required pod affinity, on zones and on hosts."""
    from benchmarks import placement

    return placement.place(placement.affinity)


def place_anti_affinity() -> Result:
    """The same with required pod anti-affinity, on zones and on hosts."""
    from benchmarks import placement

    return placement.place(placement.anti_affinity)


def explain_5k() -> Result:
    """Explain a pod against 5,000 nodes, warm: its document, with what would have to change where it fits nowhere."""
    from benchmarks import explaining

    return explaining.explain()


def plan_5k() -> Result:
    """Plan all five strategies on 5,000 nodes and 150,000 pods, two fifths of the nodes overfull."""
    from benchmarks import planning

    return planning.first()


def plan_5k_anti_affinity() -> Result:
    """The same, with every fifth owner's pods stating anti-affinity to their siblings."""
    from benchmarks import planning

    return planning.first(picky=5)


def plan_5k_full() -> Result:
    """The same with targets that leave room for few of the pods: most that are considered stay, and are told why."""
    from benchmarks import planning

    return planning.first(target=22)


def plan_steady_5k() -> Result:
    """Plan again after 1 % of the pods changed, in a cluster at rest: applying the changes and planning."""
    from benchmarks import planning

    return planning.steady()


def plan_spread_5k() -> Result:
    """Even all owners' pods over the zones: some 18,000 moves."""
    from benchmarks import planning

    return planning.spread()


def plan_taints_5k() -> Result:
    """Move all pods off the 500 nodes that were tainted: some 15,000 moves."""
    from benchmarks import planning

    return planning.taints()


def plan_leaning_5k() -> Result:
    """The same where every pod states pod affinity, and no move may leave a pod behind that was moved before."""
    from benchmarks import planning

    return planning.leaning()


def plan_empty_5k() -> Result:
    """Empty 2,500 nodes of few pods: some 15,000 moves."""
    from benchmarks import planning

    return planning.empty()


def scale_up_1000() -> Result:
    """Plan 1,000 nodes of a set that has none for 50,000 pods without owners."""
    from benchmarks import adding

    return adding.scale_up_1000()


def estimate_51k() -> Result:
    """Count 51,000 pods of two classes onto nodes of one kind: 2,595 are needed."""
    from benchmarks import adding

    return adding.estimate_51k()


def affinity_surge() -> Result:
    """Plan nodes for 100 pods with anti-affinity by host, beside 5,000 full nodes of 100 groups and 50,000 pods."""
    from benchmarks import adding

    return adding.affinity_surge()


def affinity_surge_zone() -> Result:
    """The same with anti-affinity by zone."""
    from benchmarks import adding
    from benchmarks.clusters import ZONE

    return adding.affinity_surge(ZONE)


def groups_500() -> Result:
    """Plan nodes for 5,000 pods of 250 owners among 500 groups."""
    from benchmarks import adding

    return adding.groups_500()


def scale_down_2000() -> Result:
    """Plan which of 2,000 nodes with 40 pods each go, at 40 percent: 1,200 do, and all their pods have places."""
    from benchmarks import removing

    return removing.remove()


def pass_idle_5k() -> Result:
    """A whole pass on 5,000 nodes of 500 sets and 150,000 pods, with nothing to be done: CPU seconds."""
    from benchmarks import passing

    return passing.idle()


def pass_unneeded_5k() -> Result:
    """The same where 2,900 nodes could go, and wait for their time."""
    from benchmarks import passing

    return passing.unneeded()


def pass_surge_5k() -> Result:
    """The same where 5,000 pods wait for nodes that have been asked for; ``first_s`` is the pass that asks for them."""
    from benchmarks import passing

    return passing.surge()


def deadline_150k() -> Result:
    """All deadlines of 150,000 pods on 5,000 tainted nodes, and timers of as many, 10,000 of them due in a second."""
    from benchmarks import deadlines

    return deadlines.recompute()


BENCHMARKS: dict[str, Callable[[], Result]] = {
    "snapshot-5k": snapshot_5k,
    "place-plain": place_plain,
    "place-owned": place_owned,
    "place-spread": place_spread,
    "place-affinity": place_affinity,
    "place-anti-affinity": place_anti_affinity,
    "explain-5k": explain_5k,
    "plan-5k": plan_5k,
    "plan-5k-anti-affinity": plan_5k_anti_affinity,
    "plan-5k-full": plan_5k_full,
    "plan-steady-5k": plan_steady_5k,
    "plan-spread-5k": plan_spread_5k,
    "plan-taints-5k": plan_taints_5k,
    "plan-leaning-5k": plan_leaning_5k,
    "plan-empty-5k": plan_empty_5k,
    "scale-up-1000": scale_up_1000,
    "estimate-51k": estimate_51k,
    "affinity-surge": affinity_surge,
    "affinity-surge-zone": affinity_surge_zone,
    "groups-500": groups_500,
    "scale-down-2000": scale_down_2000,
    "deadline-150k": deadline_150k,
    "pass-idle-5k": pass_idle_5k,
    "pass-unneeded-5k": pass_unneeded_5k,
    "pass-surge-5k": pass_surge_5k,
}


def measure(name: str) -> Result:
    """Run one benchmark in this process."""
    result = BENCHMARKS[name]()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    measured = {"name": name, "seconds": round(result["seconds"], 4), "peak_rss_mb": round(peak)}
    if "decisions_per_s" in result:
        measured["decisions_per_s"] = result["decisions_per_s"]
    return {**measured, "params": result["params"]}


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
            pace = f"{result['decisions_per_s']:7,}/s" if "decisions_per_s" in result else " " * 9
            print(f"{name:24} {result['seconds']:8.3f} s {result['peak_rss_mb']:6} MB {pace}  {params}", flush=True)


if __name__ == "__main__":
    main()
