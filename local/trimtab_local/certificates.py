"""Creates the keys of a local control plane: a CA, a serving certificate and a key that signs service account tokens.

Users and components authenticate with bearer tokens (``tokens.csv``) instead of client certificates: this is a single
readable file, and nothing must be renewed. All keys are ECDSA P-256, because they are generated in a millisecond, while
an RSA key takes a second.
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
"""The user name and group for each token. Kubernetes components have exactly the permissions of RBAC's bootstrap roles.
kwok acts as every kubelet and as the operator of its own kinds, for which there is no bootstrap role.
"""


FRONT_PROXY: Final = "front-proxy-client"
"""The common name of kube-apiserver's client certificate for extension API servers, as in kubeadm."""


class Keys(Struct, frozen=True):
    """The key files, in one directory that only its owner can access."""

    directory: Path

    @property
    def ca(self) -> Path:
        """Return the path of the CA certificate, with which clients verify the servers."""
        return self.directory / "ca.crt"

    @property
    def ca_key(self) -> Path:
        """Return the path of the CA's key, which also signs CertificateSigningRequests."""
        return self.directory / "ca.key"

    @property
    def serving(self) -> Path:
        """Return the path of the serving certificate that all servers of the cluster use."""
        return self.directory / "serving.crt"

    @property
    def serving_key(self) -> Path:
        """Return the path of the serving certificate's key."""
        return self.directory / "serving.key"

    @property
    def service_account_key(self) -> Path:
        """Return the path of the key that signs service account tokens."""
        return self.directory / "service-account.key"

    @property
    def front_proxy_ca(self) -> Path:
        """Return the path of the CA with which extension API servers recognize kube-apiserver."""
        return self.directory / "front-proxy-ca.crt"

    @property
    def front_proxy(self) -> Path:
        """Return the path of kube-apiserver's client certificate for extension API servers."""
        return self.directory / "front-proxy.crt"

    @property
    def front_proxy_key(self) -> Path:
        """Return the path of that certificate's key."""
        return self.directory / "front-proxy.key"

    @property
    def tokens(self) -> Path:
        """Return the path of kube-apiserver's ``--token-auth-file``."""
        return self.directory / "tokens.csv"

    def token(self, user: str) -> str:
        """Return the bearer token of one of :data:`USERS`."""
        name = USERS[user][0]
        for line in self.tokens.read_text("ascii").splitlines():
            token, owner, *_ = line.split(",")
            if owner == name:
                return token
        raise KeyError(user)


def _write(path: Path, content: bytes) -> None:
    """Write a file that other users cannot read at any time."""
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
    client: bool = False,
) -> bytes:
    """Sign a certificate with all extensions that a strict verifier (OpenSSL's, RFC 5280) requires."""
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
        usages = [x509.OID_CLIENT_AUTH if client else x509.OID_SERVER_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def kubelet_certificate(keys: Keys, *, node: str, address: str) -> bytes:
    """Return a serving certificate of a node's kubelet that is valid for its name and address, with its key, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    issuer_key = serialization.load_pem_private_key(keys.ca_key.read_bytes(), password=None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate(keys.ca.read_bytes()).subject
    common_name = issuer.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certificate(
        subject=f"system:node:{node}",
        key=key,
        issuer=str(common_name),
        issuer_key=issuer_key,
        authority=False,
        names=(x509.DNSName(node), x509.IPAddress(ipaddress.ip_address(address))),
    )
    return certificate + _pem(key)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    # kube-apiserver reads EC keys only in the traditional ("EC PRIVATE KEY") form.
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def make_keys(directory: Path) -> Keys:
    """Create all keys in ``directory``, unless an earlier call has created all of them.

    Files have mode 0600 in a directory with mode 0700. ``tokens.csv`` is written last, so if it exists, all files
    exist.
    """
    keys = Keys(directory=directory)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not keys.front_proxy.exists():  # also in a directory of an earlier version
        _make_front_proxy(keys)
    if keys.tokens.exists():
        return keys
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

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


def _make_front_proxy(keys: Keys) -> None:
    """Create the client certificate with which kube-apiserver connects to extension API servers, and its CA."""
    from cryptography.hazmat.primitives.asymmetric import ec

    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = f"trimtab local front proxy {secrets.token_hex(4)}"
    authority = _certificate(subject=issuer, key=ca_key, issuer=issuer, issuer_key=ca_key, authority=True)
    _write(keys.front_proxy_ca, authority)
    _write(keys.front_proxy_key, _pem(key))
    certificate = _certificate(
        subject=FRONT_PROXY, key=key, issuer=issuer, issuer_key=ca_key, authority=False, client=True
    )
    _write(keys.front_proxy, certificate)
