"""The states of the certificates' Secret: no order of steps, restarts and failures leaves a certificate untrusted."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.api import FakeApi
from tests.fakes.clock import SetClock
from trimtab.admission.certificates import (
    CA_CERTIFICATES,
    CA_KEY,
    CERTIFICATE,
    KEY,
    MAX_CAS,
    Certificates,
    Lifetimes,
    ServedCertificate,
    TrustTracker,
    decode_secret,
    expires,
    issuer_of,
    names_of,
    next_certificates,
    read_certificates,
    split_bundle,
    store_certificates,
    trust_bundle,
)
from trimtab.kube.errors import InputError
from trimtab.kube.resources import SECRETS

DAY = 86400.0
LIFE = Lifetimes()
NAMES = ("admission.trimtab.svc",)


def step(
    current: Certificates | None,
    now: float,
    *,
    registered: tuple[bytes, ...] = (),
    trusted_for: float = -1.0,
    names: tuple[str, ...] = NAMES,
) -> Certificates | None:
    return next_certificates(
        current, registered=registered, trusted_for=lambda _: trusted_for, names=names, now=now, lifetimes=LIFE
    )


def first(now: float = 0.0) -> Certificates:
    made = step(None, now)
    assert made is not None
    return made


def bundle(certificates: Certificates) -> bytes:
    return b"".join(certificates.authorities)


def raw(certificates: Certificates) -> dict[str, bytes]:
    return {
        CA_CERTIFICATES: bundle(certificates),
        CA_KEY: certificates.authority_key,
        CERTIFICATE: certificates.certificate,
        KEY: certificates.key,
    }


def test_first_certificate_is_issued_by_its_ca_for_all_names() -> None:
    made = step(None, 0.0, names=("admission.trimtab.svc", "127.0.0.1"))
    assert made is not None
    assert issuer_of(made) == made.authorities[0]
    assert names_of(made) == {"admission.trimtab.svc", "127.0.0.1"}
    assert expires(made) == LIFE.certificate
    assert read_certificates(raw(made)) == made
    assert step(made, 1.0) is None


def test_python_and_openssl_accept_the_certificate() -> None:
    made = first(now=1_800_000_000.0)
    with tempfile.TemporaryDirectory() as directory:
        certificate, key = Path(directory, "tls.crt"), Path(directory, "tls.key")
        certificate.write_bytes(made.certificate)
        key.write_bytes(made.key)
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    ssl.create_default_context(cadata=bundle(made).decode())


def test_certificate_is_renewed_by_the_same_ca_before_it_expires() -> None:
    made = first()
    assert step(made, 59 * DAY) is None
    renewed = step(made, 61 * DAY)
    assert renewed is not None
    assert renewed.authorities == made.authorities
    assert renewed.certificate != made.certificate
    assert expires(renewed) == 61 * DAY + LIFE.certificate


def test_new_ca_is_staged_then_propagated_then_active_then_the_old_one_is_removed() -> None:
    old = first()
    old = step(old, 150 * DAY) or old  # a certificate that is still valid for long
    at = 185 * DAY
    staged = step(old, at, registered=(bundle(old),), trusted_for=9e9)
    assert staged is not None
    assert staged.certificate == old.certificate
    assert staged.authorities[1:] == old.authorities
    assert step(staged, at, registered=(bundle(old),), trusted_for=-1.0) is None
    assert step(staged, at, registered=(bundle(staged),), trusted_for=LIFE.propagation - 1) is None
    active = step(staged, at, registered=(bundle(staged),), trusted_for=LIFE.propagation)
    assert active is not None
    assert issuer_of(active) == staged.authorities[0]
    assert active.authorities == staged.authorities
    assert step(active, at + LIFE.retirement - 1, registered=(bundle(staged),), trusted_for=9e9) is None
    alone = step(active, at + LIFE.retirement + 1, registered=(bundle(staged),), trusted_for=9e9)
    assert alone is not None
    assert alone.authorities == staged.authorities[:1]
    assert alone.certificate == active.certificate


def test_certificate_is_renewed_before_its_ca_is_replaced() -> None:
    old = first()
    at = 200 * DAY  # no replica ran for long: the certificate has expired, and the CA is to be replaced
    renewed = step(old, at, registered=(bundle(old),), trusted_for=9e9)
    assert renewed is not None
    assert renewed.authorities == old.authorities
    staged = step(renewed, at, registered=(bundle(old),), trusted_for=9e9)
    assert staged is not None
    assert staged.certificate == renewed.certificate
    expired = msgspec.structs.replace(staged, certificate=old.certificate, key=old.key)
    assert step(expired, at, registered=(bundle(staged),), trusted_for=-1.0) is None
    assert step(expired, at, registered=(bundle(staged),), trusted_for=0.0) is not None


def test_ca_outlives_each_certificate_that_it_issues() -> None:
    assert LIFE.stage_before_expiry > LIFE.certificate
    assert LIFE.authority - LIFE.stage_before_expiry > LIFE.certificate


def test_emptied_secret_keeps_the_cas_that_webhooks_trust() -> None:
    old = first()
    made = step(None, 10.0, registered=(bundle(old),))
    assert made is not None
    assert made.authorities[1:] == old.authorities
    assert issuer_of(made) == made.authorities[0]


def test_lost_ca_key_stages_a_new_ca_and_keeps_the_certificate() -> None:
    old = first()
    broken = msgspec.structs.replace(old, authority_key=b"")
    made = step(broken, 10.0, registered=(bundle(old),))
    assert made is not None
    assert made.certificate == old.certificate
    assert made.authorities[1:] == old.authorities
    assert step(made, 10.0, registered=(bundle(old),)) is None


def test_names_of_another_version_are_kept() -> None:
    old = first()
    made = step(old, 1.0, names=("new.trimtab.svc",))
    assert made is not None
    assert names_of(made) == {"new.trimtab.svc", *NAMES}
    assert step(made, 1.0) is None


@pytest.mark.parametrize(
    "data",
    [
        {},
        {CERTIFICATE: b"", KEY: b""},
        {CERTIFICATE: b"x", KEY: b"y"},
        {CERTIFICATE: first().certificate, KEY: first().key},
        {**raw(first()), CA_CERTIFICATES: b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"},
    ],
    ids=["absent", "empty", "garbage", "mismatch", "bad CA"],
)
def test_unusable_secret_is_an_input_error(data: dict[str, bytes]) -> None:
    with pytest.raises(InputError):
        read_certificates(data)


def test_foreign_secret_keeps_trusted_cas_until_all_replicas_serve_its_certificate() -> None:
    old, new = first(), first(1000.0)
    foreign = msgspec.structs.replace(new, authority_key=b"")

    def wanted(certificates: Certificates, trusted_for: float, now: float) -> tuple[bytes, ...]:
        return split_bundle(trust_bundle(certificates, [bundle(old)], lambda _: trusted_for, now, LIFE))

    later = 1000.0 + LIFE.retirement
    assert wanted(foreign, -1.0, 1000.0) == (*new.authorities, *old.authorities)
    assert wanted(foreign, LIFE.retirement - 1, later) == (*new.authorities, *old.authorities)
    assert wanted(foreign, LIFE.retirement, later - 1) == (*new.authorities, *old.authorities)
    assert wanted(foreign, LIFE.retirement, later) == new.authorities
    assert wanted(msgspec.structs.replace(foreign, authorities=()), -1.0, 1000.0) == ()


def test_replica_serves_a_new_ca_only_after_all_webhooks_trust_it() -> None:
    served: list[bytes] = []
    clock = SetClock(1000.0)
    trust, replica = TrustTracker(clock), ServedCertificate(lambda certificate, _: served.append(certificate))
    old, new = first(900.0), first(950.0)
    both = bundle(new) + bundle(old)
    trust.observe([bundle(old)])
    assert replica.offer(old, [bundle(old)], trust, 60.0)  # nothing was served before
    for registered, at, serves in (
        ([bundle(old), bundle(old)], 1100.0, False),
        ([both, bundle(old)], 1200.0, False),
        ([both, both], 1300.0, False),
        ([both, both], 1359.0, False),
        ([both, both], 1360.0, True),
    ):
        clock.time = at
        trust.observe(registered)
        assert replica.offer(new, registered, trust, 60.0) is serves
        assert replica.is_trusted(registered)
    assert served == [old.certificate, new.certificate]


class World:
    """Two replicas, the Secret and the webhooks' bundle. Each event is one step of one of them, or time that passes."""

    def __init__(self) -> None:
        self.clock = SetClock(0.0)
        self.secret: Certificates | None = None
        self.registered: tuple[bytes, ...] = ()
        self.trusts = [TrustTracker(self.clock), TrustTracker(self.clock)]
        self.served = [ServedCertificate(lambda *_: None), ServedCertificate(lambda *_: None)]
        self.ready = [False, False]

    def iterate(self, replica: int) -> None:
        trust = self.trusts[replica]
        trust.observe(self.registered)
        made = next_certificates(
            self.secret,
            registered=self.registered,
            trusted_for=trust.seconds,
            names=NAMES,
            now=self.clock.time,
            lifetimes=LIFE,
        )
        self.secret = made or self.secret
        if self.secret is not None:
            self.served[replica].offer(self.secret, self.registered, trust, LIFE.propagation)

    def kill(self, replica: int) -> None:
        self.trusts[replica] = TrustTracker(self.clock)
        self.served[replica] = ServedCertificate(lambda *_: None)
        self.ready[replica] = False

    def apply(self) -> None:
        if self.secret is not None:
            trusted_for = self.trusts[0].seconds
            wanted = trust_bundle(self.secret, self.registered, trusted_for, self.clock.time, LIFE)
            self.registered = (wanted,) * 2

    def empty(self) -> None:
        self.secret = None

    def wait(self) -> None:
        self.clock.time += LIFE.propagation

    def days(self, number: int) -> None:
        for _ in range(number):  # live replicas see each change, and iterate in between
            for seconds in (0.0, LIFE.propagation, DAY):
                self.clock.time += seconds
                self.iterate(0)
                self.iterate(1)

    def check(self) -> None:
        assert self.secret is None or len(self.secret.authorities) <= MAX_CAS
        for replica, each in enumerate(self.served):
            if self.registered and each.current is not None:
                trusted = each.is_trusted(self.registered)
                assert trusted or not self.ready[replica], "a replica that served requests is no longer trusted"
                self.ready[replica] = trusted


