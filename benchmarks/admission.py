"""Measures the webhooks of placement admission on a local API server, at a fixed rate of pod creations.

    python benchmarks/admission.py [--rate N]… [--seconds N] [--turns N] [--policy NAME]… [--pods KIND]…
        [--create both] [--cpu N] [--nice N] [--client-nice N]

It starts etcd and kube-apiserver, one replica of ``trimtab run --role admission``, and a client that creates pods at a
constant rate, whether earlier requests have been answered or not. The durations are those of the API server's own
metric ``apiserver_admission_webhook_admission_duration_seconds``: from before the API server encodes a request until it
has decoded the response and applied the patch. Its buckets end at 5, 25 and 100 ms, so the quantiles between are
interpolated, as Prometheus does it. ``benchmarks/finer_buckets.py`` builds a kube-apiserver with finer buckets.

The *floor* takes turns with the replica: webhooks in Go that answer each request with a prepared response, whose patch
is that of trimtab. No webhook that makes this patch can have much shorter durations on this machine. With two mutating
webhooks, it is no floor: prepared patches change the pod each time that the API server calls one of them again.

``--pods`` selects pods that are alike, of 1,000 templates, or all different, see :mod:`benchmarks.admission_pods`.
``--create dry-run`` creates pods with dryRun=All: the API server calls the webhooks, but does not store the pods.
``--cpu`` runs the webhooks on one CPU, and the API server, etcd and the client on the other ones. With ``--nice -15``,
the webhooks have priority over the other processes, which use the rest of all CPUs. This needs root. With
``--client-nice 19``, the client waits for the other processes, as one on a machine of its own would not delay them.
``--replay`` also sends the requests that the API server sent directly to a replica, which has a CPU of its own.
``--kopf`` also measures Kopf's own admission server, with handlers that do nothing but add a toleration.

The environment variables GOGC and GOMAXPROCS apply to the API server, etcd, the floor and the client. With Go's default
of 100 for GOGC, garbage collections need a sixth of the API server's CPU time.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import re
import socket
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop
from msgspec import Struct, structs

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "operator"), str(ROOT / "local"), str(ROOT)]

from benchmarks.admission_pods import ALIKE, KINDS, drawn, each_once  # noqa: E402
from benchmarks.admission_probe import Load, build, send, webhook_command  # noqa: E402
from benchmarks.processes import Meter  # noqa: E402
from trimtab.admission.requests import AdmissionReview, NamespaceInfo  # noqa: E402
from trimtab.admission.reviewer import Reviewer  # noqa: E402
from trimtab.admission.rule_scopes import MUTATE  # noqa: E402
from trimtab.api.decode import decode_placement_admission  # noqa: E402
from trimtab.api.placement_admission import FailurePolicy  # noqa: E402
from trimtab.kube import verbs  # noqa: E402
from trimtab.kube.api import ApiError  # noqa: E402
from trimtab.kube.connection.config import load_config  # noqa: E402
from trimtab.kube.connection.transport import Transport  # noqa: E402
from trimtab.kube.resources import (  # noqa: E402
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    PLACEMENT_ADMISSIONS,
    PODS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    Resource,
)
from trimtab_local.cluster import LocalCluster  # noqa: E402
from trimtab_local.components import Settings  # noqa: E402
from trimtab_local.versions import APISERVER, ETCD  # noqa: E402

METRIC: Final = "apiserver_admission_webhook_admission_duration_seconds"
NAMESPACE: Final = "load"
CONNECTIONS: Final = 24
"""Maximum number of requests at the same time. The API server keeps 25 idle connections to a webhook, so more requests
would measure TLS handshakes."""
WARM_UP: Final = 2.0
CREATE: Final = {"stored": (False,), "dry-run": (True,), "both": (False, True)}
REGISTERED: Final = 2.0
"""Seconds until the API server certainly calls changed webhooks."""
CONFIGURATIONS: Final = (MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS)
TRIMTAB: Final = "trimtab"
FLOOR: Final = "floor"
RECORDED: Final = "*-*.*.json"
"""The requests of each webhook and template that the floor recorded."""
KOPF: Final = "kopf"
CONFIGURATION: Final = "trimtab-admission"
WEBHOOKS: Final = "webhooks"
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

ALL: Final = """\
podNodeConstraints:
  nodeSelectorLabelBlacklist: [kubernetes.io/hostname]
  additionalChecks: [NodeAffinity, GatedPodUpdates, EphemeralContainers]
