"""Measures evictions through the Eviction API, next to ``kubectl drain`` and to a script that does nothing else.

``python benchmarks/evicting.py [--json] [--nodes N] [--pods N] [--turns N] [--shared-cores] [--delete]``

``evict``: the cluster has 1,000 nodes and 30,000 pods without kubelets and without budgets. Three programs evict the 72
pods on each of 20 nodes, one program after another: a script that sends the requests over many connections,
``kubectl drain`` with all nodes as arguments (a tenth of the nodes, because kubectl limits its own requests), and
``trimtab run --controllers tainting`` with the taint policy Evict and the chart's RBAC permissions. The pods have a
grace period of 0 s, because ``kubectl drain`` waits until they no longer exist. Apart from the programs, only etcd and
the API server run. They have one half of the cores and the programs the other, as if they were on different machines.
With ``--shared-cores``, all of them compete for all cores.

With ``--delete``, the programs delete the pods. The script and trimtab set the condition DisruptionTarget first, as
kube-controller-manager does. trimtab uses the taint policy Delete, and ``kubectl drain`` has ``--disable-eviction``.

The benchmark reads the granted evictions from the API server's audit log, and measures the time from the request for
the first one to the response to the last one. For trimtab, the time from the request for the first taint to the first
eviction is measured separately (``reaction_ms``). The rates of one turn are compared, because the machine is not
equally fast at all times.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "operator"), str(ROOT / "local"), str(ROOT)]

from benchmarks import command  # noqa: E402
from benchmarks.command import Result  # noqa: E402
from benchmarks.processes import Meter, memory_mb, settle  # noqa: E402
from benchmarks.tainting import TAINT, Stage, scenario, until  # noqa: E402
from tests.fixtures.audit import AuditEvent  # noqa: E402
from trimtab.kube.api import Api  # noqa: E402
from trimtab.kube.resources import PODS, TAINT_MANAGERS  # noqa: E402
from trimtab_local.components import Settings  # noqa: E402
from trimtab_local.install import NAMESPACE, RELEASE  # noqa: E402
from trimtab_local.load import Job, Sender  # noqa: E402
from trimtab_local.progress import PlainProgress, Progress  # noqa: E402
from trimtab_local.versions import APISERVER, ETCD  # noqa: E402

NODES_IN_ALL: Final = 1_000

POLICY: Final = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create]
  resources:
  - {group: "", resources: [pods/eviction]}
- level: Metadata
  verbs: [delete]
  resources:
  - {group: "", resources: [pods]}
- level: Metadata
  verbs: [patch]
  resources:
  - {group: "", resources: [nodes]}
- level: None
"""
"""The audit policy, which is the same for all programs and logs no bodies."""

EVICT: Final = {"spec": {"taints": [{"key": TAINT["key"], "policy": "Evict", "maximumWait": "30m"}]}}


class Turn(Struct, frozen=True):
    """The measurements of one program.

    Attributes:
        pods: the number of evicted or deleted pods.
        seconds: the time from the request for the first of them to the response to the last one.
        cpu: the CPU seconds of the program.
        peak_mb: the peak resident memory of the program in MB; 0 if it is not measured.
        reaction: the time from the first taint to the first eviction in seconds; 0 if the program does not need taints.
    """

    pods: int
    seconds: float
    cpu: float
    peak_mb: int = 0
    reaction: float = 0.0

    @property
    def rate(self) -> float:
        """Return the evictions per second."""
        return self.pods / self.seconds

    def row(self) -> Result:
        """Return the measurements for the output."""
        cpu = round(1000 * self.cpu / self.pods, 2)
        found: Result = {"rate": round(self.rate, 1), "seconds": round(self.seconds, 2), "cpu_ms_per_eviction": cpu}
        return found | ({"reaction_ms": round(1000 * self.reaction)} if self.reaction else {})


def evict(options: argparse.Namespace) -> Result:
    """Measure the three programs by turns."""
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as name:
        going = len(RUN) * options.nodes * options.turns
        made = scenario(nodes=NODES_IN_ALL, going=going, pods=options.pods, terminationGracePeriodSeconds=0)
        stage = Stage(Path(name), options, PlainProgress(sys.stderr), made, policy=POLICY)
        try:
            stage.fill()
            arguments = stage.audit.arguments
            stage.cluster.up(Settings(components=(ETCD, APISERVER), apiserver_args=arguments, for_load=True))
            if not options.shared_cores:
                _separate(stage.pid(ETCD), stage.pid(APISERVER))
            merge = "application/merge-patch+json"
            if not options.delete:
                stage.cluster.client.request("PATCH", TAINT_MANAGERS.path("default"), EVICT, content_type=merge)
            programs = tuple(RUN)
            found: dict[str, list[Turn]] = {program: [] for program in programs}
            for turn in range(options.turns):
                first = turn % len(programs)
                for program in (*programs[first:], *programs[:first]):
                    found[program].append(RUN[program](stage))
        finally:
            stage.cluster.down()
    ours, script = found["trimtab"], found["script"]
    times = [mine.rate / its.rate for mine, its in zip(ours, script, strict=True)]
    params: Result = {"pods": ours[0].pods, "of_the_script": [round(each, 2) for each in times]}
    params["of_the_script_median"] = round(statistics.median(times), 2)
    params |= {program: [each.row() for each in turns] for program, turns in found.items()}
    seconds = round(statistics.median(each.seconds for each in ours), 2)
    return {"seconds": seconds, "peak_rss_mb": max(each.peak_mb for each in ours), "params": params}


