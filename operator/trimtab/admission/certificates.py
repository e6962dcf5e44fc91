"""The serving certificate of the webhooks and its CA, in a Secret that all replicas share.

    Secret data:  ca.crt    CA certificates that the API server must trust, the newest first
                  ca.key    private key of the newest CA
                  tls.crt   serving certificate
                  tls.key   private key of the serving certificate

A new CA passes through these states, so that the API server always trusts the certificate that a replica serves:

1. *Staged*: the Secret contains the new CA in addition to the old one. The serving certificate is still the old one,
   and every replica adds the new CA to the ``caBundle`` of the webhooks (:mod:`trimtab.admission.webhooks`).
2. *Active*: the new CA has been in every ``caBundle`` for :attr:`Lifetimes.propagation`, so all API servers know it.
   A replica issues a serving certificate with the new CA. All replicas load it from the Secret.
3. *Old CA removed*: the API server has trusted the new CA, and the serving certificate has been in the Secret, for
   :attr:`Lifetimes.retirement`. So no replica serves an older certificate (a replica whose watch of the Secret fails
   for that long exits), and a replica removes the old CA from the Secret.

The Secret and the webhooks contain the complete state, and every write has the ``resourceVersion`` of the Secret as its
precondition. Several replicas can therefore perform the steps at the same time, and a replica that is killed between
two steps leaves a state that the next one continues. If the Secret is emptied, the CAs that the webhooks trust are kept
as old CAs, so that running replicas can still serve their certificates.

A Secret of another owner, such as cert-manager's Certificate, is only read. Its ``ca.crt`` is the newest CA; the CAs
that the webhooks trusted before it are kept until its serving certificate is old enough.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import ipaddress
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trimtab.kube import verbs
from trimtab.kube.api import Api, Conflict, NotFound
from trimtab.kube.clock import Clock
from trimtab.kube.errors import InputError
from trimtab.kube.objects.meta import Namespaced
from trimtab.kube.resources import SECRETS

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

log = logging.getLogger(__name__)

CA_CERTIFICATES: Final = "ca.crt"
CA_KEY: Final = "ca.key"
CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"

BACKDATE: Final = 300.0
"""Seconds before the time of issue at which certificates become valid, for hosts whose clocks are slow."""

MAX_CAS: Final = 4
"""Maximum number of CA certificates in the Secret and in a ``caBundle``."""

MAX_NAMES: Final = 16
"""Maximum number of names in a serving certificate."""


class Lifetimes(Struct, frozen=True):
    """When certificates are issued and removed, in seconds.

    Attributes:
        certificate: lifetime of a serving certificate. All other times follow from it.
    """

    certificate: float = 90 * 86400.0

    @property
    def authority(self) -> float:
        """Return the lifetime of a CA."""
        return 4 * self.certificate

    @property
    def renew_before_expiry(self) -> float:
        """Return the remaining lifetime at which a serving certificate is replaced."""
        return self.certificate / 3

    @property
    def stage_before_expiry(self) -> float:
        """Return the remaining lifetime of a CA at which the next one is staged.

        The CA then still outlives every certificate that it has issued.
        """
        return 2 * self.certificate

    @property
    def propagation(self) -> float:
        """Return for how long a CA must be in every ``caBundle`` before a certificate of it is served."""
        return min(60.0, self.certificate / 12)

    @property
    def retirement(self) -> float:
        """Return the age of a serving certificate at which CAs of older ones are removed.

        It is longer than ``--max-failing-time``, after which a replica exits if it cannot read the Secret.
        """
        return min(3600.0, self.certificate / 4)


class CertificateSecret(Namespaced, frozen=True):
    """A Secret with certificates. Values that are not base64 are omitted."""

    data: Mapping[str, bytes] = {}


class Certificates(Struct, frozen=True):
    """The usable contents of the Secret, as PEM.

    Attributes:
        authorities: the CA certificates, the newest first; empty if the API server knows the CA already.
        authority_key: private key of the newest CA; empty in a Secret of another owner.
        certificate: the serving certificate, with intermediate certificates.
        key: private key of the serving certificate.
    """

    authorities: tuple[bytes, ...]
    authority_key: bytes
    certificate: bytes
    key: bytes

    def data(self) -> dict[str, str]:
        """Return the values for a patch of the Secret, in base64."""
        values = {
            CA_CERTIFICATES: b"".join(self.authorities),
            CA_KEY: self.authority_key,
            CERTIFICATE: self.certificate,
            KEY: self.key,
        }
        return {name: base64.b64encode(value).decode() for name, value in values.items()}


def decode_secret(raw: Any) -> CertificateSecret:
    """Decode a Secret from JSON.

    Raises:
        InputError: it is not a Secret.
    """
    try:
        found = msgspec.json.decode(raw, type=_WireSecret)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"not a Secret: {error}") from error
    metadata = found.metadata
    data = {}
    for name, value in (found.data or {}).items():
        try:
            data[name] = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            continue
    return CertificateSecret(metadata.namespace, metadata.name, metadata.uid, metadata.resource_version, data)


class _WireMetadata(Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _WireSecret(Struct, frozen=True):
    metadata: _WireMetadata
    data: dict[str, str] | None = None


def read_certificates(data: Mapping[str, bytes]) -> Certificates:
    """Return the certificates in the data of a Secret.

    Raises:
        InputError: the certificate and the key are missing, invalid or do not match, or a CA certificate is invalid.
    """
    from cryptography.hazmat.primitives import serialization

    certificate, key = data.get(CERTIFICATE, b""), data.get(KEY, b"")
    if not certificate.strip() or not key.strip():
        raise InputError(f"{CERTIFICATE} and {KEY} must not be empty")
    try:
        public = serialization.load_pem_private_key(key, None).public_key()
        matches = public == _parsed(certificate)[0].public_key()
        authorities = split_bundle(data.get(CA_CERTIFICATES, b""))
    except Exception as error:  # cryptography raises errors of many types, also for unsupported algorithms
        raise InputError(f"invalid certificate or key: {error}") from error
    if not matches:
        raise InputError(f"{KEY} is not the private key of {CERTIFICATE}")
    return Certificates(authorities, data.get(CA_KEY, b""), certificate, key)


def split_bundle(bundle: bytes) -> tuple[bytes, ...]:
    """Split a PEM bundle into certificates in their canonical form, without duplicates.

    Raises:
        ValueError: a certificate is invalid.
    """
    if not bundle.strip():
        return ()
    return tuple(dict.fromkeys(_pem(each) for each in _parsed(bundle)))


def issuer_of(certificates: Certificates) -> bytes | None:
    """Return the CA certificate that issued the serving certificate; ``None`` if it is not among the CAs."""
    leaf = _parsed(certificates.certificate)[-1]
    for authority in certificates.authorities:
        if _issued(leaf, authority):
            return authority
    return None


def trust_bundle(
    certificates: Certificates,
    registered: Sequence[bytes],
    trusted_for: Callable[[bytes], float],
    now: float,
    lifetimes: Lifetimes,
) -> bytes:
    """Return the ``caBundle`` of the webhooks.

    Args:
        certificates: the contents of the Secret.
        registered: the current bundles of the webhooks. If the owner of the Secret is not trimtab, their CAs are kept
            as long as a replica may serve an older certificate.
        trusted_for: returns for how many seconds a CA certificate has been in every registered bundle.
        now: the time in seconds since the epoch.
        lifetimes: the lifetimes.
    """
    wanted = certificates.authorities
    alone = _is_served_by_all(certificates, registered, trusted_for, now, lifetimes)
    if wanted and not certificates.authority_key and not alone:
        wanted = (*wanted, *_usable(registered, now, exclude=wanted))[:MAX_CAS]
    return b"".join(wanted)


def next_certificates(
    current: Certificates | None,
    *,
    registered: Sequence[bytes],
    trusted_for: Callable[[bytes], float],
    names: Sequence[str],
    now: float,
    lifetimes: Lifetimes,
) -> Certificates | None:
    """Return the next contents of a Secret that trimtab owns; ``None`` if there is nothing to do now.

    Args:
        current: the usable contents of the Secret; ``None`` if there are none.
        registered: the ``caBundle`` of each registered webhook.
        trusted_for: returns for how many seconds a CA certificate has been in every registered bundle.
        names: DNS names and IP addresses that the serving certificate must have.
        now: the time in seconds since the epoch.
        lifetimes: the lifetimes.
    """
    if current is None or not current.authorities or not _is_key_of(current.authority_key, current.authorities[0]):
        authority, key = _new_authority(now, lifetimes)
        known = () if current is None else current.authorities
        kept = _usable((*known, *registered), now, exclude=(authority,))
        if current is not None and issuer_of(current) in kept:  # the key of the CA is lost
            return replace(current, authorities=(authority, *kept)[:MAX_CAS], authority_key=key)
        return _issue((authority, *kept)[:MAX_CAS], key, names, now, lifetimes)
    newest, key = current.authorities[0], current.authority_key
    issued = _issued(_parsed(current.certificate)[0], newest)
    remaining = _expiry(current.certificate) - now
    if not issued:
        # An expired certificate is replaced at once, because no client accepts it.
        if not registered or trusted_for(newest) >= (lifetimes.propagation if remaining > 0 else 0.0):
            return _issue(current.authorities, key, _all_names(current, names), now, lifetimes)
        return None
    # Before a new CA is staged, because no certificate is issued until that CA is active.
    if remaining < lifetimes.renew_before_expiry or not set(names) <= names_of(current):
        return _issue(current.authorities, key, _all_names(current, names), now, lifetimes)
    if _expiry(newest) - now < lifetimes.stage_before_expiry:
        authority, key = _new_authority(now, lifetimes)
        return replace(current, authorities=(authority, *current.authorities)[:MAX_CAS], authority_key=key)
    if len(current.authorities) > 1 and _is_served_by_all(current, registered, trusted_for, now, lifetimes):
        return replace(current, authorities=(newest,))
    return None


def _is_served_by_all(
    certificates: Certificates,
    registered: Sequence[bytes],
    trusted_for: Callable[[bytes], float],
    now: float,
    lifetimes: Lifetimes,
) -> bool:
    """Return whether all replicas serve the certificate in the Secret: it is old enough, and its CA is trusted."""
    trusted = not registered or all(trusted_for(each) >= lifetimes.retirement for each in certificates.authorities[:1])
    return trusted and _age(certificates.certificate, now) >= lifetimes.retirement


def expires(certificates: Certificates) -> float:
    """Return when the serving certificate expires, in seconds since the epoch."""
    return _expiry(certificates.certificate)


def names_of(certificates: Certificates) -> set[str]:
    """Return the DNS names and IP addresses of the serving certificate."""
    from cryptography import x509

    try:
        names = _parsed(certificates.certificate)[0].extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
    found = {*names.value.get_values_for_type(x509.DNSName)}
    return found | {str(each) for each in names.value.get_values_for_type(x509.IPAddress)}


class TrustTracker:
    """Measures for how long each CA certificate has been in the ``caBundle`` of every webhook.

    After a restart the time starts again, which only delays a rotation.

    Args:
        clock: provides the time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[bytes, float] = {}

    def observe(self, registered: Sequence[bytes]) -> None:
        """Record the current bundles of all registered webhooks."""
        now, trusted = self._clock.monotonic(), set[bytes]()
        for number, bundle in enumerate(registered):
            authorities = set(_usable((bundle,), self._clock.now()))
            trusted = trusted & authorities if number else authorities
        self._since = {each: self._since.get(each, now) for each in trusted}

    def seconds(self, authority: bytes) -> float:
        """Return for how long a CA certificate has been in every bundle; negative if it is not."""
        since = self._since.get(authority)
        return -1.0 if since is None else self._clock.monotonic() - since


