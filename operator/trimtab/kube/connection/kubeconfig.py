"""Loads kubeconfig files.

:func:`read_plain` reads simple files: a single file with a token, a certificate or neither, as local clusters, service
accounts and kubeadm create them. The loader of the ``kubernetes`` package handles everything else (merging, exec
plugins, OIDC, basic auth) and reports errors in files. The package is imported lazily, because importing it takes half
a second and 20 MB, and the operator's image does not contain it.

This module runs exec plugins itself with the package's ``ExecProvider``, and replaces the user entry with the plugin's
response before the loader reads it. The loader would only log a plugin's failure and continue without credentials.
"""

from __future__ import annotations

import base64
import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import msgspec
from msgspec import Struct

from trimtab.kube.connection.config import Login, ServerConfig, proxy_for
from trimtab.kube.errors import InputError

_LOADING: Final = threading.Lock()  # the loader stores its temporary files in a global


def load_kubeconfig(
    files: Sequence[Path], *, context: str = "", environ: Mapping[str, str] = os.environ
) -> ServerConfig:
    """Load kubeconfig files, merged as in kubectl, and their credentials.

    Args:
        files: the kubeconfig files. Missing files are skipped, as in kubectl.
        context: the context, or ``""`` for ``current-context``.
        environ: the environment variables, for the proxy.

    Raises:
        InputError: the ``kubernetes`` package is missing, a file or the context is invalid, or the exec plugin failed.
    """
    plain = read_plain(files, context=context, environ=environ)
    return plain or load_any_kubeconfig(files, context=context, environ=environ)


def load_any_kubeconfig(
    files: Sequence[Path], *, context: str = "", environ: Mapping[str, str] = os.environ
) -> ServerConfig:
    """Load kubeconfig files of any form with the ``kubernetes`` package, as :func:`load_kubeconfig` describes."""
    joined = os.pathsep.join(str(file) for file in files)
    source = f"kubeconfig {joined}"
    try:
        import yaml
        from kubernetes.config.config_exception import ConfigException
        from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger
    except ImportError as error:
        raise InputError(
            f"reading it needs the package {error.name or 'kubernetes'}: pip install 'trimtab[cli]'", source=source
        ) from error
    known = (ConfigException, yaml.YAMLError, OSError, AttributeError, KeyError, TypeError, ValueError)
    named = f"context {context}" if context else ""
    with _LOADING:
        try:
            merger = KubeConfigMerger(joined)
            context = context or _current_context(merger.config, source=source)
            named = f"context {context}"
            user, cluster = _chosen(merger.config, context, source=source)
            expires = _run_plugin(user, cluster)
            # Only OIDC and gcp update the file, because a refresh token is valid once; a plugin's response must not.
            persister = merger.save_changes if user is not None and "auth-provider" in user else None
            with tempfile.TemporaryDirectory(prefix="trimtab-") as private:
                loader = KubeConfigLoader(
                    merger.config,
                    active_context=context,
                    config_base_path=None,
                    config_persister=persister,
                    temp_file_path=private,
                )
                loaded = SimpleNamespace(api_key={})
                loader.load_and_set(loaded)
                return _config(loaded, user, loader, source=source, joined=joined, expires=expires, environ=environ)
        except InputError:
            raise
        except known as error:
            raise InputError(_message(error), source=source, object=named) from error


def _current_context(config: Any, *, source: str) -> str:
    current = config.safe_get("current-context") if config is not None else None
    if current:
        return str(current)
    raise InputError(f"current-context is not set; choose one of: {_names(config)}", source=source)


def _names(config: Any) -> str:
    contexts = (config.safe_get("contexts") if config is not None else None) or []
    return ", ".join(sorted(str(each["name"]) for each in contexts)) or "(it has no contexts)"


