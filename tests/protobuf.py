"""Encodes manifests as Kubernetes protobuf: what an API server would send of them, as far as ``slim.proto`` goes."""

from __future__ import annotations

import datetime as dt
import struct
from typing import Any

import msgspec

from trimtab.kube.wire import slim_json, slim_pb2
from trimtab.kube.wire.identity import GROUPS

API_VERSIONS = {kind: f"{group}/v1" for kind, group in GROUPS.items() if group}


def encode_object(manifest: dict[str, Any]) -> bytes:
    """The object's own bytes, without an envelope."""
    kind = manifest["kind"]
    message = getattr(slim_pb2, kind)()
    _fill(message, msgspec.convert(manifest, getattr(slim_json, kind)))
    return message.SerializeToString()


def encode_body(kind: str, raw: bytes) -> bytes:
    """An object in its envelope."""
    unknown = slim_pb2.Unknown(raw=raw)
    unknown.type_meta.kind = kind
    unknown.type_meta.api_version = API_VERSIONS.get(kind, "v1")
    return b"k8s\0" + unknown.SerializeToString()


def encode_list(kind: str, raws: list[bytes], *, resource_version: str, continue_token: str = "") -> bytes:
    """A list's body."""
    listed = slim_pb2.ObjectList(items=raws)
    listed.metadata.resource_version = resource_version
    listed.metadata.continue_token = continue_token
    return encode_body(f"{kind}List", listed.SerializeToString())


def encode_frame(event: str, kind: str, raw: bytes) -> bytes:
    """A watch event with its length before it."""
    body = slim_pb2.WatchEvent(type=event)
    body.object.raw = encode_body(kind, raw)
    frame = body.SerializeToString()
    return struct.pack(">I", len(frame)) + frame


def encode_status(
    code: int, reason: str, message: str = "", *, retry_after: int = 0, causes: tuple[dict[str, str], ...] = ()
) -> bytes:
    """A Status, as ERROR events carry it."""
    status = slim_pb2.Status(code=code, reason=reason, message=message)
    for cause in causes:
        status.details.causes.add(**cause)
    if retry_after:
        status.details.retry_after_seconds = retry_after
    return status.SerializeToString()


QUANTITIES = {
    *("limits", "requests", "overhead", "capacity", "allocatable", "allocated_resources"),
    *("max", "min", "default", "default_request", "pod_fixed"),
}


def _fill(message: Any, value: msgspec.Struct) -> None:
    for name in value.__struct_fields__:
        if name in message.DESCRIPTOR.fields_by_name:
            _set(message, name, getattr(value, name))
    for inline in ("volume_source", "persistent_volume_source"):
        if inline in message.DESCRIPTOR.fields_by_name:
            _fill(getattr(message, inline), value)


def _set(message: Any, name: str, item: Any) -> None:
    target = getattr(message, name)
    if item is None:
        return
    if isinstance(target, slim_pb2.FieldsV1):
        target.raw = msgspec.json.encode(item)
        return
    if isinstance(target, slim_pb2.Quantity):
        target.string = str(item)
        return
    if isinstance(item, dt.datetime):
        target.seconds = int(item.timestamp())
        if isinstance(target, slim_pb2.MicroTime):
            target.nanos = item.microsecond * 1_000
    elif isinstance(item, msgspec.Struct):
        target.SetInParent()
        _fill(target, item)
    elif isinstance(item, dict):
        _set_map(target, name, item)
    elif isinstance(item, list):
        for entry in item:
            _fill(target.add(), entry) if isinstance(entry, msgspec.Struct) else target.append(entry)
    else:
        setattr(message, name, item)


def _set_map(target: Any, name: str, entries: dict[str, Any]) -> None:
    for key, entry in entries.items():
        if name in QUANTITIES:
            target[key].string = str(entry)
        elif name == "disrupted_pods":
            target[key].seconds = int(entry.timestamp())
        else:
            target[key] = entry
