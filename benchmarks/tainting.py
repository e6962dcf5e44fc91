"""NoExecute taints live: how fast pods of a hundred nodes go, beside kube-controller-manager's own controller.

``python benchmarks/tainting.py [--json] [--nodes N] [--pods N] [--turns N] [--no-default-rate] [NAME…]``

``taint-7200``: a cluster of 5,000 nodes and 150,000 pods without kubelets, whose pods are of one kind and tolerate
nothing. A hundred nodes of 72 pods get a NoExecute taint at once, which is 7,200 pods. First kube-controller-manager
ends them, with its two controllers of taints alone and at 1,000 requests a second; then it is stopped, and as many pods
on another hundred nodes are ended by ``trimtab run --controllers tainting``, under the chart's rights and in mode Own.
At last a sample of kube-controller-manager at its own default of 20 requests a second.

Counted are DELETEs that the API server granted, by its audit log: from the request for the first taint to the answer to
the last DELETE. Nobody else works meanwhile: no scheduler, no kwok, and what one side has ended is taken away before
the other begins. Memory is the most that the process has had resident.
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
sys.path[:0] = [str(ROOT / "operator"), str(ROOT)]

from benchmarks import command  # noqa: E402
from benchmarks.command import Result  # noqa: E402
from examples.demo.install import OperatorProcess, install, wait_for  # noqa: E402
from tests.fixtures.audit import OPERATOR, Asked, Audit, Tail  # noqa: E402
from trimtab.kube.api import Api, NotFound  # noqa: E402
from trimtab.kube.resources import NODES, PODS, TAINT_MANAGERS  # noqa: E402
from trimtab.local.cluster import LocalCluster  # noqa: E402
from trimtab.local.components import Settings  # noqa: E402
from trimtab.local.load import load  # noqa: E402
from trimtab.local.manifests import placements  # noqa: E402
from trimtab.local.progress import PlainProgress, Progress  # noqa: E402
from trimtab.local.scenario import Scenario, decode_scenario  # noqa: E402
from trimtab.local.sending import Job, Sender, insist  # noqa: E402
from trimtab.local.versions import APISERVER, CONTROLLER_MANAGER, ETCD  # noqa: E402

NODES_IN_ALL: Final = 5_000
EACH: Final = 72
"""Pods of a node that is tainted: 7,200 of a hundred nodes."""
OWNED: Final = 20
"""Pods of a ReplicaSet."""
SPARE: Final = 5
"""Nodes for the sample at the default rate: 360 pods."""
TAINT: Final = {"key": "bench.trimtab.dev/going", "effect": "NoExecute"}
"""Without ``timeAdded``, as kubectl writes it."""
IN_TREE: Final = "system:serviceaccount:kube-system:node-controller"
"""Who kube-controller-manager's taint-eviction-controller is to the API server."""
NEVER: Final = "12h"
"""How long nodes may be silent: nobody renews their Leases here, and they shall not count as failed for that."""
PATIENCE: Final = 600.0
IDLE: Final = 0.1
"""Of a core: what uses no more for some seconds has read all there is, and waits."""

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
"""Of both sides the same is written down, and no bodies."""


class Turn(Struct, frozen=True):
    """What one side did.

    Attributes:
        pods: that it ended.
        seconds: from the request for the first taint until the last of them.
        first: seconds until the first of them.
        best: pods within the best second.
        peak_mb: the most memory that it had resident.
        rest_mb: resident before the taints.
        cpu: seconds of it, and of the API server with its etcd meanwhile.
        others: cores that others had in use meanwhile, who are not of the benchmark.
        asked: its requests, by verb and resource.
        answered: milliseconds that the API server took for a DELETE, and for a PATCH of a pod's status: the medians.
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
        """Pods a second."""
        return self.pods / self.seconds


class Stage:
    """The cluster, and what both sides need of it."""

    def __init__(self, directory: Path, options: argparse.Namespace, progress: Progress) -> None:
        self.directory = directory
        self.audit = Audit(directory, POLICY)
        self.cluster = LocalCluster(f"bench-{os.getpid()}", directory=directory / "cluster", progress=progress)
        self.options = options
        self.scenario = scenario(options)
        self._progress = progress
        self._on = Counter(name for slots in placements(self.scenario) for name in slots)
        self._next = 0

    def fill(self) -> None:
        """Start the control plane and bring the pods; install what the operator needs."""
        settings = Settings(apiserver_args=self.audit.arguments, for_load=True)
        self.cluster.up(settings, nodes=0, die_with_parent=True)
        load(self.cluster, self.scenario, progress=self._progress)
        install(self.cluster)
        self.cluster.client.request("POST", TAINT_MANAGERS.path(), MANAGER)

    def in_tree(self, *, qps: int, burst: int) -> int:
        """Only kube-controller-manager with its two controllers of taints, beside the API server; its process id.

        The one that ends pods finds them by an index that the other one makes.
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
        """Only the operator while the block runs; its process id."""
        arguments = ("--controllers=tainting", "--no-leader-elect")
        with self.cluster.paused(CONTROLLER_MANAGER):
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
        """Of a component."""
        return self.cluster.record().started[component].process.pid

    def nodes(self, count: int) -> list[str]:
        """Nodes that nobody has tainted yet."""
        begin, self._next = self._next, self._next + count
        return [f"going-{number + 1}" for number in range(begin, self._next)]

    def pods_on(self, nodes: Iterable[str]) -> int:
        """How many pods nodes have that nobody has tainted yet."""
        return sum(self._on[name] for name in nodes)

    def send(self, jobs: Iterable[Job], title: str) -> None:
        """Requests of the admin, many at once."""
        Sender(self.cluster, Progress()).send(list(jobs), title)

    def taint(self, nodes: Iterable[str]) -> None:
        """Taint nodes at once."""
        self.send([_patched(name, [TAINT]) for name in nodes], "taints")

    def clear(self, nodes: Iterable[str], ended: Iterable[Asked]) -> None:
        """Take the taints off, and what was ended away: no kubelet does it here."""
        self.send([_patched(name, None) for name in nodes], "taints off")
        self.send([_removed(each.object_ref.namespace, each.object_ref.name) for each in ended], "ended pods")


