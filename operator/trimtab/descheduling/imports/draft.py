"""Represents a policy during its conversion: the parts of its spec, the origin of each part, and warnings."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from trimtab.api.base import API_VERSION
from trimtab.api.decode import InvalidObject, describe, read_policy
from trimtab.api.descheduler_policy import KIND, DeschedulerPolicy, Selector
from trimtab.api.differences import HIGH, MEDIUM, Difference, Severity
from trimtab.api.rules import check_descheduler_policy
from trimtab.api.scalars import format_duration
from trimtab.api.schema import FieldError, check, structural_schema
from trimtab.disruption.protections import SYSTEM_NAMESPACE_PREFIXES, SYSTEM_NAMESPACES
from trimtab.kube.rules.selectors import SelectorError, label_selector_errors, parse_label_selector

_ORDER: Final = (
    "mode",
    "suspend",
    "interval",
    "schedule",
    "gracePeriodSeconds",
    "limits",
    "protections",
    "priorityThreshold",
    "namespaces",
    "namespaceSelector",
    "podSelector",
    "nodeSelector",
    "strategies",
)
"""The order of fields in a converted spec."""


def of_format(data: object, kind: str, version: str, *, source: str) -> Mapping[str, Any]:
    """Check the kind and version of a document, and return it as a mapping.

    Raises:
        InvalidObject: the document has another kind or version.
    """
    if isinstance(data, Mapping) and data.get("apiVersion") == version and data.get("kind") == kind:
        return data
    error = FieldError("", f"must be a {kind} of {version}")
    raise InvalidObject((error,), source=source, object=describe(data))


class ImportResult(Struct, frozen=True):
    """The result of converting a document of another descheduler.

    Attributes:
        policies: the policies, in the order in which the document defines them.
        documents: the policies as plain data for output. They contain the mode and the fields that were set, but no
            other defaults.
        warnings: messages about fields that have no equivalent. They use the document's own field names and describe
            the resulting behaviour.
    """

    policies: tuple[DeschedulerPolicy, ...]
    documents: tuple[dict[str, Any], ...]
    warnings: tuple[Difference, ...] = ()


class ImportFindings:
    """Collects the errors and warnings of a conversion. If there are errors, no policies are returned.

    Attributes:
        errors: values that are invalid or that must not be ignored.
        warnings: values that are ignored or handled differently.
        unknown: keys that the other program does not know and drops, which are also among the warnings.
    """

    def __init__(self) -> None:
        self.errors: list[FieldError] = []
        self.warnings: list[Difference] = []
        self.unknown: list[FieldError] = []

    def error(self, place: str, message: str) -> None:
        """Add an error for a value that is invalid or that must not be ignored."""
        self.errors.append(FieldError(place, message))

    def warn(self, place: str, message: str, severity: Severity = MEDIUM) -> None:
        """Add a warning for a value that is ignored or handled differently. Duplicates are dropped."""
        warning = Difference(place, message, severity)
        if warning not in self.warnings:
            self.warnings.append(warning)

    def drop(self, place: str, hint: str) -> None:
        """Add a warning for an unknown key where the descheduler's decoder drops unknown keys without a message.

        Args:
            place: the path of the key in the document.
            hint: where the key belongs.
        """
        self.unknown.append(FieldError(place, hint))
        self.warn(place, f"is ignored, as by the descheduler: {hint}", HIGH)

    def all_errors(self) -> tuple[FieldError, ...]:
        """Return the errors after the unknown keys, which often explain them; empty if there are no errors."""
        return tuple(dict.fromkeys((*self.unknown, *self.errors))) if self.errors else ()


class PolicyDraft(Struct):
    """The parts of a converted spec as plain data.

    Attributes:
        spec: the fields of the policy's spec that are set.
        origins: maps the path of each field of the spec to the path in the document that it was converted from.
    """

    spec: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def put(self, path: str, value: Any, place: str) -> None:
        """Set a field of the spec such as ``limits.perNode``, and record its path in the document."""
        *parents, last = path.split(".")
        where = self.spec
        for parent in parents:
            where = where.setdefault(parent, {})
        where[last] = value
        self.origins[f"spec.{path}"] = place

    def add(self, path: str, word: str, place: str) -> None:
        """Append a value to a list such as ``protections.extra``, unless the list already contains it."""
        section, name = path.split(".")
        words = self.spec.get(section, {}).get(name, [])
        if word not in words:
            self.put(path, [*words, word], place)

    def joined(self, other: PolicyDraft) -> PolicyDraft:
        """Return a draft with the fields of both. Its selectors match only pods that both drafts' selectors match."""
        both = PolicyDraft(dict(self.spec), {**self.origins, **other.origins})
        for part, value in other.spec.items():
            mine = both.spec.get(part)
            if part == "podSelector" and mine is not None:
                value = all_of(mine, value)
            both.spec[part] = value
        return both

    def finish(self, name: str, findings: ImportFindings) -> tuple[DeschedulerPolicy, dict[str, Any]] | None:
        """Return the policy and its plain data; ``None`` if the policy is invalid.

        Errors are recorded in ``findings``, with the document's own field names.
        """
        spec = {"mode": "Simulate", **self.spec}
        document = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": name},
            "spec": {part: spec[part] for part in _ORDER if part in spec},
        }
        policy, errors = read_policy(document)
        if findings.errors:  # further errors would only be consequences of these
            errors = tuple(error for error in errors if not error.message.startswith("is required"))
        elif policy is not None:
            errors = check_descheduler_policy(policy)
        findings.errors += [FieldError(self._origin(error.field), error.message) for error in errors]
        return None if policy is None or errors else (policy, document)

    def _origin(self, path: str) -> str:
        """Return the path in the document of a field of the spec."""
        inside = [ours for ours in self.origins if path == ours or re.match(re.escape(ours) + r"[.\[]", path)]
        if not inside:
            return path
        ours = max(inside, key=len)
        theirs, rest = self.origins[ours], path.removeprefix(ours)
        return theirs + rest if theirs else rest.removeprefix(".")


