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
from trimtab.kube.objects import KubeObject, LabelSelector, PodDisruptionBudget
from trimtab.kube.wire import fields, json
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.projection import project_pod, projector
from trimtab.kube.wire.validation import Validator

GROUPS: Final = {
    "Pod": "",
    "Node": "",
    "Namespace": "",
    "PodDisruptionBudget": "policy",
    "PriorityClass": "scheduling.k8s.io",
    "PersistentVolume": "",
    "PersistentVolumeClaim": "",
    "StorageClass": "storage.k8s.io",
    "CSINode": "storage.k8s.io",
    "CSIDriver": "storage.k8s.io",
    "CSIStorageCapacity": "storage.k8s.io",
    "VolumeAttachment": "storage.k8s.io",
    "Service": "",
    "ReplicationController": "",
    "ReplicaSet": "apps",
    "StatefulSet": "apps",
}
"""The kinds that decode to values, with their API groups; the version is v1 for all of them."""

_OLDER: Final = {
    "PodDisruptionBudget": ("v1beta1",),
    "PriorityClass": ("v1beta1", "v1alpha1"),
    "StorageClass": ("v1beta1",),
    "CSINode": ("v1beta1",),
    "CSIDriver": ("v1beta1",),
    "CSIStorageCapacity": ("v1beta1", "v1alpha1"),
    "VolumeAttachment": ("v1beta1", "v1alpha1"),
    "ReplicaSet": ("v1beta2",),
    "StatefulSet": ("v1beta2", "v1beta1"),
}
"""Versions of the same shape that older clusters write into files; the last of them went with Kubernetes 1.27."""

_NAMESPACED: Final = frozenset(
    {
        "Pod",
        "PodDisruptionBudget",
        "PersistentVolumeClaim",
        "CSIStorageCapacity",
        "Service",
        "ReplicationController",
        "ReplicaSet",
        "StatefulSet",
    }
)
_TOO_DEEP: Final = "is nested too deeply, or is a part of itself"
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")


class _Codec(Struct, frozen=True):
    decoder: msgspec.json.Decoder[Any]
    project: Callable[[Any, Interner], KubeObject]


def _encode_spec(spec: json.PodSpec) -> bytes:
    spec.node_name = ""
    for volume in spec.volumes:
        if volume.ephemeral is None:
            volume.name = ""
    return _ENCODER.encode(spec)


_CODECS: Final = {
    kind: _Codec(msgspec.json.Decoder(getattr(json, kind)), projector(kind, _encode_spec)) for kind in GROUPS
}


class Head(Struct, rename="camel", gc=False):
    """What says of an object which one it is; as lenient as can be, for it also names objects that are broken."""

    api_version: Any = ""
    kind: Any = ""
    metadata: Any = None

    @property
    def name(self) -> str:
        """``namespace/name``, or what there is of it."""
        metadata = self.metadata if isinstance(self.metadata, dict) else {}
        namespace = metadata.get("namespace") or ("default" if self.kind in _NAMESPACED else "")
        name = metadata.get("name") or metadata.get("generateName") or ""
        return f"{namespace}/{name}" if namespace and name else str(name)

    @property
    def label(self) -> str:
        """``Kind/namespace/name``, as errors name objects."""
        return f"{self.kind}/{self.name}" if self.name else str(self.kind)

    @property
    def typed(self) -> bool:
        """Whether this is one of the kinds that decode to values. A file may leave the API version out.

        Raises:
            InputError: it is one of them in a version that is not known: to leave out a budget, say, would be worse.
        """
        group = GROUPS.get(self.kind) if isinstance(self.kind, str) else None
        if group is None:
            return False
        if not self.api_version:
            return True
        prefix = f"{group}/" if group else ""
        allowed = [prefix + version for version in ("v1", *_OLDER.get(self.kind, ()))]
        if self.api_version in allowed:
            return True
        if str(self.api_version).rpartition("/")[0] != group:
            return False
        raise InputError(
            f"must be {' or '.join(allowed)}, not {self.api_version}", object=self.label, field="apiVersion"
        )

    def settled(self, value: KubeObject) -> KubeObject:
        """The value as its API version means it: in policy/v1beta1 an empty selector selects nothing."""
        if (
            isinstance(value, PodDisruptionBudget)
            and self.api_version == "policy/v1beta1"
            and value.selector == LabelSelector()
        ):
            return msgspec.structs.replace(value, selector=None)
        return value


_HEAD: Final = msgspec.json.Decoder(Head)


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
    if not head.typed:
        return None
    kind = _CODECS[head.kind].decoder.type
    try:
        try:
            message = msgspec.convert(manifest, kind)
        except msgspec.ValidationError:
            message = msgspec.convert(_without_nulls(manifest), kind)
        return head.settled(_value(head.kind, message, interner or Interner(), validator))
    except (msgspec.ValidationError, fields.FieldError) as error:
        raise _input_error(head, error, manifest) from None
    except RecursionError:
        raise InputError(_TOO_DEEP, object=head.label) from None


def decode_json(
    kind: str, raw: bytes | msgspec.Raw, *, interner: Interner | None = None, validator: Validator | None = None
) -> KubeObject:
    """Decode one object of a known kind from JSON; the fast path for big files and for JSON watches.

    Args:
        kind: one of :data:`GROUPS`.
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
        head = msgspec.convert({**manifest, "kind": kind}, Head)
        raise _input_error(head, error, manifest) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is not JSON: {error}", object=kind) from None
    except RecursionError:
        raise InputError(_TOO_DEEP, object=kind) from None


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


def decode_head(raw: bytes | msgspec.Raw) -> Head:
    """Decode only what says which object it is.

    Raises:
        InputError: this is no JSON object.
    """
    try:
        return _HEAD.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is not an object: {error}") from None
    except RecursionError:
        raise InputError(_TOO_DEEP) from None


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
