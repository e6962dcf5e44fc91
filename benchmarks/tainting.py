"""Measures the pod deletions for NoExecute taints on a hundred nodes, next to kube-controller-manager.

``python benchmarks/tainting.py [--json] [--nodes N] [--pods N] [--turns N] [--no-default-rate] [NAME…]``

``taint-7200``: the cluster has 5,000 nodes and 150,000 pods without kubelets. All pods are of one kind and tolerate
nothing. A hundred nodes with 72 pods each get a NoExecute taint at once, so 7,200 pods must be deleted. First,
kube-controller-manager deletes them, with only its two taint controllers and 1,000 requests per second. It is then
stopped, and ``trimtab run --controllers tainting`` deletes as many pods on another hundred nodes, with the chart's RBAC
permissions and in mode TaintAndEvict. Finally, a sample is measured with kube-controller-manager's default of 20
requests per second.

The benchmark counts the successful DELETE requests in the API server's audit log, from the request for the first taint
to the response to the last DELETE. Neither the scheduler nor kwok runs, and deleted pods are removed before the other
program starts. Memory is the peak resident memory of the process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "operator"), str(ROOT / "local"), str(ROOT)]

from benchmarks import command  # noqa: E402
from benchmarks.command import Result  # noqa: E402
from benchmarks.processes import Meter, memory_mb, settle  # noqa: E402
from tests.fixtures.audit import OPERATOR, Audit, AuditEvent, Tail  # noqa: E402
from trimtab.kube.api import Api, NotFound  # noqa: E402
from trimtab.kube.resources import NODES, PODS, TAINT_MANAGERS  # noqa: E402
from trimtab_local.cluster import LocalCluster  # noqa: E402
from trimtab_local.components import Settings  # noqa: E402
from trimtab_local.install import OperatorProcess, install, wait_for  # noqa: E402
from trimtab_local.load import Job, Sender, load, send_until_accepted  # noqa: E402
from trimtab_local.manifests import placements  # noqa: E402
from trimtab_local.progress import PlainProgress, Progress  # noqa: E402
from trimtab_local.scenario import Scenario, decode_scenario  # noqa: E402
from trimtab_local.versions import APISERVER, CONTROLLER_MANAGER, ETCD  # noqa: E402

NODES_IN_ALL: Final = 5_000
EACH: Final = 72
"""The number of pods on each tainted node, which results in 7,200 for a hundred nodes."""
OWNED: Final = 20
"""The number of pods per ReplicaSet."""
SPARE: Final = 5
"""The number of nodes for the sample at the default rate, with 360 pods."""
TAINT: Final = {"key": "bench.trimtab.dev/going", "effect": "NoExecute"}
"""The taint without ``timeAdded``, as kubectl adds it."""
IN_TREE: Final = "system:serviceaccount:kube-system:node-controller"
"""The API user of kube-controller-manager's taint-eviction-controller."""
NEVER: Final = "12h"
"""The grace period of silent nodes. Their Leases are not renewed here, and the nodes must not count as failed."""
PATIENCE: Final = 600.0

POLICY: Final = f"""\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  verbs: [get, list, watch]
- level: None
  resources:
  - {{group: coordination.k8s.io, resources: [leases]}}
- level: Metadata
  users: [{OPERATOR}, {IN_TREE}]
- level: Metadata
  verbs: [patch]
  resources:
  - {{group: "", resources: [nodes]}}
- level: None
"""
"""The audit policy, which is the same for both programs and logs no bodies."""


class Turn(Struct, frozen=True):
    """The measurements of one program.

    Attributes:
        pods: the number of deleted pods.
        seconds: the time from the request for the first taint until the last deletion.
        first: the time in seconds until the first deletion.
        best: the number of deletions in the second with the most.
        peak_mb: the peak resident memory in MB.
        rest_mb: the resident memory before the taints in MB.
        cpu: the CPU seconds of the program, and those of the API server and etcd in the same time.
        others: the cores that processes outside the benchmark used in the same time.
        asked: the number of requests by verb and resource.
        answered: the median duration of a DELETE and of a PATCH of a pod's status in the API server, in milliseconds.
    """

    pods: int
    seconds: float
    first: float
    best: int
    peak_mb: int
    rest_mb: int
    cpu: tuple[float, float]
    others: float
    asked: dict[str, int]
    answered: tuple[float, float]

    @property
    def rate(self) -> float:
        """Return the deletions per second."""
        return self.pods / self.seconds


