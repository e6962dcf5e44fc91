"""Converts the rules about the selection of nodes to CEL: PodNodeConstraints and PodNodeSelector."""

from __future__ import annotations

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
    IS_CONTROLLER,
    IS_POD,
    IS_SUBRESOURCE,
    MAY_BIND,
    NEW_TOLERATIONS,
    NOT_A_NODE,
    OF_DAEMON_SET,
    SPEC,
    TEMPLATE_CHANGED,
    TOLERATIONS,
    Variables,
    literal,
)
from trimtab.admission.cel.reserved_nodes import (
    IS_CHANGED,
    POOL_CHOICE,
    extended_resource_names,
    hardware_variables,
    pool_variables,
)
from trimtab.admission.requests import CREATE, TEMPLATE_RESOURCES, UPDATE, Toleration
from trimtab.admission.rules import node_constraints, node_selector
from trimtab.admission.rules.toleration_seconds import api_server_defaults, default_toleration
from trimtab.admission.tolerations import MAX_TOLERATIONS, TOO_MANY
from trimtab.api import placement_admission as api
from trimtab.api.placement_admission import (
    INVALID_SELECTOR,
    PodNodeConstraints,
    PodNodeSelector,
    ProtectedTaint,
    parse_node_selector,
)
from trimtab.api.scheduler_plugins import LABEL_KEY
from trimtab.kube.rules.taints import NO_SCHEDULE, NOT_READY, UNREACHABLE

LABEL_VALUE: Final = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"


# --- PodNodeSelector -------------------------------------------------------------------------------------------------


def selector_variables(rule: PodNodeSelector) -> Variables:
    """Return the variables of the namespace's node selector: ``pairs`` are its keys and values, without duplicates.

    CEL's ``split`` and ``matches`` accept what :func:`~trimtab.api.placement_admission.parse_node_selector` accepts.
    """
    valid = (
        f'p.split("=").size() == 2 && p.split("=")[0].trim().matches({literal(LABEL_KEY)}) && '
        f'p.split("=")[0].trim().size() <= 317 && p.split("=")[1].trim().matches({literal(LABEL_VALUE)}) && '
        'p.split("=")[1].trim().size() <= 63'
    )
    kubernetes, openshift = literal(node_selector.KUBERNETES_ANNOTATION), literal(node_selector.OPENSHIFT_ANNOTATION)
    return {
        "annotations": "dyn(namespaceObject.metadata.?annotations.orValue({}))",
        "source": f"{kubernetes} in variables.annotations ? {kubernetes} : "
        f'{openshift} in variables.annotations ? {openshift} : ""',
        "text": f'variables.source == "" ? {literal(rule.cluster_default_node_selector)} : '
        "string(variables.annotations[variables.source])",
        "parts": 'variables.text == "" ? [] : variables.text.split(",")',
        "invalid": f"variables.parts.filter(p, !({valid}))",
        "all": "variables.invalid.size() > 0 ? [] : "
        'variables.parts.map(p, [p.split("=")[0].trim(), p.split("=")[1].trim()])',
        "pairs": "lists.range(variables.all.size()).filter(i, !variables.all.slice(i + 1, variables.all.size())"
        ".exists(later, later[0] == variables.all[i][0])).map(i, variables.all[i])",
    }


