"""A pod without permissions floods the leader's ports: the lease is kept, probes respond, memory is released."""

from __future__ import annotations

import http.client
import threading
import time
from typing import Any, Final

import pytest

from tests.e2e.conftest import Stage, Start
from tests.fixtures.flood import HALF, IDLE, METRICS, flood
from tests.fixtures.tenant import MEMORY_LIMIT, require_end, resident_bytes
from tests.fixtures.waiting import patiently, wait_for
from trimtab.kube.resources import CLUSTER_AUTOSCALERS, TAINT_MANAGERS
from trimtab_local.client import Client
from trimtab_local.install import NAMESPACE, OperatorProcess, apply
from trimtab_local.supervisor import choose_ports

SECONDS: Final = 25.0
"""Of a flood; the leader of the review was gone after 27 s, two and a half renew deadlines."""

OTHER_CLIENT: Final = "127.0.0.2"
"""The kubelet or Prometheus: another address than the flood's."""

PROBE_TIMEOUT: Final = 5.0
"""Seconds: the chart's. A port that is flooded itself has one queue for all clients; the chart separates the ports."""

ATTACKS: Final = {IDLE: 5000, HALF: 5000, METRICS: 400}
"""Connections that each kind of flood keeps opening."""


def free_port() -> int:
    return choose_ports(["metrics"])["metrics"]


def get(port: int, path: str, *, timeout: float = patiently(5.0)) -> tuple[int, str]:
    """Status and body; (0, "") without a response in time."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout, source_address=(OTHER_CLIENT, 0))
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()


def value(text: str, series: str) -> float:
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(series))


class Probing:
    """Probes /healthz four times a second and scrapes once a second, from another address than the flood."""

    def __init__(self, probes: int, metrics: int) -> None:
        self.slowest = 0.0
        self.failures: list[int] = []
        self.scrapes: list[int] = []
        self._ports = probes, metrics
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._probe), threading.Thread(target=self._scrape)]

    def __enter__(self) -> Probing:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _probe(self) -> None:
        while not self._stop.wait(0.25):
            began = time.monotonic()
            status, _ = get(self._ports[0], "/healthz")
            self.slowest = max(self.slowest, time.monotonic() - began)
            if status != 200:
                self.failures.append(status)

    def _scrape(self) -> None:
        while not self._stop.wait(1.0):
            self.scrapes.append(get(self._ports[1], "/metrics")[0])


def lease(client: Client) -> dict[str, Any]:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/trimtab"
    spec: dict[str, Any] = client.request("GET", path)["spec"]
    return spec


def act_with_every_controller(stage: Stage) -> None:
    stage.write_policy("everything", mode="Act")
    autoscaler = {
        "apiVersion": CLUSTER_AUTOSCALERS.api_version,
        "kind": CLUSTER_AUTOSCALERS.kind,
        "metadata": {"name": "default"},
        "spec": {},
    }
    manager = {
        "apiVersion": TAINT_MANAGERS.api_version,
        "kind": TAINT_MANAGERS.kind,
        "metadata": {"name": "default"},
        "spec": {"mode": "Observe"},
    }
    apply(stage.client, CLUSTER_AUTOSCALERS.path(), autoscaler)
    apply(stage.client, TAINT_MANAGERS.path(), manager)


def leads(operator: OperatorProcess, metrics: int) -> bool:
    assert operator.running()
    return value(get(metrics, "/metrics")[1], "trimtab_leader ") == 1.0


@pytest.mark.parametrize(
    "one_port",
    [pytest.param(False, id="separate-ports"), pytest.param(True, id="one-port")],
)
@pytest.mark.parametrize("mode", ATTACKS)
def test_leader_survives_a_flood_of_metrics_requests(stage: Stage, start: Start, mode: str, *, one_port: bool) -> None:
    act_with_every_controller(stage)
    metrics = 0 if one_port else free_port()
    operator = start(*(() if one_port else (f"--metrics-listen=127.0.0.1:{metrics}",)))
    metrics = metrics or operator.port
    wait_for(lambda: leads(operator, metrics), "the operator to lead")
    with Probing(operator.port, metrics):
        time.sleep(8)  # what is allocated once, by the first plans and scrapes
    before, held = resident_bytes(operator.pid), lease(stage.client)

    renewals = set()
    with Probing(operator.port, metrics) as probing, flood(mode, metrics, connections=ATTACKS[mode], seconds=SECONDS):
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            renewals.add(lease(stage.client)["renewTime"])
            time.sleep(1.0)

    print(f"\n{mode}, one port {one_port}: slowest probe {1000 * probing.slowest:.0f} ms, {probing.failures=}")
    assert operator.running()
    assert probing.failures == []
    assert probing.slowest < patiently(PROBE_TIMEOUT if one_port else 1.0)
    assert probing.scrapes.count(200) >= 0.8 * len(probing.scrapes)
    now = lease(stage.client)
    assert (now["holderIdentity"], now["leaseTransitions"]) == (held["holderIdentity"], held["leaseTransitions"])
    assert len(renewals) >= SECONDS / 4, "renewed every two seconds"
    text = get(metrics, "/metrics")[1]
    assert value(text, "trimtab_leader ") == 1.0
    assert value(text, "trimtab_http_refused_total{") > 0
    peak = resident_bytes(operator.pid, "VmHWM")
    wait_for(lambda: resident_bytes(operator.pid) <= 1.1 * before, "memory to return", timeout=30)
    after = resident_bytes(operator.pid)
    print(
        f"memory {before / 2**20:.0f} -> peak {peak / 2**20:.0f} -> {after / 2**20:.0f} MiB, "
        f"{len(renewals)} renewals, "
        f"{probing.scrapes.count(200)}/{len(probing.scrapes)} scrapes, "
        f"refused {value(text, 'trimtab_http_refused_total{'):.0f}"
    )
    assert peak < MEMORY_LIMIT
    require_end(stage.client, operator)
