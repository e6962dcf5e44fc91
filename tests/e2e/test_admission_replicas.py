"""Two replicas of the admission role under load: certificates are rotated, replicas end and are killed, none is left.

Pods are created as dry runs without a pause, and each must come back with the toleration that the mutating webhook
adds. The API server also calls the validating webhook for each. Both have failurePolicy Fail, so a request for which no
webhook responds is refused.
"""

from __future__ import annotations

import asyncio
import base64
import signal
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct, field

from tests.conftest import MakeCluster
from tests.fixtures.placement_admission import ADMISSION, MUTATING, SECRET, VALIDATING, AdmissionCluster, pod
from tests.fixtures.waiting import eventually, patiently, wait_for
from trimtab.admission.certificates import decode_secret, split_bundle
from trimtab.admission.webhooks import decode_configuration
from trimtab.kube.api import ApiError, Forbidden, NotFound, ServerError, Unreachable
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab.kube.resources import PODS, SECRETS
from trimtab_local.certificates import Keys, kubelet_certificate, make_keys
from trimtab_local.install import OperatorProcess

NAMESPACE = "trimtab-system"
KEY = "load.trimtab.dev"
WORKERS = 6
ISSUED_LIFETIME = 120.0
"""Lifetime setting in seconds with certificates of another issuer. A CA must then be known for 10 s before a
certificate of it is served, so that two changes of the CA within that time do not depend on the load of the machine."""
LIFETIME = 24.0
"""Seconds of a serving certificate: renewed after 16 s; the CA is replaced after 48 s, in steps of 2 and 6 s."""


def rules(failure_policy: str) -> dict[str, Any]:
    hardware = {
        "classes": [{"name": "load", "podLabels": {"load": "yes"}, "taint": {"key": KEY}, "exclusive": True}],
        "failurePolicy": failure_policy,
    }
    return {"specialHardware": hardware}


class Request(Struct):
    """A request: when it was sent and answered, whether it was changed, and its error."""

    sent: float
    answered: float = 0.0
    changed: bool = False
    error: str = ""


class Load(Struct):
    """The requests of a load."""

    requests: list[Request] = field(default_factory=list)

    def failed(self) -> list[Request]:
        return [each for each in self.requests if each.error or not each.changed]


@contextmanager
def creating(cluster: AdmissionCluster, namespace: str) -> Iterator[Load]:
    """Create pods as dry runs during the block, with several requests at a time."""
    load, stop = Load(), threading.Event()
    body = pod("load", labels={"load": "yes"})

    async def create(api: Transport) -> None:
        while not stop.is_set():
            request = Request(time.monotonic())
            try:
                made = await api.request("POST", PODS.path(namespace=namespace), params={"dryRun": "All"}, body=body)
                request.changed = any(each.get("key") == KEY for each in made["spec"].get("tolerations", ()))
            except (ApiError, Unreachable) as error:
                request.error = f"{type(error).__name__}: {error}"
            request.answered = time.monotonic()
            load.requests.append(request)
            await asyncio.sleep(0.02)

    async def run() -> None:
        async with Transport(load_config(cluster.cluster.kubeconfig)) as api:
            await asyncio.gather(*(create(api) for _ in range(WORKERS)))

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        yield load
    finally:
        stop.set()
        thread.join()