def convert_node_selector(policies: PolicyDocuments, rule: PodNodeSelector) -> None:
    """Convert PodNodeSelector."""
    whitelists = {
        namespace: [f"{key}={value}" for key, value in parse_node_selector(text).items()]
        for namespace, text in sorted(rule.namespace_whitelists.items())
    }
    variables = (
        {name: SPEC[name] for name in ("template", "spec", "selector")}
        | selector_variables(rule)
        | {
            "whitelist": f"dyn(dyn({literal(whitelists)})[?request.namespace].orValue([]))",
            "conflict": "variables.pairs.exists(p, p[0] in variables.selector && variables.selector[p[0]] != p[1])",
            "outside": "variables.whitelist.size() > 0 && "
            '(variables.pairs.exists(p, !((p[0] + "=" + p[1]) in variables.whitelist)) || '
            'variables.selector.exists(k, !((k + "=" + variables.selector[k]) in variables.whitelist)))',
            "missing": "variables.pairs.filter(p, !(p[0] in variables.selector))",
        }
    )
    conditions = [NOT_A_NODE]
    if rule.check_updates:
        old, new = (f"dyn({each}).spec.?nodeSelector.orValue({{}})" for each in ("oldObject", "object"))
        conditions.append(
            {"name": "new-or-other-selector", "expression": f'request.operation == "{CREATE}" || {new} != {old}'}
        )
    if rule.exempt_daemon_set_pods:
        conditions.append({"name": "not-pinned", "expression": f"!(({IS_CONTROLLER}) && {OF_DAEMON_SET})"})
    resources = resources_of(PODS, operations=(CREATE, UPDATE) if rule.check_updates else (CREATE,))
    add = (
        '(has(variables.spec.nodeSelector) ? [] : [JSONPatch{op: "add", path: "/spec/nodeSelector", value: {}}]) + '
        'variables.missing.map(p, JSONPatch{op: "add", path: "/spec/nodeSelector/" + jsonpatch.escapeKey(p[0]), '
        "value: p[1]})"
    )
    policies.mutating(
        api.POD_NODE_SELECTOR,
        rule.failure_policy,
        resources,
        conditions,
        variables,
        (f"variables.conflict || variables.outside || variables.missing.size() == 0 ? [] : {add}",),
    )
    of_project = f"variables.source == {literal(node_selector.OPENSHIFT_ANNOTATION)}"
    policies.validating(
        api.POD_NODE_SELECTOR,
        rule.failure_policy,
        resources,
        conditions,
        variables,
        (
            Validation(
                "variables.invalid.size() == 0",
                "annotation of the namespace is invalid",
                '"annotation " + variables.source + " of namespace " + request.namespace + " is invalid: '
                f'{INVALID_SELECTOR}; not \'" + variables.invalid[0] + "\'"',
            ),
            Validation(
                "!variables.conflict",
                node_selector.CONFLICT,
                f"{of_project} ? {literal(node_selector.PROJECT_CONFLICT)} : {literal(node_selector.CONFLICT)}",
            ),
            Validation("!variables.outside", node_selector.WHITELIST_CONFLICT),
            Validation(
                "variables.missing.size() == 0",
                node_selector.NOT_EXTENDED,
                f"{of_project} ? {literal(node_selector.PROJECT_NOT_EXTENDED)} : {literal(node_selector.NOT_EXTENDED)}",
                after_mutation=True,
            ),
        ),
    )
    policies.converted("podNodeSelector", "the authors of pod templates are not warned that their pods will be refused")


# --- PodNodeConstraints ----------------------------------------------------------------------------------------------


