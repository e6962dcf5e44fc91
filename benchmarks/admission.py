"""Measures the webhooks of placement admission on a local API server, at a fixed rate of pod creations.

``python benchmarks/admission.py [--rate N] [--seconds N] [--cpu N] [--policy NAME]… [--kopf] [--json]``

It starts etcd and kube-apiserver, one replica of ``trimtab run --role admission``, and a client that creates pods at a
constant rate, whether earlier requests have been answered or not. The durations are those of the API server's own
metric ``apiserver_admission_webhook_admission_duration_seconds``: from before the API server encodes a request until it
has decoded the response. Its buckets end at 5, 25 and 100 ms, so the quantiles between are interpolated, as Prometheus
does it. ``--cpu`` runs the replica on one CPU only. With ``--kopf`` it also measures Kopf's own admission server, with
handlers that do nothing but add a toleration.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop
from msgspec import Struct

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "operator"), str(ROOT / "local"), str(ROOT)]

from benchmarks.processes import Meter, memory_mb  # noqa: E402
from trimtab.kube.api import Api, ApiError, Unreachable  # noqa: E402
from trimtab.kube.connection.config import load_config  # noqa: E402
from trimtab.kube.connection.transport import Transport  # noqa: E402
from trimtab.kube.resources import NAMESPACES, PLACEMENT_ADMISSIONS, PODS  # noqa: E402
from trimtab_local.cluster import LocalCluster  # noqa: E402
from trimtab_local.components import Settings  # noqa: E402
from trimtab_local.versions import APISERVER, ETCD  # noqa: E402

METRIC: Final = "apiserver_admission_webhook_admission_duration_seconds"
NAMESPACE: Final = "load"
CONNECTIONS: Final = 24
"""Maximum number of requests at the same time. The API server keeps 25 idle connections to a webhook, so more requests
would measure TLS handshakes."""

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

POLICIES: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "all-rules": (ALL, {}),
    "binding": (CONSTRAINTS, {"nodeName": "node-1"}),
    "not-concerned": (CONSTRAINTS, {}),
}
"""The rules of a PlacementAdmission and additional fields of the pods' specs. ``binding``: each pod needs the answer of
a SubjectAccessReview. ``not-concerned``: the match conditions exclude each pod."""

KOPF: Final = """\
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

    def minus(self, other: Durations | None) -> Durations:
        """Return the durations after another reading."""
        if other is None:
            return self
        below = {bound: count - other.below.get(bound, 0) for bound, count in self.below.items()}
        return Durations(self.number - other.number, below, self.seconds - other.seconds)

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


class Load(Struct):
    """What the client sent.

    Attributes:
        created: number of created pods.
        errors: number of failed requests by message.
        seconds: duration of the load.
        late: number of requests that were sent more than 20 ms after their time.
    """

    created: int = 0
    errors: Counter[str] = msgspec.field(default_factory=Counter)
    seconds: float = 0.0
    late: int = 0


async def create_pods(
    api: Api, prefix: str, rate: float, seconds: float, spec: Mapping[str, Any], params: Mapping[str, str]
) -> Load:
    """Create pods at a constant rate."""
    load, running, loop = Load(), set[asyncio.Task[None]](), asyncio.get_running_loop()
    path = PODS.path(namespace=NAMESPACE)
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}

    async def create(number: int) -> None:
        body = {
            "metadata": {"name": f"{prefix}-{number}", "labels": {"app": "web"}},
            "spec": {"containers": [container], **spec},
        }
        try:
            await api.request("POST", path, params=params, body=body, accept=METADATA)
            load.created += 1
        except (ApiError, Unreachable) as error:
            load.errors[re.sub(r"[\w.-]*-\d+", "…", str(error))[:200]] += 1

    began = loop.time()
    for number in range(int(rate * seconds)):
        due = began + number / rate
        if (wait := due - loop.time()) > 0:
            await asyncio.sleep(wait)
        elif wait < -0.02:
            load.late += 1
        task = asyncio.create_task(create(number))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    load.seconds = loop.time() - began
    return load


METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_replica(cluster: LocalCluster, log: Path, cpu: int | None) -> tuple[subprocess.Popen[bytes], float]:
    """Start the role, and return its process and the seconds until it was ready."""
    webhooks, probes = free_port(), free_port()
    command = [sys.executable, "-m", "trimtab", "run", "--role=admission", f"--kubeconfig={cluster.kubeconfig}"]
    command += [f"--webhook-listen=127.0.0.1:{webhooks}", f"--webhook-url=https://127.0.0.1:{webhooks}"]
    command += [f"--listen=127.0.0.1:{probes}", "--webhook-shutdown-delay=0s"]
    began = time.monotonic()
    process = started(command, log, cpu)
    while True:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{probes}/readyz", timeout=1):
            return process, time.monotonic() - began
        if process.poll() is not None or time.monotonic() - began > 60:
            sys.exit(f"the role did not become ready:\n{log.read_text()[-2000:]}")
        time.sleep(0.01)


def start_kopf(cluster: LocalCluster, directory: Path, cpu: int | None) -> subprocess.Popen[bytes]:
    """Start Kopf with two handlers."""
    script = directory / "handlers.py"
    values = {"@port": str(free_port()), "@ca": str(cluster.ca), "@keys": str(cluster.ca.parent)}
    text = KOPF
    for name, value in values.items():
        text = text.replace(name, value)
    script.write_text(text)
    command = [sys.executable, "-m", "kopf", "run", "--standalone", "--all-namespaces", "--quiet", str(script)]
    return started(command, directory / "kopf.log", cpu, KUBECONFIG=str(cluster.kubeconfig))


def started(command: Sequence[str], log: Path, cpu: int | None, **environ: str) -> subprocess.Popen[bytes]:
    """Start a process, on one CPU if it is given."""
    pinned = [] if cpu is None else ["taskset", "-c", str(cpu)]
    paths = os.pathsep.join((str(ROOT / "operator"), os.environ.get("PYTHONPATH", "")))
    with log.open("wb") as output:
        return subprocess.Popen(
            [*pinned, *command], stdout=output, stderr=output, env={**os.environ, "PYTHONPATH": paths, **environ}
        )


async def measured(
    api: Transport,
    name: str,
    pids: Sequence[int],
    options: argparse.Namespace,
    spec: Mapping[str, Any],
) -> dict[str, Any]:
    """Create pods, and return the durations that the API server measured meanwhile.

    Args:
        api: the API server.
        name: name of the measurement.
        pids: the process of the webhooks, and those of the control plane and of this client.
        options: the options of the command line.
        spec: additional fields of the pods' specs.
    """
    params = {"dryRun": "All"} if options.dry_run else {}
    await create_pods(api, f"{name}-warm-up", options.rate, 2.0, spec, params)
    before = durations(await api.request("GET", "/metrics"))
    meter = Meter(pids)
    load = await create_pods(api, name, options.rate, options.seconds, spec, params)
    cpu, *own, others = meter.read()
    after = durations(await api.request("GET", "/metrics"))
    webhooks = {hook: found.minus(before.get(hook)) for hook, found in after.items()}
    requests = sum(each.number for each in webhooks.values())
    return {
        "name": name,
        "rate": round(load.created / load.seconds, 1),
        "created": load.created,
        "late": load.late,
        "errors": dict(load.errors),
        "cpu_share": round(cpu / load.seconds, 3),
        "cpu_us_per_request": round(1e6 * cpu / requests) if requests else 0,
        "control_plane_and_client_cores": round(sum(own) / load.seconds, 2),
        "other_cores": round(others, 2),
        "memory_mb": memory_mb(pids[0], "VmHWM"),
        "webhooks": [_row(hook, each) for hook, each in sorted(webhooks.items()) if each.number],
    }


def _row(hook: str, found: Durations) -> dict[str, Any]:
    return {
        "webhook": hook,
        "requests": found.number,
        "mean_ms": round(1e3 * found.seconds / found.number, 2),
        "p50_ms": round(1e3 * found.quantile(0.5), 2),
        "p99_ms": round(1e3 * found.quantile(0.99), 2),
        "below_5ms": round(found.below[0.005] / found.number, 4),
        "below_25ms": round(found.below[0.025] / found.number, 4),
    }


