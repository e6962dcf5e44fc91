"""Metrics over TLS with the chart's RBAC: who may read them, and how many reviews invalid tokens cause."""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from typing import Final

import pytest

from tests.conftest import MakeCluster
from tests.e2e.conftest import Stage, Start
from tests.e2e.test_tenant_metrics import free_port, lease
from tests.fixtures.clusters import require_local_cluster
from tests.fixtures.tenant import Tenant
from tests.fixtures.waiting import patiently, wait_for
from trimtab.runtime.http.authorizer import NEW_BURST, NEW_PER_SECOND
from trimtab_local.cluster import LocalCluster
from trimtab_local.install import NAMESPACE, OperatorProcess, install

READER: Final = "prometheus"
SECURE: Final = (
    "metrics.secure=true",
    f"metrics.readers[0].name={READER}",
    f"metrics.readers[0].namespace={NAMESPACE}",
)
SECONDS: Final = 20.0


@pytest.fixture(scope="module")
def stage_cluster(request: pytest.FixtureRequest) -> LocalCluster:
    """A cluster without nodes, and the chart with secure metrics in it."""
    require_local_cluster(request)
    make: MakeCluster = request.getfixturevalue("make_cluster")
    cluster = make(nodes=0)
    install(cluster, *SECURE)
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    cluster.client.request("POST", accounts, {"metadata": {"name": READER}})
    return cluster


def scrape(port: int, token: str = "", *, source: str = "127.0.0.2") -> tuple[int, str]:
    """Status and body of one request over TLS; the self-signed certificate is not verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(
        "127.0.0.1", port, timeout=patiently(10), context=context, source_address=(source, 0)
    )
    try:
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()


def reviews(text: str) -> float:
    """The number of objects that the operator created, including token reviews."""
    found = [line for line in text.splitlines() if line.startswith('trimtab_api_requests_total{method="POST"')]
    return sum(float(line.rsplit(" ", 1)[1]) for line in found)


# The standard library leaves a TLS socket open that the server reset before the handshake.
@pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
def test_only_authorized_clients_read_metrics_and_invalid_tokens_cause_few_reviews(stage: Stage, start: Start) -> None:
    tenant = Tenant(stage.cluster)
    port = free_port()
    operator: OperatorProcess = start(f"--metrics-listen=127.0.0.1:{port}", "--metrics-secure")
    reader = stage.cluster.service_account_token(NAMESPACE, READER)
    other = stage.cluster.service_account_token(tenant.namespace, "dev")
    wait_for(lambda: "trimtab_leader 1.0" in scrape(port, reader)[1], "the operator to lead")
    assert scrape(port, other)[0] == 403
    assert scrape(port, "invented")[0] == 401
    assert scrape(port)[0] == 401

    before, held = reviews(scrape(port, reader)[1]), lease(stage.client)
    statuses: list[int] = []
    end = time.monotonic() + SECONDS

    def flood(source: str) -> None:
        number = 0
        while time.monotonic() < end:
            number += 1
            statuses.append(scrape(port, f"{source}-{number}", source=source)[0])

    floods = [threading.Thread(target=flood, args=(f"127.0.1.{number}",)) for number in range(1, 9)]
    for each in floods:
        each.start()
    scrapes = []
    while time.monotonic() < end:
        scrapes.append(scrape(port, reader)[0])
        assert operator.get("/healthz") is not None
        time.sleep(1.0)
    for each in floods:
        each.join()
    made = reviews(scrape(port, reader)[1]) - before
    print(f"\n{len(statuses)} requests with invented tokens, {made:.0f} POSTs, {scrapes.count(200)} scrapes")
    assert len(statuses) > 2 * made
    assert 200 not in statuses
    assert made <= SECONDS * NEW_PER_SECOND + 2 * NEW_BURST + 20, "and the operator's own events"
    assert scrapes.count(200) >= 0.9 * len(scrapes)
    now = lease(stage.client)
    assert (now["holderIdentity"], now["leaseTransitions"]) == (held["holderIdentity"], held["leaseTransitions"])
