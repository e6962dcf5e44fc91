"""PodNodeConstraints: the unit tests of OpenShift's plugin, and our own.

The cases of ``podnodeconstraints/admission_test.go`` in openshift/origin (3.11) and openshift/kubernetes are all here:
11 of ``TestPodNodeConstraints``, one of ``...PodUpdate``, one of ``...NonHandledResources``, 36 of ``...Resources``.
``TestReadConfig`` tests the configuration file, which ``trimtab convert`` reads.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.admission_requests import NAMESPACE, admission_spec, container, nest, pod_spec, request, toleration, wire
from tests.fixtures.golden import Golden
from trimtab.admission.requests import REVIEW_PATHS, TEMPLATE_PATHS, Attributes, PodSpec
from trimtab.admission.reviewer import Reviewer, attributes
from trimtab.admission.rule_scopes import VALIDATE
from trimtab.admission.rules import Refusal
from trimtab.admission.rules.node_constraints import (
    BY_AFFINITY,
    BY_LABELS,
    BY_NODE_NAME,
    BY_NODE_NAME_AND_LABELS,
    BY_TOLERATIONS,
    BY_TOPOLOGY,
    EPHEMERAL,
    PodNodeConstraintsRule,
)
from trimtab.admission.tolerations import MAX_TOLERATIONS, TOO_MANY
from trimtab.admission.users import WORKLOAD_CONTROLLERS
from trimtab.api.placement_admission import PodNodeConstraints, ProtectedTaint

ALL_CHECKS = ("NodeAffinity", "Tolerations", "GatedPodUpdates", "EphemeralContainers", "DaemonSets", "TopologyKeys")
PROTECTED = (
    ProtectedTaint(key="dedicated", value="team-a", effect="NoSchedule"),
    ProtectedTaint(key="gpu"),
)
MAY_BIND = "system:serviceaccount:openshift-infra:daemonset-controller"
"""The only user who may create pods/binding in these tests, as in OpenShift's."""
CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"


def rule(*blacklist: str, checks: Any = (), taints: tuple[ProtectedTaint, ...] = ()) -> PodNodeConstraintsRule:
    return PodNodeConstraintsRule(
        PodNodeConstraints(node_selector_label_blacklist=blacklist, additional_checks=checks, protected_taints=taints)
    )


STRICT = rule("region", "kubernetes.io/hostname", checks=ALL_CHECKS, taints=PROTECTED)
PLAIN = rule("region", "kubernetes.io/hostname")


def refusals(tested: PodNodeConstraintsRule, of: Attributes) -> list[str]:
    """The messages of refusals, all of which depend on the permission for pods/binding."""
    assert tested.mutate(of, of.pod.spec) is of.pod.spec
    found = list(tested.validate(of))
    assert all(each.unless_may_bind for each in found)
    return [each.message for each in found]


def decide(spec: str, of: Any, user: str) -> list[str]:
    """The messages with which the validating webhook refuses a request."""
    reviewer = Reviewer(admission_spec(spec))
    review = reviewer.decide(of, NAMESPACE, stage=VALIDATE, failure_policy="Fail").review
    return [each.message for _, each in review.refusals if not (each.unless_may_bind and user == MAY_BIND)]


# --- OpenShift's unit tests -------------------------------------------------------------------------------------------

EMPTY = "podNodeConstraints: {}"
BOGUS = "podNodeConstraints: {nodeSelectorLabelBlacklist: [bogus]}"
FRANK = {"nodeSelector": {"bogus": "frank"}}


@pytest.mark.parametrize(
    ("config", "spec", "user", "expected"),
    [
        (EMPTY, {}, "system:serviceaccount::", []),
        (BOGUS, FRANK, "system:serviceaccount::", [BY_LABELS.format("bogus")]),
        (BOGUS, {"nodeName": "frank"}, "system:serviceaccount:herpy:derpy", [BY_NODE_NAME]),
        (
            BOGUS,
            {"nodeName": "frank", **FRANK},
            "system:serviceaccount:herpy:derpy",
            [BY_NODE_NAME_AND_LABELS.format("bogus")],
        ),
        (BOGUS, FRANK, MAY_BIND, []),
        (BOGUS, {"nodeName": "frank"}, MAY_BIND, []),
        ("{}", {}, "system:serviceaccount::", []),
    ],
)
def test_pod_node_constraints(config: str, spec: Any, user: str, expected: list[str]) -> None:
    of = wire({"metadata": {"name": "test"}, "spec": spec}, user=user)
    assert decide(config, of, user) == expected