class ServedCertificate:
    """Decides when this replica serves the certificate in the Secret instead of the one that it serves now.

    Args:
        serve: starts to serve a certificate and its private key, both as PEM.

    Attributes:
        current: the certificates that are served; ``None`` before the first.
    """

    def __init__(self, serve: Callable[[bytes, bytes], None]) -> None:
        self._serve = serve
        self.current: Certificates | None = None

    def offer(self, found: Certificates, registered: Sequence[bytes], trust: TrustTracker, required: float) -> bool:
        """Serve the certificate in the Secret, if all API servers trust its CA.

        If this replica does not serve a trusted certificate now, it serves the new one at once.

        Args:
            found: the contents of the Secret.
            registered: the ``caBundle`` of each registered webhook.
            trust: measures for how long CAs have been in the bundles.
            required: the required time in seconds.

        Returns:
            Whether the certificate is served now.
        """
        current = self.current
        if current is None or found.certificate != current.certificate:
            issuer, serves = issuer_of(found), current is not None and self.is_trusted(registered)
            if serves and registered and issuer is not None and trust.seconds(issuer) < required:
                return False
            self._serve(found.certificate, found.key)
            log.info(
                "Using a serving certificate that expires on %s", dt.datetime.fromtimestamp(expires(found), dt.UTC)
            )
        self.current = found
        return True

    def is_trusted(self, registered: Sequence[bytes]) -> bool:
        """Return whether every registered webhook trusts the served certificate."""
        issuer = None if self.current is None else issuer_of(self.current)
        return issuer is None or all(issuer in _usable((bundle,), 0.0) for bundle in registered)


