"""The configuration of the connection: the API server's address, the credentials and the proxy.

As in kubectl, the configuration is read from the kubeconfig given as a flag, otherwise from ``$KUBECONFIG`` or
``~/.kube/config``, otherwise from the pod's service account. So neither a workstation nor a pod needs a flag. The proxy
is determined by kubectl's rules (Go's httpproxy package).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from trimtab.kube.errors import InputError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The directory in which the kubelet mounts a pod's service account."""


class Login(Struct, frozen=True, kw_only=True):
    """The credentials of one identity. The repr contains no secrets, so it may appear in logs and tracebacks.

    Attributes:
        authorization: the ``Authorization`` header, ``Bearer …`` or ``Basic …``, or ``""`` for none.
        certificate: the client certificate chain as PEM, or empty for none.
        key: the private key of the certificate as PEM.
        expires: the expiry of the credentials in seconds since the epoch, or ``None`` if it is unknown.
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
    """The configuration of one API server and one identity.

    Attributes:
        server: the base URL without a trailing slash. It may have a path, as in Rancher.
        source: the origin of the configuration, for messages: ``kubeconfig /home/me/.kube/config, context dev``.
        namespace: the default namespace, which is that of the kubeconfig context or of the pod.
        ca: the certificate authorities as PEM, or empty for those of the system.
        insecure: whether to skip verification of the server's certificate.
        tls_server_name: the expected name in the server's certificate, if it differs from the URL's host.
        proxy: the URL of an HTTP proxy, or ``""`` for none.
        login: the credentials, as they were when the configuration was loaded.
        token_file: the file with the bearer token, which is read again because the kubelet rotates tokens, or ``""``
            for none.
        kubeconfig: the kubeconfig to load again when the credentials expire or are rejected, or ``""`` for none.
        context: the context in the kubeconfig.
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
    """Load the configuration from a kubeconfig, or from the pod's service account if there is none.

    This function runs the exec plugin of the kubeconfig, which may take seconds. Call it before the event loop runs, or
    in a thread.

    Args:
        kubeconfig: a file, several files joined as in ``$KUBECONFIG``, or ``None`` for kubectl's default locations.
        context: the context in the kubeconfig, or ``None`` for the current one. If given, the service account is not
            used.
        environ: the environment variables.
        service_account: the directory with ``token``, ``ca.crt`` and ``namespace``.

    Raises:
        InputError: there is no configuration, or it is invalid; the error names the file and the context.
    """
    paths, files = kubeconfig_files(kubeconfig, environ=environ)
    if any(map(_may_be_there, files)):
        from trimtab.kube.connection.kubeconfig import load_kubeconfig  # the operator's image never needs it

        return load_kubeconfig(files, context=context or "", environ=environ)
    if kubeconfig or context:
        raise InputError("no such file", source=f"kubeconfig {paths}")
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return load_service_account(environ=environ, directory=service_account)
    raise InputError(
        f"no cluster to connect to: there is no kubeconfig at {paths}, and this is not a pod "
        "(KUBERNETES_SERVICE_HOST is not set); pass a kubeconfig or set KUBECONFIG"
    )


def kubeconfig_files(
    kubeconfig: str | Path | None = None, *, environ: Mapping[str, str] = os.environ
) -> tuple[str, list[Path]]:
    """Return the kubeconfig files that kubectl would read, joined as in ``$KUBECONFIG`` and one by one.

    Args:
        kubeconfig: a file, several files joined as in ``$KUBECONFIG``, or ``None`` for kubectl's default locations.
        environ: the environment variables.
    """
    if kubeconfig:
        paths = str(kubeconfig)
    else:
        home = environ.get("HOME") or str(Path.home())
        paths = environ.get("KUBECONFIG") or f"{home}/.kube/config"
    return paths, [Path(path).expanduser() for path in paths.split(os.pathsep) if path]


def _may_be_there(file: Path) -> bool:
    try:
        return file.exists()
    except OSError:  # no permission to enter the directory; reading the file reports this error
        return True


def load_service_account(*, environ: Mapping[str, str] = os.environ, directory: Path = SERVICE_ACCOUNT) -> ServerConfig:
    """Load the configuration of the pod's service account, like client-go's ``rest.InClusterConfig``.

    Raises:
        InputError: this is not a pod, or it has no service account token.
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


def proxy_for(server: str, *, environ: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the proxy for a server, or ``""`` for a direct connection.

    Python's implementation of ``NO_PROXY`` supports neither address ranges (``10.0.0.0/8``, with which clusters exclude
    their service network) nor an exception for loopback, so it would use the proxy for a local or in-cluster server.
    """
    url = urlsplit(server)
    name = f"{url.scheme}_proxy"
    proxy = environ.get(name.upper()) or environ.get(name) or ""
    excluded = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    host = (url.hostname or "").rstrip(".")
    if not proxy or is_loopback(host):
        return ""
    port = url.port or (443 if url.scheme == "https" else 80)
    if any(_excludes(rule.strip().lower(), host, port) for rule in excluded.split(",")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def is_loopback(host: str) -> bool:
    """Return whether a URL's host is a loopback address, so that requests to it do not leave this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _excludes(rule: str, host: str, port: int) -> bool:
    if rule == "*":
        return True
    if not rule:
        return False
    try:
        return ip_address(host) in ip_network(rule, strict=False)
    except ValueError:  # host or rule is a name, possibly with a port
        pass
    name, _, wanted = rule.rpartition(":")
    if name and wanted.isdigit():
        if int(wanted) != port:
            return False
        rule = name.strip("[]")
    if rule.startswith(("*.", ".")):  # subdomains only
        return host.endswith(rule.lstrip("*"))
    return host == rule or host.endswith(f".{rule}")
