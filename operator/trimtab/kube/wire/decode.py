"""Decoding of single objects from JSON and from mappings (YAML, test builders).

Kinds that trimtab has no type for decode to ``None``. Everything that is wrong with an object becomes an
:class:`~trimtab.kube.errors.InputError` that names the object and the field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from trimtab.kube.errors import InputError
from trimtab.kube.objects import KubeObject
from trimtab.kube.wire import fields, json
from trimtab.kube.wire.head import GROUPS, TOO_DEEP, Head, decode_head, kind_of
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.projection import project_pod, projector
from trimtab.kube.wire.validation import Validator

_ENCODER: Final = msgspec.json.Encoder(order="deterministic")


class _Codec(Struct, frozen=True):
    decoder: msgspec.json.Decoder[Any]
    project: Callable[[Any, Interner], KubeObject]


def _encode_spec(spec: json.PodSpec) -> bytes:
    spec.node_name = ""
    for volume in spec.volumes:
        if volume.ephemeral is None and volume.empty_dir is None and volume.host_path is None:
            volume.name = ""
    return _ENCODER.encode(spec)


_CODECS: Final = {
    kind: _Codec(msgspec.json.Decoder(getattr(json, kind)), projector(kind, _encode_spec)) for kind in GROUPS
}


def decode_object(
    manifest: Mapping[str, Any], *, interner: Interner | None = None, validator: Validator | None = None
) -> KubeObject | None:
    """Decode a manifest, as YAML gives it, into the value that planners read.

    Args:
        manifest: the whole object, with ``apiVersion``, ``kind`` and ``metadata``.
        interner: shares equal parts with other objects; without one the value stands alone.
        validator: checks ranges and formats too; without one only types are checked.

    Returns:
        The value, or ``None`` for a kind that trimtab has no type for.

    Raises:
        InputError: naming the object and the field.
    """
    head = msgspec.convert(manifest, Head)
    name = head.type_name
    if not name:
        return None
    kind = _CODECS[name].decoder.type
    try:
        try:
            message = msgspec.convert(manifest, kind)
        except msgspec.ValidationError:
            message = msgspec.convert(_without_nulls(manifest), kind)
        return head.settled(_value(name, message, interner or Interner(), validator))
    except (msgspec.ValidationError, fields.FieldError) as error:
        raise _input_error(head, error, manifest) from None
    except RecursionError:
        raise InputError(TOO_DEEP, object=head.label) from None


def decode_json(
    kind: str, raw: bytes | msgspec.Raw, *, interner: Interner | None = None, validator: Validator | None = None
) -> KubeObject:
    """Decode one object of a known kind from JSON; the fast path for big files and for JSON watches.

    Args:
        kind: one of :data:`GROUPS`, a type's name where kind and type are named differently.
        raw: the object's JSON.
        interner: shares equal parts with other objects; without one the value stands alone.
        validator: checks ranges and formats too; without one only types are checked, as an API server has done it.

    Raises:
        InputError: naming the object and the field.
        KeyError: trimtab has no type for the kind.
    """
    try:
        return _value(kind, _message(raw, _CODECS[kind].decoder), interner or Interner(), validator)
    except (msgspec.ValidationError, fields.FieldError) as error:
        manifest = _loose(raw)
        head = msgspec.convert({**manifest, "kind": kind_of(kind)}, Head)
        raise _input_error(head, error, manifest) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is not JSON: {error}", object=kind) from None
    except RecursionError:
        raise InputError(TOO_DEEP, object=kind) from None


def _message(raw: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[Any]) -> Any:
    """The JSON as a message. A null, which stands for Go's zero value, is rare: it costs a second look, not a type."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        try:
            loose = msgspec.json.decode(raw)
        except msgspec.DecodeError:
            raise error from None  # a number beyond all bounds: the first error says where
        return msgspec.convert(_without_nulls(loose), decoder.type)


def _loose(raw: bytes | msgspec.Raw) -> dict[str, Any]:
    """The JSON as it is, to name the object by; only its head where the rest is what no decoder takes."""
    try:
        manifest = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        manifest = {"metadata": decode_head(raw).metadata}
    return manifest if isinstance(manifest, dict) else {}


def _value(kind: str, message: Any, interner: Interner, validator: Validator | None) -> KubeObject:
    """The message as a value, checked if so wished."""
    if validator is None:
        return _CODECS[kind].project(message, interner)
    if kind != "Pod":
        validator.message(kind, message)
        return _CODECS[kind].project(message, interner)
    pod = project_pod(message, interner, _encode_spec, validator.pod_spec)
    validator.pod(message, pod)
    return pod


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]  # to leave one out would be to guess: of a type it is none
    return value


_WHERE: Final = re.compile(r"(?P<message>.*?)(?: - at (?:`key` in )?`\$\.?(?P<path>[^`]*)`)?", re.DOTALL)


def _input_error(head: Head, error: Exception, manifest: Any) -> InputError:
    if isinstance(error, fields.FieldError):
        return InputError(error.message, object=head.label, field=error.path)
    found = _WHERE.fullmatch(str(error))
    assert found is not None
    message = found["message"].replace("`", "")
    path = _named_key(found["path"] or "", manifest)
    return InputError(message[:1].lower() + message[1:], object=head.label, field=path)


def _named_key(path: str, manifest: Any) -> str:
    """Name the key where msgspec writes ``[...]``: the first whose value is neither text nor a number.

    All maps in the wire structs hold text or quantities, and msgspec's type is gone from the message.
    """
    before, found, after = path.partition("[...]")
    if not found or after:
        return path
    value = manifest
    for part in re.findall(r"[^.\[\]]+", before):
        value = value[int(part)] if isinstance(value, list) else value.get(part, {})
    numbers = (
        ()
        if before.rpartition(".")[2] in {"labels", "annotations", "matchLabels", "nodeSelector", "selector"}
        else (int, float)
    )
    for key, item in value.items():
        if item is not None and (isinstance(item, bool) or not isinstance(item, (str, *numbers))):
            return fields.keyed(before, str(key))
    return before