def _separate(*servers: int) -> None:
    """Run the servers on the first half of the cores, and this process and its future children on the other half."""
    cores = sorted(os.sched_getaffinity(0))
    first, second = cores[: len(cores) // 2], cores[len(cores) // 2 :]
    if not first:
        raise SystemExit("the benchmark needs at least two cores, or --shared-cores")
    for server in servers:
        for thread in Path(f"/proc/{server}/task").iterdir():
            os.sched_setaffinity(int(thread.name), first)
    os.sched_setaffinity(0, second)


@contextmanager
def granted(stage: Stage, wanted: int) -> Iterator[list[AuditEvent]]:
    """Yield a list that contains the granted evictions and the patches of nodes after the block, oldest first."""
    settle(stage.pid(APISERVER))
    tail, found = stage.audit.tail(), list[AuditEvent]()
    yield found
    asked = until(tail, lambda seen: len(_evictions(seen)) >= wanted, f"{wanted} pods to be evicted")
    found += sorted(asked, key=lambda each: each.stage_timestamp)


def _evictions(asked: Sequence[AuditEvent]) -> list[AuditEvent]:
    """Return the granted evictions and deletions."""
    ends = {("create", "pods/eviction"), ("delete", "pods")}
    return [each for each in asked if (each.verb, each.what) in ends and each.granted]


def _seconds(asked: Sequence[AuditEvent]) -> float:
    """Return the time from the request for the first granted eviction to the response to the last one."""
    evictions = _evictions(asked)
    began = min(each.request_received_timestamp for each in evictions)
    return (evictions[-1].stage_timestamp - began).total_seconds()


def _reaction(asked: Sequence[AuditEvent], nodes: Collection[str]) -> float:
    """Return the time from the first change to one of the nodes to the first granted eviction."""
    first = min(each.request_received_timestamp for each in _evictions(asked))
    changes = [each for each in asked if each.what == "nodes" and each.object_ref.name in nodes]
    return (first - min(each.request_received_timestamp for each in changes)).total_seconds()


def by_script(stage: Stage) -> Turn:
    """Send the evictions of known pods concurrently, with trimtab's service account, and do nothing else.

    For an admin, the API server would neither evaluate RBAC rules nor limit the concurrency of requests.
    """
    nodes = stage.nodes(stage.options.nodes)
    listed = stage.cluster.client.request("GET", PODS.path())["items"]
    pods = [each["metadata"] for each in listed if each["spec"].get("nodeName") in nodes]
    account = stage.cluster.service_account_kubeconfig(NAMESPACE, RELEASE, path=stage.directory / "script.kubeconfig")
    with granted(stage, len(pods)) as found:
        meter = Meter((os.getpid(),))
        sender = Sender(stage.cluster, Progress(), kubeconfig=account)
        job = _deletion if stage.options.delete else _eviction
        sender.send([job(pod["namespace"], pod["name"], pod["uid"]) for pod in pods], "evictions")
        used = meter.read()[0]
    return Turn(len(pods), _seconds(found), used)


def _eviction(namespace: str, name: str, uid: str) -> Job:
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }

    async def job(api: Api) -> int:
        await api.request("POST", PODS.path(name, namespace=namespace, subresource="eviction"), body=body, timeout=60.0)
        return 1

    return job


def _deletion(namespace: str, name: str, uid: str) -> Job:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "bench"}
    mark = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
    body = {"preconditions": {"uid": uid}}
    strategic = "application/strategic-merge-patch+json"

    async def job(api: Api) -> int:
        path = PODS.path(name, namespace=namespace, subresource="status")
        await api.request("PATCH", path, body=mark, content_type=strategic, timeout=60.0)
        await api.request("DELETE", PODS.path(name, namespace=namespace), body=body, timeout=60.0)
        return 1

    return job


def by_kubectl(stage: Stage) -> Turn:
    """Drain the nodes with one ``kubectl drain``."""
    nodes = stage.nodes(max(1, stage.options.nodes // 10))
    wanted = stage.pods_on(nodes)
    kubectl = ["kubectl", "--kubeconfig", str(stage.cluster.kubeconfig), "drain", *nodes]
    kubectl += ["--disable-eviction"] * stage.options.delete
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with granted(stage, wanted) as found:
        subprocess.run([*kubectl, "--ignore-daemonsets", "--force"], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Turn(wanted, _seconds(found), used)


def by_trimtab(stage: Stage) -> Turn:
    """Taint the nodes, so that the taint manager evicts their pods."""
    nodes = stage.nodes(stage.options.nodes)
    wanted = stage.pods_on(nodes)
    with stage.operator() as pid:
        settle(pid, stage.pid(APISERVER))
        with granted(stage, wanted) as found:
            meter = Meter((pid,))
            stage.taint(nodes)
        used, peak = meter.read()[0], memory_mb(pid, "VmHWM")
    return Turn(wanted, _seconds(found), used, peak, reaction=_reaction(found, nodes))


RUN: Final[dict[str, Callable[[Stage], Turn]]] = {"script": by_script, "kubectl": by_kubectl, "trimtab": by_trimtab}

BENCHMARKS: Final[dict[str, Callable[[argparse.Namespace], Result]]] = {"evict": evict}


def main() -> None:
    """Run the benchmark and print the results."""
    parser = command.parser(__doc__, BENCHMARKS)
    parser.add_argument("--nodes", type=int, default=20, metavar="N", help="evicted in a turn (default: %(default)s)")
    parser.add_argument("--pods", type=int, default=30_000, metavar="N", help="in the cluster (default: %(default)s)")
    parser.add_argument(
        "--shared-cores", action="store_true", help="let the API server and the programs share all cores"
    )
    parser.add_argument("--delete", action="store_true", help="delete the pods instead of evicting them")
    parser.add_argument("--turns", type=int, default=3, metavar="N", help="of each program (default: %(default)s)")
    command.measure(parser, BENCHMARKS)


if __name__ == "__main__":
    main()
