"""Writes objects directly to etcd, from where kube-apiserver reads them.

The API server would set the creation time and reset the status. Direct writes keep both, and take a few milliseconds
for a cluster. To the API server, they look like writes of another API server with the same etcd.
"""

from __future__ import annotations

import base64
import http.client
import urllib.parse
import uuid
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from tests.differential.api_client import Manifest, key

BATCH: Final = 100
"""Operations per transaction; etcd allows 128."""

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
"""The prefixes of kube-apiserver's keys in etcd by kind."""

_NOT_DELETED: Final = frozenset({"Namespace", "PriorityClass"})
"""Kinds that are overwritten and not deleted, because the API server creates some of these objects."""


def path(manifest: Manifest) -> str:
    """The etcd key of an object."""
    metadata = manifest["metadata"]
    return "/".join(
        filter(None, ("/registry", PREFIXES[manifest["kind"]], metadata.get("namespace"), metadata["name"]))
    )


def complete(manifest: Manifest) -> Manifest:
    """Add a UID that is derived from the name, as the API server adds one."""
    metadata = {"uid": str(uuid.uuid5(uuid.NAMESPACE_URL, key(manifest))), **manifest["metadata"]}
    return {**manifest, "metadata": metadata}


class Store:
    """A client of etcd's JSON gateway with one persistent connection.

    Args:
        url: the URL of etcd.
    """

    def __init__(self, url: str) -> None:
        at = urllib.parse.urlsplit(url)
        self._connection = http.client.HTTPConnection(str(at.hostname), at.port, timeout=60)

    def close(self) -> None:
        self._connection.close()

    def replace(self, objects: Iterable[Manifest]) -> str:
        """Delete all objects of :data:`PREFIXES`, write these objects, and return etcd's revision."""
        deleted = [
            {"request_delete_range": {"key": _text(f"/registry/{name}/"), "range_end": _text(f"/registry/{name}0")}}
            for kind, name in PREFIXES.items()
            if kind not in _NOT_DELETED
        ]
        revision = self._change(deleted)
        puts = [
            {"request_put": {"key": _text(path(each)), "value": _text(msgspec.json.encode(complete(each)))}}
            for each in objects
        ]
        for start in range(0, len(puts), BATCH):
            revision = self._change(puts[start : start + BATCH])
        return revision

    def _change(self, operations: list[dict[str, Any]]) -> str:
        self._connection.request("POST", "/v3/kv/txn", msgspec.json.encode({"success": operations}))
        response = self._connection.getresponse()
        content = response.read()
        if response.status != 200:
            raise RuntimeError(f"etcd: {content[:300].decode(errors='replace')}")
        revision: str = msgspec.json.decode(content)["header"]["revision"]
        return revision


def _text(content: str | bytes) -> str:
    return base64.b64encode(content.encode() if isinstance(content, str) else content).decode("ascii")
