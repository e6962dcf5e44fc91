"""Helpers for all projections: they read metadata, times, labels, amounts, selectors, and fields with equal names.

A *message* is a protobuf message of ``slim_pb2`` or a struct of :mod:`~trimtab.kube.wire.slim_json`. Both have the same
attributes and the method ``HasField(name)`` for optional fields. They are typed ``Any``, because a Protocol for each
message would duplicate the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from functools import cache
from typing import Any, Final, get_type_hints

import msgspec

from trimtab.kube.frozen import NO_LABELS, NO_RESOURCES, FrozenMap, Labels, ResourceList
from trimtab.kube.objects import LabelRequirement, LabelSelector, NodeSelector, NodeSelectorTerm, OwnerReference
from trimtab.kube.rules.quantity import QuantityError, resource_amount
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.json_base import FieldsV1
from trimtab.kube.wire.limits import selector_size
from trimtab.kube.wire.projection.annotations import meaningful


class FieldError(ValueError):
    """A field contains an invalid value.

    Attributes:
        path: the path of the field in the object, as in kubectl: ``spec.containers[0].image``.
        message: a description of the invalid and the allowed values.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message


_fields_v1: Final = msgspec.json.Decoder(FieldsV1).decode


def sets_node_name(entries: Collection[Any]) -> bool:
    """Return whether some manager owns ``spec.nodeName``. A user who creates a pod with a node name does.

    Args:
        entries: the ``managedFields`` of a pod. An entry of a protobuf message that is not the JSON of fields counts as
            an entry for the field, because users can edit the entries.
    """
    return any(entry.HasField("fields_v1") and _sets_node_name(entry.fields_v1) for entry in entries)


def _sets_node_name(owned: Any) -> bool:
    if not isinstance(owned, FieldsV1):
        try:
            owned = _fields_v1(owned.raw)
        except (msgspec.MsgspecError, RecursionError, ValueError):
            return True
    return owned.spec is not None and owned.spec.node_name is not None


def required(value: str, path: str) -> str:
    """Return a string that must not be empty.

    Raises:
        FieldError: the string is empty.
    """
    if not value:
        raise FieldError(path, "is required")
    return value


def keyed(path: str, key: str) -> str:
    """Return the path of a map entry, such as ``requests.cpu``.

    A key with a dot or slash is put in brackets: ``requests[example.com/gpu]``.
    """
    return f"{path}[{key}]" if "." in key or "/" in key else f"{path}.{key}"


def seconds(message: Any, field: str) -> float | None:
    """Return the time in a field as seconds since the epoch, or ``None`` if it is absent or Go's zero time."""
    return moment(getattr(message, field))


def moment(time: Any) -> float | None:
    """Convert a decoded time to seconds since the epoch.

    The result is ``None`` if the time is absent or Go's zero time. An absent time is ``None`` in JSON and an empty
    message in protobuf, where ``HasField`` would be slower.
    """
    if time is None:
        return None
    if isinstance(time, datetime):
        return time.timestamp()
    return float(time.seconds) or None


