"""Kubeconfig files that need no more than reading: one file, a token or a certificate or neither.

Such are those of local clusters, of service accounts and of kubeadm. The ``kubernetes`` package, whose loader knows all
others, takes half a second and 20 MB to import, a tenth of a plan for 5,000 nodes. So that nothing is read in another
way than it reads it, everything that is not as plain as can be is left to it, and so is saying what is wrong: a key
that is not known here, another type, a file that is missing.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from trimtab.kube.connection.config import Login, ServerConfig
from trimtab.kube.connection.proxy import proxy_for


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
    """Entries stay as they are: what is odd about one that is not used does not matter."""

    clusters: list[Any]
    contexts: list[Any]
    users: list[Any] | None = None
    current_context: str = ""


def read_plain(files: Sequence[Path], *, context: str, environ: Mapping[str, str]) -> ServerConfig | None:
    """What the files say, or ``None`` where that takes more than reading.

    Args:
        files: as kubectl looks for them; all but one must be missing.
        context: which context; ``""`` for ``current-context``.
        environ: the environment variables, for a proxy.
    """
    import yaml

    try:
        present = [file for file in files if file.exists()]
        if len(present) != 1:
            return None
        with present[0].open() as text:
            config = msgspec.convert(yaml.safe_load(text), _Kubeconfig)
        return _config(config, context or config.current_context, present[0], files, environ)
    except (yaml.YAMLError, msgspec.ValidationError, OSError, ValueError):
        return None


def _config(
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
        ca=_content(cluster.certificate_authority_data, cluster.certificate_authority, base) if encrypted else b"",
        insecure=cluster.insecure_skip_tls_verify,
        tls_server_name=cluster.tls_server_name,
        proxy=proxy_for(server, environ=environ),
        login=Login(
            authorization=f"Bearer {user.token}" if user.token else "",
            certificate=_content(user.client_certificate_data, user.client_certificate, base) if encrypted else b"",
            key=_content(user.client_key_data, user.client_key, base) if encrypted else b"",
        ),
        kubeconfig=joined,
        context=name,
    )


def _named(entries: list[Any], name: str) -> Any:
    """The first entry of that name.

    Raises:
        ValueError: there is none, or one before it has no name.
    """
    for entry in entries:
        if msgspec.convert(entry, _Named).name == name:
            return entry
    raise ValueError(name)


def _content(data: str | None, file: str | None, base: Path) -> bytes:
    """What is given as base64, else in a file beside the kubeconfig."""
    if data is not None:
        return base64.standard_b64decode(data)
    return (base / file).read_bytes() if file else b""