def convert_node_constraints(
    policies: PolicyDocuments, rule: PodNodeConstraints, spec: api.PlacementAdmissionSpec
) -> None:
    """Convert PodNodeConstraints. Fields that the other rules of ``spec`` add to a pod are permitted."""
    checks = rule.additional_checks
    blacklist = literal(sorted(rule.node_selector_label_blacklist))
    gated = "false"
    if api.GATED_POD_UPDATES in checks:
        gated = f'{IS_POD} && request.operation == "{UPDATE}" && dyn(oldObject).spec.?schedulingGates.hasValue()'
    added = _added_by_others(spec)
    variables = SPEC | {
        "controller": IS_CONTROLLER,
        "subresource": IS_SUBRESOURCE,
        "gated": gated,
        "considered": f'!({IS_POD}) || request.operation == "{CREATE}" || variables.subresource || variables.gated',
        "before": "variables.gated ? dyn(oldObject).spec : dyn({})",
        **added.variables,
        "nodeName": 'variables.considered && !variables.subresource && variables.spec.?nodeName.orValue("") != "" && '
        'variables.before.?nodeName.orValue("") == ""',
        "labels": f"variables.considered ? {blacklist}.filter(k, k in variables.selector && "
        '!(variables.before[?"nodeSelector"][?k].hasValue() && '
        "variables.before.nodeSelector[k] == variables.selector[k]) && "
        f"!{added.labels}.exists(p, p[0] == k && p[1] == variables.selector[k])) : []",
    }
    listed = 'variables.labels.join(" ")'
    by_labels = node_constraints.BY_LABELS.split("{}")
    by_both = node_constraints.BY_NODE_NAME_AND_LABELS.split("{}")
    prefix = f'(variables.subresource ? {literal(node_constraints.EPHEMERAL)} : "")'
    validations = [
        Validation(
            f"!(variables.nodeName || variables.labels.size() > 0) || {MAY_BIND}",
            node_constraints.BY_NODE_NAME,
            f"{prefix} + (variables.labels.size() == 0 ? {literal(node_constraints.BY_NODE_NAME)} : "
            f"variables.nodeName ? {literal(by_both[0])} + {listed} + {literal(by_both[1])} : "
            f"{literal(by_labels[0])} + {listed} + {literal(by_labels[1])})",
        )
    ]
    if api.NODE_AFFINITY in checks:
        restricted = (
            f".map(term, term.?matchExpressions.orValue([]).filter(e, e.key in {blacklist}) + "
            f"term.?matchFields.orValue([]).filter(e, e.key == {literal(node_constraints.METADATA_NAME)})).flatten()"
        )
        variables |= {
            "requirementsBefore": f"{_terms('variables.before')}{restricted}",
            "requirements": f"variables.considered && !variables.controller ? {_terms('variables.spec')}{restricted}"
            ".filter(e, !variables.requirementsBefore.exists(o, o == e) && "
            f'!(e.operator == "In" && {added.labels_of_affinity}.exists(p, p[0] == e.key && '
            "[p[1]] == e.?values.orValue([])))).map(e, string(e.key)).distinct().sort() : []",
        }
        before, after = node_constraints.BY_AFFINITY.split("{}")
        validations.append(
            Validation(
                f"variables.requirements.size() == 0 || {MAY_BIND}",
                "node selection by node affinity is prohibited by policy for your role",
                f'{prefix} + {literal(before)} + variables.requirements.join(" ") + {literal(after)}',
            )
        )
    if api.TOPOLOGY_KEYS in checks:
        variables["topologyKeys"] = (
            f"variables.considered && !variables.controller ? {_topology_keys('variables.spec')}.filter(k, "
            f"k in {blacklist} && !(k in {_topology_keys('variables.before')})).distinct().sort() : []"
        )
        before, after = node_constraints.BY_TOPOLOGY.split("{}")
        validations.append(
            Validation(
                f"variables.topologyKeys.size() == 0 || {MAY_BIND}",
                "node selection by topology keys is prohibited by policy for your role",
                f'{prefix} + {literal(before)} + variables.topologyKeys.join(" ") + {literal(after)}',
            )
        )
    if api.TOLERATIONS in checks:
        defaults = api_server_defaults(spec.default_toleration_seconds)
        matches = (
            '((p.effect == "" || t.effect in ["", p.effect]) && (t.key == "" ? t.operator == "Exists" : '
            't.key == p.key && (p.any != "" || t.operator in ["Exists", "Gt", "Lt"] || t.value == p.value)))'
        )
        variables |= {
            "protected": literal([_protected(each) for each in rule.protected_taints]),
            "candidates": f"variables.controller ? [] : variables.subresource ? {TOLERATIONS} : {NEW_TOLERATIONS}",
            "apiServerDefaults": literal([_wire(each) for each in sorted(defaults, key=str)]),
            "tolerated": "variables.candidates.filter(t, variables.protected.exists(p, "
            f"{matches}) && !({added.tolerations} + variables.apiServerDefaults).exists(a, a == t))",
            "taints": f"variables.protected.filter(p, variables.tolerated.exists(t, {matches}))"
            ".map(p, p.taint).distinct().sort()",
        }
        before, after = node_constraints.BY_TOLERATIONS.split("{}")
        validations += (
            Validation(f"variables.candidates.size() <= {MAX_TOLERATIONS} || {MAY_BIND}", TOO_MANY),
            Validation(
                f"variables.tolerated.size() == 0 || {MAY_BIND}",
                "toleration of protected taints is prohibited by policy for your role",
                f'{prefix} + {literal(before)} + variables.taints.join(" ") + {literal(after)}',
            ),
        )
    wanted = (*TEMPLATE_RESOURCES, DAEMON_SETS) if api.DAEMON_SETS in checks else TEMPLATE_RESOURCES
    resources = resources_of(PODS, *wanted)
    if api.EPHEMERAL_CONTAINERS in checks:
        resources += resources_of(EPHEMERAL_CONTAINERS, operations=(UPDATE,))
    policies.validating(
        api.POD_NODE_CONSTRAINTS,
        rule.failure_policy,
        resources,
        (NOT_A_NODE, TEMPLATE_CHANGED),
        variables,
        validations,
    )
    differences = [
        "OpenShift's reviews of pod templates (PodSecurityPolicyReview) are not checked",
        "the authors of pod templates are not warned that the controllers may not create their pods",
    ]
    if api.TOLERATIONS in checks and spec.pod_toleration_restriction is not None:
        differences.append("default tolerations of namespaces that match protectedTaints are also refused")
    policies.converted("podNodeConstraints", *differences)