class Stage:
    """The cluster, and the objects that both programs need."""

    def __init__(
        self,
        directory: Path,
        options: argparse.Namespace,
        progress: Progress,
        scenario: Scenario,
        *,
        policy: str = POLICY,
    ) -> None:
        self.directory = directory
        self.audit = Audit(directory, policy)
        self.cluster = LocalCluster(f"bench-{os.getpid()}", directory=directory / "cluster", progress=progress)
        self.options = options
        self.scenario = scenario
        self._progress = progress
        self._on = Counter(name for slots in placements(self.scenario) for name in slots)
        self._next = 0

    def fill(self) -> None:
        """Start the control plane, create the pods and install the operator's objects."""
        settings = Settings(apiserver_args=self.audit.arguments, for_load=True)
        self.cluster.up(settings, nodes=0, die_with_parent=True)
        load(self.cluster, self.scenario, progress=self._progress)
        install(self.cluster, "controllers.taintManager.rights=TaintAndEvict")
        self.cluster.client.request("POST", TAINT_MANAGERS.path(), MANAGER)

    def in_tree(self, *, qps: int, burst: int) -> int:
        """Start kube-controller-manager with only its two taint controllers, and return its process id.

        The one that deletes pods uses an index that the other one creates.
        """
        arguments = (
            "--controllers=taint-eviction-controller,node-lifecycle-controller",
            f"--node-monitor-grace-period={NEVER}",
            f"--kube-api-qps={qps}",
            f"--kube-api-burst={burst}",
        )
        self.cluster.up(
            Settings(
                components=(ETCD, APISERVER, CONTROLLER_MANAGER),
                apiserver_args=self.audit.arguments,
                controller_manager_args=arguments,
                for_load=True,
            )
        )
        return self.pid(CONTROLLER_MANAGER)

    @contextmanager
    def ours(self) -> Iterator[int]:
        """Run only the operator during the block, and yield its process id."""
        with self.cluster.paused(CONTROLLER_MANAGER), self.operator() as pid:
            yield pid

    @contextmanager
    def operator(self) -> Iterator[int]:
        """Run the operator during the block, and yield its process id."""
        arguments = ("--controllers=tainting", "--no-leader-elect")
        process = OperatorProcess(self.cluster, self.directory, *arguments)
        process.start()
        try:
            wait_for(self._managed, "the TaintManager to be ready", alive=process.running)
            yield process.pid
        finally:
            process.stop()

    def _managed(self) -> bool:
        live = self.cluster.client.request("GET", TAINT_MANAGERS.path("default"))
        conditions = (live.get("status") or {}).get("conditions") or ()
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def pid(self, component: str) -> int:
        """Return the process id of a component."""
        return self.cluster.record().started[component].process.pid

    def nodes(self, count: int) -> list[str]:
        """Return nodes without the taint."""
        begin, self._next = self._next, self._next + count
        return [f"going-{number + 1}" for number in range(begin, self._next)]

    def pods_on(self, nodes: Iterable[str]) -> int:
        """Return the number of pods on these nodes."""
        return sum(self._on[name] for name in nodes)

    def send(self, jobs: Iterable[Job], title: str) -> None:
        """Send many of the admin's requests concurrently."""
        Sender(self.cluster, Progress()).send(list(jobs), title)

    def taint(self, nodes: Iterable[str]) -> None:
        """Add the taint to all nodes concurrently."""
        self.send([_patched(name, [TAINT]) for name in nodes], "taints")

    def clear(self, nodes: Iterable[str], ended: Iterable[AuditEvent]) -> None:
        """Remove the taints and the deleted pods, because there is no kubelet that removes them."""
        self.send([_patched(name, None) for name in nodes], "taints off")
        self.send([_removed(each.object_ref.namespace, each.object_ref.name) for each in ended], "ended pods")


