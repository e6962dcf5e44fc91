"""CEL expressions that several rules need.

Values from the PlacementAdmission enter expressions only through :func:`literal`, which quotes them. Optional fields
are read with optional chaining (``?.``) and list positions come from ``lists.range`` (Kubernetes 1.35). A map literal
has values of one type, or ``dyn()`` around each value, because Kubernetes permits no others.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from trimtab.admission.requests import CREATE, UPDATE
from trimtab.admission.users import NODE_PREFIX, NODES, WORKLOAD_CONTROLLERS

Variables = dict[str, str]
"""CEL expressions by name. Each one may use those before it."""


def literal(value: Any) -> str:
    """Return a string, list or map of strings as a CEL literal. CEL's string escapes include those of JSON."""
    return msgspec.json.encode(value).decode()


def var(name: str) -> str:
    """Return the reference to a variable."""
    return f"variables.{name}"


IS_POD: Final = 'request.resource.resource == "pods"'
IS_SUBRESOURCE: Final = 'request.?subResource.orValue("") != ""'
NOT_A_NODE: Final = {
    "name": "not-a-node",
    "expression": f"!(request.userInfo.username.startsWith({literal(NODE_PREFIX)}) && "
    f"{literal(NODES)} in request.userInfo.groups)",
}

TEMPLATE: Final = (
    'request.kind.kind == "Pod" ? dyn({0}) : request.kind.kind == "PodTemplate" ? dyn({0}).template : '
    'request.kind.kind == "CronJob" ? dyn({0}).spec.jobTemplate.spec.template : dyn({0}).spec.template'
)
OWNERS: Final = "dyn(object).metadata.?ownerReferences.orValue([])"
CONTROLLED: Final = f"{OWNERS}.exists(o, o.?controller.orValue(false))"
IS_CONTROLLER: Final = f"request.userInfo.username in {literal(sorted(WORKLOAD_CONTROLLERS))}"
OF_DAEMON_SET: Final = (
    f'({IS_POD} ? {OWNERS}.exists(o, o.?controller.orValue(false) && o.kind == "DaemonSet") : '
    'request.kind.kind == "DaemonSet")'
)
TEMPLATE_CHANGED: Final = {
    "name": "pod-or-new-template",
    "expression": f'{IS_POD} || request.operation == "{CREATE}" || '
    f"({TEMPLATE.format('object')}) != ({TEMPLATE.format('oldObject')})",
}
MAY_BIND: Final = (
    'authorizer.group("").resource("pods").subresource("binding").namespace(request.namespace)'
    f'.name({IS_POD} ? request.?name.orValue("") : "").check("create").allowed()'
)
PATH: Final = (
    'request.kind.kind == "Pod" ? "/spec" : request.kind.kind == "PodTemplate" ? "/template/spec" : '
    'request.kind.kind == "CronJob" ? "/spec/jobTemplate/spec/template/spec" : "/spec/template/spec"'
)

SPEC: Final[Variables] = {
    "template": TEMPLATE.format("object"),
    "spec": "dyn(variables.template.?spec.orValue({}))",
    "selector": "dyn(variables.spec.?nodeSelector.orValue({}))",
    "terms": "dyn(variables.spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution."
    "?nodeSelectorTerms.orValue([]))",
    "present": "dyn(variables.spec.?tolerations.orValue([]))",
}
"""The pod or template, and the parts of its spec that rules read."""

NORMAL: Final = (
    '.map(t, {"key": t.?key.orValue(""), "operator": t.?operator.orValue("Equal"), "value": t.?value.orValue(""), '
    '"effect": t.?effect.orValue(""), '
    '"seconds": dyn(t.?tolerationSeconds.hasValue() ? string(t.tolerationSeconds) : "")})'
)
TOLERATIONS: Final = f"variables.present{NORMAL}"
NEW_TOLERATIONS: Final = (
    f'({IS_POD} && request.operation == "{UPDATE}" ? variables.present.filter(t, '
    "!dyn(oldObject).spec.?tolerations.orValue([]).exists(o, o == t)) : variables.present)" + NORMAL
)


def quoted(text: str) -> str:
    """Return an expression that puts the value of a text expression in double quotes."""
    return f'"\\"" + {text} + "\\""'


def tolerates(toleration: str, taint: str) -> str:
    """Return an expression that is true if a toleration with all fields tolerates a taint, both maps of strings."""
    t, n = toleration, taint
    return (
        f'({t}.effect in ["", {n}.effect] && ({t}.key == "" ? {t}.operator == "Exists" : {t}.key == {n}.key && '
        f'({t}.operator in ["Exists", "Gt", "Lt"] || {t}.value == {n}.value)))'
    )


def requires(key: str, value: str) -> str:
    """Return an expression that is true if the pod can only be placed on nodes with a label."""
    return (
        f"(({key} in variables.selector && variables.selector[{key}] == {value}) || (variables.terms.size() > 0 && "
        f"variables.terms.all(term, {_term_requires('term', key, value)})))"
    )


def _term_requires(term: str, key: str, value: str) -> str:
    return (
        f"({term}.?matchExpressions.orValue([]).size() + {term}.?matchFields.orValue([]).size() == 0 || "
        f'{term}.?matchExpressions.orValue([]).exists(e, e.key == {key} && e.operator == "In" && '
        f"e.?values.orValue([]) == [{value}]))"
    )


SET_TOLERATIONS: Final = 'JSONPatch{op: "add", path: variables.path + "/tolerations"'


def add_tolerations(names: str) -> str:
    """Return the patch that appends the tolerations in a variable, which are maps of strings."""
    value = f"variables.present + {names}.map(t, dyn(t))"
    return f"{names}.size() == 0 ? [] : [{SET_TOLERATIONS}, value: {value}}}]"


def require_labels(labels: str) -> str:
    """Return the patch that adds the labels in a variable (maps with key and value) to the required node affinity."""
    affinity = 'variables.path + "/affinity'
    required = f"{affinity}/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
    expression = '{"key": dyn(l.key), "operator": dyn("In"), "values": dyn([l.value])}'
    term = f'{{"matchExpressions": {labels}.map(l, {expression})}}'
    first = (
        f'(has(variables.spec.affinity) ? [] : [JSONPatch{{op: "add", path: {affinity}", value: {{}}}}]) + '
        f"(variables.spec.?affinity.?nodeAffinity.hasValue() ? [] : "
        f'[JSONPatch{{op: "add", path: {affinity}/nodeAffinity", value: {{}}}}]) + '
        f'[JSONPatch{{op: "add", path: {required}", value: {{"nodeSelectorTerms": [{term}]}}}}]'
    )
    missing = f"{labels}.filter(l, !{_term_requires('variables.terms[i]', 'l.key', 'l.value')})"
    each = (
        f'lists.range(variables.terms.size()).filter(i, {missing}.size() > 0).map(i, JSONPatch{{op: "add", '
        f'path: {required}/nodeSelectorTerms/" + string(i) + "/matchExpressions", '
        f"value: variables.terms[i].?matchExpressions.orValue([]) + {missing}.map(l, dyn({expression}))}})"
    )
    return f"{labels}.size() == 0 ? [] : variables.terms.size() == 0 ? {first} : {each}"
