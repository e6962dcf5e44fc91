"""Scheduling live: bound pods per second, next to kube-scheduler on the same API server.

``python benchmarks/scheduling.py [--json] [--nodes N] [--pods N] [--kubernetes-version V] [--only NAME] [--profile]
[WORKLOAD…]``

First ``trimtab run --controllers scheduler``, then kube-scheduler, and then kube-scheduler with its fastest feature
gates (:data:`FASTEST`) place the pods of scheduler_perf's workloads (:mod:`benchmarks.scheduling_workloads`) on a
cluster without kubelets, next to running pods. The request limits of all clients are lifted. Only one of them runs at a
time.

For each workload, the scheduler is stopped (SIGSTOP) while the pods are created, so that creation costs neither side
anything. The time is measured from SIGCONT until a watch delivers the last binding. Memory is resident at the end of
the workload; CPU seconds are those of the scheduler process, and of the API server with etcd.

``Latency`` creates pods of the first workload at 100 a second while the scheduler runs, and measures the time from the
watch event of the creation to that of the binding. ``bindings`` is what the API server takes from a script that sends
nothing but bindings.

With ``--profile``, the operator samples its own stacks (:mod:`benchmarks.profiled_operator`), and the parts of the
scheduler that use its CPU time are printed for each workload. Sampling slows the scheduler down.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop
from msgspec import Struct

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "operator"), str(ROOT / "local"), str(ROOT)]

from benchmarks.command import Result  # noqa: E402
from benchmarks.processes import Meter, memory_mb, settle  # noqa: E402
from benchmarks.profiled_operator import PERIOD, PROFILE  # noqa: E402
from benchmarks.scheduling_workloads import (  # noqa: E402
    DEFAULT,
    FILLED,
    MEASURED,
    NODE,
    TOO_LARGE,
    WORKLOADS,
    Manifest,
    Workload,
)
from trimtab.kube.api import Api, NotFound, TooManyRequests  # noqa: E402
from trimtab.kube.connection.config import load_config  # noqa: E402
from trimtab.kube.connection.transport import Transport  # noqa: E402
from trimtab.kube.resources import PODS, SCHEDULER_POLICIES  # noqa: E402
from trimtab_local.cluster import LocalCluster  # noqa: E402
from trimtab_local.components import Settings  # noqa: E402
from trimtab_local.install import OperatorProcess, apply, install, wait_for  # noqa: E402
from trimtab_local.load import CONNECTIONS, Etcd, load, pod_copy, running_status, send_until_accepted  # noqa: E402
from trimtab_local.progress import PlainProgress, Progress  # noqa: E402
from trimtab_local.scenario import Scenario, decode_scenario  # noqa: E402
from trimtab_local.versions import APISERVER, DEFAULT_VERSION, ETCD, RELEASES, SCHEDULER  # noqa: E402

PATIENCE: Final = 240.0
RATE: Final = 100
"""Pods per second for the decision latency."""
SECONDS: Final = 15
CHURN: Final = 0.2
"""Seconds between two pods of a workload's churn, as in scheduler_perf."""
BATCH: Final = 100
BACKGROUND: Final = 20
"""Pods of a ReplicaSet."""
UNCHECKED: Final = ("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,Priority",)
"""As in scheduler_perf: pods state their priority themselves."""
OURS: Final = "trimtab"
THEIRS: Final = "kube-scheduler"
TUNED: Final = "kube-scheduler-tuned"
FASTEST: Final = {35: ("OpportunisticBatching",), 37: ("InterPodAffinityHostnameFastPath",)}
"""The feature gates of kube-scheduler that make it faster, by the minor version that introduced them.

The first is on by default.
"""
BARE: Final = "bindings"
"""A script that sends nothing but bindings."""


class Contestant(Struct, frozen=True):
    """A running scheduler.

    Attributes:
        name: shown in the table.
        scheduler: its scheduler name.
        pid: its process.
        profile: the file to which it writes its CPU seconds by part; ``None`` if it does not sample its stacks.
    """

    name: str
    scheduler: str
    pid: int
    profile: Path | None = None

    def sampled(self) -> Mapping[str, float]:
        """Return the CPU seconds of each part since the start of the process; empty if there is no profile."""
        found: Mapping[str, float] = {} if self.profile is None else json.loads(self.profile.read_text())
        return found

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the process (SIGSTOP) while the block runs."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)