def all_of(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return a selector that matches the objects that both valid selectors match."""
    labels = dict(first.get("matchLabels", {}))
    expressions = [*first.get("matchExpressions", ()), *second.get("matchExpressions", ())]
    for key, value in second.get("matchLabels", {}).items():
        if labels.setdefault(key, value) != value:  # the selectors contradict each other, so nothing matches
            expressions.append({"key": key, "operator": "In", "values": [value]})
    both = {"matchLabels": labels, "matchExpressions": expressions}
    return {key: value for key, value in both.items() if value}


def object_name(text: str) -> str:
    """Convert a string to an object name, for example ``ProfileName`` to ``profile-name``.

    The result is ``""`` if the string contains no valid character.
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", text).lower()
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")[:200].strip("-")


def without_nulls(value: Any) -> Any:
    """Return a value without nulls, which YAML produces for keys that have only comments under them."""
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return value


LIMITS: Final = {
    "maxNoOfPodsToEvictPerNode": "limits.perNode",
    "maxNoOfPodsToEvictPerNamespace": "limits.perNamespace",
    "maxNoOfPodsToEvictTotal": "limits.perCycle",
}

_PART: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_SECONDS: Final = {
    "ns": "1e-9",
    "us": "1e-6",
    "µs": "1e-6",
    "μs": "1e-6",
    "ms": "1e-3",
    "s": "1",
    "m": "60",
    "h": "3600",
}


def take_limit(draft: PolicyDraft, key: str, value: Any, place: str, findings: ImportFindings) -> None:
    """Convert a field whose key is in :data:`LIMITS`.

    The value 0 is an error. In the document's format it forbids all evictions, for which trimtab has no equivalent.
    """
    if value == 0 and not isinstance(value, bool):
        findings.error(place, "must be at least 1; to evict no pods, use mode: Simulate or suspend: true")
    else:
        draft.put(LIMITS[key], value, place)


def take_node_selector(draft: PolicyDraft, value: Any, place: str, findings: ImportFindings) -> None:
    """Convert a node selector that is a string, such as ``disk=ssd``, to the policy's node selector."""
    selector = selector_of_text(value, place, findings)
    if selector:
        draft.put("nodeSelector", selector, place)


def selector_of_text(value: Any, place: str, findings: ImportFindings) -> dict[str, Any]:
    """Convert a selector string such as ``disk=ssd,zone!=a`` to a label selector.

    The result is empty for an empty or invalid string. An invalid string is recorded as an error.
    """
    if not isinstance(value, str):
        findings.error(place, "must be a selector in text form, e.g. disk=ssd,zone!=a")
        return {}
    try:
        selector = parse_label_selector(value)
    except SelectorError as error:
        findings.error(place, str(error))
        return {}
    expressions = [
        {"key": item.key, "operator": item.operator, "values": list(item.values)}
        if item.values
        else {"key": item.key, "operator": item.operator}
        for item in selector.match_expressions
    ]
    whole = {"matchLabels": dict(selector.match_labels), "matchExpressions": expressions}
    return {key: part for key, part in whole.items() if part}


def take_selector(draft: PolicyDraft, part: str, value: Any, place: str, findings: ImportFindings) -> None:
    """Validate a label selector and merge it into a part of the policy's spec.

    It is validated before it is merged, so that errors name its own field in the document.
    """
    errors = check(value, structural_schema(Selector), path=place)
    if not errors:
        selector = msgspec.convert(value, Selector)
        errors = tuple(_field_error(place, error) for error in label_selector_errors(selector.compile()))
    findings.errors += errors
    if not errors and value != {}:
        draft.put(part, value, place)


def _field_error(place: str, error: str) -> FieldError:
    part, _, message = error.partition(": ")
    return FieldError(f"{place}.{part}", message)


def take_scope(draft: PolicyDraft, key: str, value: Any, place: str, findings: ImportFindings) -> None:
    """Convert a strategy's ``namespaces`` or ``labelSelector`` to the scope of the strategy's policy."""
    if key == "labelSelector":
        take_selector(draft, "podSelector", value, place, findings)
        return
    if not isinstance(value, Mapping):
        draft.put("namespaces", value, place)
        return
    given = {name: names for name, names in value.items() if names}
    if given:
        draft.put("namespaces", given, place)
    included = given.get("include")
    own = [name for name in included if _of_the_cluster(name)] if isinstance(included, list) else []
    if own:
        findings.warn(
            f"{place}.include",
            f"{', '.join(map(str, own))}: system namespaces are protected here; to evict their pods, "
            "add protections: {disabled: [SystemNamespaces]}",
            HIGH,
        )


def _of_the_cluster(name: Any) -> bool:
    return isinstance(name, str) and (name.startswith(SYSTEM_NAMESPACE_PREFIXES) or name in SYSTEM_NAMESPACES)


def duration_of_go(value: Any, place: str, findings: ImportFindings) -> str | None:
    """Convert a Go duration to one that policies accept, such as ``1.5h`` to ``1h30m``, rounded up to whole seconds.

    The result is ``None`` for 0 and for an invalid value, which is recorded as an error.
    """
    text = value if isinstance(value, str) else ""
    parts = _PART.findall(text)
    if text == "0":
        return None
    if not parts or "".join(number + unit for number, unit in parts) != text:
        findings.error(place, f"must be a duration, e.g. 10m or 1h30m; not {value!r}")
        return None
    seconds = math.ceil(sum(Decimal(number) * Decimal(_SECONDS[unit]) for number, unit in parts))
    return format_duration(seconds) if seconds else None


def is_true(value: Any, place: str, findings: ImportFindings) -> bool:
    """Return whether a value is ``True``. If it is not a boolean, an error is recorded."""
    if not isinstance(value, bool):
        findings.error(place, "must be true or false")
    return value is True
