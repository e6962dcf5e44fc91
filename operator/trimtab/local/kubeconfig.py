"""Writing kubeconfig files: one cluster, one user with a bearer token, one context."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import msgspec

from trimtab.kube.errors import InputError


def context(name: str) -> str:
    """The context's (and cluster's) name in the kubeconfig of the local cluster ``name``."""
    return f"trimtab-{name}"


def render(*, name: str, server: str, ca: Path, token: str, user: str = "admin", namespace: str = "default") -> bytes:
    """The kubeconfig as YAML, with the authority's certificate inside, so that the file can be moved anywhere."""
    title = context(name)
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": title,
        "clusters": [
            {
                "name": title,
                "cluster": {
                    "server": server,
                    "certificate-authority-data": base64.b64encode(ca.read_bytes()).decode("ascii"),
                },
            }
        ],
        "users": [{"name": f"{title}-{user}", "user": {"token": token}}],
        "contexts": [{"name": title, "context": {"cluster": title, "user": f"{title}-{user}", "namespace": namespace}}],
    }
    return msgspec.yaml.encode(content)


def write(path: Path, content: bytes) -> None:
    """Write a kubeconfig: atomically, and readable by its owner only, for it holds a token."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)


def belongs_to(path: Path, name: str) -> bool:
    """Whether the file is one that :func:`render` made for this cluster, and holds nothing else."""
    try:
        content = msgspec.yaml.decode(path.read_bytes())
        contexts = [entry["name"] for entry in content["contexts"]]
    except (OSError, msgspec.DecodeError, KeyError, TypeError, UnicodeDecodeError):
        return False
    return contexts == [context(name)]


def check_target(path: Path, name: str) -> None:
    """Refuse to overwrite a file that is not ours: a kubeconfig is where people keep their other clusters.

    Raises:
        InputError: the file exists and holds something else.
    """
    if path.exists() and not belongs_to(path, name):
        raise InputError(
            f"--kubeconfig {path}: the file exists and is not a kubeconfig of local cluster {name!r}; give a new file"
        )