@pytest.mark.parametrize(
    ("mirror", "node", "refused"), [(1, "frank", 0), (0, "frank", 1), (1, "bob", 1), (0, "bob", 1)]
)
def test_pod_node_constraints_of_nodes(mirror: int, node: str, refused: int) -> None:
    metadata = {"annotations": {"kubernetes.io/config.mirror": "true"}} if mirror else {}
    pod = {"metadata": metadata, "spec": {"nodeName": "frank"}}
    of = wire(pod, user=f"system:node:{node}", groups=("system:nodes",))
    assert decide(BOGUS, of, "") == [BY_NODE_NAME] * refused


def test_messages_are_those_of_the_plugin() -> None:
    assert refusals(rule("a", "b"), request(PodSpec(node_name="n1"))) == [
        "node selection by nodeName is prohibited by policy for your role"
    ]
    both = PodSpec(node_selector={"b": "1", "a": "1", "c": "1"})
    assert refusals(rule("a", "b"), request(both)) == [
        "node selection by label(s) [a b] is prohibited by policy for your role"
    ]
    both = PodSpec(node_name="n1", node_selector={"b": "1", "a": "1", "c": "1"})
    assert refusals(rule("a", "b"), request(both)) == [
        "node selection by nodeName and label(s) [a b] is prohibited by policy for your role"
    ]


def test_pod_node_constraints_pod_update() -> None:
    pod = {"spec": {"nodeName": "frank"}}
    assert decide(BOGUS, wire(pod, old=pod, user="system:serviceaccount::"), "") == []


def test_pod_node_constraints_non_handled_resources() -> None:
    assert decide(BOGUS, wire({"spec": {}}, kind="ResourceQuota"), "") == []


