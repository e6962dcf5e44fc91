"""The contexts in kubeconfig files, with their namespaces, read without credentials and without exec plugins."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from trimtab.kube.connection.config import SERVICE_ACCOUNT, kubeconfig_files

DEFAULT: Final = "default"


class Contexts(Struct, frozen=True):
    """The contexts of merged kubeconfig files.

    Attributes:
        current: the name of the current context; empty if none is set.
        namespaces: the namespace of each context, by its name.
    """

    current: str = ""
    namespaces: Mapping[str, str] = field(default_factory=dict)


def load_namespace(
    kubeconfig: str | Path | None = None,
    *,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> str:
    """Return the default namespace: that of the context, else that of the pod's service account, else ``default``.

    Files that cannot be read are skipped, because loading the connection reports them, see
    :func:`~trimtab.kube.connection.config.load_config`.

    Args:
        kubeconfig: a file, several files joined as in ``$KUBECONFIG``, or ``None`` for kubectl's default locations.
        context: the context, or ``None`` for the current one.
        environ: the environment variables.
        service_account: the directory with the file ``namespace``.
    """
    found = load_contexts(kubeconfig, environ=environ)
    if found.namespaces:
        return found.namespaces.get(context or found.current, DEFAULT)
    try:
        return (service_account / "namespace").read_text().strip() or DEFAULT
    except OSError:
        return DEFAULT


def load_contexts(kubeconfig: str | Path | None = None, *, environ: Mapping[str, str] = os.environ) -> Contexts:
    """Return the contexts of the kubeconfig files. As in kubectl, the first file that sets a value determines it.

    Args:
        kubeconfig: a file, several files joined as in ``$KUBECONFIG``, or ``None`` for kubectl's default locations.
        environ: the environment variables.
    """
    current, namespaces = "", dict[str, str]()
    for file in kubeconfig_files(kubeconfig, environ=environ)[1]:
        config = _read(file)
        current = current or str(config.get("current-context") or "")
        contexts = config.get("contexts")
        for each in contexts if isinstance(contexts, list) else ():
            if isinstance(each, dict) and isinstance(each.get("name"), str):
                context = each.get("context")
                namespace = context.get("namespace") if isinstance(context, dict) else None
                namespaces.setdefault(each["name"], str(namespace or DEFAULT))
    return Contexts(current, namespaces)


def _read(file: Path) -> dict[str, Any]:
    import yaml  # only commands of users read kubeconfig files

    try:
        content = msgspec.yaml.decode(file.read_bytes())
    except (OSError, ValueError, msgspec.DecodeError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}