def _chosen(config: Any, context: str, *, source: str) -> tuple[Any, Any]:
    """Return the user (or ``None``) and the cluster of a context, as the loader's config nodes."""
    chosen = config["contexts"].get_with_name(context, safe=True)
    if chosen is None:
        raise InputError(
            f"no such context; choose one of: {_names(config)}", source=source, object=f"context {context}"
        )
    node = chosen["context"]
    cluster = config["clusters"].get_with_name(node["cluster"])["cluster"]
    name = node.safe_get("user")
    if not name:
        return None, cluster
    entry = config["users"].get_with_name(name, safe=True) if config.safe_get("users") else None
    if entry is None:
        raise InputError(f"its user {name} is not in the file", source=source, object=f"context {context}")
    return (entry["user"] if entry.safe_get("user") else None), cluster


def _run_plugin(user: Any, cluster: Any) -> float | None:
    """Run the user's exec plugin, and replace the user entry with its response.

    Return when the response expires, or ``None`` if it does not say so.
    """
    from kubernetes.config.config_exception import ConfigException
    from kubernetes.config.exec_provider import ExecProvider

    if user is None or "exec" not in user or any(key in user for key in ("token", "tokenFile", "auth-provider")):
        return None
    # kubectl resolves a plugin's relative path against the kubeconfig that contains it.
    provider = ExecProvider(user["exec"], str(Path(user.path).absolute().parent), cluster)
    try:
        status = provider.run()
    except OSError as error:
        hint = " ".join(str(user["exec"].safe_get("installHint") or "").split())
        raise ConfigException(
            f"exec plugin {user['exec']['command']}: {error.strerror}{hint and f'; {hint}'}"
        ) from error
    token, certificate, key = (status.get(each) for each in ("token", "clientCertificateData", "clientKeyData"))
    if not token and not (certificate and key):
        raise ConfigException(
            f"exec plugin {user['exec']['command']} returned neither a token nor a certificate and its key"
        )
    del user.value["exec"]
    if token:
        user.value["token"] = token
    if certificate and key:
        user.value["client-certificate-data"] = base64.b64encode(certificate.encode()).decode()
        user.value["client-key-data"] = base64.b64encode(key.encode()).decode()
    return _epoch(status.get("expirationTimestamp"))


def _config(
    loaded: SimpleNamespace,
    user: Any,
    loader: Any,
    *,
    source: str,
    joined: str,
    expires: float | None,
    environ: Mapping[str, str],
) -> ServerConfig:
    current = loader.current_context
    context = current["name"]
    server = getattr(loaded, "host", "")
    if not server.startswith(("http://", "https://")):
        raise InputError(
            f"cluster {current['context']['cluster']}: server is {server!r}, but must be a http:// or https:// URL",
            source=source,
            object=f"context {context}",
        )
    proxy = getattr(loaded, "proxy", None) or proxy_for(server, environ=environ)
    if proxy and not proxy.startswith(("http://", "https://")):
        raise InputError(
            f"proxy {proxy} is not supported, only http:// and https:// ones are",
            source=source,
            object=f"context {context}",
        )
    expiry = getattr(loader, "expiry", None)
    return ServerConfig(
        server=server,
        source=f"{source}, context {context}",
        namespace=current["context"].get("namespace") or "default",
        ca=_content(loaded, "ssl_ca_cert"),
        insecure=not getattr(loaded, "verify_ssl", True),
        tls_server_name=getattr(loaded, "tls_server_name", None) or "",
        proxy=proxy,
        login=Login(
            authorization=loaded.api_key.get("BearerToken", ""),
            certificate=_content(loaded, "cert_file"),
            key=_content(loaded, "key_file"),
            expires=expires if expiry is None else expiry.timestamp(),
        ),
        token_file=_token_file(user),
        kubeconfig=joined,
        context=context,
    )


def _content(loaded: SimpleNamespace, attribute: str) -> bytes:
    path = getattr(loaded, attribute, None)
    return Path(path).read_bytes() if path else b""


def _token_file(user: Any) -> str:
    if user is None or "tokenFile" not in user or "token" in user or "auth-provider" in user:
        return ""
    return str(Path(user.path).absolute().parent / user["tokenFile"])


