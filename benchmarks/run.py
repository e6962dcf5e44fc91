"""Runs benchmarks: ``python benchmarks/run.py [--json] [NAME…]``.

Each benchmark runs in its own process, so that its peak memory is measured separately. ``seconds`` does not include
creating the cluster, which exists only in memory without an API server. As in the operator, Python runs no automatic
full garbage collections.
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
    """Place 10,000 pods of 50 classes on 5,000 nodes with 150,000 pods, with a reservation for each."""
    from benchmarks import placement

    return placement.place(placement.plain)


def place_owned() -> Result:
    """Do the same with the pods' ReplicaSets in the snapshot, over which kube-scheduler spreads pods by default."""
    from benchmarks import placement

    return placement.place(placement.plain, owned=True)


def place_spread() -> Result:
    """Do the same with topology spread over zones, and for every other class over hosts as well."""
    from benchmarks import placement

    return placement.place(placement.spread)


def place_affinity() -> Result:
    """Do the same with required pod affinity by zone and by host."""
    from benchmarks import placement

    return placement.place(placement.affinity)


def place_anti_affinity() -> Result:
    """Do the same with required pod anti-affinity by zone and by host."""
    from benchmarks import placement

    return placement.place(placement.anti_affinity)


def place_service_affinity() -> Result:
    """Do the same with a legacy Policy with serviceAffinity by zone, and a Service for each class."""
    from benchmarks import placement

    return placement.place(placement.plain, served=True, policy=placement.SERVICE_AFFINITY)


def place_selector_spread() -> Result:
    """Do the same with DefaultProvider (SelectorSpreadPriority), and a Service and a ReplicaSet for each class."""
    from benchmarks import placement

    return placement.place(placement.plain, owned=True, served=True, policy=placement.SELECTOR_SPREAD)


def inspection_5k() -> Result:
    """Answer questions to the inspection API from memory, for one client and for ten that ask continuously."""
    from benchmarks import inspecting

    return inspecting.inspect()


def explain_5k() -> Result:
    """Explain a pod against 5,000 nodes on a warm snapshot, including the changes that would make it fit."""
    from benchmarks import explaining

    return explaining.explain()


def what_if_zone() -> Result:
    """Forecast the failure of one of three zones of 5,000 nodes and 150,000 pods: 50,000 pods are placed again."""
    from benchmarks import forecasting

    return forecasting.zone()


def what_if_zone_owned() -> Result:
    """Do the same with the pods' ReplicaSets in the snapshot, over which kube-scheduler spreads pods by default."""
    from benchmarks import forecasting

    return forecasting.zone(owned=True)


def capacity_5k() -> Result:
    """Count how many more pods fit on 5,000 nodes with 150,000 pods."""
    from benchmarks import forecasting

    return forecasting.capacity_of_cluster()


def plan_5k() -> Result:
    """Plan with all five strategies on 5,000 nodes and 150,000 pods. Two fifths of the nodes are overutilized."""
    from benchmarks import planning

    return planning.first()


def plan_5k_anti_affinity() -> Result:
    """Do the same with anti-affinity between the pods of every fifth owner."""
    from benchmarks import planning

    return planning.first(picky=5)


def plan_5k_full() -> Result:
    """Do the same with targets that leave capacity for few pods, so that most candidates are kept with a reason."""
    from benchmarks import planning

    return planning.first(target=22)


def plan_steady_5k() -> Result:
    """Plan again after 1 % of the pods changed in a balanced cluster. The time includes applying the changes."""
    from benchmarks import planning

    return planning.steady()


def plan_spread_5k() -> Result:
    """Spread the pods of all owners evenly over the zones, which takes about 18,000 moves."""
    from benchmarks import planning

    return planning.spread()


def plan_taints_5k() -> Result:
    """Move all pods off the 500 nodes that were tainted, which takes about 15,000 moves."""
    from benchmarks import planning

    return planning.taints()


def plan_leaning_5k() -> Result:
    """Do the same with pod affinity of every pod, so that no move may separate it from a pod that was moved before."""
    from benchmarks import planning

    return planning.leaning()


def plan_empty_5k() -> Result:
    """Move all pods off 2,500 nodes with few pods, which takes about 15,000 moves."""
    from benchmarks import planning

    return planning.empty()


def scale_up_1000() -> Result:
    """Plan 1,000 nodes of one empty MachineSet for 50,000 pods without owners."""
    from benchmarks import adding

    return adding.scale_up_1000()