def micro_moment(time: Any) -> float | None:
    """Convert a decoded metav1.MicroTime to seconds since the epoch, like :func:`moment` but with microseconds.

    The result is the same float for every format.
    """
    if time is None or isinstance(time, datetime):
        return moment(time)
    return (time.seconds * 1_000_000 + time.nanos // 1_000) / 1_000_000 or None


def labels(mapping: Mapping[str, str], interner: Interner) -> Labels:
    """Return labels, or a node selector, as an interned map."""
    return interner.share(FrozenMap(mapping.items())) if mapping else NO_LABELS


def kept_annotations(mapping: Mapping[str, str], interner: Interner) -> Labels:
    """Return the annotations to store (:mod:`~trimtab.kube.wire.projection.annotations`) as an interned map."""
    if not mapping:
        return NO_LABELS
    kept = meaningful(mapping.items())
    return interner.share(FrozenMap(kept)) if kept else NO_LABELS


def owners(references: Any, interner: Interner, *, most: int = 0) -> tuple[OwnerReference, ...]:
    """Convert an object's owner references, and intern them.

    If there are more than ``most`` (0 for no limit), only the controller and the first others are returned.
    """
    if not references:
        return ()
    if most and len(references) > most:
        references = sorted(references, key=lambda reference: not reference.controller)[:most]
    return interner.share(
        tuple(
            OwnerReference(
                kind=reference.kind,
                name=reference.name,
                uid=reference.uid,
                api_version=reference.api_version,
                controller=reference.controller,
            )
            for reference in references
        )
    )


def resource_list(quantities: Mapping[str, Any], path: str) -> ResourceList:
    """Convert quantities to integer amounts.

    Args:
        quantities: quantities by resource name: protobuf messages, or strings and numbers of JSON and YAML.
        path: the path of the field, for errors.

    Raises:
        FieldError: a quantity cannot be parsed or is negative. The path contains the resource.
    """
    if not quantities:
        return NO_RESOURCES
    return FrozenMap({name: _amount(name, quantity, path) for name, quantity in quantities.items()})


def resource(quantities: Mapping[str, Any], name: str, path: str) -> int | None:
    """Return the amount of one resource in a list, or ``None`` if the list does not contain it.

    Raises:
        FieldError: the quantity cannot be parsed or is negative.
    """
    return _amount(name, quantities[name], path) if name in quantities else None


def quantity(message: Any, field: str, path: str) -> int | None:
    """Return the amount in a field with a single quantity, in whole units, or ``None`` if it is absent.

    Raises:
        FieldError: the quantity cannot be parsed or is negative.
    """
    return _amount("", getattr(message, field), path) if message.HasField(field) else None


def _amount(name: str, quantity: Any, path: str) -> int:
    """Return the amount of a resource. The name is empty for quantities outside of resource lists."""
    text = quantity if isinstance(quantity, str) else getattr(quantity, "string", None)
    if text is None:
        text = repr(quantity)  # a bare number in JSON or YAML, which the API server accepts as its text too
    try:
        amount = resource_amount(name, text)
    except QuantityError as error:
        raise FieldError(keyed(path, name) if name else path, str(error)) from None
    if amount < 0:
        raise FieldError(keyed(path, name) if name else path, f"must not be negative: {text}")
    return amount


def requirements(messages: Any) -> tuple[LabelRequirement, ...]:
    """Convert the expressions of a label or node selector."""
    return tuple(
        LabelRequirement(key=message.key, operator=message.operator, values=tuple(message.values))
        for message in messages
    )


def node_selector(message: Any) -> NodeSelector:
    """Convert a node selector."""
    return NodeSelector(terms=tuple(map(node_selector_term, message.node_selector_terms)))


def node_selector_term(message: Any) -> NodeSelectorTerm:
    """Convert a term of a node selector."""
    return NodeSelectorTerm(
        match_expressions=requirements(message.match_expressions),
        match_fields=requirements(message.match_fields),
    )


def bounded_selector(
    message: Any, field: str, interner: Interner, *, instead: LabelSelector | None
) -> LabelSelector | None:
    """Return the label selector in a field, or ``instead`` if the selector exceeds the complexity limits."""
    if message.HasField(field) and selector_size(getattr(message, field)) > interner.limits.selector_values:
        return instead
    return label_selector(message, field)


def label_selector(message: Any, field: str) -> LabelSelector | None:
    """Return the label selector in a field. An absent selector is ``None`` and matches nothing."""
    if not message.HasField(field):
        return None
    selector = getattr(message, field)
    return LabelSelector(
        match_labels=FrozenMap(selector.match_labels.items()) if selector.match_labels else NO_LABELS,
        match_expressions=requirements(selector.match_expressions),
    )


Reader = Callable[[Any, Interner], Any]
"""A function that reads a value from a message."""


def same_named_fields(
    value: type[msgspec.Struct], message: type[msgspec.Struct], *, but: Collection[str] = ()
) -> Reader:
    """Create a function that reads all plain fields that have the same name in a type and in a message.

    Plain fields are int, bool and str (interned), optional fields of these types, lists of strings, labels and label
    selectors.

    Args:
        value: the type in :mod:`trimtab.kube.objects`.
        message: the struct in :mod:`~trimtab.kube.wire.slim_json`.
        but: the fields to omit, for example because they have a default.

    Returns:
        A function that returns the fields as keyword arguments.
    """
    hints = get_type_hints(value)
    names = [name for name in value.__struct_fields__ if name in message.__struct_fields__ and name not in but]
    readers = [(name, _READERS[hints[name]](name)) for name in names if hints[name] in _READERS]

    def read(source: Any, interner: Interner) -> dict[str, Any]:
        return {name: reader(source, interner) for name, reader in readers}

    return read


def _plain(name: str) -> Reader:
    return lambda message, _interner: getattr(message, name)


def _optional(name: str) -> Reader:
    return lambda message, _interner: getattr(message, name) if message.HasField(name) else None


_READERS: Final[Mapping[Any, Callable[[str], Reader]]] = {
    str: lambda name: lambda message, interner: interner.string(getattr(message, name)),
    bool: _plain,
    int: _plain,
    int | None: _optional,
    str | None: _optional,
    tuple[str, ...]: lambda name: lambda message, _interner: tuple(getattr(message, name)),
    Labels: lambda name: lambda message, interner: labels(getattr(message, name), interner),
    LabelSelector | None: lambda name: lambda message, _interner: label_selector(message, name),
}


def metadata(value: type[msgspec.Struct], message: Any, interner: Interner) -> dict[str, Any]:
    """Return the fields of an object's metadata that its type has, as keyword arguments.

    Raises:
        FieldError: the name is missing.
    """
    source = message.metadata
    return {name: reader(source, interner) for name, reader in _metadata_readers(value)}


@cache
def _metadata_readers(value: type[msgspec.Struct]) -> list[tuple[str, Reader]]:
    readers = {name: _METADATA[name] for name in value.__struct_fields__ if name in _METADATA}
    if "namespace" not in readers:  # pods and claims contain the names of nodes, classes and volumes again
        readers["name"] = lambda source, interner: interner.string(required(source.name, "metadata.name"))
    return list(readers.items())


_METADATA: Final[Mapping[str, Reader]] = {
    "namespace": lambda source, interner: interner.string(source.namespace or "default"),
    "name": lambda source, _interner: required(source.name, "metadata.name"),
    "uid": _plain("uid"),
    "resource_version": _plain("resource_version"),
    "generation": _plain("generation"),
    "labels": lambda source, interner: labels(source.labels, interner),
    "annotations": lambda source, interner: kept_annotations(source.annotations, interner),
    "owners": lambda source, interner: owners(source.owner_references, interner),
    "created": lambda source, _interner: seconds(source, "creation_timestamp"),
    "deleted": lambda source, _interner: seconds(source, "deletion_timestamp"),
}