def _epoch(timestamp: str | None) -> float | None:
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else None


def _message(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, KeyError | TypeError | AttributeError):
        return f"not a kubeconfig ({type(error).__name__}: {text})"
    return text.removeprefix("Invalid kube-config file. ").removeprefix("Invalid kube-config. ") or repr(error)


class _Cluster(Struct, rename="kebab", forbid_unknown_fields=True):
    server: str
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    extensions: Any = None


class _User(Struct, rename="kebab", forbid_unknown_fields=True):
    token: str = ""
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None


class _Context(Struct, forbid_unknown_fields=True):
    cluster: str
    user: str = ""
    namespace: str = ""
    extensions: Any = None


class _NamedCluster(Struct):
    name: str
    cluster: _Cluster


class _NamedUser(Struct):
    name: str
    user: _User


class _NamedContext(Struct):
    name: str
    context: _Context


class _Named(Struct):
    name: str


class _Kubeconfig(Struct, rename="kebab"):
    """A kubeconfig whose entries are not decoded.

    So invalid entries that are not used cause no error.
    """

    clusters: list[Any]
    contexts: list[Any]
    users: list[Any] | None = None
    current_context: str = ""


def read_plain(files: Sequence[Path], *, context: str, environ: Mapping[str, str]) -> ServerConfig | None:
    """Read a simple kubeconfig. Return ``None`` if the ``kubernetes`` package is needed, or must report an error.

    Args:
        files: the files that kubectl would read. All but one of them must be missing.
        context: the context, or ``""`` for ``current-context``.
        environ: the environment variables, for the proxy.
    """
    import yaml

    try:
        present = [file for file in files if file.exists()]
        if len(present) != 1:
            return None
        with present[0].open() as text:
            config = msgspec.convert(yaml.safe_load(text), _Kubeconfig)
        return _plain_config(config, context or config.current_context, present[0], files, environ)
    except (yaml.YAMLError, msgspec.ValidationError, OSError, ValueError):
        return None


def _plain_config(
    config: _Kubeconfig, name: str, file: Path, files: Sequence[Path], environ: Mapping[str, str]
) -> ServerConfig | None:
    context = msgspec.convert(_named(config.contexts, name), _NamedContext).context
    cluster = msgspec.convert(_named(config.clusters, context.cluster), _NamedCluster).cluster
    user = _User()
    if context.user:
        user = msgspec.convert(_named(config.users or [], context.user), _NamedUser).user
    server = cluster.server.rstrip("/")
    if not server.startswith(("http://", "https://")):
        return None
    base, encrypted = file.absolute().parent, server.startswith("https")
    joined = os.pathsep.join(map(str, files))
    return ServerConfig(
        server=server,
        source=f"kubeconfig {joined}, context {name}",
        namespace=context.namespace or "default",
        ca=_data(cluster.certificate_authority_data, cluster.certificate_authority, base) if encrypted else b"",
        insecure=cluster.insecure_skip_tls_verify,
        tls_server_name=cluster.tls_server_name,
        proxy=proxy_for(server, environ=environ),
        login=Login(
            authorization=f"Bearer {user.token}" if user.token else "",
            certificate=_data(user.client_certificate_data, user.client_certificate, base) if encrypted else b"",
            key=_data(user.client_key_data, user.client_key, base) if encrypted else b"",
        ),
        kubeconfig=joined,
        context=name,
    )


def _named(entries: list[Any], name: str) -> Any:
    """Return the first entry (cluster, user or context) with this name.

    Raises:
        ValueError: there is none, or an entry before it has no name.
    """
    for entry in entries:
        if msgspec.convert(entry, _Named).name == name:
            return entry
    raise ValueError(name)


def _data(data: str | None, file: str | None, base: Path) -> bytes:
    """Return the decoded base64 data, or the content of a file relative to the kubeconfig."""
    if data is not None:
        return base64.standard_b64decode(data)
    return (base / file).read_bytes() if file else b""
