"""Two replicas that keep the certificate and the webhooks up to date, without a leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.admission_requests import admission_spec
from tests.fakes.api import FakeApi
from tests.fakes.clock import LoopClock
from trimtab.admission import certificate_maintenance
from trimtab.admission.certificates import (
    CERTIFICATE,
    CertificateSecret,
    Lifetimes,
    decode_secret,
    next_certificates,
    read_certificates,
    split_bundle,
)
from trimtab.admission.maintenance import FIRST_REGISTRATION_DELAY, MaintenanceSettings, WebhookMaintenance
from trimtab.admission.webhooks import CONFIGURATIONS, Endpoint, WebhookConfiguration, decode_configuration
from trimtab.api.placement_admission import PlacementAdmissionSpec
from trimtab.kube.api import Forbidden
from trimtab.kube.resources import SECRETS, Resource
from trimtab.kube.watching.store import Store

pytestmark = pytest.mark.looptime

NAMESPACE, SECRET, NAME = "trimtab", "certificate", "trimtab-admission"
SECRET_PATH = SECRETS.path(SECRET, namespace=NAMESPACE)
HOUR = 3600.0


class Cluster:
    """The objects that the chart creates, and watches that deliver every change at once."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.listeners: list[Callable[[], None]] = []
        self.api.put(SECRET_PATH, {"metadata": {"name": SECRET, "namespace": NAMESPACE}})
        for each in CONFIGURATIONS:
            self.api.put(each.path(NAME), {"metadata": {"name": NAME}})

        async def after(_call: Any) -> None:
            self.deliver()

        self.api.after = after

    def deliver(self) -> None:
        for each in self.listeners:
            each()

    def webhooks(self, resource: Resource) -> dict[str, Any]:
        items = self.api.objects[resource.path(NAME)].get("webhooks") or []
        return {each["name"].split(".")[0]: each for each in items}

    @property
    def secret(self) -> CertificateSecret:
        return decode_secret(msgspec.json.encode(self.api.objects[SECRET_PATH]))


