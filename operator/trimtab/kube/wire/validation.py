"""Validates objects from files, and rejects values that would silently change a plan.

A file may be written by hand, and no API server has validated it. Decoding checks types, integer ranges and quantities.
This module checks values of the right type that planners would ignore or misinterpret: an effect or operator that does
not exist, an expression without values, a weight or port out of range. The rules are those of Kubernetes' own
validation (v1.36).

It does not check errors that planners can handle: the syntax of names and labels, duplicates, and inconsistent fields
(for example requests above limits). Objects of a live API server are not validated, because otherwise an object would
disappear from the snapshot if a newer Kubernetes version allows a value that is unknown here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, get_args, get_type_hints

import msgspec

from trimtab.kube.wire import custom_json
from trimtab.kube.wire import slim_json as wire
from trimtab.kube.wire.json_base import Message
from trimtab.kube.wire.projection.fields import FieldError

Rule = Callable[[Any], None]
"""A function that raises FieldError, with a path relative to the value, if the value is not allowed."""

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_NAME_LENGTH: Final = 63
_NAME_SYNTAX: Final = "at most 63 letters, digits, '-', '_' and '.', with a letter or digit at each end"
_DNS_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_PREFIX_LENGTH: Final = 253

_SHOWN: Final = 80
"""Maximum number of characters of a value that an error message quotes."""


def validate(message: Message, path: str = "") -> None:
    """Validate a message and all nested messages.

    Args:
        message: a struct of :mod:`~trimtab.kube.wire.slim_json` or :mod:`~trimtab.kube.wire.custom_json`.
        path: the path of the message in the object, for errors.

    Raises:
        FieldError: the first invalid field.
    """
    try:
        _validate(message)
    except FieldError as error:
        raise _below(path, error) if path else error from None


def _validate(message: Any) -> None:
    kind: type[Message] = type(message)
    for attribute, name, rule in _rules(kind):
        value = getattr(message, attribute)
        if value is None:
            continue
        try:
            rule(value)
        except FieldError as error:
            raise _below(name, error) from None


@cache
def _rules(message: type[Message]) -> tuple[tuple[str, str, Rule], ...]:
    """Return the rules of a message's fields, including nested messages, each as attribute, JSON key and rule."""
    hints = get_type_hints(message)
    own = {name: rule for base in reversed(message.__mro__) for name, rule in RULES.get(base, {}).items()}
    found = []
    for field in msgspec.structs.fields(message):
        rule = own.get(field.name) or _descend(hints[field.name])
        if rule is not None:
            found.append((field.name, field.encode_name, rule))
    return tuple(found)


def _descend(hint: Any) -> Rule | None:
    """Return the rule for the messages in a field of this type, or ``None`` if they have no rules."""
    if isinstance(hint, type) and issubclass(hint, Message):
        return _validate if _rules(hint) else None
    for inner in get_args(hint):
        rule = _descend(inner)
        if rule is not None:
            return _each(rule) if getattr(hint, "__origin__", None) is list else rule
    return None


def _below(name: str, error: FieldError) -> FieldError:
    dot = "." if error.path and not error.path.startswith("[") else ""
    return FieldError(f"{name}{dot}{error.path}", error.message)


def _must_be(allowed: str, value: object) -> FieldError:
    if value == "":
        return FieldError("", f"is required: {allowed}")
    text = repr(value)
    return FieldError("", f"must be {allowed}, not {text if len(text) <= _SHOWN else f'{text[:_SHOWN]}…'}")


def _one_of(*values: str) -> Rule:
    """Return a rule that allows only these values. An empty string among them means that the field may be absent."""
    known = frozenset(values)
    *most, last = filter(None, values)
    allowed = f"{', '.join(most)} or {last}" if most else last

    def rule(value: str) -> None:
        if value not in known:
            raise _must_be(allowed, value)

    return rule


def _between(low: int, high: int, *, absent: int | None = None) -> Rule:
    """Return a rule that allows integers between two inclusive bounds.

    The rule also allows ``absent``, the value of an omitted field.
    """

    def rule(value: int) -> None:
        if not low <= value <= high and value != absent:
            raise _must_be(f"between {low} and {high}", value)

    return rule


def _taint_value(value: str) -> None:
    """Validate the value of a taint (apimachinery's IsValidLabelValue)."""
    if value and not (len(value) <= _NAME_LENGTH and _NAME.fullmatch(value)):
        raise _must_be(f"empty or {_NAME_SYNTAX}", value)


def _taint_key(value: str) -> None:
    """Validate the key of a taint (apimachinery's IsQualifiedName)."""
    prefix, slash, name = value.rpartition("/")
    valid = len(name) <= _NAME_LENGTH and _NAME.fullmatch(name)
    if not valid or (slash and not (len(prefix) <= _PREFIX_LENGTH and _DNS_SUBDOMAIN.fullmatch(prefix))):
        raise _must_be(f"the key of the taint, {_NAME_SYNTAX}, with an optional DNS subdomain and / before it", value)


def _given(what: str) -> Rule:
    def rule(value: str) -> None:
        if not value:
            raise _must_be(what, value)

    return rule


def _each(rule: Rule) -> Rule:
    def rule_of_list(values: list[Any]) -> None:
        for index, value in enumerate(values):
            try:
                rule(value)
            except FieldError as error:
                raise _below(f"[{index}]", error) from None

    return rule_of_list


