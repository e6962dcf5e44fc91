"""Converts the rules that add tolerations to CEL, and those that reserve nodes: DedicatedNodes and SpecialHardware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from trimtab.admission.cel.documents import (
    DAEMON_SETS,
    EPHEMERAL_CONTAINERS,
    PODS,
    PolicyDocuments,
    Validation,
    resources_of,
)
from trimtab.admission.cel.expressions import (
    CONTROLLED,
    IS_CONTROLLER,
    IS_POD,
    IS_SUBRESOURCE,
    MAY_BIND,
    NEW_TOLERATIONS,
    NORMAL,
    NOT_A_NODE,
    OF_DAEMON_SET,
    PATH,
    SET_TOLERATIONS,
    SPEC,
    TEMPLATE_CHANGED,
    TOLERATIONS,
    Variables,
    add_tolerations,
    literal,
    quoted,
    require_labels,
    requires,
    tolerates,
    var,
)
from trimtab.admission.requests import CREATE, TEMPLATE_RESOURCES, UPDATE
from trimtab.admission.rules.dedicated_nodes import NODE_NAME_BYPASSES_TAINTS
from trimtab.admission.tolerations import MAX_TOLERATIONS, TOO_MANY
from trimtab.api.placement_admission import (
    DEDICATED_NODES,
    DEFAULT_TOLERATION_SECONDS,
    EXTENDED_RESOURCE_TOLERATION,
    SPECIAL_HARDWARE,
    DedicatedNodes,
    DefaultTolerationSeconds,
    ExtendedResourceToleration,
    NodeLabel,
    NodeTaint,
    SpecialHardware,
)
from trimtab.kube.rules.taints import NO_EXECUTE, NO_SCHEDULE, NOT_READY, UNREACHABLE, format_taint


def convert_toleration_seconds(policies: PolicyDocuments, rule: DefaultTolerationSeconds) -> None:
    """Convert DefaultTolerationSeconds."""
    wanted = {NOT_READY: rule.not_ready_toleration_seconds, UNREACHABLE: rule.unreachable_toleration_seconds}
    variables = {
        **{name: SPEC[name] for name in ("template", "spec", "present")},
        "path": literal("/spec"),
        "old": f'dyn(request.operation == "{UPDATE}" ? dyn(oldObject).spec.?tolerations.orValue([]) : [])',
    }
    adjusted = "variables.present"
    missing = []
    for key, seconds in wanted.items():
        name = literal(key)
        made = (
            f'dyn({{"key": dyn({name}), "operator": dyn("Exists"), "effect": dyn("{NO_EXECUTE}"), '
            f'"tolerationSeconds": dyn({seconds})}})'
        )
        if rule.adjust_api_server_defaults and seconds != rule.api_server_default_seconds:
            default = (
                f't.?key.orValue("") == {name} && t.?operator.orValue("") == "Exists" && t.?effect.orValue("") == '
                f'"{NO_EXECUTE}" && t.?tolerationSeconds.orValue(-1) == {rule.api_server_default_seconds}'
            )
            adjusted += f".map(t, {default} && !variables.old.exists(o, o == t) ? {made} : t)"
        counts = f't.?key.orValue("") in ["", {name}] && t.?effect.orValue("") in ["", "{NO_EXECUTE}"]'
        missing.append(f"(variables.present.exists(t, {counts}) ? [] : [{made}])")
    variables["wanted"] = f"{adjusted} + {' + '.join(missing)}"
    policies.mutating(
        DEFAULT_TOLERATION_SECONDS,
        rule.failure_policy,
        resources_of(PODS),
        (NOT_A_NODE,),
        variables,
        (f"variables.wanted == variables.present ? [] : [{SET_TOLERATIONS}, value: variables.wanted}}]",),
    )
    policies.converted("defaultTolerationSeconds")


def extended_resource_names(rule: ExtendedResourceToleration) -> str:
    """Return an expression of the names of the extended resources for which tolerations are added to a pod."""
    requested = "(dyn(object).spec.?containers.orValue([]) + dyn(object).spec.?initContainers.orValue([]))"
    return (
        f"{requested}.map(c, dyn(c.?resources.?requests.orValue({{}})).map(name, name)).flatten().distinct()"
        '.filter(name, name.contains("/") && !name.contains("kubernetes.io/") && !name.startsWith("requests.") && '
        f"!(name in {literal(rule.ignored_resources)})).map(name, string(name)).sort()"
    )


def convert_extended_resources(policies: PolicyDocuments, rule: ExtendedResourceToleration) -> None:
    """Convert ExtendedResourceToleration."""
    variables = {
        **{name: SPEC[name] for name in ("template", "spec", "present")},
        "path": literal("/spec"),
        "names": extended_resource_names(rule),
        "missing": 'variables.names.filter(name, !variables.present.exists(t, t.?key.orValue("") == name && '
        't.?operator.orValue("") == "Exists" && '
        f't.?value.orValue("") == "" && t.?effect.orValue("") == "{NO_SCHEDULE}"))'
        f'.map(name, {{"key": name, "operator": "Exists", "effect": "{NO_SCHEDULE}"}})',
    }
    policies.mutating(
        EXTENDED_RESOURCE_TOLERATION,
        rule.failure_policy,
        resources_of(PODS),
        (NOT_A_NODE,),
        variables,
        (add_tolerations(var("missing")),),
    )
    policies.converted("extendedResourceToleration")


def _taint_table(name: str, taint: NodeTaint, label: NodeLabel | None) -> dict[str, str]:
    return {
        "name": name,
        "taint": format_taint(taint),
        "key": taint.key,
        "value": taint.value,
        "effect": taint.effect,
        "labelKey": label.key if label is not None else "",
        "labelValue": label.value if label is not None else "",
    }


_SUBJECT: Final = f'({IS_POD} ? "pod" : "pod template")'


def pool_variables(rule: DedicatedNodes) -> Variables:
    """Return the variables of the pools: ``mine`` are the indices of those to which user or namespace belong."""
    labels = [pool.node_label or NodeLabel(key=pool.taint.key, value=pool.taint.value) for pool in rule.pools]
    table = [_taint_table(pool.name, pool.taint, label) for pool, label in zip(rule.pools, labels, strict=True)]
    required = requires("variables.pools[i].labelKey", "variables.pools[i].labelValue")
    return {
        "pools": literal(table),
        "groups": literal([pool.groups for pool in rule.pools]),
        "namespaces": literal([pool.namespaces for pool in rule.pools]),
        "mine": f"lists.range({len(table)}).filter(i, request.namespace in variables.namespaces[i] || "
        "(!variables.controller && variables.groups[i].exists(g, g in request.userInfo.groups)))",
        "required": f"lists.range({len(table)}).filter(i, {required})",
    }


_TOLERATED_POOL: Final = f"variables.tolerations.exists(t, {tolerates('t', 'variables.pools[i]')})"

POOL_CHOICE: Final[Variables] = {
    "tolerations": TOLERATIONS,
    "byLabel": "variables.mine.filter(i, i in variables.required)",
    "first": "variables.byLabel.size() > 0 ? variables.byLabel : variables.mine",
    "byKey": 'variables.first.filter(i, variables.tolerations.exists(t, t.key != "" && '
    f"{tolerates('t', 'variables.pools[i]')}))",
    "second": "variables.byKey.size() > 0 ? variables.byKey : variables.first",
    "byNamespace": "variables.second.filter(i, request.namespace in variables.namespaces[i])",
    "best": "variables.byNamespace.size() > 0 ? variables.byNamespace : variables.second",
    "sameLabel": "variables.best.size() == 0 ? [] : variables.mine.filter(i, variables.pools[i].labelKey == "
    "variables.pools[variables.best[0]].labelKey && variables.pools[i].labelValue == "
    "variables.pools[variables.best[0]].labelValue)",
}
"""The variables of the pool that a pod of several pools selects: ``sameLabel`` are the indices of the pool, the first
of ``best``, and of those with the same label."""


CONTROLLED_REPLICA_SET: Final = f'(request.kind.kind == "ReplicaSet" && {CONTROLLED})'
IS_CHANGED: Final = (
    f"({IS_POD} ? !(({IS_CONTROLLER}) && {OF_DAEMON_SET}) : !({IS_CONTROLLER}) && !{CONTROLLED_REPLICA_SET})"
)
"""Whether DedicatedNodes changes the pod or template of a member of a pool."""


def convert_dedicated_nodes(policies: PolicyDocuments, rule: DedicatedNodes) -> None:
    """Convert DedicatedNodes."""
    variables = SPEC | {"controller": IS_CONTROLLER, "ofDaemonSet": OF_DAEMON_SET} | pool_variables(rule)
    tolerated = _TOLERATED_POOL
    chosen = f"(variables.controller && variables.required.exists(i, variables.groups[i].size() > 0 && {tolerated}))"
    changed = {"name": "is-changed", "expression": IS_CHANGED}
    policies.mutating(
        DEDICATED_NODES,
        rule.failure_policy,
        [*resources_of(PODS, operations=(CREATE,)), *resources_of(*TEMPLATE_RESOURCES, DAEMON_SETS)],
        (NOT_A_NODE, changed, TEMPLATE_CHANGED),
        variables
        | {"path": PATH}
        | POOL_CHOICE
        | {
            "active": f"variables.mine.size() > 0 && variables.present.size() <= {MAX_TOLERATIONS} && !{chosen}",
            "missing": f"variables.active ? variables.sameLabel.filter(i, !{tolerated})"
            '.map(i, {"key": variables.pools[i].key, "operator": "Equal", "value": variables.pools[i].value, '
            '"effect": variables.pools[i].effect}) : []',
            "labels": "variables.active && !(variables.best[0] in variables.required) ? "
            '[{"key": variables.pools[variables.best[0]].labelKey, '
            '"value": variables.pools[variables.best[0]].labelValue}] : []',
        },
        (add_tolerations(var("missing")), require_labels(var("labels"))),
    )
    # In mode Warn, no policy has added the label to the pods and templates that it would change.
    would_select = f" || (variables.mine.size() > 0 && {IS_CHANGED})" if policies.warn_only else ""
    must_select = (
        f"!{chosen} && ({CONTROLLED_REPLICA_SET} ? !variables.controller && "
        "!variables.namespaces.exists(n, request.namespace in n) : "
        f"{IS_POD} ? !(variables.controller && variables.ofDaemonSet) : !variables.controller)"
    )
    created = f'(!({IS_POD}) || request.operation == "{CREATE}")'
    images = (
        "(dyn({0}).spec.?initContainers.orValue([]) + dyn({0}).spec.?containers.orValue([]))"
        '.map(c, [c.name, c.?image.orValue("")])'
    )
    ephemeral = "dyn({0}).spec.?ephemeralContainers.orValue([])"
    policies.validating(
        DEDICATED_NODES,
        rule.failure_policy,
        [
            *resources_of(PODS, *TEMPLATE_RESOURCES, DAEMON_SETS),
            *resources_of(EPHEMERAL_CONTAINERS, operations=(UPDATE,)),
        ],
        (NOT_A_NODE, TEMPLATE_CHANGED),
        variables
        | {
            "tolerations": NEW_TOLERATIONS,
            "others": f"lists.range({len(rule.pools)}).filter(i, !(i in variables.mine) && !(variables.controller && "
            "(variables.groups[i].size() > 0 || variables.ofDaemonSet)))",
            "tolerated": f"variables.others.filter(i, {tolerated})",
            "selected": f"variables.mine.exists(i, i in variables.required){would_select}",
            "subresource": IS_SUBRESOURCE,
            "before": f'(request.operation == "{UPDATE}" && {IS_POD} ? '
            f"dyn(oldObject).spec.?tolerations.orValue([]) : []){NORMAL}",
            "ofPod": f"variables.others.filter(i, variables.before.exists(t, {tolerates('t', 'variables.pools[i]')}))",
            "changed": f'!variables.controller && {IS_POD} && request.operation == "{UPDATE}" && '
            f"(variables.subresource ? {ephemeral.format('object')} != {ephemeral.format('oldObject')} : "
            f"{images.format('object')} != {images.format('oldObject')})",
        },
        (
            Validation(
                f"!variables.changed || variables.ofPod.size() == 0 || {MAY_BIND}",
                "changing a pod on dedicated nodes is reserved for their groups and namespaces",
                '(variables.subresource ? "adding an ephemeral container to" : "changing an image of") + '
                '" a pod on the nodes of " + '
                f'{quoted("variables.pools[variables.ofPod[0]].name")} + " is reserved for its groups and namespaces"',
            ),
            Validation(f"variables.subresource || variables.tolerations.size() <= {MAX_TOLERATIONS}", TOO_MANY),
            Validation(
                "variables.subresource || variables.tolerated.size() == 0 || "
                f'(request.kind.kind == "DaemonSet" && {MAY_BIND})',
                "tolerates the taint of dedicated nodes",
                f'{_SUBJECT} + " tolerates the taint " + variables.pools[variables.tolerated[0]].taint + '
                f'", which is reserved for " + {quoted("variables.pools[variables.tolerated[0]].name")}',
            ),
            Validation(
                f"variables.subresource || !{created} || variables.selected || variables.mine.size() == 0 || "
                f"!({must_select})",
                "must require the node label of the dedicated nodes",
                f'{_SUBJECT} + " of " + {quoted("variables.pools[variables.mine[0]].name")} + '
                '" must require the node label " + '
                'variables.pools[variables.mine[0]].labelKey + "=" + variables.pools[variables.mine[0]].labelValue + '
                '" in its node affinity"',
            ),
            _node_name_validation("variables.pools", "variables.others", "variables.selected || "),
        ),
    )
    policies.converted(
        "dedicatedNodes",
        "a toleration with operator Gt or Lt of a pool's taint key is refused whatever its value",
        "users are not warned about pods that select another value of their pool's node label",
    )


def _node_name_validation(table: str, others: str, unless: str) -> Validation:
    """Return the check that spec.nodeName does not bypass taints of the effect NoSchedule."""
    return Validation(
        f'{IS_SUBRESOURCE} || ({IS_POD} && request.operation == "{UPDATE}") || {unless}'
        f'variables.spec.?nodeName.orValue("") == "" || variables.controller || '
        f'!{others}.exists(i, {table}[i].effect == "{NO_SCHEDULE}") || {MAY_BIND}',
        NODE_NAME_BYPASSES_TAINTS,
    )


def hardware_variables(rule: SpecialHardware) -> Variables:
    """Return the variables of the classes of hardware: ``used`` are the indices of those that the pod uses."""
    table = [_taint_table(each.name, each.taint, each.node_label) for each in rule.classes]
    stated = (
        "[variables.spec.?resources.orValue({})] + (variables.spec.?containers.orValue([]) + "
        "variables.spec.?initContainers.orValue([])).map(c, c.?resources.orValue({}))"
    )
    uses = " || ".join(
        f"(i == {index} && ({_uses(each.pod_labels, each.resources)}))" for index, each in enumerate(rule.classes)
    )
    return {
        "classes": literal(table),
        "labelsOfPod": "dyn(variables.template.?metadata.?labels.orValue({}))",
        "amounts": f"({stated}).map(r, [dyn(r.?requests.orValue({{}})), dyn(r.?limits.orValue({{}}))]).flatten()",
        "used": f"lists.range({len(table)}).filter(i, {uses})",
    }


def convert_special_hardware(policies: PolicyDocuments, rule: SpecialHardware) -> None:
    """Convert SpecialHardware."""
    variables = SPEC | {"controller": IS_CONTROLLER, "ofDaemonSet": OF_DAEMON_SET} | hardware_variables(rule)
    tolerated = f"variables.tolerations.exists(t, {tolerates('t', 'variables.classes[i]')})"
    few = f"variables.present.size() <= {MAX_TOLERATIONS}"
    required = requires("variables.classes[i].labelKey", "variables.classes[i].labelValue")
    not_pinned = {
        "name": "not-pinned",
        "expression": f"!(({IS_CONTROLLER}) && {OF_DAEMON_SET})",
    }
    policies.mutating(
        SPECIAL_HARDWARE,
        rule.failure_policy,
        [*resources_of(PODS, operations=(CREATE,)), *resources_of(DAEMON_SETS)],
        (NOT_A_NODE, not_pinned, TEMPLATE_CHANGED),
        variables
        | {
            "path": PATH,
            "tolerations": TOLERATIONS,
            "missing": f"variables.used.filter(i, {few} && !{tolerated})"
            '.map(i, {"key": variables.classes[i].key, "operator": "Equal", "value": variables.classes[i].value, '
            '"effect": variables.classes[i].effect})',
            "labels": f'variables.used.filter(i, {few} && variables.classes[i].labelKey != "" && !{required})'
            '.map(i, {"key": variables.classes[i].labelKey, "value": variables.classes[i].labelValue})',
        },
        (add_tolerations(var("missing")), require_labels(var("labels"))),
    )
    exclusive = [index for index, each in enumerate(rule.classes) if each.exclusive]
    if exclusive:
        policies.validating(
            SPECIAL_HARDWARE,
            rule.failure_policy,
            resources_of(PODS, *TEMPLATE_RESOURCES, DAEMON_SETS),
            (NOT_A_NODE, not_pinned, TEMPLATE_CHANGED),
            variables
            | {
                "tolerations": NEW_TOLERATIONS,
                "others": f"{exclusive}.filter(i, !(i in variables.used))",
                "tolerated": f"variables.others.filter(i, {tolerated})",
            },
            (
                Validation(
                    f"variables.others.size() == 0 || variables.tolerations.size() <= {MAX_TOLERATIONS}", TOO_MANY
                ),
                Validation(
                    f'variables.tolerated.size() == 0 || (request.kind.kind == "DaemonSet" && {MAY_BIND})',
                    "tolerates the taint of special hardware",
                    f'{_SUBJECT} + " tolerates the taint " + variables.classes[variables.tolerated[0]].taint + '
                    '", which is reserved for pods that use " + '
                    f"{quoted('variables.classes[variables.tolerated[0]].name')}",
                ),
                _node_name_validation("variables.classes", "variables.others", ""),
            ),
        )
    policies.converted(
        "specialHardware",
        *(
            ("a toleration with operator Gt or Lt of a class's taint key is refused whatever its value",)
            if exclusive
            else ()
        ),
    )


def _uses(pod_labels: Mapping[str, str], resources: Sequence[str]) -> str:
    """Return an expression that is true if the pod uses a class of hardware."""
    either = []
    if pod_labels:
        pairs = [
            f'(variables.labelsOfPod[?{literal(key)}].orValue("") == {literal(value)} && '
            f"{literal(key)} in variables.labelsOfPod)"
            for key, value in sorted(pod_labels.items())
        ]
        either.append(f"({' && '.join(pairs)})")
    if resources:
        either.append(
            f"variables.amounts.exists(a, {literal(resources)}.exists(r, r in a && "
            'quantity(string(a[r])).isGreaterThan(quantity("0"))))'
        )
    return " || ".join(either) or "false"
