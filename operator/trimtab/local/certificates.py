"""The keys of a local control plane: one authority, one serving certificate, one key that signs service account tokens.

People and components identify themselves by bearer tokens (``tokens.csv``), not by client certificates: one file,
readable, and nothing to renew. All keys are ECDSA P-256: made in a millisecond, where RSA takes a second each.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

SERVICE_NETWORK: Final = "10.96.0.0/16"
_DNS_NAMES: Final = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
_ADDRESSES: Final = ("127.0.0.1", "::1", "10.96.0.1")
_LIFETIME: Final = dt.timedelta(days=3650)

USERS: Final[dict[str, tuple[str, str]]] = {
    "admin": ("trimtab:admin", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "kwok": ("trimtab:kwok", "system:masters"),
}
"""Who has a token: user name and group. The Kubernetes components have exactly the rights that RBAC's bootstrap roles
give them; kwok plays every kubelet and the operator of its own kinds, for which no bootstrap role exists."""


class Keys(Struct, frozen=True):
    """The files, all in one directory that only its owner can enter."""

    directory: Path

    @property
    def ca(self) -> Path:
        """The authority's certificate, which clients verify the servers with."""
        return self.directory / "ca.crt"

    @property
    def ca_key(self) -> Path:
        """The authority's key; also signs CertificateSigningRequests."""
        return self.directory / "ca.key"

    @property
    def serving(self) -> Path:
        """The certificate of every server of the cluster."""
        return self.directory / "serving.crt"

    @property
    def serving_key(self) -> Path:
        """Its key."""
        return self.directory / "serving.key"

    @property
    def service_account_key(self) -> Path:
        """Signs service account tokens."""
        return self.directory / "service-account.key"

    @property
    def tokens(self) -> Path:
        """kube-apiserver's ``--token-auth-file``."""
        return self.directory / "tokens.csv"

    def token(self, user: str) -> str:
        """The bearer token of one of :data:`USERS`."""
        name = USERS[user][0]
        for line in self.tokens.read_text("ascii").splitlines():
            token, owner, *_ = line.split(",")
            if owner == name:
                return token
        raise KeyError(user)


def _write(path: Path, content: bytes) -> None:
    """Write a file that was never, not even for a moment, readable by others."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _name(common_name: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _certificate(
    *,
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    authority: bool,
    names: tuple[x509.GeneralName, ...] = (),
) -> bytes:
    """Sign one certificate, with every extension that a strict verifier (OpenSSL's, RFC 5280) asks for."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    now = dt.datetime.now(dt.UTC)
    usage = dict.fromkeys(
        ("content_commitment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only"), False
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_encipherment=not authority,
                key_cert_sign=authority,
                crl_sign=authority,
                **usage,
            ),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if not authority:
        builder = builder.add_extension(x509.ExtendedKeyUsage([x509.OID_SERVER_AUTH]), critical=False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    # kube-apiserver reads EC keys only in the traditional ("EC PRIVATE KEY") form.
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def make_keys(directory: Path) -> Keys:
    """Make all keys in ``directory``; what an earlier call made completely stays as it is.

    Files are 0600 in a directory of 0700. ``tokens.csv`` is written last, and is what tells that all are there.
    """
    keys = Keys(directory=directory)
    if keys.tokens.exists():
        return keys
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    ca_key, serving_key, account_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    issuer = f"trimtab local {secrets.token_hex(4)}"
    names = (
        *(x509.DNSName(name) for name in _DNS_NAMES),
        *(x509.IPAddress(ipaddress.ip_address(address)) for address in _ADDRESSES),
    )
    _write(keys.ca_key, _pem(ca_key))
    _write(keys.ca, _certificate(subject=issuer, key=ca_key, issuer=issuer, issuer_key=ca_key, authority=True))
    _write(keys.serving_key, _pem(serving_key))
    _write(
        keys.serving,
        _certificate(
            subject="kube-apiserver", key=serving_key, issuer=issuer, issuer_key=ca_key, authority=False, names=names
        ),
    )
    _write(keys.service_account_key, _pem(account_key))
    lines = [
        f"{secrets.token_urlsafe(24)},{user},{user}" + (f",{group}" if group else "") for user, group in USERS.values()
    ]
    _write(keys.tokens, ("\n".join(lines) + "\n").encode("ascii"))
    return keys