class ProfiledOperator(OperatorProcess):
    """An operator that writes its CPU seconds by part to a file next to its log."""

    @property
    def profile(self) -> Path:
        """The file."""
        return self.log.with_suffix(".profile")

    def _command(self, *program: str) -> list[str]:
        assert not program
        script = str(ROOT / "benchmarks" / "profiled_operator.py")
        return super()._command("env", f"{PROFILE}={self.profile}", sys.executable, script)


class Stage:
    """A control plane with nodes and running pods, and the schedulers that can run on it."""

    def __init__(self, directory: Path, options: argparse.Namespace, progress: Progress) -> None:
        self.directory = directory
        self.options = options
        self._runs = 0
        self.cluster = LocalCluster(f"bench-{os.getpid()}", directory=directory / "cluster", progress=progress)
        self._progress = progress

    def next_run(self) -> int:
        """Return a number that is part of the names of pods, so that no pod has the name of a deleted one."""
        self._runs += 1
        return self._runs

    def fill(self) -> None:
        """Start the control plane, create the nodes and the running pods, and install what the operator needs."""
        self.cluster.up(self._settings(ETCD, APISERVER), nodes=0, die_with_parent=True)
        load(self.cluster, scenario(self.options.nodes, self.options.pods), progress=self._progress)

    @contextmanager
    def kube_scheduler(self, name: str = THEIRS, *arguments: str) -> Iterator[Contestant]:
        """Run kube-scheduler with these arguments while the block runs."""
        self.cluster.up(self._settings(ETCD, APISERVER, SCHEDULER, scheduler_args=arguments))
        try:
            yield Contestant(name, "default-scheduler", self.pid(SCHEDULER))
        finally:
            self.cluster.up(self._settings(ETCD, APISERVER))

    def tuned_kube_scheduler(self) -> AbstractContextManager[Contestant]:
        """Run kube-scheduler with its fastest feature gates while the block runs."""
        minor = int(self.options.kubernetes_version.split(".")[1])
        gates = [f"{gate}=true" for since, found in FASTEST.items() if since <= minor for gate in found]
        return self.kube_scheduler(TUNED, f"--feature-gates={','.join(gates)}")

    @contextmanager
    def trimtab(self) -> Iterator[Contestant]:
        """Run the operator with the scheduler only while the block runs."""
        install(self.cluster, "controllers.scheduler.enabled=true")
        policy = {
            "apiVersion": SCHEDULER_POLICIES.api_version,
            "kind": SCHEDULER_POLICIES.kind,
            "metadata": {"name": OURS},
            "spec": {"schedulerName": OURS},
        }
        wait_for(partial(self._applied, policy), "the API server to serve SchedulerPolicies")
        arguments = ("--controllers=scheduler", "--no-leader-elect")
        kind = ProfiledOperator if self.options.profile else OperatorProcess
        process = kind(self.cluster, self.directory, *arguments)
        process.start()
        try:
            wait_for(self._active, "the SchedulerPolicy to be ready", alive=process.running)
            profile = process.profile if isinstance(process, ProfiledOperator) else None
            yield Contestant(OURS, OURS, process.pid, profile)
        finally:
            process.stop()

    def _applied(self, policy: Manifest) -> bool:
        try:
            apply(self.cluster.client, SCHEDULER_POLICIES.path(), policy)
        except (NotFound, TooManyRequests):  # as long as the kind is new
            return False
        return True

    def _active(self) -> bool:
        live = self.cluster.client.request("GET", SCHEDULER_POLICIES.path(OURS))
        conditions = (live.get("status") or {}).get("conditions") or ()
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def pid(self, component: str) -> int:
        """Return the process id of a component of the control plane."""
        return self.cluster.record().started[component].process.pid

    def _settings(self, *components: str, scheduler_args: tuple[str, ...] = ()) -> Settings:
        return Settings(
            components=components,
            version=self.options.kubernetes_version,
            apiserver_args=UNCHECKED,
            scheduler_args=scheduler_args,
            for_load=True,
        )