@pytest.fixture(scope="module")
def cluster(
    make_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[AdmissionCluster]:
    """A local cluster without nodes and replicas."""
    if request.config.getoption("--cluster") != "local":
        pytest.skip("these tests run the admission role as a process next to a local control plane")
    with ExitStack() as stack:
        yield AdmissionCluster(make_cluster(nodes=0), tmp_path_factory.mktemp("replicas"), stack)


def write_secret(cluster: AdmissionCluster, data: Mapping[str, bytes] | None) -> str:
    """Replace the contents of the Secret with the certificate, and return its resource version."""
    encoded = data and {name: base64.b64encode(value).decode() for name, value in data.items()}
    path, merge = SECRETS.path(SECRET, namespace=NAMESPACE), "application/merge-patch+json"
    found = cluster.client.request("PATCH", path, {"data": encoded}, content_type=merge)
    return str(found["metadata"]["resourceVersion"])


@contextmanager
def replicas(
    cluster: AdmissionCluster, *arguments: str, certificate: Mapping[str, bytes] | None = None
) -> Iterator[list[OperatorProcess]]:
    """Run two replicas with the rules under failurePolicy Fail during the block.

    Args:
        cluster: the cluster.
        arguments: further arguments of the replicas.
        certificate: what the Secret contains at the start. By default it is empty, because a certificate of another
            test has another lifetime.
    """
    with suppress(NotFound):
        write_secret(cluster, None)
    if certificate is not None:
        write_secret(cluster, certificate)
    cluster.replicas.clear()
    cluster.proxy.retarget(*cluster._ports)
    try:
        running = [cluster.start(*arguments), cluster.start(*arguments)]
        cluster.enforce(**rules("Fail"))
        yield running
    finally:
        for each in cluster.replicas:
            if each.running():
                each.stop()


@pytest.fixture(scope="module")
def namespace(cluster: AdmissionCluster) -> str:
    return cluster.namespace()


def authorities(cluster: AdmissionCluster) -> tuple[bytes, ...]:
    import msgspec

    found = cluster.client.request("GET", SECRETS.path(SECRET, namespace=NAMESPACE))
    return split_bundle(decode_secret(msgspec.json.encode(found)).data["ca.crt"])


def bundles(cluster: AdmissionCluster) -> set[tuple[bytes, ...]]:
    import msgspec

    found = [cluster.client.request("GET", each.path(ADMISSION)) for each in (MUTATING, VALIDATING)]
    return {split_bundle(each) for one in found for each in decode_configuration(msgspec.json.encode(one)).bundles}


def restart(cluster: AdmissionCluster, replica: OperatorProcess, other: int, *arguments: str) -> None:
    """Replace a replica as a rolling update does; the port of the other one serves meanwhile."""
    ending = threading.Thread(target=replica.stop)
    ending.start()
    time.sleep(1.5)  # until the Service has one endpoint less
    assert replica.get("/readyz") is None
    assert replica.running()
    cluster.proxy.retarget(other)
    ending.join()
    cluster.start(*arguments)
    cluster.proxy.retarget(*cluster._ports)


def test_rotated_ca_and_restarted_replicas_fail_no_request(cluster: AdmissionCluster, namespace: str) -> None:
    arguments = (f"--webhook-certificate-lifetime={LIFETIME:g}s", "--webhook-shutdown-delay=4s")
    with replicas(cluster, *arguments) as running, creating(cluster, namespace) as load:
        first = authorities(cluster)[0]
        for number, replica in enumerate(running):
            time.sleep(10)
            restart(cluster, replica, cluster._ports[1 - number], *arguments)

        def rotated() -> bool:
            found = authorities(cluster)
            return found[0] != first and len(found) == 1

        eventually(rotated, "the CA is rotated", seconds=100, pause=0.5)
        wait_for(lambda: bundles(cluster) == {authorities(cluster)}, "the old CA to leave the webhooks", timeout=20)
        assert first not in authorities(cluster)
        time.sleep(3)
    assert not load.failed(), load.failed()[:5]
    assert len(load.requests) > 1000


def issued(keys: Keys) -> dict[str, bytes]:
    """Return a new certificate in the form in which cert-manager writes it into a Secret."""
    chain, begin, key = kubelet_certificate(keys, node=ADMISSION, address="127.0.0.1").partition(b"-----BEGIN EC")
    return {"tls.crt": chain, "tls.key": begin + key, "ca.crt": keys.ca.read_bytes()}


def served(cluster: AdmissionCluster) -> set[str]:
    """Return the certificates that the replicas serve."""
    return {ssl.get_server_certificate(("127.0.0.1", port)).strip() for port in cluster._ports}


def test_certificates_of_another_issuer_are_renewed_and_its_ca_changed_without_a_failed_request(
    cluster: AdmissionCluster, namespace: str, tmp_path: Path
) -> None:
    """As cert-manager does it: the Secret has one CA at any time, and changes at once to that of another issuer."""
    issuers = [make_keys(tmp_path / name) for name in ("first", "second", "third")]
    lifetime = f"--webhook-certificate-lifetime={ISSUED_LIFETIME:g}s"
    arguments = ("--no-webhook-issue-certificates", lifetime, "--webhook-shutdown-delay=4s")
    current = issued(issuers[0])

    def serves_current() -> bool:
        return served(cluster) == {current["tls.crt"].decode().strip()}

    with replicas(cluster, *arguments, certificate=current) as running, creating(cluster, namespace) as load:
        eventually(serves_current, what="the first certificate")
        # 1. Renewals.
        for _ in range(3):
            current = issued(issuers[0])
            write_secret(cluster, current)
            eventually(serves_current, what="the renewed certificate")
        # 2. Another CA, and a replica that starts during the change.
        current = issued(issuers[1])
        write_secret(cluster, current)
        restart(cluster, running[0], cluster._ports[1], *arguments)
        eventually(serves_current, what="a certificate of the second CA")
        # 3. Two CAs within the time that one must be known.
        for issuer in (issuers[0], issuers[2]):
            current = issued(issuer)
            version = write_secret(cluster, current)
            time.sleep(0.7)
        assert not serves_current()
        eventually(serves_current, what="a certificate of the third CA")
        wait_for(lambda: bundles(cluster) == {split_bundle(current["ca.crt"])}, "the other CAs to leave", timeout=90)
        time.sleep(3)
    assert not load.failed(), load.failed()[:5]
    assert len(load.requests) > 500
    secret = cluster.client.request("GET", SECRETS.path(SECRET, namespace=NAMESPACE))
    assert secret["metadata"]["resourceVersion"] == version


def test_killed_replica_fails_only_the_requests_that_it_was_answering(
    cluster: AdmissionCluster, namespace: str
) -> None:
    with replicas(cluster) as running, creating(cluster, namespace) as load:
        time.sleep(3)
        killed = time.monotonic()
        running[0].stop(signal.SIGKILL)
        time.sleep(5)
    failed = load.failed()
    assert all(each.sent <= killed + 0.1 and each.answered >= killed for each in failed), failed
    assert len(failed) <= WORKERS
    assert all("failed calling webhook" in each.error for each in failed)
    assert sum(each.sent > killed + 0.1 for each in load.requests) > 50


def test_both_replicas_gone_refuse_or_admit_by_failure_policy(cluster: AdmissionCluster, namespace: str) -> None:
    marked = pod("gone", labels={"load": "yes"})
    with replicas(cluster) as running:
        for each in running:
            each.stop(signal.SIGKILL)
        with pytest.raises(ServerError) as refused:
            cluster.dev.create(PODS, marked, namespace=namespace, dry_run=True)
        assert refused.value.status == 500
        assert 'failed calling webhook "mutate-fail.placement.trimtab.dev"' in str(refused.value)
        # kube-system and the operator's own namespace are exempt, whatever happens.
        for exempt in ("kube-system", NAMESPACE):
            made = cluster.ops.create(PODS, marked, namespace=exempt, dry_run=True).object
            assert all(each.get("key") != KEY for each in made["spec"].get("tolerations", ()))
        # The rules return with the first replica.
        cluster.start()
        wait_for(lambda: tolerates(cluster, namespace, marked), "the webhooks to respond", timeout=30, interval=0.1)
        cluster.enforce(**rules("Ignore"))
        for each in cluster.replicas:
            if each.running():
                each.stop(signal.SIGKILL)
        began = time.monotonic()
        assert not tolerates(cluster, namespace, marked)
        assert time.monotonic() - began < patiently(10)
        # A replica that starts applies the rules again.
        cluster.start()
        stranger = pod("stranger", tolerations=[{"key": KEY, "operator": "Exists"}])
        with pytest.raises(Forbidden):
            cluster.dev.create(PODS, stranger, namespace=namespace, dry_run=True)


def tolerates(cluster: AdmissionCluster, namespace: str, manifest: dict[str, Any]) -> bool:
    try:
        made = cluster.dev.create(PODS, manifest, namespace=namespace, dry_run=True).object
    except (ServerError, NotFound):
        return False
    return any(each.get("key") == KEY for each in made["spec"].get("tolerations", ()))