podNodeSelector: {clusterDefaultNodeSelector: "pool=general"}
defaultTolerationSeconds: {notReadyTolerationSeconds: 60, failurePolicy: Fail}
podTolerationRestriction:
  tolerationsWhitelist: [{key: dedicated, operator: Equal, value: load, effect: NoSchedule}]
extendedResourceToleration: {failurePolicy: Fail}
dedicatedNodes:
  pools: [{name: load, namespaces: [load], taint: {key: dedicated, value: load}}]
specialHardware:
  classes: [{name: gpu, taint: {key: gpu}, resources: [example.com/gpu], exclusive: true}]
"""
CONSTRAINTS: Final = "podNodeConstraints: {nodeSelectorLabelBlacklist: [kubernetes.io/hostname]}\n"

DEFAULT_POLICIES: Final = re.sub(r"(, )?failurePolicy: Fail", "", ALL)

POLICIES: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "all-rules": (ALL, {}),
    "default-policies": (DEFAULT_POLICIES, {}),
    "binding": (CONSTRAINTS, {"nodeName": "node-1"}),
    "not-concerned": (CONSTRAINTS, {}),
}
"""The rules of a PlacementAdmission and additional fields of the pods' specs. ``all-rules``: all rules have failure
policy Fail. ``default-policies``: two of them have Ignore. ``binding``: each pod needs the answer of a
SubjectAccessReview. ``not-concerned``: the match conditions exclude each pod."""

KOPF_HANDLERS: Final = """\
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.admission.server = kopf.WebhookServer(
        addr="127.0.0.1", host="127.0.0.1", port=@port,
        cafile="@ca", certfile="@keys/serving.crt", pkeyfile="@keys/serving.key",
    )
    settings.admission.managed = "auto.kopf.dev"

@kopf.on.mutate("pods", operations=["CREATE"])
def mutate(spec, patch, **_):
    patch.spec["tolerations"] = [*spec.get("tolerations", ()), {"key": "dedicated", "operator": "Exists"}]

@kopf.on.validate("pods", operations=["CREATE"])
def validate(spec, **_):
    if spec.get("nodeName"):
        raise kopf.AdmissionError("node selection by nodeName is prohibited", code=403)