def scenario(nodes: int, pods: int) -> Scenario:
    """Return scheduler_perf's nodes with small running pods; two fifths of the nodes have three times as many pods.

    The running pods request so little that every workload fits next to them, and they have a high priority, so that
    only pods of the workloads are preempted.
    """
    return decode_scenario(
        {
            "nodes": [{"count": nodes, **NODE}],
            "namespaces": [{"name": "load", "count": 50}, {"name": FILLED}, {"name": MEASURED}],
            "workloads": [
                {
                    "kind": "ReplicaSet",
                    "via": "direct",
                    "namespace": "load",
                    "name": "app",
                    "owners": pods // BACKGROUND,
                    "replicas": BACKGROUND,
                    "requests": {"cpu": "5m", "memory": "64Mi"},
                    "podSpec": {"priority": 1000},
                    "placement": {"heavyShare": 0.4, "heavyFactor": 3, "seed": 1},
                }
            ],
        }
    )


class Turn(Struct, frozen=True):
    """What a scheduler did with a workload.

    Attributes:
        workload: its name.
        scheduler: who placed the pods.
        pods: number of pods to place.
        bound: number of pods that were bound in time.
        seconds: until the last binding.
        rss_mb: resident memory of the scheduler at the end.
        cpu: CPU seconds of the scheduler.
        server_cpu: CPU seconds of the API server and etcd.
        others: cores that processes outside of the benchmark used meanwhile.
        profile: CPU seconds of the scheduler by part, until at most two seconds after the last binding.
    """

    workload: str
    scheduler: str
    pods: int
    bound: int
    seconds: float
    rss_mb: int
    cpu: float
    server_cpu: float
    others: float
    profile: Mapping[str, float]

    @property
    def rate(self) -> float:
        """Bound pods per second."""
        return self.bound / self.seconds


class _Metadata(Struct):
    name: str