EVENTS: dict[str, Callable[[World], None]] = {
    "a iterates": lambda world: world.iterate(0),
    "b iterates": lambda world: world.iterate(1),
    "a is killed": lambda world: world.kill(0),
    "b is killed": lambda world: world.kill(1),
    "bundle is applied": World.apply,
    "propagation": World.wait,
    "Secret is emptied": World.empty,
    "a day": lambda world: world.days(1),
    "a quarter": lambda world: world.days(90),
}


@given(st.lists(st.sampled_from(sorted(EVENTS)), max_size=60))
def test_every_served_certificate_is_trusted_in_any_order_of_events(events: list[str]) -> None:
    world = World()
    for event in events:
        EVENTS[event](world)
        world.check()


async def test_only_one_of_two_replicas_writes_the_secret() -> None:
    api = FakeApi()
    path = SECRETS.path("certificate", namespace="trimtab")
    api.put(path, {"metadata": {"name": "certificate", "namespace": "trimtab"}})
    found = decode_secret(msgspec.json.encode(api.objects[path]))
    assert found.data == {}
    assert await store_certificates(api, "trimtab", "certificate", found, first())
    [call] = api.sent("PATCH")
    assert call.body["metadata"]["resourceVersion"] == found.resource_version
    assert read_certificates(decode_secret(msgspec.json.encode(api.objects[path])).data)
    assert not await store_certificates(api, "trimtab", "certificate", None, first())  # it exists already


def test_secret_values_that_are_not_base64_are_omitted() -> None:
    body = {"metadata": {"name": "x", "namespace": "y"}, "data": {"tls.crt": "%%%", "tls.key": "eHg="}}
    assert decode_secret(msgspec.json.encode(body)).data == {"tls.key": b"xx"}
    with pytest.raises(InputError):
        decode_secret(b"[]")