async def store_certificates(
    api: Api, namespace: str, name: str, found: CertificateSecret | None, certificates: Certificates
) -> bool:
    """Write certificates to the Secret, unless another replica has changed it meanwhile.

    Args:
        api: the API server.
        namespace: namespace of the Secret.
        name: name of the Secret.
        found: the Secret from which the certificates were derived; ``None`` if it did not exist.
        certificates: the new contents.

    Returns:
        Whether they were written.
    """
    data = certificates.data()
    try:
        if found is None:
            await verbs.create(api, SECRETS, {"metadata": {"name": name}, "data": data}, namespace=namespace)
        else:
            patch = {"metadata": {"resourceVersion": found.resource_version}, "data": data}
            await verbs.merge_patch(api, SECRETS, name, patch, namespace=namespace)
    except (Conflict, NotFound) as error:
        log.debug("Another replica changed the Secret %s/%s: %s", namespace, name, error)
        return False
    log.info("Updated the certificates in the Secret %s/%s", namespace, name)
    return True


# ── X.509 ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _new_authority(now: float, lifetimes: Lifetimes) -> tuple[bytes, bytes]:
    """Create a self-signed CA, and return its certificate and its private key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"trimtab-admission-ca-{secrets.token_hex(4)}")])
    made = (
        _builder(private.public_key(), name, now, lifetimes.authority)
        .subject_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(private, hashes.SHA256())
    )
    return _pem(made), _private_pem(private)


def _issue(
    authorities: tuple[bytes, ...], authority_key: bytes, names: Iterable[str], now: float, lifetimes: Lifetimes
) -> Certificates:
    """Issue a serving certificate with the newest CA."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    authority = _parsed(authorities[0])[0]
    signer = serialization.load_pem_private_key(authority_key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    private = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "trimtab-admission")])
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    made = (
        _builder(private.public_key(), authority.subject, now, lifetimes.certificate)
        .subject_name(subject)
        .add_extension(x509.SubjectAlternativeName([_general_name(each) for each in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .sign(signer, hashes.SHA256())
    )
    return Certificates(authorities, authority_key, _pem(made), _private_pem(private))


def _builder(
    public: ec.EllipticCurvePublicKey, issuer: x509.Name, now: float, lifetime: float
) -> x509.CertificateBuilder:
    from cryptography import x509

    begins = dt.datetime.fromtimestamp(now - BACKDATE, dt.UTC)
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(dt.datetime.fromtimestamp(now + lifetime, dt.UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _private_pem(private: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM)


def _parsed(bundle: bytes) -> list[x509.Certificate]:
    from cryptography import x509

    return x509.load_pem_x509_certificates(bundle)


def _expiry(certificate: bytes) -> float:
    return _parsed(certificate)[0].not_valid_after_utc.timestamp()


def _age(certificate: bytes, now: float) -> float:
    """Return the seconds since a certificate was issued, assuming that it is backdated."""
    return now - _parsed(certificate)[0].not_valid_before_utc.timestamp() - BACKDATE


def _issued(certificate: x509.Certificate, authority: bytes) -> bool:
    try:
        certificate.verify_directly_issued_by(_parsed(authority)[0])
    except Exception:  # noqa: BLE001 (wrong name, wrong signature, or an algorithm that is not supported)
        return False
    return True


def _is_key_of(key: bytes, authority: bytes) -> bool:
    from cryptography.hazmat.primitives import serialization

    try:
        private = serialization.load_pem_private_key(key, None)
    except Exception:  # noqa: BLE001 (cryptography raises errors of many types)
        return False
    return private.public_key() == _parsed(authority)[0].public_key()


def _usable(bundles: Iterable[bytes], now: float, *, exclude: Iterable[bytes] = ()) -> tuple[bytes, ...]:
    """Return the CA certificates in bundles that have not expired, the newest first. Invalid bundles are ignored."""
    found: dict[bytes, float] = {}
    for bundle in bundles:
        try:
            for each in split_bundle(bundle):
                parsed = _parsed(each)[0]
                if parsed.not_valid_after_utc.timestamp() > now:
                    found[each] = parsed.not_valid_before_utc.timestamp()
        except ValueError:
            continue
    for each in exclude:
        found.pop(each, None)
    return tuple(sorted(found, key=lambda each: (-found[each], each)))


def _all_names(current: Certificates, names: Sequence[str]) -> list[str]:
    """Return the wanted names and those of the current certificate, so that replicas of two versions do not compete."""
    return list(dict.fromkeys((*names, *sorted(names_of(current)))))[:MAX_NAMES]