"""


class Durations(Struct, frozen=True):
    """The durations of one webhook, as the API server measured them.

    Attributes:
        number: number of requests.
        below: the number of requests below each upper bound in seconds.
        seconds: total of the durations.
    """

    number: int
    below: Mapping[float, int]
    seconds: float

    def plus(self, other: Durations | None, sign: int = 1) -> Durations:
        """Return the durations of both, or those after an earlier reading if ``sign`` is -1."""
        if other is None:
            return self
        below = {bound: count + sign * other.below.get(bound, 0) for bound, count in self.below.items()}
        return Durations(self.number + sign * other.number, below, self.seconds + sign * other.seconds)

    def quantile(self, share: float) -> float:
        """Return a quantile in seconds, interpolated within its bucket."""
        rank, lower, counted = share * self.number, 0.0, 0
        for bound, count in sorted(self.below.items()):
            if count >= rank and count > counted:
                return (
                    bound if bound == float("inf") else lower + (bound - lower) * (rank - counted) / (count - counted)
                )
            lower, counted = bound, count
        return lower


def durations(page: str) -> dict[str, Durations]:
    """Return the durations of each webhook from a metrics page."""
    found: dict[str, tuple[Counter[float], float]] = {}
    for kind, labels, value in re.findall(rf"^{METRIC}_(bucket|sum)\{{(.*)\}} (\S+)$", page, re.MULTILINE):
        given = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        below, seconds = found.setdefault(given["name"], (Counter(), 0.0))
        if kind == "bucket":
            below[float(given["le"])] += int(float(value))
        else:
            found[given["name"]] = (below, seconds + float(value))
    return {name: Durations(below[float("inf")], below, seconds) for name, (below, seconds) in found.items()}


class Case(Struct, frozen=True):
    """What the client does.

    Attributes:
        policy: the rules, a key of :data:`POLICIES`.
        rate: pod creations per second.
        dry_run: whether to create pods with dryRun=All.
        pods: the kind of pods, one of :data:`benchmarks.admission_pods.KINDS`.
    """

    policy: str
    rate: float
    dry_run: bool = False
    pods: str = ALIKE


class Result(Struct):
    """What was measured of one server in one case, in all turns together.

    Attributes:
        server: what answered: :data:`TRIMTAB`, :data:`FLOOR` or :data:`KOPF`.
        case: the case.
        created: number of created pods.
        late: number of pods that the client began to create more than 20 ms after their time.
        errors: number of failed requests by message.
        seconds: duration of the load.
        cpu: CPU seconds by program.
        webhooks: the durations of each webhook, as the API server measured them.
    """

    server: str
    case: Case
    created: int = 0
    late: int = 0
    errors: Counter[str] = msgspec.field(default_factory=Counter)
    seconds: float = 0.0
    cpu: Counter[str] = msgspec.field(default_factory=Counter)
    webhooks: dict[str, Durations] = {}

    def add(self, load: Load, cpu: Mapping[str, float], webhooks: Mapping[str, Durations]) -> None:
        """Add a turn."""
        self.created += load.completed
        self.late += load.late
        self.errors.update(load.errors)
        self.seconds += load.seconds
        self.cpu.update(cpu)
        self.webhooks = {name: found.plus(self.webhooks.get(name)) for name, found in webhooks.items()}

    def row(self) -> dict[str, Any]:
        """Return the result as JSON."""
        requests = sum(each.number for each in self.webhooks.values())
        return {
            "server": self.server,
            **msgspec.to_builtins(self.case),
            "created_per_s": round(self.created / self.seconds, 1),
            "late": self.late,
            "errors": dict(self.errors),
            "cores": {name: round(seconds / self.seconds, 2) for name, seconds in self.cpu.items()},
            "cpu_us_per_request": round(1e6 * self.cpu[WEBHOOKS] / requests) if requests else 0,
            "webhooks": {name.partition(".")[0]: _durations(each) for name, each in sorted(self.webhooks.items())},
        }


def _durations(found: Durations) -> dict[str, float]:
    return {
        "requests": found.number,
        "mean_ms": round(1e3 * found.seconds / found.number, 2),
        "p50_ms": round(1e3 * found.quantile(0.5), 2),
        "p99_ms": round(1e3 * found.quantile(0.99), 2),
        "below_5ms": round(found.below[0.005] / found.number, 4),
        "below_25ms": round(found.below[0.025] / found.number, 4),
    }


class Bench:
    """A local control plane and what is measured on it.

    Args:
        options: the options of the command line.
        cluster: the control plane.
        directory: a directory for files.
        api: the API server.
    """

    def __init__(self, options: argparse.Namespace, cluster: LocalCluster, directory: Path, api: Transport) -> None:
        self.results: dict[tuple[str, Case], Result] = {}
        self.starts: list[float] = []
        self.replays: list[dict[str, Any]] = []
        self._options = options
        self._cluster = cluster
        self._directory = directory
        self._api = api
        self._probe = build()
        self._keys = cluster.layout.keys.directory
        self._login = {"Authorization": load_config(cluster.kubeconfig).login.authorization}
        self._pids = {name: each.process.pid for name, each in cluster.record().started.items()}
        self._number = 0

    async def prepare(self) -> None:
        """Create the CRD, and the namespace of the pods."""
        crd = msgspec.yaml.decode((ROOT / "crds" / "trimtab.dev_placementadmissions.yaml").read_bytes())
        await self._api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=crd)
        await self._api.request("POST", NAMESPACES.path(), body={"metadata": {"name": NAMESPACE}})

    async def take_turn(self, policy: str, cases: Sequence[Case]) -> None:
        """Measure a replica, and then the floor with the same webhook configurations.

        Raises:
            RuntimeError: the floor has not recorded a request for each template.
        """
        await self._write_policy(POLICIES[policy][0])
        async with self._replica() as (pid, _port):
            configurations = {each: await verbs.get(self._api, each, CONFIGURATION) for each in CONFIGURATIONS}
            for case in cases:
                await self._measure(TRIMTAB, case, pid)
        for file in self._directory.glob(RECORDED):
            file.unlink()
        templates = 0
        async with self._floor(configurations, record=True):
            for kind in {each.pods for each in cases}:
                templates += len(each_once(kind, 0, {}))
                await self._create_pods(structs.replace(cases[0], pods=kind, dry_run=True))
        mutating = configurations[MUTATING_WEBHOOK_CONFIGURATIONS].get("webhooks", ())
        patches = self._patches(POLICIES[policy][0])
        if len(patches) != templates * len(mutating):
            number = f"{len(mutating)} mutating webhooks"
            raise RuntimeError(f"{len(patches)} patches for {templates} templates and {number}")
        async with self._floor(configurations, record=self._options.replay, patches=patches) as pid:
            for case in cases:
                await self._measure(FLOOR, case, pid)

    async def replay(self, policy: str, rates: Iterable[float]) -> None:
        """Send the requests that the floor got in the last turn directly to a replica that has a CPU of its own."""
        requests: dict[str, list[msgspec.Raw]] = {}
        for file in sorted(self._directory.glob(RECORDED)):
            path = file.name.partition(".")[0].replace("-", "/")
            requests.setdefault(path, []).append(msgspec.Raw(file.read_bytes()))
        if not requests:
            return
        everything = os.sched_getaffinity(0)
        async with self._replica() as (pid, port):
            found = await verbs.get(self._api, CONFIGURATIONS[1], CONFIGURATION)
            ca = self._directory / "ca.crt"
            ca.write_bytes(base64.b64decode(found["webhooks"][0]["clientConfig"]["caBundle"]))
            _pin(pid, {max(everything)})
            _pin(os.getpid(), everything - {max(everything)} or everything)
            for rate in rates:
                steps = [(f"https://127.0.0.1:{port}/{path}", bodies) for path, bodies in requests.items()]
                for seconds in (WARM_UP, self._options.seconds):
                    meter = Meter([pid])
                    load = await send(
                        self._probe, steps, ca=ca, rate=rate, seconds=seconds, most=CONNECTIONS, headers={}
                    )
                    cpu, others = meter.read()
                self.replays.append(
                    {
                        "policy": policy,
                        "rate": rate,
                        "sent_per_s": round(load.completed / load.seconds, 1),
                        "late": load.late,
                        "errors": load.errors,
                        "cores": round(cpu / load.seconds, 3),
                        "other_cores": round(others, 2),
                        "cpu_us_per_request": round(1e6 * cpu / load.completed / len(steps)),
                        "steps": dict(zip(requests, map(msgspec.to_builtins, load.quantiles), strict=True)),
                    }
                )
            _pin(os.getpid(), everything)

    async def measure_kopf(self, cases: Sequence[Case]) -> None:
        """Measure Kopf's admission server."""
        script, ca = self._directory / "handlers.py", self._cluster.ca
        text = KOPF_HANDLERS.replace("@port", str(free_port())).replace("@keys", str(self._keys))
        script.write_text(text.replace("@ca", str(ca)))
        command = [sys.executable, "-m", "kopf", "run", "--standalone", "--all-namespaces", "--quiet", str(script)]
        async with self._started(KOPF, command, KUBECONFIG=str(self._cluster.kubeconfig)) as pid:
            await asyncio.sleep(10.0)
            for case in cases:
                await self._measure(KOPF, case, pid)

    # ── What answers ────────────────────────────────────────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def _replica(self) -> AsyncIterator[tuple[int, int]]:
        """Run the role ``admission``. Yield its process id and port when it is ready."""
        port, probes = free_port(), free_port()
        command = [sys.executable, "-m", "trimtab", "run", "--role=admission"]
        command += [f"--kubeconfig={self._cluster.kubeconfig}", f"--listen=127.0.0.1:{probes}"]
        command += [f"--webhook-listen=127.0.0.1:{port}", f"--webhook-url=https://127.0.0.1:{port}"]
        began = time.monotonic()
        async with self._started(TRIMTAB, [*command, "--webhook-shutdown-delay=0s"]) as pid:
            while not _responds(f"http://127.0.0.1:{probes}/readyz"):
                if time.monotonic() - began > 60:
                    raise TimeoutError("the role did not become ready")
                await asyncio.sleep(0.01)
            self.starts.append(time.monotonic() - began)
            await asyncio.sleep(REGISTERED)
            yield pid, port
        for each in CONFIGURATIONS:
            await verbs.delete(self._api, each, CONFIGURATION)

    @asynccontextmanager
    async def _floor(
        self, configurations: Mapping[Resource, Any], *, record: bool, patches: Mapping[str, bytes] | None = None
    ) -> AsyncIterator[int]:
        """Run the webhooks that decide nothing, and register them as trimtab's were. Yield the process id."""
        file = self._directory / "patches"
        file.write_bytes(msgspec.json.encode(patches or {}))  # bytes in base64
        port, name = free_port(), "floor"
        bundle = base64.b64encode(self._cluster.ca.read_bytes()).decode()
        recorded = self._directory if record else None
        command = webhook_command(self._probe, port, self._keys, patches=file, record=recorded)
        async with self._started(FLOOR, command) as pid:
            for resource, body in configurations.items():
                webhooks = []
                for each in body.get("webhooks", ()):
                    path = each["clientConfig"]["url"].split("/", 3)[3]
                    config = {"url": f"https://127.0.0.1:{port}/{path}", "caBundle": bundle}
                    webhooks.append(each | {"clientConfig": config})
                copy = {"metadata": {"name": name}, "webhooks": webhooks}
                await self._api.request("POST", resource.path(), body=copy)
            await asyncio.sleep(REGISTERED)
            yield pid
            for each in CONFIGURATIONS:
                await verbs.delete(self._api, each, name)

    @asynccontextmanager
    async def _started(self, name: str, command: Sequence[str], **environ: str) -> AsyncIterator[int]:
        """Run webhooks, on one CPU if that is given. Yield the process id."""
        log = self._directory / f"{name}.log"
        paths = os.pathsep.join((str(ROOT / "operator"), os.environ.get("PYTHONPATH", "")))
        pinned = [] if self._options.cpu is None else ["taskset", "-c", str(self._options.cpu)]
        pinned += ["nice", "-n", str(self._options.nice)] if self._options.nice else []
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *pinned, *command, stdout=output, stderr=output, env={**os.environ, "PYTHONPATH": paths, **environ}
            )
        try:
            yield process.pid
        except BaseException:
            sys.stderr.write(log.read_text()[-2000:])
            raise
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 10.0)
            except TimeoutError:
                process.kill()
                await process.wait()

    # ── Load ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _measure(self, server: str, case: Case, pid: int) -> None:
        """Create pods, and add the durations that the API server measured meanwhile to the result of the case."""
        await self._create_pods(case, WARM_UP)
        before = await self._durations()
        meter = Meter([pid, os.getpid(), *self._pids.values()])
        load = await self._create_pods(case, self._options.seconds)
        webhooks, own, *components, others = meter.read()
        after = await self._durations()
        cpu = {WEBHOOKS: webhooks, **dict(zip(self._pids, components, strict=True)), "client": load.cpu + own}
        cpu["others"] = others * load.seconds - load.cpu
        found = {name: each.plus(before.get(name), -1) for name, each in after.items()}
        result = self.results.setdefault((server, case), Result(server, case))
        result.add(load, cpu, {name: each for name, each in found.items() if each.number})

    async def _create_pods(self, case: Case, seconds: float | None = None) -> Load:
        """Create pods for some seconds, or one of each template."""
        self._number += 1
        fields = POLICIES[case.policy][1]
        if seconds is None:
            bodies = each_once(case.pods, self._number, fields)
            seconds = len(bodies) / case.rate
        else:
            bodies = drawn(case.pods, self._number, fields, round(case.rate * seconds))
        url = self._cluster.layout.server + PODS.path(namespace=NAMESPACE) + ("?dryRun=All" if case.dry_run else "")
        return await send(
            self._probe,
            [(url, bodies)],
            ca=self._cluster.ca,
            rate=case.rate,
            seconds=seconds,
            most=CONNECTIONS,
            headers=self._login | {"Accept": METADATA},
            nice=self._options.client_nice,
        )

    async def _durations(self) -> dict[str, Durations]:
        return durations(await self._api.request("GET", "/metrics"))

    # ── Rules ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _write_policy(self, text: str) -> None:
        body = _admission(text)
        path, params = PLACEMENT_ADMISSIONS.path("default"), {"fieldManager": "benchmark", "force": "true"}
        while True:
            try:
                await self._api.request(
                    "PATCH", path, body=body, content_type="application/apply-patch+yaml", params=params
                )
                return
            except ApiError:  # the CRD is not served yet
                await asyncio.sleep(0.2)

    def _patches(self, text: str) -> dict[str, bytes]:
        """Return the JSON patches for the recorded requests, by webhook and template."""
        recorded = {file.stem: file.read_bytes() for file in self._directory.glob(RECORDED)}
        return patches_for(Reviewer(decode_placement_admission(_admission(text)).spec), recorded)