MANAGER: Final = {
    "apiVersion": TAINT_MANAGERS.api_version,
    "kind": TAINT_MANAGERS.kind,
    "metadata": {"name": "default"},
    "spec": {"mode": "Own", "nodeLifecycle": {"nodeMonitorGracePeriod": NEVER, "nodeStartupGracePeriod": NEVER}},
}


def scenario(options: argparse.Namespace) -> Scenario:
    """5,000 nodes: those that will be tainted have 72 pods each, the others the rest, as in examples/local/5k.yaml."""
    going = 2 * options.nodes * options.turns + SPARE
    rest = options.pods - going * EACH
    workload = {
        "kind": "ReplicaSet",
        "via": "direct",
        "namespace": "load",
        "replicas": OWNED,
        "requests": {"cpu": "100m", "memory": "128Mi"},
    }
    others = {"nodeGroups": ["node"], "heavyShare": 0.4, "heavyFactor": 3, "seed": 1}
    return decode_scenario(
        {
            "nodes": [
                {"count": going, "prefix": "going", "cpu": 8, "memory": "32Gi", "pods": 110},
                {"count": NODES_IN_ALL - going, "cpu": 8, "memory": "32Gi", "pods": 110},
            ],
            "namespaces": [{"name": "load", "count": 250}],
            "workloads": [
                {**workload, "name": "going", "owners": going * EACH // OWNED, "placement": {"nodeGroups": ["going"]}},
                {**workload, "name": "app", "owners": rest // OWNED, "placement": others},
            ],
        }
    )


def _patched(name: str, taints: list[dict[str, str]] | None) -> Job:
    async def job(api: Api) -> int:
        await insist(api, "PATCH", NODES.path(name), {"spec": {"taints": taints}})
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
    """Both sides in turn, then a sample of the default rate."""
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as name:
        stage = Stage(Path(name), options, PlainProgress(sys.stderr))
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
    """Taint a hundred nodes or so many, wait until their pods are ended, and take all of it back."""
    settle(pid, stage.pid(APISERVER))
    nodes = stage.nodes(count or stage.options.nodes)
    wanted = stage.pods_on(nodes)
    meter = Meter((pid, stage.pid(APISERVER), stage.pid(ETCD), os.getpid()))
    rest = memory_mb(pid, "VmRSS")
    tail = stage.audit.tail()
    stage.taint(nodes)
    asked = _until(tail, lambda found: len(deletions(found, user)) >= wanted, f"{wanted} pods to be deleted")
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


def deletions(asked: Iterable[Asked], user: str) -> list[Asked]:
    """The DELETEs of pods that were granted to a user, in the order of the answers."""
    found = [
        each for each in asked if each.verb == "delete" and each.what == "pods" and each.granted and _by(each, user)
    ]
    return sorted(found, key=lambda each: each.stage_timestamp)


def _by(asked: Asked, user: str) -> bool:
    return asked.user.username == user


def best_second(times: Sequence[float]) -> int:
    """The most of them that lie within one second."""
    best = begin = 0
    for end, at in enumerate(times):
        while times[begin] <= at - 1.0:
            begin += 1
        best = max(best, end - begin + 1)
    return best


def _answered(asked: Sequence[Asked]) -> float:
    """Milliseconds that the API server took for a request: the median."""
    taken = [(each.stage_timestamp - each.request_received_timestamp).total_seconds() for each in asked]
    return round(statistics.median(taken) * 1000, 1) if taken else 0.0


def _until(tail: Tail, enough: Callable[[list[Asked]], bool], what: str) -> list[Asked]:
    """What was asked until it is enough. The log is looked at rarely: that takes time from those who are measured."""
    found: list[Asked] = []
    deadline = time.monotonic() + PATIENCE
    while not enough(found):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE:.0f} s for {what}")
        time.sleep(1.0)
        found += tail.read()
    return found


class Meter:
    """CPU seconds of processes from now on, and of all others on the machine."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._began = time.monotonic()
        self._before = self._now()

    def read(self) -> list[float]:
        """Seconds of each process; at last, how many cores all others have had in use."""
        *each, all_ = (now - then for then, now in zip(self._before, self._now(), strict=True))
        return [*each, (all_ - sum(each)) / (time.monotonic() - self._began)]

    def _now(self) -> list[float]:
        user, nice, system, _idle, _waiting, *more = map(
            int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        )
        busy = (user + nice + system + sum(more[:3])) / os.sysconf("SC_CLK_TCK")
        return [*(cpu_seconds(pid) for pid in self._pids), busy]


def settle(*pids: int, window: float = 3.0) -> None:
    """Wait until processes rest: a controller has just begun to read 150,000 pods."""
    deadline = time.monotonic() + PATIENCE
    before = [cpu_seconds(pid) for pid in pids]
    while time.monotonic() < deadline:
        time.sleep(window)
        after = [cpu_seconds(pid) for pid in pids]
        if all(now - then <= IDLE * window for then, now in zip(before, after, strict=True)):
            return
        before = after
    raise TimeoutError(f"waited {PATIENCE:.0f} s for processes {pids} to rest")


def memory_mb(pid: int, field: str) -> int:
    """``VmRSS`` or ``VmHWM`` of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith(field))


def cpu_seconds(pid: int) -> float:
    """CPU that a process has used, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime, proc(5)


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
    """Measure and print."""
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
