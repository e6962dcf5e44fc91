"""What projections of several kinds have in common: times, labels, amounts, selectors.

A *message* is a protobuf message of ``slim_pb2`` or a struct of :mod:`trimtab.kube.wire.json`: both have the same
attributes, and both answer ``HasField(name)`` for what may be absent. Hence ``Any``: a Protocol for thirty messages
would say the same thing a third time.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from trimtab.kube.frozen import NO_LABELS, NO_RESOURCES, FrozenMap, Labels, ResourceList
from trimtab.kube.objects import LabelRequirement, LabelSelector, NodeSelector, NodeSelectorTerm, OwnerReference
from trimtab.kube.rules.quantity import QuantityError, resource_amount
from trimtab.kube.wire.annotations import meaningful
from trimtab.kube.wire.intern import Interner


class FieldError(ValueError):
    """A field holds what it may not hold.

    Attributes:
        path: of the field within the object, as kubectl writes it: ``spec.containers[0].image``.
        message: what is wrong and what is allowed.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message


def required(value: str, path: str) -> str:
    """The text itself.

    Raises:
        FieldError: it is empty.
    """
    if not value:
        raise FieldError(path, "is required")
    return value


def keyed(path: str, key: str) -> str:
    """The path of a map's entry: ``requests.cpu``, but ``requests[example.com/gpu]``."""
    return f"{path}[{key}]" if "." in key or "/" in key else f"{path}.{key}"


def seconds(message: Any, field: str) -> float | None:
    """The time in a field as seconds since the epoch; ``None`` where it is absent or Go's zero time."""
    return moment(getattr(message, field))


def moment(time: Any) -> float | None:
    """A time on the wire as seconds since the epoch; ``None`` where it is absent or Go's zero time.

    What is absent is ``None`` in JSON and an empty message in protobuf, which costs less to read than to ask for.
    """
    if time is None:
        return None
    if isinstance(time, datetime):
        return time.timestamp()
    return float(time.seconds) or None


def micro_moment(time: Any) -> float | None:
    """A metav1.MicroTime on the wire as :func:`moment`, to the microsecond, and the same float from every format."""
    if time is None or isinstance(time, datetime):
        return moment(time)
    return (time.seconds * 1_000_000 + time.nanos // 1_000) / 1_000_000 or None


def labels(mapping: Mapping[str, str], interner: Interner) -> Labels:
    """Labels, or a node selector, shared with all that have equal ones."""
    return interner.share(FrozenMap(mapping.items())) if mapping else NO_LABELS


def kept_annotations(mapping: Mapping[str, str], interner: Interner) -> Labels:
    """The annotations that somebody reads."""
    if not mapping:
        return NO_LABELS
    kept = meaningful(mapping.items())
    return interner.share(FrozenMap(kept)) if kept else NO_LABELS


def owners(references: Any, interner: Interner) -> tuple[OwnerReference, ...]:
    """The owner references, shared by all dependents of an owner."""
    if not references:
        return ()
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
    """Quantities as integers.

    Args:
        quantities: resource name to quantity: protobuf's message, or what JSON and YAML hold (text or a number).
        path: of the field, for the error.

    Raises:
        FieldError: naming the resource, where a quantity cannot be read or is negative, as the API server has none.
    """
    if not quantities:
        return NO_RESOURCES
    return FrozenMap({name: _amount(name, quantity, path) for name, quantity in quantities.items()})


def resource(quantities: Mapping[str, Any], name: str, path: str) -> int | None:
    """One resource of a list, ``None`` where the list does not say.

    Raises:
        FieldError: as of :func:`resource_list`.
    """
    return _amount(name, quantities[name], path) if name in quantities else None


def quantity(message: Any, field: str, path: str) -> int | None:
    """A field that is one quantity, in whole units; ``None`` where it is absent.

    Raises:
        FieldError: it cannot be read, or is negative.
    """
    return _amount("", getattr(message, field), path) if message.HasField(field) else None


def _amount(name: str, quantity: Any, path: str) -> int:
    """The amount of a resource; of a quantity that is no entry of a list the name is empty."""
    text = quantity if isinstance(quantity, str) else getattr(quantity, "string", None)
    if text is None:
        text = repr(quantity)  # a bare number in JSON or YAML, which the API server takes as its text too
    try:
        amount = resource_amount(name, text)
    except QuantityError as error:
        raise FieldError(keyed(path, name) if name else path, str(error)) from None
    if amount < 0:
        raise FieldError(keyed(path, name) if name else path, f"must not be negative: {text}")
    return amount


def requirements(messages: Any) -> tuple[LabelRequirement, ...]:
    """The expressions of a label or node selector."""
    return tuple(
        LabelRequirement(key=message.key, operator=message.operator, values=tuple(message.values))
        for message in messages
    )


def node_selector(message: Any) -> NodeSelector:
    """A node selector: terms of which one must hold."""
    return NodeSelector(terms=tuple(map(node_selector_term, message.node_selector_terms)))


def node_selector_term(message: Any) -> NodeSelectorTerm:
    """A term of a node selector."""
    return NodeSelectorTerm(
        match_expressions=requirements(message.match_expressions),
        match_fields=requirements(message.match_fields),
    )


def label_selector(message: Any, field: str) -> LabelSelector | None:
    """The label selector in a field; ``None`` where it is nil, which matches nothing."""
    if not message.HasField(field):
        return None
    selector = getattr(message, field)
    return LabelSelector(
        match_labels=FrozenMap(selector.match_labels.items()) if selector.match_labels else NO_LABELS,
        match_expressions=requirements(selector.match_expressions),
    )