class Replica:
    """One replica's loop with its stores."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        url: str = "https://127.0.0.1:9443",
        issue: bool = True,
        lifetime: float = 24 * HOUR,
    ) -> None:
        self.cluster = cluster
        self.spec: PlacementAdmissionSpec | None = None
        self.serving = True
        self.served: list[bytes] = []
        self.secrets: Store[CertificateSecret] = Store()
        self.configurations: dict[Resource, Store[WebhookConfiguration]] = {each: Store() for each in CONFIGURATIONS}
        endpoint = Endpoint(url=url) if url else Endpoint(service=NAME, namespace=NAMESPACE)
        self.loop = WebhookMaintenance(
            cluster.api,
            MaintenanceSettings(
                endpoint=endpoint,
                namespace=NAMESPACE,
                secret=SECRET,
                issue=issue,
                configuration=NAME,
                lifetimes=Lifetimes(lifetime),
            ),
            secrets=self.secrets,
            configurations=self.configurations,
            policy=lambda: self.spec,
            serve=lambda certificate, _key: self.served.append(certificate),
            is_serving=lambda: self.serving and bool(self.served),
            clock=LoopClock(),
        )
        cluster.listeners.append(self.watch)
        self.watch()
        self.task = asyncio.create_task(self.loop.run())

    def watch(self) -> None:
        objects = self.cluster.api.objects
        self.secrets.replace([self.cluster.secret] if SECRET_PATH in objects else [])
        self.secrets.synced = True
        for each, store in self.configurations.items():
            found = objects.get(each.path(NAME))
            store.replace([] if found is None else [decode_configuration(msgspec.json.encode(found))])
            store.synced = True
        if hasattr(self, "loop"):
            self.loop.wake()

    async def end(self) -> None:
        self.cluster.listeners.remove(self.watch)
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def test_replicas_agree_on_one_certificate_and_register_once() -> None:
    cluster = Cluster()
    replicas = [Replica(cluster), Replica(cluster)]
    await asyncio.sleep(5)
    assert len(set(replicas[0].served + replicas[1].served)) == 1
    assert set(cluster.webhooks(CONFIGURATIONS[1])) == {"resources"}
    for each in replicas:
        each.spec = admission_spec("podNodeConstraints: {}")
        each.loop.wake()
    await asyncio.sleep(5)
    assert set(cluster.webhooks(CONFIGURATIONS[1])) == {"resources", "validate-fail"}
    sent = len(cluster.api.sent("PATCH"))
    await asyncio.sleep(300)
    assert len(cluster.api.sent("PATCH")) == sent
    for each in replicas:
        assert each.loop.certificate_check() is None
        assert each.loop.registered
        await each.end()


async def test_nothing_is_registered_before_the_service_can_have_an_endpoint() -> None:
    cluster = Cluster()
    replica = Replica(cluster, url="")
    replica.spec, replica.serving = admission_spec("podNodeConstraints: {}"), False
    await asyncio.sleep(20)
    assert not cluster.webhooks(CONFIGURATIONS[1])
    replica.serving = True
    await asyncio.sleep(FIRST_REGISTRATION_DELAY)
    assert not cluster.webhooks(CONFIGURATIONS[1])
    await asyncio.sleep(2)
    assert set(cluster.webhooks(CONFIGURATIONS[1])) == {"resources", "validate-fail"}
    await replica.end()


async def test_manual_change_is_reverted_and_deleted_webhooks_return() -> None:
    cluster = Cluster()
    replica = Replica(cluster)
    replica.spec = admission_spec("podNodeSelector: {}")
    await asyncio.sleep(5)
    path = CONFIGURATIONS[0].path(NAME)
    stored = msgspec.json.decode(msgspec.json.encode(cluster.api.objects[path]))
    stored["webhooks"][0]["failurePolicy"] = "Ignore"
    cluster.api.put(path, stored)
    cluster.deliver()
    await asyncio.sleep(5)
    assert cluster.webhooks(CONFIGURATIONS[0])["mutate-fail"]["failurePolicy"] == "Fail"
    del cluster.api.objects[path]
    cluster.deliver()
    await asyncio.sleep(5)
    assert set(cluster.webhooks(CONFIGURATIONS[0])) == {"mutate-fail"}
    await replica.end()


async def test_rotation_of_the_ca_never_serves_an_untrusted_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate_maintenance, "CHECK_PERIOD", 600.0)
    cluster = Cluster()
    replicas = [Replica(cluster), Replica(cluster)]
    cas: set[bytes] = set()
    sizes: set[int] = set()
    for step in range(150):
        await asyncio.sleep(HOUR)
        if step % 37 == 20:
            await replicas[0].end()
            replicas = [replicas[1], Replica(cluster)]
            await asyncio.sleep(1)
        for each in replicas:
            assert each.loop.certificate_check() is None, f"after {step} h"
        bundle = split_bundle(cluster.secret.data["ca.crt"])
        cas.update(bundle)
        sizes.add(len(bundle))
    assert len(cas) == 4
    assert sizes == {1, 2}
    for each in replicas:
        await each.end()


async def test_refused_writes_are_reported_and_do_not_end_the_loop() -> None:
    cluster = Cluster()
    cluster.api.fail(Forbidden("no", status=403), times=5, method="PATCH")
    replica = Replica(cluster)
    await asyncio.sleep(0.1)
    assert replica.loop.problem == "no"
    assert replica.loop.certificate_check() is not None
    await asyncio.sleep(60)
    assert replica.loop.problem == ""
    assert replica.loop.certificate_check() is None
    await replica.end()


async def test_secret_of_another_owner_is_read_and_reloaded_but_never_written() -> None:
    cluster = Cluster()
    replica = Replica(cluster, issue=False)
    await asyncio.sleep(5)
    assert "Secret trimtab/certificate" in (replica.loop.certificate_check() or "")
    for number in range(2):
        made = next_certificates(
            None,
            registered=(),
            trusted_for=lambda _: -1.0,
            names=("127.0.0.1",),
            now=LoopClock().now(),
            lifetimes=Lifetimes(24 * HOUR),
        )
        assert made is not None
        data = {**made.data(), "ca.key": ""}
        cluster.api.put(SECRET_PATH, {"metadata": {"name": SECRET, "namespace": NAMESPACE}, "data": data})
        cluster.deliver()
        await asyncio.sleep(1)
        assert replica.loop.certificate_check() is None
        await asyncio.sleep(120)
        assert replica.loop.certificate_check() is None
        assert len(replica.served) == number + 1
        assert replica.served[-1] == read_certificates(cluster.secret.data).certificate
    assert replica.served[-1] == cluster.secret.data[CERTIFICATE]
    assert not [call for call in cluster.api.sent() if "secrets" in call.path and call.method != "GET"]
    await replica.end()


async def test_short_lived_certificate_is_renewed_in_time() -> None:
    cluster = Cluster()
    replica = Replica(cluster, lifetime=24.0)
    await asyncio.sleep(1)
    clock = LoopClock()
    for _ in range(300):
        await asyncio.sleep(1)
        expiry = replica.loop.certificate_expires
        assert expiry is not None
        assert expiry - clock.now() > 24.0 / 6
        assert replica.loop.certificate_check() is None
    await replica.end()


CONTROL_PLANE = {"key": "control-plane", "operator": "DoesNotExist"}
MANAGED = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["gke-managed-system"]}


def edit_webhooks(cluster: Cluster, edit: Callable[[dict[str, Any]], None]) -> None:
    """Let a platform edit each webhook after every write."""

    async def after(call: Any) -> None:
        for each in CONFIGURATIONS if call.method == "PATCH" else ():
            for webhook in cluster.api.objects[each.path(NAME)].get("webhooks") or ():
                edit(webhook)
        cluster.deliver()

    cluster.api.after = after


def expressions(cluster: Cluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.webhooks(CONFIGURATIONS[1])["validate-fail"]["namespaceSelector"][
        "matchExpressions"
    ]
    return found


def exempt(cluster: Cluster) -> list[list[str]]:
    return [each["values"] for each in expressions(cluster) if each["key"] == "kubernetes.io/metadata.name"]


@pytest.mark.parametrize("added", [CONTROL_PLANE, MANAGED], ids=["AKS", "GKE"])
async def test_namespaces_that_a_platform_exempts_stay_exempt(added: dict[str, Any]) -> None:
    cluster = Cluster()

    def add(webhook: dict[str, Any]) -> None:
        found = webhook["namespaceSelector"].setdefault("matchExpressions", [])
        if added not in found:
            found.append(added)

    edit_webhooks(cluster, add)
    replica = Replica(cluster)
    for names in (["a", "b"], ["a"]):
        replica.spec = admission_spec(f"{{exemptNamespaces: [{', '.join(names)}], podNodeConstraints: {{}}}}")
        replica.loop.wake()
        await asyncio.sleep(5)
        sent = len(cluster.api.sent("PATCH"))
        await asyncio.sleep(300)
        assert len(cluster.api.sent("PATCH")) == sent
        assert replica.loop.registered
        assert added in expressions(cluster)
        assert [*names, "kube-system", NAMESPACE] in exempt(cluster)
        assert len(expressions(cluster)) == 2
    await replica.end()


async def test_additions_to_the_namespace_selector_survive_a_change_of_the_rules() -> None:
    cluster = Cluster()
    replica = Replica(cluster)
    replica.spec = admission_spec("podNodeConstraints: {}")
    await asyncio.sleep(5)
    path = CONFIGURATIONS[1].path(NAME)
    expressions(cluster).append(CONTROL_PLANE)
    cluster.api.put(path, cluster.api.objects[path])
    cluster.deliver()
    replica.spec = admission_spec("{exemptNamespaces: [a], podNodeConstraints: {}}")
    replica.loop.wake()
    await asyncio.sleep(5)
    assert CONTROL_PLANE in expressions(cluster)
    assert exempt(cluster) == [["a", "kube-system", NAMESPACE]]
    await replica.end()


TEAM = {"key": "team", "operator": "In", "values": ["a"]}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda own: {"matchExpressions": own, "matchLabels": {"webhooks": "on"}}, id="matchLabels"),
        pytest.param(lambda own: {"matchExpressions": [*own, TEAM]}, id="In"),
        pytest.param(lambda own: {"matchExpressions": [*own, {"key": "team", "operator": "Exists"}]}, id="Exists"),
        pytest.param(lambda _: {}, id="empty"),
    ],
)
async def test_selector_that_includes_only_some_namespaces_is_reverted(
    change: Callable[[list[Any]], dict[str, Any]],
) -> None:
    cluster = Cluster()
    replica = Replica(cluster)
    replica.spec = admission_spec("podNodeConstraints: {}")
    await asyncio.sleep(5)
    before, path = expressions(cluster), CONFIGURATIONS[1].path(NAME)
    stored = msgspec.json.decode(msgspec.json.encode(cluster.api.objects[path]))
    for each in stored["webhooks"]:
        each["namespaceSelector"] = change(each["namespaceSelector"].get("matchExpressions", []))
    cluster.api.put(path, stored)
    cluster.deliver()
    await asyncio.sleep(5)
    assert cluster.webhooks(CONFIGURATIONS[1])["validate-fail"]["namespaceSelector"] == {"matchExpressions": before}
    assert cluster.webhooks(CONFIGURATIONS[1])["resources"]["namespaceSelector"] == {}
    await replica.end()


async def test_webhooks_that_another_program_resets_are_written_with_backoff() -> None:
    cluster = Cluster()
    edit_webhooks(cluster, lambda webhook: webhook.update(failurePolicy="Ignore"))
    replica = Replica(cluster)
    replica.spec = admission_spec("podNodeConstraints: {}")
    await asyncio.sleep(600)
    assert not replica.loop.registered
    assert 20 < len(cluster.api.sent("PATCH")) < 60
    cluster.api.after = None
    await asyncio.sleep(60)
    cluster.deliver()
    await asyncio.sleep(60)
    assert replica.loop.registered
    await replica.end()
