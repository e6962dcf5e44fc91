"""The certificate and the APIService of the inspection API: renewed before they expire, and after they have expired."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.fakes.api import FakeApi
from tests.fakes.clock import LoopClock
from trimtab.admission.certificates import CertificateSecret, Lifetimes, decode_secret, read_certificates
from trimtab.kube.resources import API_SERVICES, SECRETS
from trimtab.kube.watching.store import Store
from trimtab.runtime.inspection.api_service import (
    API_SERVICE,
    ApiService,
    ApiServiceMaintenance,
    RegistrationSettings,
    decode_api_service,
)

pytestmark = pytest.mark.looptime

NAMESPACE, SECRET = "trimtab", "certificate"
SECRET_PATH, API_SERVICE_PATH = SECRETS.path(SECRET, namespace=NAMESPACE), API_SERVICES.path(API_SERVICE)
LIFETIME = 600.0


class Leader:
    """The loop of the leader. The Secret and the APIService are delivered by watches at once."""

    def __init__(self, api: FakeApi) -> None:
        self.api, self.clock = api, LoopClock()
        self.served: list[bytes] = []
        self.secrets: Store[CertificateSecret] = Store()
        self.api_services: Store[ApiService] = Store()
        self.loop = ApiServiceMaintenance(
            api,
            RegistrationSettings(
                namespace=NAMESPACE, service="inspection", secret=SECRET, lifetimes=Lifetimes(LIFETIME)
            ),
            secrets=self.secrets,
            api_services=self.api_services,
            serve=lambda certificate, _key: self.served.append(certificate),
            is_serving=lambda: bool(self.served),
            clock=self.clock,
        )

        async def deliver(_call: Any) -> None:
            self.watch()

        api.after = deliver
        self.watch()
        self.task = asyncio.create_task(self.loop.run())

    def watch(self) -> None:
        objects = self.api.objects
        encode: Callable[[Any], bytes] = msgspec.json.encode
        self.secrets.replace([decode_secret(encode(objects[SECRET_PATH]))])
        found = objects.get(API_SERVICE_PATH)
        self.api_services.replace([] if found is None else [decode_api_service(encode(found))])
        self.secrets.synced = self.api_services.synced = True
        if hasattr(self, "loop"):
            self.loop.wake()

    def remaining(self) -> float:
        """The remaining lifetime of the served certificate."""
        at = self.loop.certificate_expires
        assert at is not None
        return at - self.clock.now()

    def is_trusted(self) -> bool:
        """Whether the API server trusts the CA of the certificate in the Secret."""
        [stored] = [decode_secret(msgspec.json.encode(self.api.objects[SECRET_PATH]))]
        bundle = base64.b64decode(self.api.objects[API_SERVICE_PATH]["spec"]["caBundle"])
        return self.loop.certificate_check() is None and read_certificates(stored.data).authorities[0] in bundle

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@pytest.fixture
def api() -> FakeApi:
    found = FakeApi()
    found.put(SECRET_PATH, {"metadata": {"name": SECRET, "namespace": NAMESPACE}})
    return found


async def test_short_lived_certificate_is_renewed_before_it_expires_and_is_always_trusted(api: FakeApi) -> None:
    leader = Leader(api)
    await asyncio.sleep(5)
    for _ in range(60):
        await asyncio.sleep(LIFETIME / 10)
        assert leader.remaining() > 0
        assert leader.is_trusted()
    assert len(set(leader.served)) >= 6
    assert leader.loop.registered
    await leader.end()


async def test_certificate_that_expired_while_no_replica_ran_is_replaced(api: FakeApi) -> None:
    first = Leader(api)
    await asyncio.sleep(5)
    await first.end()
    expired = first.served[-1]
    await asyncio.sleep(20 * LIFETIME)  # the CA has expired as well

    second = Leader(api)
    await asyncio.sleep(2 * Lifetimes(LIFETIME).propagation)
    assert second.served[-1] != expired
    assert second.remaining() > 0
    assert second.is_trusted()
    await second.end()
