"""Objects put straight into etcd, where kube-apiserver finds them.

Past the API server a pod can be as old as is wanted, can have failed, and can be on its way out; and a whole cluster is
there in a few milliseconds. To the API server these are writes of another API server on the same etcd.
"""

from __future__ import annotations

import base64
import http.client
import urllib.parse
import uuid
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from tests.differential.server import Manifest, key

BATCH: Final = 100
"""Operations a transaction; etcd takes up to 128."""

PREFIXES: Final = {
    "Namespace": "namespaces",
    "PriorityClass": "priorityclasses",
    "Node": "minions",
    "StorageClass": "storageclasses",
    "PersistentVolume": "persistentvolumes",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "Pod": "pods",
}
"""Kinds, and what kube-apiserver calls them in etcd."""

_STAYING: Final = frozenset({"Namespace", "PriorityClass"})
"""The API server has some of its own: ours are written over, and none is taken away."""


def path(manifest: Manifest) -> str:
    """Where kube-apiserver keeps the object."""
    metadata = manifest["metadata"]
    return "/".join(
        filter(None, ("/registry", PREFIXES[manifest["kind"]], metadata.get("namespace"), metadata["name"]))
    )


def complete(manifest: Manifest) -> Manifest:
    """The object with what the API server gives every object: an identity that follows from its name."""
    metadata = {"uid": str(uuid.uuid5(uuid.NAMESPACE_URL, key(manifest))), **manifest["metadata"]}
    return {**manifest, "metadata": metadata}


class Store:
    """etcd's JSON gateway, on one connection that is kept.

    Args:
        url: of etcd.
    """

    def __init__(self, url: str) -> None:
        at = urllib.parse.urlsplit(url)
        self._connection = http.client.HTTPConnection(str(at.hostname), at.port, timeout=60)

    def close(self) -> None:
        self._connection.close()

    def replace(self, objects: Iterable[Manifest]) -> str:
        """Take away all that was put here, and put these objects in its place; etcd's revision after that."""
        gone = [
            {"request_delete_range": {"key": _text(f"/registry/{name}/"), "range_end": _text(f"/registry/{name}0")}}
            for kind, name in PREFIXES.items()
            if kind not in _STAYING
        ]
        revision = self._change(gone)
        puts = [
            {"request_put": {"key": _text(path(each)), "value": _text(msgspec.json.encode(complete(each)))}}
            for each in objects
        ]
        for start in range(0, len(puts), BATCH):
            revision = self._change(puts[start : start + BATCH])
        return revision

    def _change(self, operations: list[dict[str, Any]]) -> str:
        self._connection.request("POST", "/v3/kv/txn", msgspec.json.encode({"success": operations}))
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"etcd: {content[:300].decode(errors='replace')}")
        revision: str = msgspec.json.decode(content)["header"]["revision"]
        return revision


def _text(content: str | bytes) -> str:
    return base64.b64encode(content.encode() if isinstance(content, str) else content).decode("ascii")
