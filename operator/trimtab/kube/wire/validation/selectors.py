"""Label selectors and node selectors (apimachinery ``ValidateLabelSelector``, ``ValidateNodeSelector``; v1.36)."""

from __future__ import annotations

from typing import Any, Final

from trimtab.kube.wire import json
from trimtab.kube.wire.fields import FieldError
from trimtab.kube.wire.validation.checks import Check, Shape, each, one_of, shown, some
from trimtab.kube.wire.validation.names import LABEL_KEY, LABEL_VALUE, SUBDOMAIN, check_labels

_VALUES: Final = {
    "In": (1, None),
    "NotIn": (1, None),
    "Exists": (0, 0),
    "DoesNotExist": (0, 0),
    "Gt": (1, 1),
    "Lt": (1, 1),
}
"""How many values an operator takes, at least and at most."""


def _number_of_values(message: Any) -> None:
    least, most = _VALUES[message.operator]
    number = len(message.values)
    if number >= least and (most is None or number <= most):
        return
    needed = "no values" if most == 0 else "exactly one value" if most == 1 else "at least one value"
    raise FieldError("values", f"{message.operator} takes {needed}, not {number}")


def _requirement(*operators: str, value: Check | None = LABEL_VALUE) -> Shape:
    values = {} if value is None else {"values": each(value)}
    return Shape(
        json.Requirement,
        needs="key operator",
        key=LABEL_KEY,
        operator=one_of(*operators),
        also=[_number_of_values],
        **values,
    )


LABEL_SELECTOR: Final = Shape(
    json.LabelSelector,
    match_labels=check_labels,
    match_expressions=each(_requirement("In", "NotIn", "Exists", "DoesNotExist")),
)


def _one_name(message: Any) -> None:
    if len(message.values) != 1:
        raise FieldError("values", f"takes exactly one name of a node, not {shown(message.values)}")


_MATCH_FIELDS: Final = Shape(
    json.Requirement,
    needs="key operator",
    key=one_of("metadata.name"),
    operator=one_of("In", "NotIn"),
    values=each(SUBDOMAIN),
    also=[_one_name],
)


def _term(expression: Shape) -> Shape:
    return Shape(json.NodeSelectorTerm, match_expressions=each(expression), match_fields=each(_MATCH_FIELDS))


_NODE_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")

NODE_SELECTOR: Final = Shape(
    json.NodeSelector,
    needs="node_selector_terms",
    node_selector_terms=some(_term(_requirement(*_NODE_OPERATORS)), "at least one term"),
)
"""Of Gt and Lt the value need not be an integer: the API server does not look, and no node matches."""

PREFERRED_TERM: Final = _term(_requirement(*_NODE_OPERATORS, value=None))
"""In preferred terms the API server takes any values."""