_MOST: Final = 2**31 - 1
_NUMBER_OF_VALUES: Final = {"In": (1, _MOST), "NotIn": (1, _MOST), "Gt": (1, 1), "Lt": (1, 1)}
"""Minimum and maximum number of values by operator. Other operators must have no values."""


def _expressions(*operators: str) -> Rule:
    allowed = _one_of(*operators)

    def rule(message: Any) -> None:
        try:
            allowed(message.operator)
        except FieldError as error:
            raise _below("operator", error) from None
        least, most = _NUMBER_OF_VALUES.get(message.operator, (0, 0))
        if not least <= len(message.values) <= most:
            needed = "no values" if most == 0 else "exactly one value" if most == 1 else "at least one value"
            raise FieldError("values", f"{message.operator} takes {needed}, not {len(message.values)}")

    return _each(rule)


def _match_field(message: Any) -> None:
    for name, rule in (("key", _one_of("metadata.name")), ("operator", _one_of("In", "NotIn"))):
        try:
            rule(getattr(message, name))
        except FieldError as error:
            raise _below(name, error) from None
    if len(message.values) != 1:
        raise FieldError("values", f"takes exactly one name of a node, not {message.values!r}")


def _toleration(message: Any) -> None:
    # Without this rule, a toleration whose "operator: Exists" was forgotten would tolerate all taints without a value.
    if not message.key and message.operator != "Exists":
        raise FieldError("operator", "must be Exists where the key is empty, which stands for all taints")
    _validate(message)


_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_RESTART_POLICY: Final = _one_of("", "Always", "OnFailure", "Never")
_ACCESS_MODES: Final = _each(_one_of("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"))
_VOLUME_MODE: Final = _one_of("", "Block", "Filesystem")
_PORT: Final = _between(1, 65535, absent=0)
_COUNT: Final = _between(0, _MOST)
_TOPOLOGY_KEY: Final = _given("the key of a node label")

RULES: Final[Mapping[type[Any], Mapping[str, Rule]]] = {
    wire.Container: {"restart_policy": _RESTART_POLICY},
    wire.ContainerPort: {
        "container_port": _between(1, 65535),
        "host_port": _PORT,
        "protocol": _one_of("", "TCP", "UDP", "SCTP"),
    },
    wire.PodSpec: {
        "restart_policy": _RESTART_POLICY,
        "preemption_policy": _one_of("", "PreemptLowerPriority", "Never"),
        "tolerations": _each(_toleration),
    },
    wire.PodStatus: {
        "phase": _one_of("", "Pending", "Running", "Succeeded", "Failed", "Unknown"),
        "qos_class": _one_of("", "Guaranteed", "Burstable", "BestEffort"),
    },
    wire.LabelSelector: {"match_expressions": _expressions("In", "NotIn", "Exists", "DoesNotExist")},
    wire.NodeSelectorTerm: {
        "match_expressions": _expressions("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
        "match_fields": _each(_match_field),
    },
    wire.PreferredSchedulingTerm: {"weight": _between(1, 100)},
    wire.WeightedPodAffinityTerm: {"weight": _between(1, 100)},
    wire.PodAffinityTerm: {"topology_key": _TOPOLOGY_KEY},
    wire.Toleration: {
        "operator": _one_of("", "Exists", "Equal", "Gt", "Lt"),
        "effect": _one_of("", *_EFFECTS),
    },
    # The machine APIs do not validate the taints of a template, but a node with an invalid taint cannot register.
    wire.Taint: {"key": _taint_key, "value": _taint_value, "effect": _one_of(*_EFFECTS)},
    wire.TopologySpreadConstraint: {
        "max_skew": _between(1, _MOST),
        "topology_key": _TOPOLOGY_KEY,
        "when_unsatisfiable": _one_of("DoNotSchedule", "ScheduleAnyway"),
        "min_domains": _between(1, _MOST),
        "node_affinity_policy": _one_of("", "Honor", "Ignore"),
        "node_taints_policy": _one_of("", "Honor", "Ignore"),
    },
    wire.PodDisruptionBudgetSpec: {"unhealthy_pod_eviction_policy": _one_of("", "IfHealthyBudget", "AlwaysAllow")},
    wire.PodDisruptionBudgetStatus: dict.fromkeys(
        ("disruptions_allowed", "current_healthy", "desired_healthy", "expected_pods"), _COUNT
    ),
    wire.PersistentVolumeSpec: {"access_modes": _ACCESS_MODES, "volume_mode": _VOLUME_MODE},
    wire.PersistentVolumeStatus: {"phase": _one_of("", "Pending", "Available", "Bound", "Released", "Failed")},
    wire.PersistentVolumeClaimSpec: {"access_modes": _ACCESS_MODES, "volume_mode": _VOLUME_MODE},
    wire.PersistentVolumeClaimStatus: {"phase": _one_of("", "Pending", "Bound", "Lost")},
    wire.StorageClass: {"volume_binding_mode": _one_of("", "Immediate", "WaitForFirstConsumer")},
    wire.VolumeNodeResources: {"count": _COUNT},
    custom_json.MachineSetSpec: {"replicas": _COUNT},
}
"""Rules by struct and attribute.

A subclass inherits the rules of its base class. A rule for a field replaces the rules of the nested messages in it.
"""