def _terms(spec: str) -> str:
    """Return an expression of the list of all terms of required and preferred node affinity."""
    affinity = f"{spec}.?affinity.?nodeAffinity"
    return (
        f"({affinity}.?requiredDuringSchedulingIgnoredDuringExecution.?nodeSelectorTerms.orValue([]) + "
        f"{affinity}.?preferredDuringSchedulingIgnoredDuringExecution.orValue([]).map(p, p.preference))"
    )


def _topology_keys(spec: str) -> str:
    """Return an expression of the topology keys of pod affinity, pod anti-affinity and topology spread constraints."""
    keys = [f"{spec}.?topologySpreadConstraints.orValue([]).map(c, string(c.topologyKey))"]
    for field in ("podAffinity", "podAntiAffinity"):
        affinity = f"{spec}.?affinity.?{field}"
        required = f"{affinity}.?requiredDuringSchedulingIgnoredDuringExecution.orValue([])"
        preferred = f"{affinity}.?preferredDuringSchedulingIgnoredDuringExecution.orValue([])"
        keys.append(f"{required}.map(t, string(t.topologyKey))")
        keys.append(f"{preferred}.map(p, string(p.podAffinityTerm.topologyKey))")
    return f"({' + '.join(keys)})"


def _protected(taint: ProtectedTaint) -> dict[str, str]:
    return {
        "key": taint.key,
        "value": taint.value or "",
        "effect": taint.effect or "",
        "any": "yes" if taint.value is None else "",
        "taint": node_constraints.format_protected_taint(taint),
    }


class _Added:
    """The labels and tolerations that other rules add to pods and templates, as CEL variables and expressions."""

    def __init__(self) -> None:
        self.variables: Variables = {}
        self.labels = "[]"
        self.labels_of_affinity = "[]"
        self.tolerations = "[]"


def _added_by_others(spec: api.PlacementAdmissionSpec) -> _Added:
    found = _Added()
    affinity, tolerations = [], []
    if spec.pod_node_selector is not None:
        found.variables |= selector_variables(spec.pod_node_selector)
        found.labels = f"({IS_POD} ? variables.pairs : [])"
    if spec.default_toleration_seconds is not None:
        seconds = spec.default_toleration_seconds
        made = [
            _wire(default_toleration(NOT_READY, seconds.not_ready_toleration_seconds)),
            _wire(default_toleration(UNREACHABLE, seconds.unreachable_toleration_seconds)),
        ]
        tolerations.append(f"({IS_POD} ? {literal(made)} : [])")
    if spec.extended_resource_toleration is not None:
        made_of = f'{{"key": name, "operator": "Exists", "value": "", "effect": "{NO_SCHEDULE}", "seconds": ""}}'
        names = extended_resource_names(spec.extended_resource_toleration)
        tolerations.append(f"({IS_POD} ? {names}.map(name, {made_of}) : [])")
    if spec.dedicated_nodes is not None:
        found.variables |= pool_variables(spec.dedicated_nodes) | POOL_CHOICE
        added = f"({IS_CHANGED} && variables.present.size() <= {MAX_TOLERATIONS} ? variables.sameLabel : [])"
        affinity.append(f"{added}.map(i, [variables.pools[i].labelKey, variables.pools[i].labelValue])")
        tolerations.append(f"{added}.map(i, {_equal('variables.pools[i]')})")
    if spec.special_hardware is not None:
        found.variables |= hardware_variables(spec.special_hardware) | {
            "hardware": f'({IS_POD} || request.kind.kind == "DaemonSet") ? variables.used : []',
        }
        affinity.append(
            'variables.hardware.filter(i, variables.classes[i].labelKey != "")'
            ".map(i, [variables.classes[i].labelKey, variables.classes[i].labelValue])"
        )
        tolerations.append(f"variables.hardware.map(i, {_equal('variables.classes[i]')})")
    found.labels_of_affinity = f"({' + '.join(affinity) or '[]'})"
    found.tolerations = f"({' + '.join(tolerations) or '[]'})"
    return found


def _equal(taint: str) -> str:
    fields = "".join(f', "{name}": {taint}.{name}' for name in ("value", "effect"))
    return f'{{"key": {taint}.key, "operator": "Equal"{fields}, "seconds": ""}}'


def _wire(toleration: Toleration) -> dict[str, str]:
    """Return a toleration in the form of :data:`~trimtab.admission.cel.expressions.NORMAL`."""
    seconds = toleration.toleration_seconds
    return {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
        "seconds": "" if seconds is None else str(seconds),
    }
