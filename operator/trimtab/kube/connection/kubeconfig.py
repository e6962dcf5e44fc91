"""Kubeconfig files, read by the ``kubernetes`` package's own loader.

Its loader knows merging, relative paths, exec plugins, OIDC and basic auth; to write that anew would be to get it wrong
anew. It is imported inside the function: it costs half a second and 20 MB, and the operator's image does without it,
as do files that need no more than reading (:mod:`trimtab.kube.connection.plain_kubeconfig`).

Exec plugins are run here with the package's ``ExecProvider`` and their answer is put in the user's place before the
loader looks, because the loader only logs a plugin's failure and would go on without any login.
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

from trimtab.kube.connection.config import Login, ServerConfig
from trimtab.kube.connection.plain_kubeconfig import read_plain
from trimtab.kube.connection.proxy import proxy_for
from trimtab.kube.errors import InputError

_LOADING: Final = threading.Lock()  # the loader keeps its temporary files in a global


def load_kubeconfig(
    files: Sequence[Path], *, context: str = "", environ: Mapping[str, str] = os.environ
) -> ServerConfig:
    """Read kubeconfig files, merged as kubectl merges them, and log in with what they say.

    Args:
        files: those that do not exist are passed over, as kubectl does.
        context: which context; ``""`` for ``current-context``.
        environ: the environment variables, for a proxy.

    Raises:
        InputError: the ``kubernetes`` package is missing, a file or the context is not usable, the plugin failed.
    """
    plain = read_plain(files, context=context, environ=environ)
    return plain or load_any_kubeconfig(files, context=context, environ=environ)


def load_any_kubeconfig(
    files: Sequence[Path], *, context: str = "", environ: Mapping[str, str] = os.environ
) -> ServerConfig:
    """The same for files of all kinds, by the package."""
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
            # Only OIDC and gcp logins change the file (a refresh token is good once); a plugin's answer must not.
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
    """The user (or ``None``) and the cluster of a context, as the loader's own nodes."""
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
    """Run the user's exec plugin and put its answer in the user's place; returns when the answer expires."""
    from kubernetes.config.config_exception import ConfigException
    from kubernetes.config.exec_provider import ExecProvider

    if user is None or "exec" not in user or any(key in user for key in ("token", "tokenFile", "auth-provider")):
        return None
    # kubectl resolves a plugin's relative path against the kubeconfig that names it.
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
            f"exec plugin {user['exec']['command']} answered with neither a token nor a certificate and its key"
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