UPSTREAM_KINDS = (
    ("", "ReplicationController"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("batch", "Job"),
    ("apps.openshift.io", "DeploymentConfig"),
    ("", "PodTemplate"),
    ("security.openshift.io", "PodSecurityPolicySubjectReview"),
    ("security.openshift.io", "PodSecurityPolicySelfSubjectReview"),
    ("security.openshift.io", "PodSecurityPolicyReview"),
)
OTHER_KINDS = (("apps", "StatefulSet"), ("batch", "CronJob"))


@pytest.mark.parametrize(("group", "kind"), [*UPSTREAM_KINDS, *OTHER_KINDS])
@pytest.mark.parametrize(
    ("spec", "expected"), [(FRANK, [BY_LABELS.format("bogus")]), ({}, [])], ids=["with", "without"]
)
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_pod_node_constraints_resources(group: str, kind: str, spec: Any, expected: list[str], operation: str) -> None:
    path = (TEMPLATE_PATHS | REVIEW_PATHS)[group, kind]
    of = wire(nest({"spec": spec}, path), kind=kind, group=group, operation=operation)
    assert decide(BOGUS, of, "") == expected


# --- Pod templates ----------------------------------------------------------------------------------------------------


def test_templates_of_daemon_sets_are_checked_by_option() -> None:
    spec = PodSpec(node_name="n1")
    assert refusals(PLAIN, request(spec, kind="DaemonSet")) == []
    assert refusals(rule(checks=("DaemonSets",)), request(spec, kind="DaemonSet")) == [BY_NODE_NAME]


def test_update_that_does_not_change_the_template() -> None:
    spec = PodSpec(node_name="n1")
    assert refusals(PLAIN, request(spec, kind="Deployment", old=spec)) == [BY_NODE_NAME]
    assert refusals(PLAIN, request(spec, kind="Deployment", old=spec, same_template=True)) == []


@pytest.mark.parametrize("subresource", ["status", "scale", "resize", "binding", "eviction"])
def test_subresources_are_not_checked(subresource: str) -> None:
    pod = {"spec": {"nodeName": "n1"}}
    assert attributes(wire(pod, old=pod, subResource=subresource), NAMESPACE) is None


# --- Users ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", sorted(WORKLOAD_CONTROLLERS))
def test_no_controller_is_trusted_with_the_checks_of_the_plugin(user: str) -> None:
    assert refusals(STRICT, request(PodSpec(node_selector={"region": "a"}), user=user)) == [BY_LABELS.format("region")]
    assert refusals(STRICT, request(PodSpec(node_name="n1"), user=user)) == [BY_NODE_NAME]


@pytest.mark.parametrize(
    ("user", "refused"),
    [
        (CONTROLLER, False),
        ("system:kube-controller-manager", False),
        ("system:serviceaccount:shop:replicaset-controller", True),
        ("system:serviceaccount:kube-system:helm-controller", True),
        ("alice", True),
    ],
)
def test_additional_checks_trust_the_authors_of_templates(user: str, refused: bool) -> None:
    name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    for spec in (pod_spec("*"), affinity(name)):
        assert bool(refusals(STRICT, request(spec, user=user))) is refused


def test_mirror_annotation_of_a_tenant_permits_nothing() -> None:
    mirror = {"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}, "spec": {"nodeName": "n1"}}
    assert decide(BOGUS, wire(mirror), "") == [BY_NODE_NAME]
    assert decide(BOGUS, wire(mirror, user="system:node:n1"), "") == [BY_NODE_NAME]
    assert decide(BOGUS, wire(mirror, groups=("system:nodes",)), "") == [BY_NODE_NAME]


@pytest.mark.parametrize(
    ("spec", "fields", "warned"),
    [
        (PodSpec(node_selector={"region": "a"}), {"kind": "Deployment"}, True),
        (PodSpec(node_name="n1"), {"kind": "CronJob", "user": MAY_BIND}, True),
        (PodSpec(node_name="n1"), {"kind": "Deployment", "old": PodSpec()}, True),
        (PodSpec(node_name="n1"), {"kind": "Deployment", "old": PodSpec(), "same_template": True}, False),
        (PodSpec(node_name="n1"), {"kind": "ReplicaSet", "user": CONTROLLER}, False),
        (PodSpec(node_name="n1"), {"kind": "DaemonSet"}, False),
        (PodSpec(node_name="n1"), {"kind": "PodTemplate"}, False),
        (PodSpec(node_name="n1"), {"kind": "Pod"}, False),
        (PodSpec(node_selector={"os": "a"}), {"kind": "Deployment"}, False),
        (pod_spec("*"), {"kind": "Deployment"}, False),
    ],
)
def test_warning_about_controllers_that_may_not_select_nodes(
    spec: PodSpec, fields: Any, warned: bool, golden: Golden
) -> None:
    found = list(STRICT.warnings(request(spec, **fields)))
    assert len(found) == warned
    for each in found:
        golden(each)


# --- NodeAffinity -----------------------------------------------------------------------------------------------------


def affinity(*terms: Any, preferred: bool = False, **fields: Any) -> PodSpec:
    node: Any = (
        {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": each} for each in terms]}
        if preferred
        else {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    )
    return pod_spec(affinity={"nodeAffinity": node}, **fields)


def expression(key: str, operator: str = "In", *values: str) -> Any:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def _all(key: str) -> Any:
    return expression(key, "Exists")["matchExpressions"]


@pytest.mark.parametrize("preferred", [False, True])
@pytest.mark.parametrize(
    ("term", "keys"),
    [
        (expression("region", "In", "us-east"), "region"),
        (expression("region", "NotIn", "us-east"), "region"),
        (expression("region", "Exists"), "region"),
        (expression("region", "DoesNotExist"), "region"),
        (expression("region", "Gt", "1"), "region"),
        (expression("kubernetes.io/hostname", "In", "n1"), "kubernetes.io/hostname"),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}, "metadata.name"),
        ({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}, "metadata.name"),
        (expression("superregion", "In", "us"), ""),
        (expression("metadata.name", "In", "n1"), ""),
        ({}, ""),
    ],
)
def test_node_affinity(term: Any, keys: str, preferred: bool) -> None:
    of = request(affinity(expression("os", "In", "linux"), term, preferred=preferred))
    assert refusals(STRICT, of) == ([BY_AFFINITY.format(keys)] if keys else [])
    assert refusals(PLAIN, of) == []


def near(key: str, *, kind: str = "podAffinity", preferred: bool = False) -> PodSpec:
    term = {"topologyKey": key}
    name = f"{'preferred' if preferred else 'required'}DuringSchedulingIgnoredDuringExecution"
    return pod_spec(affinity={kind: {name: [{"weight": 1, "podAffinityTerm": term} if preferred else term]}})


def spread(*keys: str) -> PodSpec:
    return pod_spec(topologySpreadConstraints=[{"topologyKey": key, "maxSkew": 1} for key in keys])


@pytest.mark.parametrize(
    ("spec", "keys"),
    [
        (near("region"), "region"),
        (near("region", preferred=True), "region"),
        (near("kubernetes.io/hostname", kind="podAntiAffinity"), "kubernetes.io/hostname"),
        (near("region", kind="podAntiAffinity", preferred=True), "region"),
        (near("zone"), ""),
        (spread("region", "zone", "kubernetes.io/hostname"), "kubernetes.io/hostname region"),
        (spread("zone"), ""),
    ],
)
@pytest.mark.parametrize("kind", ["Pod", "Deployment"])
def test_topology_keys(spec: PodSpec, keys: str, kind: str) -> None:
    assert refusals(STRICT, request(spec, kind=kind)) == ([BY_TOPOLOGY.format(keys)] if keys else [])
    assert refusals(PLAIN, request(spec, kind=kind)) == []
    assert refusals(STRICT, request(spec, kind="Pod", user=CONTROLLER)) == []


def test_topology_keys_of_a_pod_that_exists_are_not_chosen_by_who_updates_it() -> None:
    old = replace(spread("region"), scheduling_gates=pod_spec(**GATED).scheduling_gates)
    assert refusals(STRICT, request(replace(old, node_selector={"os": "linux"}), old=old)) == []
    ephemeral = request(old, old=old, subresource="ephemeralcontainers")
    assert refusals(STRICT, ephemeral) == [EPHEMERAL + BY_TOPOLOGY.format("region")]


def test_name_of_the_node_is_restricted_without_blacklist() -> None:
    name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    of = request(affinity(name, expression("region", "In", "a")))
    assert refusals(rule(checks=("NodeAffinity",)), of) == [BY_AFFINITY.format("metadata.name")]


def test_each_way_is_refused_with_its_own_message() -> None:
    spec = affinity(expression("region", "In", "a"), nodeName="n1", nodeSelector={"region": "a"})
    of = request(replace(spec, tolerations=(toleration("gpu"),)), kind="CronJob")
    assert refusals(STRICT, of) == [
        BY_NODE_NAME_AND_LABELS.format("region"),
        BY_AFFINITY.format("region"),
        BY_TOLERATIONS.format("gpu"),
    ]


# --- Tolerations ------------------------------------------------------------------------------------------------------

TEAM_A = "dedicated=team-a:NoSchedule"


@pytest.mark.parametrize(
    ("tolerated", "taints"),
    [
        ("dedicated=team-a:NoSchedule", TEAM_A),
        ("dedicated=team-a", TEAM_A),
        ("dedicated:NoSchedule", TEAM_A),
        ("dedicated", TEAM_A),
        ("*", f"{TEAM_A} gpu"),
        ("*:NoSchedule", f"{TEAM_A} gpu"),
        ("*:NoExecute", "gpu"),
        ("*:NoExecute@1", "gpu"),
        ("dedicated=team-b:NoSchedule", ""),
        ("dedicated=team-a:NoExecute", ""),
        ("gpu=a100:PreferNoSchedule", "gpu"),
        ("gpu", "gpu"),
        ("node.kubernetes.io/not-ready:NoExecute@300", ""),
    ],
)
def test_tolerations_of_protected_taints(tolerated: str, taints: str) -> None:
    for kind in ("Pod", "Deployment", "CronJob"):
        of = request(pod_spec("other:NoSchedule", tolerated), kind=kind)
        assert refusals(STRICT, of) == ([BY_TOLERATIONS.format(taints)] if taints else [])
        assert refusals(PLAIN, of) == []


@pytest.mark.parametrize(("operator", "bound", "taints"), [("Gt", "5", "gpu"), ("Lt", "-5", "gpu"), ("In", "5", "gpu")])
def test_operators_that_compare_values(operator: str, bound: str, taints: str) -> None:
    spec = pod_spec(replace(toleration("gpu"), operator=operator, value=bound))
    assert refusals(STRICT, request(spec)) == [BY_TOLERATIONS.format(taints)]
    numbered = rule(checks=("Tolerations",), taints=(ProtectedTaint(key="gpu", value="7"),))
    expected = [BY_TOLERATIONS.format("gpu=7")] if operator == "Gt" else []
    assert refusals(numbered, request(spec)) == expected


def test_toleration_that_an_update_adds() -> None:
    before, after = pod_spec("gpu"), pod_spec("gpu", "dedicated")
    assert refusals(STRICT, request(after, old=before)) == [BY_TOLERATIONS.format(TEAM_A)]
    assert refusals(STRICT, request(after, old=after)) == []
    assert refusals(rule(checks=("GatedPodUpdates",)), request(after, old=before)) == []


def test_number_of_tolerations_is_limited() -> None:
    many = pod_spec(*(f"key-{number}" for number in range(MAX_TOLERATIONS + 1)))
    assert refusals(STRICT, request(many)) == [TOO_MANY]
    assert refusals(STRICT, request(many, old=many)) == []
    assert refusals(PLAIN, request(many)) == []


# --- Updates of pods with scheduling gates ----------------------------------------------------------------------------

GATED = {"schedulingGates": [{"name": "example.com/gate"}]}


@pytest.mark.parametrize(
    ("before", "after", "messages"),
    [
        (pod_spec(**GATED), pod_spec(nodeSelector={"region": "a"}), [BY_LABELS.format("region")]),
        (pod_spec(**GATED), pod_spec(nodeSelector={"other": "a"}), []),
        (pod_spec(nodeSelector={"region": "a"}, **GATED), pod_spec(nodeSelector={"region": "a", "b": "c"}), []),
        (
            pod_spec(nodeSelector={"region": "a"}, **GATED),
            pod_spec(nodeSelector={"region": "a", "kubernetes.io/hostname": "n1"}),
            [BY_LABELS.format("kubernetes.io/hostname")],
        ),
        (pod_spec(**GATED), affinity(expression("region", "In", "a")), [BY_AFFINITY.format("region")]),
        (
            affinity(expression("region", "In", "a", "b"), **GATED),
            affinity(expression("region", "In", "a")),
            [BY_AFFINITY.format("region")],
        ),
        (affinity(expression("region", "In", "a"), **GATED), affinity(expression("region", "In", "a")), []),
        (
            affinity(expression("region", "In", "a"), expression("disk", "Exists"), **GATED),
            affinity(
                expression("region", "In", "a"),
                {"matchExpressions": [*_all("disk"), {"key": "region", "operator": "In", "values": ["a"]}]},
            ),
            [BY_AFFINITY.format("region")],
        ),
        (pod_spec(**GATED), pod_spec(nodeName="n1"), [BY_NODE_NAME]),
        (pod_spec(), pod_spec(nodeSelector={"region": "a"}), []),
    ],
)
def test_updates_of_pods_with_scheduling_gates(before: PodSpec, after: PodSpec, messages: list[str]) -> None:
    assert refusals(STRICT, request(after, old=before)) == messages
    assert refusals(PLAIN, request(after, old=before)) == []


# --- Ephemeral containers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"nodeSelector": {"region": "a"}}, BY_LABELS.format("region")),
        ({"tolerations": ["gpu"]}, BY_TOLERATIONS.format("gpu")),
        ({}, ""),
    ],
)
def test_ephemeral_containers(fields: Any, message: str) -> None:
    tolerated = fields.pop("tolerations", [])
    before = pod_spec(*tolerated, nodeName="n1", **fields)
    after = replace(before, ephemeral_containers=pod_spec(containers=[container()]).containers)
    of = request(after, old=before, subresource="ephemeralcontainers")
    assert refusals(STRICT, of) == ([EPHEMERAL + message] if message else [])
    assert refusals(PLAIN, of) == []