def estimate_51k() -> Result:
    """Estimate the nodes of one kind for 51,000 pods of two classes. The result is 2,595."""
    from benchmarks import adding

    return adding.estimate_51k()


def affinity_surge() -> Result:
    """Plan nodes for 100 pods with anti-affinity by host, with 5,000 full nodes of 100 groups and 50,000 pods."""
    from benchmarks import adding

    return adding.affinity_surge()


def affinity_surge_zone() -> Result:
    """Do the same with anti-affinity by zone."""
    from benchmarks import adding
    from benchmarks.clusters import ZONE

    return adding.affinity_surge(ZONE)


def groups_500() -> Result:
    """Plan nodes for 5,000 pods of 250 owners among 500 groups."""
    from benchmarks import adding

    return adding.groups_500()


def scale_down_2000() -> Result:
    """Plan which of 2,000 nodes with 40 pods each at 40 percent are removed. The result is 1,200."""
    from benchmarks import removing

    return removing.remove()


def pass_idle_5k() -> Result:
    """Measure the CPU seconds of an iteration with nothing to do: 5,000 nodes, 500 MachineSets and 150,000 pods."""
    from benchmarks import passing

    return passing.idle()


def pass_unneeded_5k() -> Result:
    """Do the same with 2,900 unneeded nodes that are not removed yet."""
    from benchmarks import passing

    return passing.unneeded()


def pass_surge_5k() -> Result:
    """Do the same with 5,000 pods that wait for requested nodes.

    ``first_s`` is the iteration that requests the nodes.
    """
    from benchmarks import passing

    return passing.surge()


def recheck_plan_5k() -> Result:
    """Recheck evictions while ``plan-5k`` plans repeatedly, and measure how long they wait for the snapshot."""
    from benchmarks import rechecking

    return rechecking.behind_plans()


def recheck_pass_5k() -> Result:
    """Recheck evictions while the autoscaler of ``pass-surge-5k`` iterates."""
    from benchmarks import rechecking

    return rechecking.behind_iterations()


def deadline_150k() -> Result:
    """Compute the deadlines of 150,000 pods on 5,000 tainted nodes, and set a timer for each, 10,000 in one second."""
    from benchmarks import deadlines

    return deadlines.recompute()


def schedule_plain() -> Result:
    """Schedule 5,000 equal pods in cycles of 256 on 5,000 nodes with 150,000 pods, and assume them between cycles."""
    from benchmarks import cycles

    return cycles.plain()


def schedule_zone_spread() -> Result:
    """The same with topology spread over zones."""
    from benchmarks import cycles

    return cycles.zone_spread()


def schedule_zone_affinity() -> Result:
    """The same with required affinity of the pods to each other by zone."""
    from benchmarks import cycles

    return cycles.zone_affinity()


def schedule_host_anti_affinity() -> Result:
    """The same for 4,000 pods with required anti-affinity to each other by host."""
    from benchmarks import cycles

    return cycles.host_anti_affinity()


def schedule_preemption() -> Result:
    """Preempt for 1,000 pods of high priority on full nodes, and bind them after their victims have ended."""
    from benchmarks import cycles

    return cycles.preemption()


BENCHMARKS: dict[str, Callable[[], Result]] = {
    "snapshot-5k": snapshot_5k,
    "place-plain": place_plain,
    "place-owned": place_owned,
    "place-spread": place_spread,
    "place-affinity": place_affinity,
    "place-anti-affinity": place_anti_affinity,
    "place-service-affinity": place_service_affinity,
    "place-selector-spread": place_selector_spread,
    "explain-5k": explain_5k,
    "inspection-5k": inspection_5k,
    "what-if-zone": what_if_zone,
    "what-if-zone-owned": what_if_zone_owned,
    "capacity": capacity_5k,
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
    "schedule-plain": schedule_plain,
    "schedule-zone-spread": schedule_zone_spread,
    "schedule-zone-affinity": schedule_zone_affinity,
    "schedule-host-anti-affinity": schedule_host_anti_affinity,
    "schedule-preemption": schedule_preemption,
    "recheck-plan-5k": recheck_plan_5k,
    "recheck-pass-5k": recheck_pass_5k,
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
    """Run one benchmark in its own process."""
    done = subprocess.run(
        [sys.executable, __file__, "--json", "--here", name], check=False, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise SystemExit(f"{name} failed")
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
    from trimtab.kube.collector import disable_automatic_full_collections

    disable_automatic_full_collections()  # as the operator does
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
