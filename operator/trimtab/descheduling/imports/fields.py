"""Single values of the descheduler project's policies as trimtab has them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from trimtab.api.check import FieldError, check
from trimtab.api.scalars import format_duration
from trimtab.api.schema import structural_schema
from trimtab.api.selector import Selector
from trimtab.descheduling.imports.draft import Draft, Findings
from trimtab.disruption.protections.system_namespace import NAMES, PREFIXES
from trimtab.kube.rules.selectors import SelectorError, label_selector_errors, parse_label_selector

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


def take_limit(draft: Draft, key: str, value: Any, place: str, findings: Findings) -> None:
    """One of :data:`LIMITS`; 0 lets nothing be evicted there, and would be no limit here if it were left out."""
    if value == 0 and not isinstance(value, bool):
        findings.error(place, "must be at least 1; to have nothing evicted use mode: Simulate or suspend: true")
    else:
        draft.put(LIMITS[key], value, place)


def take_node_selector(draft: Draft, value: Any, place: str, findings: Findings) -> None:
    """A selector in text form, which limits the nodes that are looked at."""
    selector = selector_of_text(value, place, findings)
    if selector:
        draft.put("nodeSelector", selector, place)


def selector_of_text(value: Any, place: str, findings: Findings) -> dict[str, Any]:
    """``disk=ssd,zone!=a`` as labels and expressions; empty for an empty one and for an error, noted."""
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


def take_selector(draft: Draft, part: str, value: Any, place: str, findings: Findings) -> None:
    """A selector of labels. It is checked at once, under its own name: later it may be one with another."""
    errors = check(value, structural_schema(Selector), path=place)
    if not errors:
        selector = msgspec.convert(value, Selector)
        errors = tuple(_at(place, error) for error in label_selector_errors(selector.compile()))
    findings.errors += errors
    if not errors and value != {}:
        draft.put(part, value, place)


def _at(place: str, error: str) -> FieldError:
    part, _, message = error.partition(": ")
    return FieldError(f"{place}.{part}", message)


def take_scope(draft: Draft, key: str, value: Any, place: str, findings: Findings) -> None:
    """``namespaces`` or ``labelSelector`` of a strategy, as the scope of the policy that it will be in."""
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
            f"{', '.join(map(str, own))}: the cluster's own namespaces are protected here; to have their pods evicted, "
            "add protections: {disabled: [SystemNamespaces]}",
        )


def _of_the_cluster(name: Any) -> bool:
    return isinstance(name, str) and (name.startswith(PREFIXES) or name in NAMES)


def duration_of_go(value: Any, place: str, findings: Findings) -> str | None:
    """Go's ``1.5h`` as trimtab's ``1h30m``, whole seconds rounded up; ``None`` for none, and for an error, noted."""
    text = value if isinstance(value, str) else ""
    parts = _PART.findall(text)
    if text == "0":
        return None
    if not parts or "".join(number + unit for number, unit in parts) != text:
        findings.error(place, f"must be a duration, e.g. 10m or 1h30m; not {value!r}")
        return None
    seconds = math.ceil(sum(Decimal(number) * Decimal(_SECONDS[unit]) for number, unit in parts))
    return format_duration(seconds) if seconds else None


def is_true(value: Any, place: str, findings: Findings) -> bool:
    """Whether a switch is on; what is no switch is an error."""
    if not isinstance(value, bool):
        findings.error(place, "must be true or false")
    return value is True
