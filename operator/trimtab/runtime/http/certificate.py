"""The serving certificate of /metrics. It is read from files and reloaded when they change, or it is self-signed.

Example::

    certificate = ServingCertificate("/tls/tls.crt", "/tls/tls.key")
    HttpServer(host, port, routes, tls=certificate.context)   # called for each connection
"""

from __future__ import annotations

import datetime as dt
import logging
import socket
import ssl
import tempfile
from pathlib import Path
from typing import Final

from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.errors import InputError

log = logging.getLogger(__name__)

CHECK_PERIOD: Final = 10.0
"""Seconds between two checks of the files. The kubelet updates the files of a Secret within a minute or two."""
LIFETIME: Final = dt.timedelta(days=365)
RENEW_BEFORE_EXPIRY: Final = dt.timedelta(days=30)
"""Remaining lifetime at which a self-signed certificate is replaced."""

_Stamp = tuple[tuple[int, int, int], ...]


class ServingCertificate:
    """Provides the TLS context of each connection.

    Args:
        cert_file: PEM file with the certificate and its intermediates; ``""`` for a self-signed certificate, which is
            in memory only.
        key_file: PEM file with the private key of the certificate.
        clock: provides the time.

    Raises:
        InputError: the files cannot be read, or are not a matching certificate and key.
    """

    def __init__(self, cert_file: str = "", key_file: str = "", *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._files = (Path(cert_file), Path(key_file)) if cert_file else None
        self._clock = clock
        self._checked = clock.monotonic()
        self._ends = float("inf")
        self._stamp: _Stamp | None = None
        if self._files is None:
            self._context = self._self_signed()
        else:
            try:
                self._stamp = _stamp(*self._files)
                self._context = _loaded(*self._files)
            except (OSError, ValueError) as error:
                raise InputError(
                    f"cannot load the certificate and key for metrics: {error}", source=cert_file
                ) from error

    def context(self) -> ssl.SSLContext:
        """Return the TLS context for the next connection.

        If the files are not usable, the previous certificate remains in use.
        """
        now = self._clock.monotonic()
        if now - self._checked >= CHECK_PERIOD:
            self._checked = now
            if self._files is not None:
                self._reload(*self._files)
            elif self._clock.now() >= self._ends - RENEW_BEFORE_EXPIRY.total_seconds():
                self._context = self._self_signed()
        return self._context

    def _reload(self, certificate: Path, key: Path) -> None:
        try:
            stamp = _stamp(certificate, key)
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._context = _loaded(certificate, key)
        except (OSError, ValueError) as error:
            log.warning("Failed to load the serving certificate %s; keeping the previous one: %s", certificate, error)
        else:
            log.info("Loaded serving certificate %s", certificate)

    def _self_signed(self) -> ssl.SSLContext:
        begins = dt.datetime.fromtimestamp(self._clock.now(), dt.UTC)
        self._ends = (begins + LIFETIME).timestamp()
        with tempfile.TemporaryDirectory(prefix="trimtab-") as directory:  # Python's ssl module can only load files
            certificate, key = Path(directory, "tls.crt"), Path(directory, "tls.key")
            _write_self_signed(certificate, key, begins)
            return _loaded(certificate, key)


def _stamp(*files: Path) -> _Stamp:
    found = [file.stat() for file in files]
    return tuple((each.st_mtime_ns, each.st_ino, each.st_size) for each in found)


def _loaded(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(certificate, key)
    return context


def _write_self_signed(certificate: Path, key: Path, begins: dt.datetime) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    private = ec.generate_private_key(ec.SECP256R1())
    host = socket.gethostname()[:63]
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins - dt.timedelta(minutes=5))
        .not_valid_after(begins + LIFETIME)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host), x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(private, hashes.SHA256())
    )
    key.touch(mode=0o600)
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))


def context_from_pem(certificate: bytes, key: bytes) -> ssl.SSLContext:
    """Return the TLS context of a server with a certificate and a private key, both as PEM.

    Raises:
        ValueError: they are invalid, or do not match.
    """
    with tempfile.TemporaryDirectory(prefix="trimtab-") as directory:  # Python's ssl module can only load files
        certificate_file, key_file = Path(directory, "tls.crt"), Path(directory, "tls.key")
        key_file.touch(mode=0o600)
        key_file.write_bytes(key)
        certificate_file.write_bytes(certificate)
        context = _loaded(certificate_file, key_file)
    context.num_tickets = 0  # the API server does not resume sessions, and tickets are a fifth of a handshake
    return context
