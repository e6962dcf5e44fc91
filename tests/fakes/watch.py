"""An API server for informers: answers each connection with what a script says, in protobuf or JSON."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tests.protobuf import encode_frame, encode_list, encode_object, encode_status
from trimtab.kube.wire import slim_pb2

END = {"k8s.io/initial-events-end": "true"}


@dataclass
class Opened:
    """A connection as it was asked for."""

    path: str
    params: dict[str, str]
    accept: str
    at: float

    @property
    def resumed_at(self) -> str | None:
        """The resource version of a watch that goes on, ``None`` where it begins with all objects or is a list."""
        initial = "sendInitialEvents" in self.params or "watch" not in self.params
        return None if initial else self.params.get("resourceVersion", "")


@dataclass
class ScriptedApi:
    """`answers` are taken in turn: an exception is raised on opening; chunks are sent, exceptions among them raised.

    A connection whose chunks are used up ends; `HOLD` keeps it open instead. After the last answer all connections are
    held.
    """

    answers: list[Any] = field(default_factory=list)
    opened: list[Opened] = field(default_factory=list)
    closed: int = 0

    async def request(self, *_args: Any, **_options: Any) -> Any:
        raise AssertionError("an informer only streams")

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        accept: str = "application/json",
        idle_timeout: float = 60.0,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self.opened.append(Opened(path, dict(params or {}), accept, asyncio.get_running_loop().time()))
        answer = self.answers.pop(0) if self.answers else [HOLD]
        if isinstance(answer, Exception):
            raise answer
        chunks = self._send(answer)
        try:
            yield chunks
        finally:
            await chunks.aclose()
            self.closed += 1

    async def _send(self, chunks: list[Any]) -> AsyncIterator[bytes]:
        for chunk in chunks:
            await asyncio.sleep(0)
            if isinstance(chunk, Exception):
                raise chunk
            if isinstance(chunk, asyncio.Event):
                await chunk.wait()
            elif isinstance(chunk, (int, float)):
                await asyncio.sleep(chunk)
            else:
                yield chunk


HOLD = 10**6
"""Seconds that a connection stays open for: for ever, as far as a test goes."""


class Protobuf:
    """Writes chunks of a protobuf watch, and lists."""

    def event(self, event: str, manifest: Mapping[str, Any], version: int | str) -> bytes:
        return encode_frame(event, manifest["kind"], encode_object(versioned(manifest, version)))

    def bookmark(self, kind: str, version: int | str, annotations: Mapping[str, str] | None = None) -> bytes:
        raw = slim_pb2.PartialObject()
        raw.metadata.resource_version = str(version)
        raw.metadata.annotations.update(annotations or {})
        return encode_frame("BOOKMARK", kind, raw.SerializeToString())

    def error(self, code: int, reason: str, message: str = "") -> bytes:
        return encode_frame("ERROR", "Status", encode_status(code, reason, message))

    def listed(self, kind: str, manifests: list[dict[str, Any]], version: int | str, token: str = "") -> bytes:
        raws = [encode_object(manifest) for manifest in manifests]
        return encode_list(kind, raws, resource_version=str(version), continue_token=token)


class Json:
    """Writes chunks of a JSON watch, and lists."""

    def event(self, event: str, manifest: Mapping[str, Any], version: int | str) -> bytes:
        return _line({"type": event, "object": versioned(manifest, version)})

    def bookmark(self, kind: str, version: int | str, annotations: Mapping[str, str] | None = None) -> bytes:
        metadata = {"resourceVersion": str(version), "annotations": annotations or {}, "creationTimestamp": None}
        return _line({"type": "BOOKMARK", "object": {"kind": kind, "metadata": metadata, "spec": {"containers": None}}})

    def error(self, code: int, reason: str, message: str = "") -> bytes:
        status = {"kind": "Status", "code": code, "reason": reason, "message": message}
        return _line({"type": "ERROR", "object": status})

    def listed(self, kind: str, manifests: list[dict[str, Any]], version: int | str, token: str = "") -> bytes:
        items = [each if _is_custom(each) else _unnamed(each) for each in manifests]
        metadata = {"resourceVersion": str(version), "continue": token}
        return msgspec.json.encode({"kind": f"{kind}List", "metadata": metadata, "items": items})


def versioned(manifest: Mapping[str, Any], version: int | str) -> dict[str, Any]:
    """The manifest with another resource version."""
    return {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": str(version)}}


def _is_custom(manifest: Mapping[str, Any]) -> bool:
    """Whether it is a custom resource: items of its lists say their kind and version, of others only the list does."""
    return str(manifest["apiVersion"]).startswith(("cluster.x-k8s.io/", "machine.openshift.io/"))


def _unnamed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in manifest.items() if key not in ("kind", "apiVersion")}


def _line(event: dict[str, Any]) -> bytes:
    return msgspec.json.encode(event) + b"\n"