class _Spec(Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Object(Struct):
    metadata: _Metadata
    spec: _Spec = _Spec()


class _Event(Struct):
    type: str
    object: _Object


class Bindings:
    """Watches the measured pods.

    Attributes:
        created: the time at which the watch delivered each pod.
        bound: the time at which the watch delivered each pod's binding.
    """

    def __init__(self) -> None:
        self.created: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self._changed = asyncio.Event()

    async def follow(self, api: Api) -> None:
        """Read events until cancelled."""
        path = PODS.path(namespace=MEASURED)
        listed = await api.request("GET", path, params={"limit": "1"})
        params = {"watch": "true", "resourceVersion": listed["metadata"]["resourceVersion"]}
        decoder = msgspec.json.Decoder(_Event)
        async with api.stream(path, params=params, idle_timeout=PATIENCE) as chunks:
            async for line in _lines(chunks):
                event = decoder.decode(line)
                name = event.object.metadata.name
                self.created.setdefault(name, time.monotonic())
                if event.object.spec.node_name and event.type != "DELETED":
                    self.bound.setdefault(name, time.monotonic())
                self._changed.set()

    async def until(self, enough: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Wait until the condition holds, or until the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not enough():
                    self._changed.clear()
                    await self._changed.wait()


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line


class Hall:
    """Runs workloads against the scheduler that is running."""

    def __init__(self, stage: Stage, api: Api, etcd: Etcd) -> None:
        self._stage = stage
        self._api = api
        self._etcd = etcd
        self._run = stage.next_run()

    async def run(self, workload: Workload, contestant: Contestant) -> Turn:
        """Let a scheduler place the pods of a workload."""
        nodes = self._stage.options.nodes
        for number, (template, count, every) in enumerate(workload.running(nodes)):
            await self._running(f"filled-{self._run}-{number}", template, count, every)
        pids = (contestant.pid, self._stage.pid(APISERVER), self._stage.pid(ETCD), os.getpid())
        settle(*pids[:1])
        before = contestant.sampled()
        watched, count = Bindings(), workload.measured(nodes)
        async with asyncio.TaskGroup() as group:
            following = group.create_task(watched.follow(self._api))
            with contestant.stopped():
                await self._create(self._named(TOO_LARGE, contestant, FILLED, "storm", workload.storm))
                await self._create(self._named(workload.template, contestant, MEASURED, "pod", count))
                await watched.until(lambda: len(watched.created) == count)
                meter = Meter(pids)
                began = time.monotonic()
            churning = group.create_task(self._churn(workload, contestant))
            await watched.until(lambda: len(watched.bound) == count)
            ended = max(watched.bound.values(), default=time.monotonic())
            used = meter.read()
            if contestant.profile is not None:
                await asyncio.sleep(2 * PERIOD)  # until the file contains the time of the last binding
            following.cancel()
            churning.cancel()
        turn = Turn(
            workload=workload.name,
            scheduler=contestant.name,
            pods=count,
            bound=len(watched.bound),
            seconds=ended - began,
            rss_mb=memory_mb(contestant.pid, "VmRSS"),
            cpu=used[0],
            server_cpu=used[1] + used[2],
            others=used[-1],
            profile={part: seconds - before.get(part, 0.0) for part, seconds in contestant.sampled().items()},
        )
        await self.clear()
        settle(*pids[:1])
        return turn

    async def latency(self, contestant: Contestant) -> list[float]:
        """Create pods at a steady rate; return the seconds from creation to binding of each, sorted."""
        watched, count = Bindings(), RATE * SECONDS
        async with asyncio.TaskGroup() as group:
            following = group.create_task(watched.follow(self._api))
            await asyncio.sleep(1.0)
            began = time.monotonic()
            for number, pod in enumerate(self._named(DEFAULT, contestant, MEASURED, "pod", count)):
                await asyncio.sleep(max(0.0, began + number / RATE - time.monotonic()))
                group.create_task(self._post(pod))
            await watched.until(lambda: len(watched.bound) == count, 30.0)
            following.cancel()
        await self.clear()
        return sorted(at - watched.created[name] for name, at in watched.bound.items())

    async def bindings(self, count: int) -> tuple[float, float]:
        """Bind pods with nothing but bindings; return how many per second, and the milliseconds of CPU for each."""
        pods = self._named(DEFAULT, Contestant("", "unserved", 0), MEASURED, "pod", count)
        await self._create(pods)
        names = [pod["metadata"]["name"] for pod in pods]
        left = iter(enumerate(names))

        async def work() -> None:
            for number, name in left:
                node = f"node-{number % self._stage.options.nodes + 1}"
                body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"name": node}}
                await self._api.request("POST", f"{PODS.path(name, namespace=MEASURED)}/binding", body=body)

        began, worked = time.monotonic(), time.process_time()
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(work())
        seconds, cpu = time.monotonic() - began, time.process_time() - worked
        await self.clear()
        return count / seconds, 1000 * cpu / count

    async def clear(self) -> None:
        """Delete all pods of the workload."""
        for namespace in (MEASURED, FILLED):
            await self._etcd.delete(f"/registry/pods/{namespace}/")

    async def _running(self, name: str, template: Manifest, count: int, every: int) -> None:
        """Create running pods: the first through the API server, the others as its copies."""
        nodes = self._stage.options.nodes
        places = [f"node-{each * every % nodes + 1}" for each in range(count)]
        spec = template["spec"] | {"nodeName": places[0]}
        first = template | {"metadata": {**template["metadata"], "name": name, "namespace": FILLED}, "spec": spec}
        await send_until_accepted(self._api, "POST", PODS.path(namespace=FILLED), first)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        status = {"status": running_status(first, now=now)}
        live = await send_until_accepted(self._api, "PATCH", f"{PODS.path(name, namespace=FILLED)}/status", status)
        for start in range(1, count, BATCH):
            batch = range(start, min(start + BATCH, count))
            await self._etcd.create([pod_copy(live, name=f"{name}-{each}", node_name=places[each]) for each in batch])

    async def _create(self, pods: Sequence[Manifest]) -> None:
        left = iter(pods)

        async def work() -> None:
            for pod in left:
                await self._post(pod)

        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(work())

    async def _post(self, pod: Manifest) -> None:
        await send_until_accepted(self._api, "POST", PODS.path(namespace=pod["metadata"]["namespace"]), pod)

    async def _churn(self, workload: Workload, contestant: Contestant) -> None:
        if workload.churn is not None:
            for pod in self._named(workload.churn, contestant, FILLED, "churn", round(PATIENCE / CHURN)):
                await asyncio.sleep(CHURN)
                await self._post(pod)

    def _named(
        self, template: Manifest, contestant: Contestant, namespace: str, kind: str, count: int
    ) -> list[Manifest]:
        """Return pods with new names: kube-scheduler ends if it sees a deletion and a creation as one update."""
        return [
            template
            | {
                "metadata": {**template["metadata"], "name": f"{kind}-{self._run}-{number}", "namespace": namespace},
                "spec": template["spec"] | {"schedulerName": contestant.scheduler},
            }
            for number in range(count)
        ]


