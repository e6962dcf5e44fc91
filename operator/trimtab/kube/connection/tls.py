"""The TLS side of a connection to the API server."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from trimtab.kube.connection.config import Login, ServerConfig
from trimtab.kube.errors import InputError


def tls_context(config: ServerConfig) -> ssl.SSLContext | None:
    """The context for a server, with the login's client certificate; ``None`` where the server speaks plain HTTP.

    Raises:
        InputError: a certificate or key is not usable.
    """
    if not config.server.startswith("https://"):
        return None
    try:
        context = ssl.create_default_context(cadata=config.ca.decode("ascii") if config.ca else None)
    except (ssl.SSLError, ValueError) as error:
        raise InputError(f"the certificate authority is no PEM certificate: {error}", source=config.source) from error
    # From 3.13 on Python refuses authorities without key usage, as many clusters made themselves; Go accepts them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if config.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    load_certificate(context, config.login, source=config.source)
    return context


def load_certificate(context: ssl.SSLContext, login: Login, *, source: str = "") -> None:
    """Present the login's client certificate on every new connection; nothing happens if it has none.

    OpenSSL's binding reads files only: the key lies for an instant in a file that only we may read.

    Raises:
        InputError: certificate or key are not usable, or do not belong together.
    """
    if not login.certificate:
        return
    with tempfile.TemporaryDirectory(prefix="trimtab-") as private:  # 0700
        file = Path(private, "login.pem")
        file.touch(mode=0o600)
        file.write_bytes(login.certificate.rstrip() + b"\n" + login.key)
        try:
            context.load_cert_chain(file, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            raise InputError(f"the client certificate or its key is not usable: {error}", source=source) from error


def _no_password() -> str:
    """Refuse encrypted keys with an error where OpenSSL would ask at the terminal."""
    raise ValueError("the key is encrypted")
