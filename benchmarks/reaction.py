"""Measures the cluster autoscaler live: the time until it requests a node, and its number of API requests.

``python benchmarks/reaction.py [--json] [--nodes N] [--rounds N] [--growth N] [NAME…]``

``reaction-1000``: the cluster has 1,000 full kwok nodes in ten MachineSets. Single pods that fit on no node are created
one after another. The benchmark measures the time from the scheduler's Unschedulable condition to the request that
scales up a MachineSet.

``api-calls-500``: 500 nodes in 25 MachineSets are added for as many pods, and removed after the pods were deleted. The
benchmark counts the operator's requests per node, without watches and lease renewals.

Both read the API server's audit log, whose times have microseconds; those of conditions have whole seconds. Each starts
its own control plane with the real scheduler, and the operator as a process with the chart's RBAC permissions.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "operator"), str(ROOT / "local"), str(ROOT)]

from benchmarks import command  # noqa: E402
from benchmarks.command import Result  # noqa: E402
from tests.fixtures.audit import SCHEDULER, Audit, AuditEvent, scaled_to  # noqa: E402
from tests.fixtures.autoscaling import ARGUMENTS, Fleet, fleet_of, install_autoscaler, machine_settings  # noqa: E402
from trimtab.kube.resources import PODS  # noqa: E402
from trimtab_local.cluster import LocalCluster  # noqa: E402
from trimtab_local.install import OperatorProcess  # noqa: E402

SETS: Final = 10
GROWING_SETS: Final = 25
WHOLE: Final = "3"
"""Cores that a pod requests to fill a node with 4 cores, half of one of which is not allocatable."""
SEED: Final = 7
GAP: Final = 1.0
"""Mean seconds between the creation of two pods."""
PATIENCE: Final = 900.0


@contextmanager
def stage() -> Iterator[tuple[Fleet, Path]]:
    """Start a control plane with machines, and provide it with a directory for output."""
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as name:
        directory = Path(name)
        audit = Audit(directory)
        cluster = LocalCluster(f"bench-{os.getpid()}", directory=directory / "cluster")
        try:
            cluster.up(machine_settings(audit, for_load=True), nodes=0, die_with_parent=True)
            install_autoscaler(cluster)
            with fleet_of(cluster, "bench", audit, clear=False) as fleet:
                yield fleet, directory
        finally:
            cluster.down()


@contextmanager
def operating(fleet: Fleet, directory: Path) -> Iterator[OperatorProcess]:
    """Run the operator during the block."""
    process = fleet.operator = OperatorProcess(fleet.cluster, directory, *ARGUMENTS, "--no-leader-elect")
    process.start()
    try:
        yield process
    finally:
        process.stop()


def reaction(options: argparse.Namespace) -> Result:
    """Measure the time from a pod's Unschedulable condition to the request for a node."""
    names = [f"set-{number}" for number in range(SETS)]
    with stage() as (fleet, directory):
        for name in names:
            fleet.group(name, replicas=options.nodes // SETS, maximum=options.nodes + options.rounds)
        fleet.deploy("fill", options.nodes, cpu=WHOLE)
        fleet.until_running("fill", options.nodes, seconds=PATIENCE)
        fleet.autoscale(scaleDown={"enabled": True})
        before = fleet.total(*names)
        with operating(fleet, directory) as process:
            fleet.iterate_twice()
            fleet.audit.mark()
            _come_singly(fleet, options.rounds)
            fleet.until(lambda: fleet.total(*names) == before + options.rounds, "a node for each", seconds=120)
            peak = _peak_mb(process.pid)
        waits = sorted(_waits(list(fleet.audit.all()), fleet.pods_namespace))
    params = {
        "nodes": before,
        "rounds": len(waits),
        "p50": round(statistics.median(waits), 3),
        "p90": round(_percentile(waits, 90), 3),
        "p99": round(_percentile(waits, 99), 3),
        "max": round(waits[-1], 3),
    }
    return {"seconds": params["p99"], "peak_rss_mb": peak, "params": params}


def _come_singly(fleet: Fleet, count: int) -> None:
    """Create pods without owners at random times."""
    chance = random.Random(SEED)
    requests = {"requests": {"cpu": WHOLE, "memory": "512Mi"}}
    spec = {"containers": [{"name": "main", "image": "none", "resources": requests}]}
    for number in range(count):
        manifest = {"metadata": {"name": f"single-{number}"}, "spec": spec}
        fleet.client.request("POST", PODS.path(namespace=fleet.pods_namespace), manifest)
        time.sleep(chance.expovariate(1 / GAP))


def _waits(asked: list[AuditEvent], namespace: str) -> list[float]:
    """Return the seconds from each Unschedulable condition until as many nodes were requested, in order.

    A pod that is created while a node becomes ready may take the place of the pod for which the node was requested,
    which then needs another node. So such a pod counts as unschedulable since it was bound.
    """
    given_up: dict[str, float] = {}
    sizes: dict[str, int] = {}
    growth: list[float] = []
    for each in sorted(asked, key=lambda one: one.request_received_timestamp):
        name = each.object_ref.name
        if each.user.username == SCHEDULER:
            unschedulable = each.what == "pods/status" and "Unschedulable" in str(each.request_object)
            if each.object_ref.namespace == namespace and (unschedulable or each.what == "pods/binding"):
                given_up.setdefault(name, each.stage_timestamp.timestamp())
        elif each.what == "machinesets/scale" and each.granted and (size := scaled_to(each)) is not None:
            more = size - sizes.get(name, _before(each, size))
            sizes[name] = size
            growth += [each.request_received_timestamp.timestamp()] * more
    return [asked_at - since for since, asked_at in zip(sorted(given_up.values()), growth, strict=True)]


def _before(asked: AuditEvent, size: int) -> int:
    """Return the replicas before the first write of a MachineSet. Its patch tests for that value."""
    body = asked.request_object
    found = [each["value"] for each in body if each["op"] == "test" and each["path"] == "/spec/replicas"]
    return int(found[0]) if found else size - 1


def api_calls(options: argparse.Namespace) -> Result:
    """Measure the requests per added node and per removed node."""
    each = options.growth // GROWING_SETS
    names = [f"set-{number}" for number in range(GROWING_SETS)]
    with stage() as (fleet, directory):
        for name in names:
            fleet.group(name, maximum=each + 5)
        fleet.autoscale()
        with operating(fleet, directory) as process:
            fleet.iterate_twice()
            added, grown = _counted(fleet, lambda: _grow(fleet, names, each))
            removed, shrunk = _counted(fleet, lambda: _shrink(fleet, names))
            peak = _peak_mb(process.pid)
    nodes = each * GROWING_SETS
    params = {
        "nodes": nodes,
        "sets": GROWING_SETS,
        "per_added": round(sum(added.values()) / nodes, 2),
        "per_removed": round(sum(removed.values()) / nodes, 2),
        "per_added_without_events": round(_without_events(added) / nodes, 2),
        "per_removed_without_events": round(_without_events(removed) / nodes, 2),
        "added": dict(added.most_common()),
        "removed": dict(removed.most_common()),
    }
    return {"seconds": round(grown + shrunk, 1), "peak_rss_mb": peak, "params": params}


def _counted(fleet: Fleet, act: Callable[[], None]) -> tuple[Counter[str], float]:
    """Return the operator's requests by verb and resource during an action, and the duration of the action."""
    fleet.audit.mark()
    began = time.monotonic()
    act()
    fleet.iterate_twice()
    return Counter(f"{each.verb} {each.what}" for each in fleet.audit.ours()), time.monotonic() - began


def _grow(fleet: Fleet, names: Iterable[str], each: int) -> None:
    for name in names:
        fleet.deploy(name, each, cpu=WHOLE, nodeSelector={"pool": name})
    for name in names:
        fleet.until_running(name, each, seconds=PATIENCE)


def _shrink(fleet: Fleet, names: Iterable[str]) -> None:
    for name in names:
        fleet.resize(name, 0)
    fleet.until(lambda: not fleet.all_nodes(), "all nodes are gone", seconds=PATIENCE)
    assert fleet.total(*names) == 0


def _without_events(counts: Counter[str]) -> int:
    return sum(count for what, count in counts.items() if not what.endswith(" events"))


def _percentile(ordered: list[float], percent: int) -> float:
    """Return the smallest value that is not exceeded by the given percentage of values."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def _peak_mb(pid: int) -> int:
    """Return the peak resident memory of a process in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))


BENCHMARKS: Final[dict[str, Callable[[argparse.Namespace], Result]]] = {
    "reaction-1000": reaction,
    "api-calls-500": api_calls,
}


def main() -> None:
    """Run the benchmark and print the results."""
    parser = command.parser(__doc__, BENCHMARKS)
    parser.add_argument("--nodes", type=int, default=1000, metavar="N", help="full nodes (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=200, metavar="N", help="single pods (default: %(default)s)")
    parser.add_argument("--growth", type=int, default=500, metavar="N", help="nodes to add (default: %(default)s)")
    command.measure(parser, BENCHMARKS)


if __name__ == "__main__":
    main()