# --- Other rules ------------------------------------------------------------------------------------------------------

TOGETHER = """
podNodeConstraints:
  nodeSelectorLabelBlacklist: [region, pool]
  additionalChecks: [NodeAffinity, Tolerations, EphemeralContainers]
  protectedTaints: [{key: pool}, {key: example.com/gpu}]
podNodeSelector: {clusterDefaultNodeSelector: region=us-east}
extendedResourceToleration: {failurePolicy: Fail}
dedicatedNodes:
  pools:
  - {name: a, groups: [team-a], taint: {key: pool, value: a}}
"""


@pytest.mark.parametrize("group", ["team-a", "system:authenticated"])
def test_what_other_rules_add_is_permitted(group: str) -> None:
    reviewer = Reviewer(admission_spec(TOGETHER))
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [container(requests={"example.com/gpu": "1"})]}}
    found = attributes(wire(pod, groups=(group,)), NAMESPACE)
    assert found is not None
    spec, review = reviewer.mutate(found, reviewer.rules, failure_policy="Fail")
    assert "PodNodeSelector" in review.mutated
    assert ("DedicatedNodes" in review.mutated) is (group == "team-a")
    final = replace(found, pod=replace(found.pod, spec=spec))
    assert reviewer.validate(final, reviewer.rules).refusals == ()
    ephemeral = replace(final, operation="UPDATE", old=final.pod, subresource="ephemeralcontainers")
    assert reviewer.validate(ephemeral, reviewer.rules[:1]).refusals == ()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"nodeSelector": {"region": "us-west"}}, BY_LABELS.format("region")),
        ({"tolerations": [{"operator": "Exists"}]}, BY_TOLERATIONS.format("example.com/gpu pool")),
        ({"tolerations": [{"key": "pool", "operator": "Exists"}]}, BY_TOLERATIONS.format("pool")),
    ],
)
def test_what_the_user_adds_to_them_is_refused(spec: Any, message: str) -> None:
    reviewer = Reviewer(admission_spec(TOGETHER))
    found = attributes(wire({"spec": spec}, groups=("team-a",)), NAMESPACE)
    assert found is not None
    review = reviewer.validate(found, reviewer.rules[:1])
    assert [refusal.message for _, refusal in review.refusals] == [message]


# --- Properties -------------------------------------------------------------------------------------------------------

KEYS = st.sampled_from(["region", "os", "kubernetes.io/hostname", "metadata.name"])


@given(
    name=st.sampled_from(["", "n1"]),
    selector=st.dictionaries(KEYS, st.just("x"), max_size=3),
    checks=st.sets(st.sampled_from(["NodeAffinity", "GatedPodUpdates", "EphemeralContainers", "DaemonSets"])),
    kind=st.sampled_from(["Pod", "CronJob", "DeploymentConfig", "DaemonSet"]),
)
def test_checks_of_the_plugin_do_not_depend_on_options(name: str, selector: Any, checks: set[str], kind: str) -> None:
    of = request(PodSpec(node_name=name, node_selector=selector), kind=kind)
    restricted = bool(name) or not {"region"}.isdisjoint(selector)
    if kind == "DaemonSet" and "DaemonSets" not in checks:
        restricted = False
    found: list[Refusal] = list(rule("region", checks=tuple(checks)).validate(of))
    assert bool(found) is restricted