MANAGER: Final = {
    "apiVersion": TAINT_MANAGERS.api_version,
    "kind": TAINT_MANAGERS.kind,
    "metadata": {"name": "default"},
    "spec": {
        "mode": "TaintAndEvict",
        "nodeLifecycle": {"nodeMonitorGracePeriod": NEVER, "nodeStartupGracePeriod": NEVER},
    },
}


def scenario(*, nodes: int, going: int, pods: int, **pod_spec: int) -> Scenario:
    """Return a scenario in which ``going`` of the nodes have 72 pods each, and the others have the rest of the pods.

    Args:
        nodes: the number of nodes.
        going: the number of nodes whose pods are evicted.
        pods: the number of pods.
        pod_spec: further fields of the pods' specs.
    """
    workload = {
        "kind": "ReplicaSet",
        "via": "direct",
        "namespace": "load",
        "replicas": OWNED,
        "requests": {"cpu": "100m", "memory": "128Mi"},
        "podSpec": pod_spec,
    }
    others = {"nodeGroups": ["node"], "heavyShare": 0.4, "heavyFactor": 3, "seed": 1}
    rest = pods - going * EACH
    return decode_scenario(
        {
            "nodes": [
                {"count": going, "prefix": "going", "cpu": 8, "memory": "32Gi", "pods": 110},
                {"count": nodes - going, "cpu": 8, "memory": "32Gi", "pods": 110},
            ],
            "namespaces": [{"name": "load", "count": nodes // 20}],
            "workloads": [
                {**workload, "name": "going", "owners": going * EACH // OWNED, "placement": {"nodeGroups": ["going"]}},
                {**workload, "name": "app", "owners": rest // OWNED, "placement": others},
            ],
        }
    )


def _patched(name: str, taints: list[dict[str, str]] | None) -> Job:
    async def job(api: Api) -> int:
        await send_until_accepted(api, "PATCH", NODES.path(name), {"spec": {"taints": taints}})
        return 1

    return job


def _removed(namespace: str, name: str) -> Job:
    async def job(api: Api) -> int:
        with suppress(NotFound):
            path = PODS.path(name, namespace=namespace)
            await api.request("DELETE", path, body={"gracePeriodSeconds": 0}, timeout=60.0)
        return 1

    return job


def taint_7200(options: argparse.Namespace) -> Result:
    """Measure both programs, then a sample at the default rate."""
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as name:
        going = 2 * options.nodes * options.turns + SPARE
        made = scenario(nodes=NODES_IN_ALL, going=going, pods=options.pods)
        stage = Stage(Path(name), options, PlainProgress(sys.stderr), made)
        try:
            stage.fill()
            theirs, ours = [], []
            for _ in range(options.turns):
                theirs.append(_taken(stage, stage.in_tree(qps=1000, burst=2000), IN_TREE))
                with stage.ours() as pid:
                    ours.append(_taken(stage, pid, OPERATOR))
            slow = None
            if options.default_rate:
                slow = round(_taken(stage, stage.in_tree(qps=20, burst=30), IN_TREE, count=SPARE).rate, 1)
        finally:
            stage.cluster.down()
    params = {
        "pods": ours[0].pods,
        "rate": round(statistics.median(each.rate for each in ours), 1),
        "in_tree_rate": round(statistics.median(each.rate for each in theirs), 1),
        "in_tree_default_rate": slow,
        "times": round(statistics.median(mine.rate / its.rate for mine, its in zip(ours, theirs, strict=True)), 2),
        "in_tree_peak_mb": max(each.peak_mb for each in theirs),
        "ours": [_row(each) for each in ours],
        "in_tree": [_row(each) for each in theirs],
    }
    seconds = statistics.median(each.seconds for each in ours)
    return {"seconds": round(seconds, 2), "peak_rss_mb": max(each.peak_mb for each in ours), "params": params}


def _taken(stage: Stage, pid: int, user: str, *, count: int = 0) -> Turn:
    """Taint nodes, wait until their pods are deleted, and restore the cluster."""
    settle(pid, stage.pid(APISERVER))
    nodes = stage.nodes(count or stage.options.nodes)
    wanted = stage.pods_on(nodes)
    meter = Meter((pid, stage.pid(APISERVER), stage.pid(ETCD), os.getpid()))
    rest = memory_mb(pid, "VmRSS")
    tail = stage.audit.tail()
    stage.taint(nodes)
    asked = until(tail, lambda found: len(deletions(found, user)) >= wanted, f"{wanted} pods to be deleted")
    used = meter.read()
    peak = memory_mb(pid, "VmHWM")
    ended = deletions(asked, user)
    assert len({each.key for each in ended}) == wanted, "a pod was deleted twice, or one that was not to be"
    stage.clear(nodes, ended)
    began = min(each.request_received_timestamp for each in asked if each.what == "nodes").timestamp()
    times = [each.stage_timestamp.timestamp() - began for each in ended]
    mine = [each for each in asked if each.user.username == user]
    return Turn(
        pods=wanted,
        seconds=times[-1],
        first=times[0],
        best=best_second(times),
        peak_mb=peak,
        rest_mb=rest,
        cpu=(used[0], used[1] + used[2]),
        others=used[-1],
        asked=dict(Counter(f"{each.verb} {each.what}" for each in mine).most_common()),
        answered=(_answered(ended), _answered([each for each in mine if each.what == "pods/status"])),
    )


def deletions(asked: Iterable[AuditEvent], user: str) -> list[AuditEvent]:
    """Return the successful DELETE requests of a user for pods, ordered by response time."""
    found = [
        each for each in asked if each.verb == "delete" and each.what == "pods" and each.granted and _by(each, user)
    ]
    return sorted(found, key=lambda each: each.stage_timestamp)


def _by(asked: AuditEvent, user: str) -> bool:
    return asked.user.username == user


def best_second(times: Sequence[float]) -> int:
    """Return the largest number of times within one second."""
    best = begin = 0
    for end, at in enumerate(times):
        while times[begin] <= at - 1.0:
            begin += 1
        best = max(best, end - begin + 1)
    return best


def _answered(asked: Sequence[AuditEvent]) -> float:
    """Return the median duration of a request in the API server in milliseconds."""
    taken = [(each.stage_timestamp - each.request_received_timestamp).total_seconds() for each in asked]
    return round(statistics.median(taken) * 1000, 1) if taken else 0.0


def until(tail: Tail, enough: Callable[[list[AuditEvent]], bool], what: str) -> list[AuditEvent]:
    """Return the audit events once there are enough.

    The log is read rarely, so that reading does not slow the others down.
    """
    found: list[AuditEvent] = []
    deadline = time.monotonic() + PATIENCE
    while not enough(found):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE:.0f} s for {what}")
        time.sleep(1.0)
        found += tail.read()
    return found


def _row(turn: Turn) -> Result:
    return {
        "rate": round(turn.rate, 1),
        "seconds": round(turn.seconds, 2),
        "first": round(turn.first, 2),
        "best_second": turn.best,
        "peak_mb": turn.peak_mb,
        "rest_mb": turn.rest_mb,
        "cpu_s": round(turn.cpu[0], 1),
        "server_cpu_s": round(turn.cpu[1], 1),
        "others_cores": round(turn.others, 2),
        "delete_ms": turn.answered[0],
        "patch_ms": turn.answered[1],
        "asked": turn.asked,
    }


BENCHMARKS: Final[dict[str, Callable[[argparse.Namespace], Result]]] = {"taint-7200": taint_7200}


def main() -> None:
    """Run the benchmark and print the results."""
    parser = command.parser(__doc__, BENCHMARKS)
    parser.add_argument("--nodes", type=int, default=100, metavar="N", help="tainted at once (default: %(default)s)")
    parser.add_argument("--pods", type=int, default=150_000, metavar="N", help="in the cluster (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=1, metavar="N", help="of each side (default: %(default)s)")
    parser.add_argument(
        "--no-default-rate", dest="default_rate", action="store_false", help="without the sample at the end"
    )
    command.measure(parser, BENCHMARKS)


if __name__ == "__main__":
    main()