def measure(options: argparse.Namespace) -> Iterator[Result]:
    """Run all workloads against all schedulers; yield the results as they are measured."""
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as name:
        stage = Stage(Path(name), options, PlainProgress(sys.stderr))
        try:
            stage.fill()
            if options.only in (None, BARE):
                pace, cpu = _running(stage, partial(Hall.bindings, count=2 * options.nodes))
                yield {"bindings_per_s": round(pace), "script_cpu_ms": round(cpu, 2)}
            contestants = {OURS: stage.trimtab, THEIRS: stage.kube_scheduler, TUNED: stage.tuned_kube_scheduler}
            for contestant_name, start in contestants.items():
                if options.only in (None, contestant_name):
                    with start() as contestant:
                        yield from _turns(stage, contestant, options)
        finally:
            stage.cluster.down()


def _turns(stage: Stage, contestant: Contestant, options: argparse.Namespace) -> Iterator[Result]:
    settle(contestant.pid)
    yield {"scheduler": contestant.name, "rest_mb": memory_mb(contestant.pid, "VmRSS")}
    for name in options.workloads or WORKLOADS:
        workload = WORKLOADS[name]
        turn = _running(stage, partial(Hall.run, workload=workload, contestant=contestant))
        yield {
            "workload": turn.workload,
            "scheduler": turn.scheduler,
            "pods_per_s": round(turn.rate, 1),
            "bound": turn.bound,
            "pods": turn.pods,
            "seconds": round(turn.seconds, 2),
            "rss_mb": turn.rss_mb,
            "cpu_s": round(turn.cpu, 1),
            "server_cpu_s": round(turn.server_cpu, 1),
            "others_cores": round(turn.others, 2),
            "profile_s": {part: round(seconds, 2) for part, seconds in turn.profile.items()},
        }
    if options.latency:
        waits = _running(stage, partial(Hall.latency, contestant=contestant))
        yield {
            "workload": "Latency",
            "scheduler": contestant.name,
            "bound": len(waits),
            "pods": RATE * SECONDS,
            "p50_ms": round(1000 * statistics.median(waits), 1),
            "p99_ms": round(1000 * waits[int(len(waits) * 0.99)], 1),
        }
    yield {"scheduler": contestant.name, "peak_mb": memory_mb(contestant.pid, "VmHWM")}


def _running(stage: Stage, work: Callable[[Hall], Any]) -> Any:
    async def run() -> Any:
        config = load_config(stage.cluster.kubeconfig)
        async with Transport(config, connections=CONNECTIONS + 1) as api, Etcd(stage.cluster.layout.etcd) as etcd:
            return await work(Hall(stage, api, etcd))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"any of {', '.join(WORKLOADS)}; default: all")
    parser.add_argument("--nodes", type=int, default=500, metavar="N", help="nodes (default: %(default)s)")
    parser.add_argument("--pods", type=int, default=15_000, metavar="N", help="running pods (default: %(default)s)")
    parser.add_argument("--only", choices=(OURS, THEIRS, TUNED, BARE), help="measure only this")
    parser.add_argument(
        "--kubernetes-version",
        choices=tuple(RELEASES),
        default=DEFAULT_VERSION,
        help="of the API server and kube-scheduler (default: %(default)s)",
    )
    parser.add_argument("--profile", action="store_true", help="show which parts of trimtab use the CPU time")
    parser.add_argument("--no-latency", dest="latency", action="store_false", help="leave out the decision latency")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args()
    unknown = sorted(set(options.workloads) - set(WORKLOADS))
    if unknown:
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    if not options.json:
        print(f"{os.cpu_count()} cores, {options.nodes} nodes, {options.pods} running pods")
    for result in measure(options):
        print(json.dumps(result) if options.json else _row(result), flush=True)


def _row(result: Result) -> str:
    if "pods_per_s" not in result:
        return "  ".join(f"{key} {value}" for key, value in result.items())
    row = (
        f"{result['workload']:27}{result['scheduler']:21}{result['pods_per_s']:8.1f}/s"
        f"{result['bound']:7}/{result['pods']:<6}{result['seconds']:8.2f} s{result['rss_mb']:7} MB"
        f"{result['cpu_s']:8.1f} s +{result['server_cpu_s']:6.1f} s  others {result['others_cores']:.2f}"
    )
    parts = sorted(result["profile_s"].items(), key=lambda part: -part[1])
    total = sum(seconds for _, seconds in parts) or 1.0
    return "\n".join([row, *(f"  {name:27}{used:8.2f} s{100 * used / total:6.1f} %" for name, used in parts)])


if __name__ == "__main__":
    main()
