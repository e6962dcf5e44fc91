"""Decodes single objects from JSON and from mappings (YAML, test builders).

A kind without a type decodes to ``None``. An invalid object raises an :class:`~trimtab.kube.errors.InputError` that
names the object and the field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from trimtab.kube.errors import InputError
from trimtab.kube.objects import KubeObject
from trimtab.kube.wire import custom_json, slim_json
from trimtab.kube.wire.identity import CUSTOM, GROUPS, TOO_DEEP, ObjectIdentity, decode_identity, kind_of
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.json_base import Message
from trimtab.kube.wire.projection import fields
from trimtab.kube.wire.projection.objects import projector
from trimtab.kube.wire.projection.pod import project_pod
from trimtab.kube.wire.validation import validate

T = TypeVar("T")

_ENCODER: Final = msgspec.json.Encoder(order="deterministic")


class _Codec(Struct, frozen=True):
    decoder: msgspec.json.Decoder[Any]
    project: Callable[[Any, Interner], KubeObject]


def _encode_spec(spec: slim_json.PodSpec) -> bytes:
    spec.node_name = ""
    for volume in spec.volumes:
        if volume.ephemeral is None and volume.empty_dir is None and volume.host_path is None:
            volume.name = ""
    return _ENCODER.encode(spec)


MESSAGES: Final[dict[str, type[Message]]] = {
    kind: getattr(custom_json if kind in CUSTOM else slim_json, kind) for kind in GROUPS
}
"""The struct into which each type is decoded from JSON and YAML."""

_CODECS: Final = {
    kind: _Codec(msgspec.json.Decoder(message), projector(kind, _encode_spec)) for kind, message in MESSAGES.items()
}


def decode_object(
    manifest: Mapping[str, Any], *, interner: Interner | None = None, validated: bool = False
) -> KubeObject | None:
    """Decode a manifest, for example from YAML, into the value that planners read.

    Args:
        manifest: the complete object, with ``apiVersion``, ``kind`` and ``metadata``.
        interner: shares identical parts with other objects, or ``None`` to share nothing.
        validated: whether to validate values in addition to types (:mod:`trimtab.kube.wire.validation`).

    Returns:
        The value, or ``None`` for a kind without a type.

    Raises:
        InputError: the object is invalid. The error names the object and the field.
    """
    identity = msgspec.convert(manifest, ObjectIdentity)
    name = identity.type_name
    if not name:
        return None
    kind = _CODECS[name].decoder.type
    try:
        try:
            message = msgspec.convert(manifest, kind)
        except msgspec.ValidationError:
            message = msgspec.convert(_without_nulls(manifest), kind)
        return identity.adjusted_to_version(_value(name, message, interner or Interner(), validated=validated))
    except (msgspec.ValidationError, fields.FieldError) as error:
        raise _input_error(identity, error, manifest) from None
    except RecursionError:
        raise InputError(TOO_DEEP, object=identity.label) from None


def decode_json(
    kind: str, raw: bytes | msgspec.Raw, *, interner: Interner | None = None, validated: bool = False
) -> KubeObject:
    """Decode one object of a known kind from JSON, which is the fast path for large files and JSON watches.

    Args:
        kind: the name of a type in :data:`GROUPS`.
        raw: the object's JSON.
        interner: shares identical parts with other objects, or ``None`` to share nothing.
        validated: whether to validate values in addition to types. This is not necessary for objects of an API server.

    Raises:
        InputError: the object is invalid. The error names the object and the field.
        KeyError: there is no type for the kind.
    """
    try:
        return _value(kind, _message(raw, _CODECS[kind].decoder), interner or Interner(), validated=validated)
    except (msgspec.ValidationError, fields.FieldError) as error:
        manifest = _decode_untyped(raw)
        identity = msgspec.convert({**manifest, "kind": kind_of(kind)}, ObjectIdentity)
        raise _input_error(identity, error, manifest) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is not JSON: {error}", object=kind) from None
    except RecursionError:
        raise InputError(TOO_DEEP, object=kind) from None


def decode_as(kind: str, content: bytes | msgspec.Raw | Mapping[str, Any], decoder: msgspec.json.Decoder[T]) -> T:
    """Decode one object to a struct that has only some of its fields.

    Args:
        kind: the kind of the object, for errors, because items of a list may not contain it.
        content: the object as JSON, or as decoded JSON or YAML.
        decoder: decodes to the struct. Nulls in the object count as absent fields.

    Raises:
        InputError: the object is invalid. The error names the object and the field.
    """
    try:
        # Mappings are encoded first, because msgspec.convert cannot produce the type Raw.
        raw = msgspec.json.encode(content) if isinstance(content, Mapping) else content
        try:
            return decoder.decode(raw)
        except msgspec.ValidationError:
            return decoder.decode(msgspec.json.encode(_without_nulls(msgspec.json.decode(raw))))
    except msgspec.ValidationError as error:
        manifest = content if isinstance(content, Mapping) else _decode_untyped(content)
        raise _input_error(msgspec.convert({**manifest, "kind": kind}, ObjectIdentity), error, manifest) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is not JSON: {error}", object=kind) from None
    except RecursionError:
        raise InputError(TOO_DEEP, object=kind) from None


def _message(raw: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Decode a message.

    JSON nulls, which stand for Go's zero values, are rare. So they are removed for a second attempt, instead of being
    allowed by the types.
    """
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        try:
            loose = msgspec.json.decode(raw)
        except msgspec.DecodeError:
            raise error from None  # the number is out of range; the first error contains its path
        return msgspec.convert(_without_nulls(loose), decoder.type)


def _decode_untyped(raw: bytes | msgspec.Raw) -> dict[str, Any]:
    """Decode the JSON without a type, to name the object in an error.

    If another part is invalid, only the identity is decoded.
    """
    try:
        manifest = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        manifest = {"metadata": decode_identity(raw).metadata}
    return manifest if isinstance(manifest, dict) else {}


def _value(kind: str, message: Any, interner: Interner, *, validated: bool) -> KubeObject:
    codec = _CODECS[kind]
    if not validated:
        return codec.project(message, interner)
    if kind != "Pod":
        validate(message)
        return codec.project(message, interner)
    # Pods of one template share their spec, so it is validated once.
    pod = project_pod(message, interner, _encode_spec, lambda spec: validate(spec, "spec"))
    validate(message.status, "status")
    return pod


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]  # a null item stays: no type allows it, and it must be reported
    return value


_BOUND: Final = re.compile(r"Expected `int` ([<>])= (-?[0-9]+)")
_WHERE: Final = re.compile(r"(?P<message>.*?)(?: - at (?:`key` in )?`\$\.?(?P<path>[^`]*)`)?", re.DOTALL)


def _bound(found: re.Match[str]) -> str:
    return f"must be at {'most' if found[1] == '<' else 'least'} {found[2]}"


def _input_error(identity: ObjectIdentity, error: Exception, manifest: Any) -> InputError:
    if isinstance(error, fields.FieldError):
        return InputError(error.message, object=identity.label, field=error.path)
    found = _WHERE.fullmatch(str(error))
    assert found is not None
    message = _BOUND.sub(_bound, found["message"]).replace("`", "")
    path = _named_key(found["path"] or "", manifest)
    return InputError(message[:1].lower() + message[1:], object=identity.label, field=path)


def _named_key(path: str, manifest: Any) -> str:
    """Return the path of an error with the name of the map key where msgspec writes ``[...]``.

    This is the first key whose value is neither a string nor a number, because all maps in the wire structs contain
    strings or quantities. The message no longer contains msgspec's type.
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
