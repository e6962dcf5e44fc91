"""Reads 5,000 nodes over TLS and plans for them every 10 seconds: ``python benchmarks/node_pressure.py``.

It measures a process of the operator with its informers and no controller but that of node pressure:
``trimtab run --controllers pressure``. The kubelets (:mod:`benchmarks.kubelets`) and the API server
(:mod:`benchmarks.api_server`), with 30 pods a node and ``--rate`` changes a second, are other processes, whose CPU time
is not counted. Each kubelet has a summary of 40 KB.

One in a hundred nodes is under pressure as long as the benchmark runs. From the second interval on, the soft threshold
is due, and the controller decodes and ranks the pods of these nodes in each interval, evicts them one by one, and
writes the nodes and the status. Options make some kubelets hang. The first interval connects to all kubelets.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    ROOT = Path(__file__).resolve().parent.parent
    sys.path[:0] = [str(ROOT / "operator"), str(ROOT / "local"), str(ROOT)]

from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families

from benchmarks import kubelets
from benchmarks.api_server import PODS_PER_NODE, ApiServer, kubeconfig, process, until
from benchmarks.processes import cpu_seconds, memory_mb
from tests.fakes.json_patch import patch
from trimtab.kube.resources import NODE_PRESSURE_POLICIES

INTERVAL: Final = 10.0
SPEC: Final[dict[str, Any]] = {
    "mode": "Act",
    "evictionSoft": {"memory.available": "15%", "nodefs.available": "20%"},
    "evictionSoftGracePeriod": {"memory.available": "5s", "nodefs.available": "2m"},
    "evictionHard": {"memory.available": "512Mi", "nodefs.available": "15%", "pid.available": "10%"},
}
AS_IN_IMAGE: Final = """
import sys
sys.modules.update(kubernetes=None, pykube=None)
from trimtab.cli.main import main
main()
"""
"""Runs trimtab without the packages that Kopf imports where they are installed. The operator's image has none of them,
and they need 20 MB."""


class Interval(Struct, frozen=True):
    """What one interval took.

    Attributes:
        cpu: CPU seconds of the operator.
        kubelets_cpu: CPU seconds of the kubelets.
        read: nodes with a current reading.
        under_pressure: nodes under pressure.
        evicted: pods that were evicted so far.
        oldest: seconds since the oldest current reading, when all nodes were planned.
        rss_mb: resident memory of the operator at the end, including the informers.
        peak_rss_mb: its maximum so far.
    """

    cpu: float
    kubelets_cpu: float
    read: int
    under_pressure: int
    evicted: int
    oldest: float
    rss_mb: int
    peak_rss_mb: int


# --- the API server ---------------------------------------------------------------------------------------------------


class _Server(ApiServer):
    """An API server that issues tokens for kubelets, evicts pods, and shows how the operator has patched nodes."""

    def __init__(self, first_port: int, *, nodes: int, rate: float, interval: float) -> None:
        spec = {**SPEC, "monitoringInterval": f"{interval:.0f}s"}
        super().__init__({NODE_PRESSURE_POLICIES: spec}, nodes=nodes, pods=nodes * PODS_PER_NODE, rate=rate)
        self._first_port = first_port
        self._patched_nodes: dict[str, dict[str, Any]] = {}
        self._evicted: set[int] = set()
        self._version = 3_000_000

    def _node(self, number: int) -> dict[str, Any]:
        manifest = super()._node(number)
        patched = self._patched_nodes.get(manifest["metadata"]["name"])
        if patched is not None:
            return patched
        host, port = kubelets.address_of(number, self._first_port)
        manifest["metadata"]["annotations"] = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
        manifest["status"] |= {
            "addresses": [{"type": "InternalIP", "address": host}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        return manifest

    def _exists(self, number: int) -> bool:
        return number not in self._evicted

    def _created(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path.endswith("/token"):
            return {"spec": {"expirationSeconds": 600}, "status": {"token": kubelets.TOKEN}}
        if path.endswith("/eviction"):
            number = int(path.split("/")[-2].rpartition("-")[2], 16)
            if number not in self._evicted:  # it leaves at once
                self._evicted.add(number)
                self._version += 1
                self._send_pod("DELETED", self._pod(number), self._version)
            return {"kind": "Status", "status": "Success", "code": 201}
        return super()._created(path, body)

    def _patched(self, path: str, patch_: Any) -> dict[str, Any]:
        if not path.startswith("/api/v1/nodes/"):
            return super()._patched(path, patch_)
        name = path.rpartition("/")[2]
        number = int(name.rpartition("-")[2])
        found = self._patched_nodes[name] = json.loads(json.dumps(self._node(number)))
        if isinstance(patch_, list):
            patch(found, patch_)
        else:
            by_type = {each["type"]: each for each in found["status"]["conditions"]}
            for each in patch_["status"]["conditions"]:
                by_type[each["type"]] = each
            found["status"]["conditions"] = [each for each in by_type.values() if "$patch" not in each]
        self._version += 1
        self._send_node(number, self._version)
        return {**found, "metadata": {**found["metadata"], "resourceVersion": str(self._version)}}


# --- the benchmark ----------------------------------------------------------------------------------------------------


@contextmanager
def serving(number: int, hanging: int) -> Iterator[tuple[int, int, Path]]:
    """Run the kubelets; yield their process id, their first port and the CA file."""
    first_port = kubelets.free_ports(number)
    with tempfile.TemporaryDirectory() as directory:
        ca, certificate = kubelets.write_certificates(Path(directory))
        arguments = [str(number), str(first_port), str(certificate), str(hanging)]
        running = subprocess.Popen([sys.executable, kubelets.__file__, *arguments], stdout=subprocess.PIPE)
        try:
            assert running.stdout is not None
            running.stdout.readline()
            yield running.pid, first_port, ca
        finally:
            running.kill()
            running.communicate()


@contextmanager
def operating(nodes: int, rate: float, interval: float, first_port: int, ca: Path) -> Iterator[tuple[int, str]]:
    """Run the API server and the operator; yield the operator's process id and the address of its metrics."""
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as name:
        directory = Path(name)
        port_file, config, log = (directory / each for each in ("port", "kubeconfig", "operator.log"))
        server = [__file__, f"--serve={port_file}", f"--first-port={first_port}", f"--nodes={nodes}"]
        with process(*server, f"--rate={rate}", f"--interval={interval}", log=directory / "server.log"):
            until(port_file.exists, "the API server")
            url = f"http://127.0.0.1:{port_file.read_text()}"
            config.write_text(json.dumps(kubeconfig(url)))
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                listen = f"127.0.0.1:{free.getsockname()[1]}"
            operator = ["-c", AS_IN_IMAGE, "run", f"--kubeconfig={config}", f"--listen={listen}", "--lease-namespace=x"]
            with process(*operator, "--controllers=pressure", f"--kubelet-ca-file={ca}", log=log) as running:

                def ready() -> bool:
                    assert running.poll() is None, log.read_text()
                    with suppress(OSError):
                        return urllib.request.urlopen(f"http://{listen}/readyz").status == 200
                    return False

                until(ready, "the caches to be filled")
                yield running.pid, listen
                assert running.poll() is None, log.read_text()