def patches_for(reviewer: Reviewer, recorded: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the JSON patches for recorded requests to mutating webhooks.

    Args:
        reviewer: the rules.
        recorded: the bodies of the requests by webhook and template, for example ``mutate-fail.t7``.
    """
    policies: dict[str, FailurePolicy] = {"mutate-fail": "Fail", "mutate-ignore": "Ignore"}
    found = {}
    for name, body in recorded.items():
        policy = policies.get(name.partition(".")[0])
        if policy is None:
            continue
        request = msgspec.json.decode(body, type=AdmissionReview).request
        decision = reviewer.decide(request, NamespaceInfo(NAMESPACE), stage=MUTATE, failure_policy=policy)
        if decision.review.patch:
            found[name] = decision.review.patch
    return found


def _admission(text: str) -> dict[str, Any]:
    return {
        "apiVersion": PLACEMENT_ADMISSIONS.api_version,
        "kind": PLACEMENT_ADMISSIONS.kind,
        "metadata": {"name": "default"},
        "spec": msgspec.yaml.decode(text),
    }


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _responds(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(url, timeout=1):
        return True
    return False


def _pin(pid: int, cpus: set[int]) -> None:
    """Run all threads of a process on the given CPUs."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), cpus)


async def run(options: argparse.Namespace, cluster: LocalCluster, directory: Path) -> dict[str, Any]:
    """Run all measurements."""
    async with Transport(load_config(cluster.kubeconfig)) as api:
        bench = Bench(options, cluster, directory, api)
        await bench.prepare()
        for turn in range(1, options.turns + 1):
            for policy in options.policy or POLICIES:
                cases = [
                    Case(policy, rate, dry_run, pods)
                    for pods in options.pods or (ALIKE,)
                    for dry_run in CREATE[options.create]
                    for rate in options.rate
                ]
                await bench.take_turn(policy, cases)
                if options.replay and turn == options.turns:
                    await bench.replay(policy, options.rate)
        if options.kopf:
            await bench.measure_kopf([Case("not-concerned", rate) for rate in options.rate])
        results = sorted(
            bench.results.values(),
            key=lambda each: (each.case.policy, each.case.pods, each.case.dry_run, each.case.rate),
        )
        return {
            "ready_after_s": [round(each, 2) for each in bench.starts],
            "results": [each.row() for each in results],
            "replays": bench.replays,
        }


def table(found: Mapping[str, Any]) -> str:
    """Return the results as tables in Markdown. Durations are in milliseconds."""
    lines = [f"Ready after {', '.join(map(str, found['ready_after_s']))} s", ""]
    processes = ("webhooks", APISERVER, ETCD, "client", "others")
    lines += _head("rules", "pods", "create", "rate", "answers", "created", "webhook", "p50", "below 5 ms",
                   "below 25 ms", "p99", *(f"{each} cores" for each in processes), "CPU us per request", "late",
                   "errors")  # fmt: skip
    for each in found["results"]:
        created = "dry run" if each["dry_run"] else "stored"
        case = (each["policy"], each["pods"], created, f"{each['rate']:g}", each["server"])
        costs = (*(each["cores"][name] for name in processes), each["cpu_us_per_request"], each["late"], each["errors"])
        for name, hook in each["webhooks"].items() or [("none", {})]:
            shares = (f"{hook.get(key, 1):.1%}" for key in ("below_5ms", "below_25ms"))
            lines.append(
                _line(*case, each["created_per_s"], name, hook.get("p50_ms"), *shares, hook.get("p99_ms"), *costs)
            )
    if found["replays"]:
        lines += ["", *_head("replay", "rate", "sent", "webhook", "p50", "p99", "max", "webhooks cores", "others cores",
                             "CPU us per request", "late", "errors")]  # fmt: skip
    for each in found["replays"]:
        costs = (each["cores"], each["other_cores"], each["cpu_us_per_request"], each["late"], each["errors"])
        for name, step in each["steps"].items():
            taken = (step[key] for key in ("p50", "p99", "max"))
            lines.append(_line(each["policy"], f"{each['rate']:g}", each["sent_per_s"], name, *taken, *costs))
    return "\n".join(lines)


def _head(*names: str) -> list[str]:
    return [_line(*names), _line(*("---" for _ in names))]


def _line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Parse the options, run the measurements and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, action="append", help="pod creations per second; by default 500")
    parser.add_argument("--seconds", type=float, default=12.0, help="duration of each measurement")
    parser.add_argument("--turns", type=int, default=1, help="how often trimtab and the floor take turns")
    parser.add_argument("--policy", action="append", choices=sorted(POLICIES), help="measure only these policies")
    parser.add_argument(
        "--create",
        choices=sorted(CREATE),
        default="stored",
        help="store the pods, create them with dryRun=All, or both",
    )
    parser.add_argument("--pods", action="append", choices=KINDS, help="kind of pods; by default alike")
    parser.add_argument("--nice", type=int, default=0, help="niceness of the webhooks; by default 0")
    parser.add_argument("--client-nice", type=int, default=0, help="niceness of the client; by default 0")
    parser.add_argument("--cpu", type=int, help="run the webhooks on this CPU, and all else on the other ones")
    parser.add_argument("--replay", action="store_true", help="also send the recorded requests directly to a replica")
    parser.add_argument("--kopf", action="store_true", help="also measure Kopf's admission server")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    options.rate = options.rate or [500.0]
    if options.cpu is not None:
        os.sched_setaffinity(0, os.sched_getaffinity(0) - {options.cpu})
    with tempfile.TemporaryDirectory(prefix="trimtab-admission-") as made:
        directory = Path(made)
        cluster = LocalCluster("admission-benchmark", directory=directory / "cluster")
        settings = Settings(
            components=(ETCD, APISERVER),
            apiserver_args=("--disable-admission-plugins=ServiceAccount",),
            for_load=True,
        )
        cluster.up(settings, nodes=0, die_with_parent=True)
        try:
            found = uvloop.run(run(options, cluster, directory))
        finally:
            cluster.down()
    print(json.dumps(found, indent=2) if options.json else table(found))


if __name__ == "__main__":
    main()
