"""DedicatedNodes: who belongs to a pool, what its pods get, and every way around the reservation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.admission_requests import (
    admission_spec,
    container,
    mutate,
    pod_spec,
    refusals,
    request,
    toleration,
    tolerations,
    with_spec,
)
from tests.fixtures.golden import Golden
from trimtab.admission.requests import TEMPLATE_PATHS, Attributes, PodSpec, Toleration
from trimtab.admission.rules.dedicated_nodes import NODE_NAME_BYPASSES_TAINTS, DedicatedNodesRule
from trimtab.admission.tolerations import MAX_TOLERATIONS, TOO_MANY, requires_label, tolerations_for
from trimtab.admission.users import WORKLOAD_CONTROLLERS
from trimtab.api.placement_admission import DEDICATED_NODES, NodeTaint

POOLS = """
dedicatedNodes:
  pools:
  - name: team-a
    namespaces: [team-a, shared]
    groups: [team-a]
    taint: {key: dedicated, value: team-a}
  - name: team-b
    namespaces: [team-b]
    taint: {key: dedicated, value: team-b}
  - name: team-c
    groups: [team-c]
    namespaces: [shared]
    taint: {key: pool-c, effect: NoExecute}
    nodeLabel: {key: example.com/pool, value: c}
"""
A, B, C = "dedicated=team-a:NoSchedule", "dedicated=team-b:NoSchedule", "pool-c=:NoExecute"
TAINTS = {
    "team-a": NodeTaint(key="dedicated", value="team-a"),
    "team-b": NodeTaint(key="dedicated", value="team-b"),
    "team-c": NodeTaint(key="pool-c", effect="NoExecute"),
}
LABELS = {"team-a": ("dedicated", "team-a"), "team-b": ("dedicated", "team-b"), "team-c": ("example.com/pool", "c")}

KINDS = ["Pod", *sorted({kind for _, kind in TEMPLATE_PATHS})]
TEMPLATES = KINDS[1:]

REPLICA_SETS = "system:serviceaccount:kube-system:replicaset-controller"
DAEMON_SETS = "system:serviceaccount:kube-system:daemon-set-controller"
DEPLOYMENTS = "system:serviceaccount:kube-system:deployment-controller"
ALL_CONTROLLERS = "system:kube-controller-manager"

OWNED_BY_DAEMON_SET = {
    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "controller": True}]
}


def rule(text: str = POOLS) -> DedicatedNodesRule:
    block = admission_spec(text).dedicated_nodes
    assert block is not None
    return DedicatedNodesRule(block)


def refused_by(asked: Attributes, of: DedicatedNodesRule | None = None) -> list[tuple[str, bool]]:
    """The pools that refuse the request, and whether users who may create pods/binding are admitted."""
    return [
        (
            next(pool for pool in (*TAINTS, NODE_NAME_BYPASSES_TAINTS) if pool in _last_quoted(refusal.message)),
            refusal.unless_may_bind,
        )
        for refusal in refusals(of or rule(), asked)
    ]


def _last_quoted(message: str) -> str:
    return message.split('"')[1] if '"' in message else message


def selects(pool: str) -> dict[str, Any]:
    key, value = LABELS[pool]
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    }


def pools_of(spec: PodSpec) -> list[str]:
    """The pools whose nodes the pod tolerates and requires."""
    return [
        pool
        for pool, taint in TAINTS.items()
        if tolerations_for(spec.tolerations or (), taint) and requires_label(spec, *LABELS[pool])
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("who", "pool", "tolerated"),
    [
        ({"namespace": "team-a"}, "team-a", A),
        ({"groups": ["team-a"]}, "team-a", A),
        ({"namespace": "team-b", "user": "mallory"}, "team-b", B),
        ({"groups": ["system:authenticated", "team-c"]}, "team-c", C),
    ],
)
def test_pods_and_templates_of_a_pool_are_completed(kind: str, who: dict[str, Any], pool: str, tolerated: str) -> None:
    asked = request(pod_spec("x"), kind=kind, **who)
    assert mutate(rule(), asked) == pod_spec("x", tolerated, **selects(pool))
    assert refused_by(asked) == []


@pytest.mark.parametrize("kind", KINDS)
def test_other_pods_are_not_changed(kind: str) -> None:
    spec = pod_spec("x", "dedicated:NoExecute", "dedicated=team-d", nodeSelector={"dedicated": "team-a"})
    asked = request(spec, kind=kind)
    assert mutate(rule(), asked) is spec, "selecting the nodes is not enough to be placed there"
    assert refused_by(asked) == []


@pytest.mark.parametrize(
    ("spec", "who", "pool"),
    [
        ({}, {"namespace": "shared"}, "team-a"),
        ({"tolerated": [C]}, {"namespace": "shared"}, "team-c"),
        ({"tolerated": ["pool-c:NoExecute@5"]}, {"namespace": "shared"}, "team-c"),
        ({"tolerated": ["*"]}, {"namespace": "shared", "groups": ["team-a"]}, "team-a"),
        ({"tolerated": ["*:NoExecute"]}, {"namespace": "shared"}, "team-a"),
        ({"nodeSelector": {"example.com/pool": "c"}}, {"namespace": "shared"}, "team-c"),
        ({"tolerated": [A], **selects("team-c")}, {"namespace": "shared"}, "team-c"),
        ({}, {"namespace": "team-b", "groups": ["team-a"]}, "team-b"),
        ({"tolerated": [A]}, {"namespace": "team-b", "groups": ["team-a"]}, "team-a"),
        ({"tolerated": ["dedicated:NoSchedule"]}, {"namespace": "team-b", "groups": ["team-a"]}, "team-b"),
        ({**selects("team-a")}, {"namespace": "team-b", "groups": ["team-a"]}, "team-a"),
        ({**selects("team-c")}, {"namespace": "team-b", "groups": ["team-a"]}, "team-b"),
        ({}, {"groups": ["team-c", "team-a"]}, "team-a"),
        ({"nodeSelector": {"example.com/pool": "c"}}, {"groups": ["team-c", "team-a"]}, "team-c"),
    ],
)
def test_the_pool_of_a_pod_that_belongs_to_several(spec: dict[str, Any], who: dict[str, Any], pool: str) -> None:
    fields = {key: value for key, value in spec.items() if key != "tolerated"}
    changed = mutate(rule(), request(pod_spec(*spec.get("tolerated", ()), **fields), **who))
    assert pool in pools_of(changed)
    required = [each for each, label in LABELS.items() if requires_label(changed, *label)]
    assert required == [pool] or spec == selects("team-c"), "one pool, and another one only if the user demands it"


def test_pools_with_the_same_label_are_the_same_nodes() -> None:
    both = """
    dedicatedNodes:
      pools:
      - {name: team-a, namespaces: [team-a], taint: {key: dedicated, value: team-a}}
      - {name: other, namespaces: [team-a], taint: {key: x}}
      - {name: team-a-executing, namespaces: [team-a], taint: {key: dedicated, value: team-a, effect: NoExecute}}
    """
    changed = mutate(rule(both), request(pod_spec(), namespace="team-a"))
    assert changed.tolerations == tolerations(A, "dedicated=team-a:NoExecute")


FORMS = {
    "Equal": toleration(A),
    "no operator": Toleration("dedicated", "", "team-a", "NoSchedule"),
    "any effect": toleration("dedicated=team-a"),
    "any value": toleration("dedicated:NoSchedule"),
    "any value and effect": toleration("dedicated"),
    "any key": toleration("*:NoSchedule"),
    "everything": toleration("*"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_others_must_not_tolerate_the_taint(form: Toleration, kind: str) -> None:
    for namespace in ("default", "team-b"):
        found = refused_by(request(pod_spec("x", form), kind=kind, namespace=namespace))
        assert ("team-a", kind == "DaemonSet") in found


@pytest.mark.parametrize("seconds", [0, 1, 2**63 - 1, -1])
def test_tolerating_for_some_seconds_is_refused(seconds: int) -> None:
    assert refused_by(request(pod_spec(f"pool-c:NoExecute@{seconds}"))) == [("team-c", False)]


@pytest.mark.parametrize(("operator", "value", "refused"), [("Gt", "4", 1), ("Lt", "6", 1), ("Gt", "5", 0)])
def test_comparing_operators_are_refused(operator: str, value: str, refused: int) -> None:
    numeric = rule("dedicatedNodes: {pools: [{name: team-a, namespaces: [a], taint: {key: sla, value: '5'}}]}")
    assert len(refusals(numeric, request(pod_spec(Toleration("sla", operator, value))))) == refused


def test_members_must_not_tolerate_other_pools() -> None:
    assert refused_by(request(pod_spec("*"), namespace="team-a")) == [("team-b", False), ("team-c", False)]
    assert refused_by(request(pod_spec("dedicated"), groups=["team-a"])) == [("team-b", False)]


def test_messages(golden: Golden) -> None:
    (refusal,) = refusals(rule(), request(pod_spec("pool-c")))
    golden(refusal.message, "pod")
    (refusal,) = refusals(rule(), request(pod_spec(A), kind="CronJob"))
    golden(refusal.message, "pod template")


@pytest.mark.parametrize("user", sorted(WORKLOAD_CONTROLLERS))
@pytest.mark.parametrize(
    ("tolerated", "namespace", "refused"),
    [
        (C, "default", []),
        (A, "default", []),
        (B, "default", [("team-b", False)]),
        (B, "team-b", []),
        ("*", "default", [("team-b", False)]),
    ],
)
def test_pods_of_controllers_are_trusted_as_far_as_membership_depends_on_users(
    user: str, tolerated: str, namespace: str, refused: list[tuple[str, bool]]
) -> None:
    """A pool without groups has the same members for every user."""
    assert refused_by(request(pod_spec(tolerated), user=user, namespace=namespace)) == refused


@pytest.mark.parametrize("tolerated", ["*", A, B, C])
@pytest.mark.parametrize("user", [DAEMON_SETS, ALL_CONTROLLERS])
def test_pods_of_daemon_sets_are_trusted_and_not_completed(user: str, tolerated: str) -> None:
    asked = request(pod_spec(tolerated), user=user, metadata=OWNED_BY_DAEMON_SET, namespace="team-a")
    assert mutate(rule(), asked) is asked.pod.spec
    assert refused_by(asked) == []


def test_owner_references_of_users_do_not_keep_pods_from_being_completed() -> None:
    asked = request(pod_spec(), metadata=OWNED_BY_DAEMON_SET, namespace="team-a")
    assert pools_of(mutate(rule(), asked)) == ["team-a"]


IMPOSTORS = [
    "system:serviceaccount:team-x:replicaset-controller",
    "system:serviceaccount:team-x:daemon-set-controller",
    "system:serviceaccount:kube-system:aws-load-balancer-controller",
    "system:serviceaccount:kube-system:argocd-application-controller",
    "system:serviceaccount:kube-system:default",
    "system:serviceaccount:kube-system:replicaset-controller ",
    "system:serviceaccount:kube-system2:replicaset-controller",
    "system:kube-controller-manager2",
    "system:kube-scheduler",
    "replicaset-controller",
    "system:node:n1",
    "kubernetes-admin",
    "",
]


@pytest.mark.parametrize("user", IMPOSTORS)
@pytest.mark.parametrize("metadata", [{}, OWNED_BY_DAEMON_SET], ids=["bare", "owned"])
def test_no_other_user_is_trusted(user: str, metadata: dict[str, Any]) -> None:
    """Owner references are written by tenants. A kubelet has its group, too."""
    groups = ["system:masters", "system:serviceaccounts:kube-system", "system:authenticated"]
    asked = request(pod_spec("*"), user=user, groups=groups, metadata=metadata)
    assert refused_by(asked) == [(pool, False) for pool in TAINTS]


def test_mirror_pods_are_admitted_unchanged() -> None:
    spec = pod_spec("*:NoExecute", A, nodeName="n1")
    asked = request(spec, user="system:node:n1", groups=["system:nodes"], namespace="team-b")
    assert mutate(rule(), asked) is spec
    assert refused_by(asked) == []
    other = request(spec, user="mallory", groups=["system:nodes"])
    assert ("team-a", False) in refused_by(other), "the group alone does not make a kubelet"


def test_controllers_are_not_members_by_group() -> None:
    """Otherwise a pool for system:serviceaccounts would get the pods of all users."""
    accounts = rule(POOLS.replace("groups: [team-c]", 'groups: ["system:serviceaccounts"]'))
    asked = request(pod_spec(), user=REPLICA_SETS, groups=["system:serviceaccounts"])
    assert mutate(accounts, asked) is asked.pod.spec
    own = request(pod_spec(), user="system:serviceaccount:ci:build", groups=["system:serviceaccounts"])
    assert pools_of(mutate(accounts, own)) == ["team-c"]


def test_pods_of_a_group_carry_what_their_template_got() -> None:
    template = mutate(rule(), request(pod_spec(), kind="Deployment", groups=["team-c"], namespace="team-b"))
    assert pools_of(template) == ["team-b"]
    template = mutate(rule(), request(pod_spec(C), kind="Deployment", groups=["team-c"], namespace="team-b"))
    assert pools_of(template) == ["team-c"]
    pod = request(template, user=REPLICA_SETS, namespace="team-b")
    assert mutate(rule(), pod) is template, "the pool that the author chose, not the one of the namespace"
    assert refused_by(pod) == []


def test_controllers_do_not_get_tolerations_for_pods_that_only_select_nodes() -> None:
    """Another user wrote the template, which was admitted because it tolerates nothing."""
    asked = request(pod_spec(**selects("team-c")), user=REPLICA_SETS)
    assert mutate(rule(), asked) is asked.pod.spec


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("ReplicaSet", {"user": DEPLOYMENTS}),
        ("ReplicaSet", {"user": DEPLOYMENTS, "controlled": True}),
        ("ReplicaSet", {"user": "system:serviceaccount:argo-rollouts:argo-rollouts", "controlled": True}),
        ("Job", {"user": "system:serviceaccount:kube-system:cronjob-controller"}),
        ("Deployment", {"user": DEPLOYMENTS, "old": pod_spec(), "same_template": True}),
    ],
)
def test_templates_that_controllers_copy_are_not_changed(kind: str, attributes: dict[str, Any]) -> None:
    """The Deployment controller would create one ReplicaSet after the other. The rule changes the pods instead."""
    asked = request(pod_spec(), kind=kind, namespace="team-a", **attributes)
    assert mutate(rule(), asked) is asked.pod.spec
    assert refused_by(asked) == []
    assert pools_of(mutate(rule(), request(pod_spec(), user=REPLICA_SETS, namespace="team-a"))) == ["team-a"]


def test_other_controlled_workloads_are_completed() -> None:
    for kind in ("StatefulSet", "Deployment", "Job"):
        asked = request(pod_spec(), kind=kind, namespace="team-a", controlled=True, user="operator")
        assert pools_of(mutate(rule(), asked)) == ["team-a"]


def test_an_owner_reference_does_not_release_a_group_from_its_pool() -> None:
    asked = request(pod_spec(), kind="ReplicaSet", groups=["team-c"], controlled=True)
    assert refused_by(asked) == [("team-c", False)]
    asked = request(pod_spec(**selects("team-c")), kind="ReplicaSet", groups=["team-c"], controlled=True)
    assert refused_by(asked) == []


@pytest.mark.parametrize("kind", TEMPLATES)
def test_others_may_update_a_workload_but_not_its_template(kind: str) -> None:
    template = pod_spec(A, **selects("team-a"))
    scaled = request(template, old=template, kind=kind, same_template=True)
    assert mutate(rule(), scaled) is template
    assert refused_by(scaled) == []
    changed = request(template, old=template, kind=kind, same_template=False)
    assert refused_by(changed) == [("team-a", kind == "DaemonSet")]
    by_member = request(template, old=template, kind=kind, groups=["team-a"])
    assert refused_by(by_member) == []
    removing = request(pod_spec(), old=template, kind=kind)
    assert refused_by(removing) == []


def test_members_complete_a_template_when_they_change_it() -> None:
    unchanged = request(pod_spec(), old=pod_spec(), kind="Deployment", namespace="team-a", same_template=True)
    assert mutate(rule(), unchanged) is unchanged.pod.spec, "completing it would restart all of its pods"
    changed = replace(unchanged, same_template=False)
    assert pools_of(mutate(rule(), changed)) == ["team-a"]


@pytest.mark.parametrize(
    ("new", "old", "refused"),
    [
        ((A,), (A,), []),
        ((A, "x"), (A,), []),
        ((A,), (), [("team-a", False)]),
        ((A, "*"), (A,), [(pool, False) for pool in TAINTS]),
        ((A, "dedicated:NoSchedule@5"), (A,), [("team-a", False), ("team-b", False)]),
        (("pool-c:NoExecute@99",), ("pool-c:NoExecute@5",), [("team-c", False)]),
        (("pool-c:NoExecute",), ("pool-c:NoExecute@5",), [("team-c", False)]),
        ((A, A), (A,), []),
    ],
)
def test_others_must_not_add_tolerations_to_pods(
    new: tuple[str, ...], old: tuple[str, ...], refused: list[tuple[str, bool]]
) -> None:
    asked = request(pod_spec(*new), old=pod_spec(*old))
    assert refused_by(asked) == refused
    assert mutate(rule(), asked) is asked.pod.spec
    gated = {"schedulingGates": [{"name": "queue"}]}
    ungated = request(pod_spec(*new, nodeSelector={"dedicated": "team-a"}), old=pod_spec(*old, **gated))
    assert refused_by(ungated) == refused


def test_members_may_add_tolerations_to_pods() -> None:
    asked = request(pod_spec(A), old=pod_spec(), groups=["team-a"])
    assert mutate(rule(), asked) is asked.pod.spec, "the affinity of a pod cannot be changed"
    assert refused_by(asked) == []


@pytest.mark.parametrize(("tolerated", "pools"), [((A,), ["team-a"]), (("*",), list(TAINTS)), ((), [])])
def test_others_must_not_run_code_in_pods_of_the_pool(tolerated: tuple[str, ...], pools: list[str]) -> None:
    """Users who may create pods/binding could bind a pod of their own to the node."""
    old = pod_spec(*tolerated, containers=[container(image="a")], initContainers=[container("init", image="a")])
    refused = [(pool, True) for pool in pools]
    for changed in (
        pod_spec(*tolerated, containers=[container(image="evil")], initContainers=[container("init", image="a")]),
        pod_spec(*tolerated, containers=[container(image="a")], initContainers=[container("init", image="evil")]),
    ):
        assert refused_by(request(changed, old=old)) == refused
    debugged = replace(old, ephemeral_containers=pod_spec(containers=[container("debug", image="evil")]).containers)
    asked = request(debugged, old=old, subresource="ephemeralcontainers")
    assert refused_by(asked) == refused
    assert mutate(rule(), asked) is debugged
    relabeled = request(old, old=old, labels={"a": "b"})
    assert refused_by(relabeled) == []


@pytest.mark.parametrize("who", [{"namespace": "shared"}, {"groups": ["team-a", "team-c"]}])
def test_members_may_run_code_in_pods_of_the_pool(who: dict[str, Any]) -> None:
    old = pod_spec(A, C, containers=[container(image="a")])
    debugged = replace(old, ephemeral_containers=pod_spec(containers=[container("debug")]).containers)
    assert refused_by(request(pod_spec(A, C, containers=[container(image="b")]), old=old, **who)) == []
    assert refused_by(request(debugged, old=old, subresource="ephemeralcontainers", **who)) == []


def test_other_subresources_are_ignored() -> None:
    for subresource in ("status", "resize", "binding", "eviction"):
        asked = request(pod_spec("*"), old=pod_spec(), subresource=subresource)
        assert refused_by(asked) == []
        assert mutate(rule(), asked) is asked.pod.spec


@pytest.mark.parametrize("kind", KINDS)
def test_node_names_bypass_taints(kind: str) -> None:
    """The scheduler does not see the pod, and the kubelet checks only NoExecute taints."""
    asked = request(pod_spec(nodeName="n1"), kind=kind)
    assert refused_by(asked) == [(NODE_NAME_BYPASSES_TAINTS, True)]
    assert refused_by(replace(asked, operation="UPDATE", old=asked.pod, same_template=True)) == []
    executing = rule("dedicatedNodes: {pools: [{name: team-c, groups: [c], taint: {key: c, effect: NoExecute}}]}")
    assert refused_by(asked, executing) == []


def test_node_names_of_pods_that_require_their_pool() -> None:
    """Kubelets check the required node affinity."""
    assert refused_by(request(pod_spec(nodeName="n1"), namespace="team-a")) == []
    selecting = request(pod_spec(nodeName="n1", nodeSelector={"dedicated": "team-a"}))
    assert refused_by(selecting) == [(NODE_NAME_BYPASSES_TAINTS, True)]
    assert refused_by(request(pod_spec(nodeName="n1"), user=REPLICA_SETS)) == []
    assert refused_by(request(pod_spec(nodeName="n1"), old=pod_spec(nodeName="n1"))) == []


@pytest.mark.parametrize("kind", ["Pod", "Deployment"])
def test_the_final_object_must_require_the_nodes_of_its_pool(kind: str, golden: Golden) -> None:
    """Another webhook may have removed the affinity after this one added it."""
    for pool, who in (("team-b", {"namespace": "team-b"}), ("team-c", {"groups": ["team-c"]})):
        (refusal,) = rule().validate(request(pod_spec("x"), kind=kind, **who))
        golden(refusal.message, pool)


def test_a_toleration_that_another_webhook_adds_is_refused() -> None:
    asked = request(pod_spec())
    final = with_spec(asked, pod_spec(A))
    assert mutate(rule(), asked) is asked.pod.spec
    assert [refusal.unless_may_bind for refusal in rule().validate(final)] == [False]


def test_pods_that_exclude_their_pool_cause_a_warning(golden: Golden) -> None:
    asked = request(pod_spec(nodeSelector={"dedicated": "team-z"}), namespace="team-a")
    (warning,) = rule().warnings(with_spec(asked, mutate(rule(), asked)))
    golden(warning)
    asked = request(pod_spec(nodeSelector={"dedicated": "team-a"}), namespace="team-a")
    assert list(rule().warnings(with_spec(asked, mutate(rule(), asked)))) == []


def test_too_many_tolerations_are_refused() -> None:
    many = [f"k{number}" for number in range(MAX_TOLERATIONS + 1)]
    assert [each.message for each in refusals(rule(), request(pod_spec(*many)))] == [TOO_MANY]
    assert refused_by(request(pod_spec(*many), old=pod_spec(*many))) == []


EACH = st.sampled_from([A, B, C, "*", "*:NoExecute@5", "dedicated", "pool-c", "x", "dedicated=team-a", "dedicated=z"])
SPECS = st.builds(
    lambda tolerated, fields: pod_spec(*tolerated, **fields),
    st.lists(EACH, max_size=4, unique=True),
    st.sampled_from(
        [{}, selects("team-a"), selects("team-c"), {"nodeSelector": {"dedicated": "team-b"}}, {"nodeName": "n"}]
    ),
)
USERS = st.sampled_from(["alice", DAEMON_SETS, REPLICA_SETS, ALL_CONTROLLERS, *IMPOSTORS[:3]])
GROUPS = st.lists(
    st.sampled_from(["team-a", "team-c", "system:authenticated", "system:nodes"]), max_size=3, unique=True
)
NAMESPACES = st.sampled_from(["default", "team-a", "team-b", "shared"])
REQUESTS = st.builds(
    lambda spec, old, kind, user, groups, namespace, same, controlled, owned: request(
        old if old is not None and same and kind != "Pod" else spec,
        old=old,
        kind=kind,
        user=user,
        groups=groups,
        namespace=namespace,
        same_template=old is not None and same and kind != "Pod",
        controlled=controlled,
        metadata=OWNED_BY_DAEMON_SET if owned else None,
    ),
    SPECS,
    st.none() | SPECS,
    st.sampled_from(KINDS),
    USERS,
    GROUPS,
    NAMESPACES,
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


def may_tolerate(asked: Attributes, pool: str) -> bool:
    """Who may tolerate the taint of a pool, in other words than the rule."""
    users, namespaces = {
        "team-a": ({"team-a"}, {"team-a", "shared"}),
        "team-b": (set[str](), {"team-b"}),
        "team-c": ({"team-c"}, {"shared"}),
    }[pool]
    if asked.namespace.name in namespaces:
        return True
    if asked.user.username in WORKLOAD_CONTROLLERS:
        return bool(users) or asked.of_daemon_set
    return bool(users & set(asked.user.groups))


def held_before(asked: Attributes) -> Iterable[Toleration]:
    if asked.old is None or not (asked.is_pod or asked.same_template):
        return ()
    return asked.old.spec.tolerations or ()


@settings(max_examples=400)
@given(REQUESTS)
def test_a_pod_of_others_never_tolerates_the_taint(asked: Attributes) -> None:
    if refusals(rule(), asked):
        return
    final = mutate(rule(), asked)
    for pool, taint in TAINTS.items():
        if not may_tolerate(asked, pool):
            assert set(tolerations_for(final.tolerations or (), taint)) <= set(held_before(asked))


@settings(max_examples=400)
@given(REQUESTS)
def test_what_is_completed_is_admitted(asked: Attributes) -> None:
    """The rule refuses nothing that it has added itself, so refusals are the same before and after."""
    final = mutate(rule(), asked)
    before = {pool for pool, taint in TAINTS.items() if tolerations_for(asked.pod.spec.tolerations or (), taint)}
    for refusal in rule().validate(with_spec(asked, final)):
        if "tolerates the taint" in refusal.message:
            assert _last_quoted(refusal.message) in before
        elif "must require" in refusal.message:
            assert (asked.kind, asked.controlled) == ("ReplicaSet", True)


def test_name_and_failure_policy() -> None:
    assert (rule().name, rule().failure_policy) == (DEDICATED_NODES, "Fail")