def measure(
    *, nodes: int, intervals: int, hanging: int = 0, rate: float = 100.0, interval: float = INTERVAL
) -> Iterator[Interval]:
    """Run the benchmark and yield each interval."""
    with (
        serving(nodes, hanging) as (kubelets_pid, first_port, ca),
        operating(nodes, rate, interval, first_port, ca) as (pid, address),
    ):
        for _ in range(intervals):
            cpu, their_cpu = cpu_seconds(pid), cpu_seconds(kubelets_pid)
            time.sleep(interval)
            metrics = _metrics(address)
            yield Interval(
                cpu=round(cpu_seconds(pid) - cpu, 2),
                kubelets_cpu=round(cpu_seconds(kubelets_pid) - their_cpu, 2),
                read=int(metrics("trimtab_node_pressure_read_nodes", result="Summary")),
                under_pressure=int(metrics("trimtab_node_pressure_nodes")),
                evicted=int(metrics("trimtab_node_pressure_evictions_total", result="Evicted")),
                oldest=round(metrics("trimtab_node_pressure_reading_age_seconds"), 2),
                rss_mb=memory_mb(pid, "VmRSS"),
                peak_rss_mb=memory_mb(pid, "VmHWM"),
            )


def _metrics(address: str) -> Callable[..., float]:
    """Read the operator's metrics, and return a function that returns the sum of a metric by its name and labels."""
    with urllib.request.urlopen(f"http://{address}/metrics") as response:
        families = list(text_string_to_metric_families(response.read().decode()))

    def value(name: str, **labels: str) -> float:
        samples = [each for family in families for each in family.samples if each.name == name]
        return sum(each.value for each in samples if labels.items() <= each.labels.items())

    return value


def main() -> None:
    """Print each interval."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--intervals", type=int, default=6)
    parser.add_argument("--hanging", type=int, default=0, metavar="N", help="number of kubelets that never respond")
    parser.add_argument("--rate", type=float, default=100.0, help="changes of pods and nodes in a second")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--interval", type=float, default=INTERVAL, help="seconds between two readings of a node")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--first-port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        sizes = {"nodes": options.nodes, "rate": options.rate, "interval": options.interval}
        _Server(options.first_port, **sizes).serve(options.serve)
        return
    for each in measure(
        nodes=options.nodes,
        intervals=options.intervals,
        hanging=options.hanging,
        rate=options.rate,
        interval=options.interval,
    ):
        fields = {name: getattr(each, name) for name in each.__struct_fields__}
        print(json.dumps(fields) if options.json else "  ".join(f"{name} {value}" for name, value in fields.items()))


if __name__ == "__main__":
    main()
