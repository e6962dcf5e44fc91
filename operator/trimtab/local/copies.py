"""Copies of an object, written past the API server into its etcd: a hundred at once instead of one.

A pod costs the API server three milliseconds of a processor to create and to mark as running, most of it for
admission, validation and field management that give the same for every pod of a template. So the API server makes the
first pod of each owner, and the others are copies of what it answered, with a name, a uid and a node of their own. To
the API server they are writes of another API server on the same etcd: its watch caches follow etcd, not its own writes.
Tools that restore a cluster from a backup work the same way.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import msgspec

from trimtab.kube.api import Unreachable
from trimtab.local.errors import LocalError
from trimtab.local.manifests import Manifest

BATCH: Final = 100
"""Objects a transaction; etcd takes up to 128 by default."""
_PREFIX: Final = "/registry"
"""kube-apiserver's default ``--etcd-prefix``."""


def pod_copy(original: Manifest, *, name: str, node_name: str) -> Manifest:
    """Another pod like the one that the API server answered with, on another node.

    The resource version is left out, for etcd's revision is what becomes it.
    """
    meta = {key: value for key, value in original["metadata"].items() if key not in ("resourceVersion", "selfLink")}
    return original | {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta | {"name": name, "uid": str(uuid.uuid4())},
        "spec": original["spec"] | {"nodeName": node_name},
    }


def pod_key(manifest: Manifest) -> str:
    """Where kube-apiserver keeps the pod in etcd."""
    return f"{_PREFIX}/pods/{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"


class Etcd:
    """etcd's JSON gateway, as an async context manager."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def create(self, manifests: Sequence[Manifest]) -> None:
        """Write pods that are not there yet; those that are stay as they are.

        Stored is JSON: the API server reads it like its own protobuf, and writes protobuf at the next change.

        Raises:
            LocalError: etcd refused.
            Unreachable: it did not answer.
        """
        entries = [(_text(pod_key(manifest)), _text(msgspec.json.encode(manifest))) for manifest in manifests]
        for start in range(0, len(entries), BATCH):
            batch = entries[start : start + BATCH]
            if not await self._put_absent(batch):
                for entry in batch:
                    await self._put_absent([entry])

    async def _put_absent(self, entries: Sequence[tuple[str, str]]) -> bool:
        """Write all, or nothing where one of them exists already."""
        absent = [{"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"} for key, _ in entries]
        puts = [{"request_put": {"key": key, "value": value}} for key, value in entries]
        answer = await self._post("/v3/kv/txn", {"compare": absent, "success": puts})
        return bool(answer.get("succeeded"))

    async def _post(self, path: str, body: Any) -> dict[str, Any]:
        if self._session is None:
            raise RuntimeError("use it in an async with statement")
        try:
            async with self._session.post(self._url + path, data=msgspec.json.encode(body)) as response:
                content = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"etcd: POST {self._url}{path}: {str(error) or type(error).__name__}") from error
        if response.status != 200:
            raise LocalError(f"etcd: POST {path}: {content[:300].decode(errors='replace')}")
        answer: dict[str, Any] = msgspec.json.decode(content)
        return answer


def _text(content: str | bytes) -> str:
    return base64.b64encode(content.encode() if isinstance(content, str) else content).decode("ascii")
