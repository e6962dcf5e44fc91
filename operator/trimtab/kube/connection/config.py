"""Where the API server is and how to log in there.

The order is kubectl's, then a pod's: the kubeconfig that was named, else ``$KUBECONFIG`` or ``~/.kube/config``, else
the service account of the pod. A laptop and a pod thus need no flag.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from trimtab.kube.connection.proxy import proxy_for
from trimtab.kube.errors import InputError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet mounts a pod's service account."""


class Login(Struct, frozen=True, kw_only=True):
    """What proves who we are. Shown without its secrets, so that it may stand in a log or a traceback.

    Attributes:
        authorization: the ``Authorization`` header, ``Bearer …`` or ``Basic …``; ``""`` for none.
        certificate: the client certificate's chain as PEM, or empty.
        key: its private key as PEM.
        expires: seconds since the epoch when it ends, as an exec plugin says; ``None`` where nobody says.
    """

    authorization: str = ""
    certificate: bytes = b""
    key: bytes = b""
    expires: float | None = None

    def __repr__(self) -> str:
        means = [self.authorization.partition(" ")[0] and f"{self.authorization.partition(' ')[0]} …"]
        means.append("certificate" if self.certificate else "")
        return f"Login({' and '.join(filter(None, means)) or 'anonymous'}, expires={self.expires})"


ANONYMOUS: Final = Login()


class ServerConfig(Struct, frozen=True, kw_only=True):
    """One API server, one identity, and what is needed to renew it.

    Attributes:
        server: the base URL, without a slash at its end; it may have a path (Rancher's have).
        source: where this comes from, for messages: ``kubeconfig /home/me/.kube/config, context dev``.
        namespace: the default namespace: of the context, or of the pod.
        ca: the certificate authorities to trust as PEM; empty for the system's.
        insecure: do not check the server's certificate.
        tls_server_name: the name to expect in the server's certificate instead of the URL's host.
        proxy: URL of an HTTP proxy, or ``""``.
        login: the identity at the time of loading.
        token_file: re-read for the bearer token, as bound tokens are rotated by the kubelet; ``""`` for none.
        kubeconfig: loaded again when the login ends or is refused; ``""`` for none.
        context: of the kubeconfig.
    """

    server: str
    source: str = ""
    namespace: str = "default"
    ca: bytes = b""
    insecure: bool = False
    tls_server_name: str = ""
    proxy: str = ""
    login: Login = ANONYMOUS
    token_file: str = ""
    kubeconfig: str = ""
    context: str = ""

    def __repr__(self) -> str:
        return f"ServerConfig({self.server}, {self.source}, {self.login})"


def load_config(
    kubeconfig: str | Path | None = None,
    *,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> ServerConfig:
    """Find the API server: kubeconfig, else service account.

    Runs the kubeconfig's exec plugin, so this may take seconds: call it before the loop runs, or in a thread.

    Args:
        kubeconfig: a file, or several joined as in ``$KUBECONFIG``; ``None`` to look where kubectl does.
        context: of the kubeconfig; ``None`` for its current one. Naming one rules out the service account.
        environ: the environment variables.
        service_account: the directory with ``token``, ``ca.crt`` and ``namespace``.

    Raises:
        InputError: nothing found, or what was found cannot be used; names the file and the context.
    """
    if kubeconfig:
        paths = str(kubeconfig)
    else:
        home = environ.get("HOME") or str(Path.home())
        paths = environ.get("KUBECONFIG") or f"{home}/.kube/config"
    files = [Path(path).expanduser() for path in paths.split(os.pathsep) if path]
    if any(map(_may_be_there, files)):
        from trimtab.kube.connection.kubeconfig import load_kubeconfig  # the operator's image never needs it

        return load_kubeconfig(files, context=context or "", environ=environ)
    if kubeconfig or context:
        raise InputError("no such file", source=f"kubeconfig {paths}")
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return load_service_account(environ=environ, directory=service_account)
    raise InputError(
        f"no cluster to talk to: there is no kubeconfig at {paths}, and this is not a pod "
        "(KUBERNETES_SERVICE_HOST is not set); name a kubeconfig or set KUBECONFIG"
    )


def _may_be_there(file: Path) -> bool:
    try:
        return file.exists()
    except OSError:  # a folder that may not be entered, which the reader tells of
        return True


def load_service_account(*, environ: Mapping[str, str] = os.environ, directory: Path = SERVICE_ACCOUNT) -> ServerConfig:
    """The pod's own identity, as client-go's ``rest.InClusterConfig`` finds it.

    Raises:
        InputError: this is no pod, or it was given no service account token.
    """
    source = f"service account {directory}"
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise InputError("KUBERNETES_SERVICE_HOST is not set: this is not a pod", source=source)
    token = _read(directory / "token", source).decode().strip()
    if not token:
        raise InputError("token is empty", source=source)
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    namespace = directory / "namespace"
    return ServerConfig(
        server=server,
        source=source,
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        ca=_read(directory / "ca.crt", source),
        proxy=proxy_for(server, environ=environ),
        login=Login(authorization=f"Bearer {token}"),
        token_file=str(directory / "token"),
    )


def _read(file: Path, source: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        hint = "; has the pod automountServiceAccountToken: false?" if isinstance(error, FileNotFoundError) else ""
        raise InputError(f"{file.name}: {error.strerror}{hint}", source=source) from error