async def prepare(api: Api) -> None:
    """Create the CRD, and the namespace of the pods."""
    crd = msgspec.yaml.decode((ROOT / "crds" / "trimtab.dev_placementadmissions.yaml").read_bytes())
    await api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=crd)
    await api.request("POST", NAMESPACES.path(), body={"metadata": {"name": NAMESPACE}})


async def write_policy(api: Api, text: str) -> None:
    """Write the PlacementAdmission, and wait until the API server calls the webhooks for it."""
    metadata = {"name": "default"}
    body = {
        "apiVersion": PLACEMENT_ADMISSIONS.api_version,
        "kind": PLACEMENT_ADMISSIONS.kind,
        "metadata": metadata,
        "spec": msgspec.yaml.decode(text),
    }
    while True:
        try:
            await api.request(
                "PATCH",
                PLACEMENT_ADMISSIONS.path("default"),
                body=body,
                content_type="application/apply-patch+yaml",
                params={"fieldManager": "benchmark", "force": "true"},
            )
            break
        except ApiError:  # the CRD is not served yet
            await asyncio.sleep(0.2)
    await asyncio.sleep(2.0)


async def run(options: argparse.Namespace, cluster: LocalCluster, directory: Path) -> list[dict[str, Any]]:
    """Run all measurements."""
    rows: list[dict[str, Any]] = []
    pids = [os.getpid(), *(each.process.pid for each in cluster.record().started.values())]
    async with Transport(load_config(cluster.kubeconfig), connections=CONNECTIONS) as api:
        await prepare(api)
        await write_policy(api, CONSTRAINTS)
        process, seconds = start_replica(cluster, directory / "admission.log", options.cpu)
        try:
            for name in options.policy or POLICIES:
                text, spec = POLICIES[name]
                await write_policy(api, text)
                found = await measured(api, name, [process.pid, *pids], options, spec)
                rows.append(shown(found | {"start_s": round(seconds, 2)}))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
        for kind in ("mutating", "validating"):
            path = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/trimtab-admission"
            await api.request("DELETE", path)
        if options.kopf:
            process = start_kopf(cluster, directory, options.cpu)
            try:
                await asyncio.sleep(10.0)
                if process.poll() is not None:
                    sys.exit(f"Kopf failed:\n{(directory / 'kopf.log').read_text()[-2000:]}")
                rows.append(shown(await measured(api, "kopf", [process.pid, *pids], options, {})))
            finally:
                process.send_signal(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                process.kill()
    return rows


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """Print a result as soon as it is known."""
    print(table([row]), file=sys.stderr, flush=True)
    return row


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the results as text."""
    lines = []
    for row in rows:
        lines.append(
            f"{row['name']}: {row['rate']} pods/s, {row['cpu_share']} cores, {row['cpu_us_per_request']} us each, "
            f"{row['memory_mb']} MB; control plane and client {row['control_plane_and_client_cores']} cores, "
            f"other jobs {row['other_cores']} cores, {row['late']} late, errors {row['errors']}"
            + (f", ready after {row['start_s']} s" if "start_s" in row else "")
        )
        lines += [
            f"    {each['webhook']}: {each['requests']} requests, mean {each['mean_ms']} ms, p50 {each['p50_ms']} ms, "
            f"p99 {each['p99_ms']} ms, below 5 ms {each['below_5ms']:.2%}, below 25 ms {each['below_25ms']:.2%}"
            for each in row["webhooks"]
        ]
    return "\n".join(lines)


def main() -> None:
    """Parse the options, run the measurements and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=500.0, help="pod creations per second")
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of each measurement")
    parser.add_argument("--cpu", type=int, help="run the webhooks on this CPU only")
    parser.add_argument("--policy", action="append", choices=sorted(POLICIES), help="measure only these policies")
    parser.add_argument(
        "--dry-run", action="store_true", help="create pods with dryRun=All, which the API server admits but not stores"
    )
    parser.add_argument("--kopf", action="store_true", help="also measure Kopf's admission server")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
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
            rows = uvloop.run(run(options, cluster, directory))
        finally:
            cluster.down()
    if options.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
