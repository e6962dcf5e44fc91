"""All toleration rules in the order of kube-apiserver: in-tree plugins, webhooks, both again, validation."""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.admission_requests import admission_spec, toleration, tolerations
from tests.json_patch import apply_patch
from tests.unit.admission.test_reviewer import wire
from trimtab.admission.requests import NamespaceInfo, PodSpec, Toleration
from trimtab.admission.reviewer import Reviewer
from trimtab.admission.rule_scopes import MUTATE, VALIDATE, Stage
from trimtab.admission.rules import Review
from trimtab.admission.rules.toleration_restriction import (
    CONFLICT_WITH_NAMESPACE,
    DEFAULTS_ANNOTATION,
    WHITELIST_ANNOTATION,
)
from trimtab.admission.tolerations import TOO_MANY, merge_tolerations, tolerations_for
from trimtab.admission.webhooks import Endpoint, webhooks
from trimtab.api.placement_admission import FailurePolicy, NodeTaint, PlacementAdmissionSpec

RULES = """
defaultTolerationSeconds: {notReadyTolerationSeconds: 60, unreachableTolerationSeconds: 30}
podTolerationRestriction: {defaultTolerations: [{key: spot, operator: Exists}]}
extendedResourceToleration: {}
dedicatedNodes:
  pools:
  - {name: a, namespaces: [team-a], taint: {key: dedicated, value: a}}
  - {name: b, groups: [team-b], taint: {key: dedicated, value: b, effect: NoExecute}}
specialHardware:
  classes:
  - {name: gpu, resources: [nvidia.com/gpu], taint: {key: nvidia.com/gpu}, nodeLabel: {key: gpu}, exclusive: true}
"""
REVIEWER = Reviewer(admission_spec(RULES))
POLICIES: tuple[FailurePolicy, ...] = ("Fail", "Ignore")

IN_TREE = ("node.kubernetes.io/not-ready:NoExecute@300", "node.kubernetes.io/unreachable:NoExecute@300")
ADJUSTED = ("node.kubernetes.io/not-ready:NoExecute@60", "node.kubernetes.io/unreachable:NoExecute@30")


def builtins(each: Toleration) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(each)
    return found


def listed(*texts: str) -> str:
    return json.dumps([builtins(toleration(each)) for each in texts])


def in_tree(pod: dict[str, Any]) -> dict[str, Any]:
    """The in-tree plugin DefaultTolerationSeconds, with its flags unset."""
    spec = dict(pod["spec"])
    present = list(spec.get("tolerations", ()))
    for each in map(builtins, tolerations(*IN_TREE)):
        if not any(
            had.get("key", "") in ("", each["key"]) and had.get("effect", "") in ("", "NoExecute") for had in present
        ):
            present.append(each)
    return {**pod, "spec": {**spec, "tolerations": present}}


def admit(
    pod: dict[str, Any], namespace: NamespaceInfo, *, reviewer: Reviewer = REVIEWER, **who: Any
) -> tuple[dict[str, Any], list[str]]:
    """The pod as it is stored, and the messages of refusals; with a kube-apiserver that calls webhooks twice."""

    def decide(stage: Stage, policy: FailurePolicy, found: dict[str, Any]) -> Any:
        request = wire(found, namespace=namespace.name, **who)
        return reviewer.decide(request, namespace, stage=stage, failure_policy=policy)

    refusals: list[str] = []
    rounds = []
    for _ in range(3):
        pod = in_tree(pod)
        for policy in POLICIES:
            decision = decide(MUTATE, policy, pod)
            refusals += (refusal.message for _, refusal in decision.review.refusals)
            pod = apply_patch(pod, decision.review.patch)
        rounds.append(pod)
    if not refusals:
        assert rounds[1] == rounds[2], "the second round reaches a fixed point"
        for policy in POLICIES:
            refusals += (refusal.message for _, refusal in decide(VALIDATE, policy, pod).review.refusals)
    return pod, refusals


def pod_with(*texts: str, gpus: str | None = None) -> dict[str, Any]:
    resources = {} if gpus is None else {"requests": {"nvidia.com/gpu": gpus}, "limits": {"nvidia.com/gpu": gpus}}
    given_ = [builtins(toleration(each)) for each in texts]
    spec = {"containers": [{"name": "main", "image": "none", "resources": resources}]}
    return {"metadata": {"name": "web"}, "spec": {**spec, **({"tolerations": given_} if given_ else {})}}


def stored_tolerations(pod: dict[str, Any]) -> tuple[Toleration, ...]:
    return msgspec.convert(pod["spec"].get("tolerations", []), tuple[Toleration, ...])


@pytest.mark.parametrize(
    ("namespace", "gpus", "added"),
    [
        ("shop", None, ()),
        ("team-a", None, ("dedicated=a:NoSchedule",)),
        ("shop", "1", ("nvidia.com/gpu:NoSchedule",)),
        ("team-a", "2", ("nvidia.com/gpu:NoSchedule", "dedicated=a:NoSchedule")),
    ],
)
@pytest.mark.parametrize("whitelist", [None, "", listed("spot")])
def test_a_whitelist_permits_what_kube_apiserver_and_the_other_rules_add(
    namespace: str, gpus: str | None, added: tuple[str, ...], whitelist: str | None
) -> None:
    annotations = {} if whitelist is None else {WHITELIST_ANNOTATION: whitelist}
    stored, refusals = admit(pod_with(gpus=gpus), NamespaceInfo(namespace, annotations=annotations))
    assert refusals == []
    assert set(stored_tolerations(stored)) == set(tolerations(*ADJUSTED, "spot", *added))


def test_default_tolerations_of_a_namespace_are_no_way_onto_dedicated_nodes() -> None:
    """A tenant who can annotate the namespace could otherwise add the toleration to all of its pods."""
    annotations = {DEFAULTS_ANNOTATION: listed("dedicated=a:NoSchedule", "*")}
    for texts in ((), ("dedicated=a:NoSchedule",)):
        _, refusals = admit(pod_with(*texts), NamespaceInfo("shop", annotations=annotations))
        assert [message.split('"')[1] for message in refusals] == ["a", "b", "gpu"]


def test_the_same_toleration_written_by_the_user_must_be_permitted_by_all_rules() -> None:
    restricted = NamespaceInfo("shop", annotations={WHITELIST_ANNOTATION: listed("spot")})
    _, refusals = admit(pod_with("dedicated=b:NoExecute"), restricted, groups=("team-b",))
    assert refusals == [], "the rule adds it anyway"
    _, refusals = admit(pod_with("dedicated:NoExecute"), restricted, groups=("team-b",))
    assert CONFLICT_WITH_NAMESPACE in refusals


SEVERAL_POOLS = """
  pools:
  - {name: a, namespaces: [shared], taint: {key: pool, value: a}}
  - {name: b, groups: [team-b], taint: {key: pool, value: b}}
  - {name: c, namespaces: [shared], taint: {key: pool-c, value: c}, nodeLabel: {key: example.com/pool, value: c}}
"""
OTHER_RULES = """
podNodeConstraints:
  nodeSelectorLabelBlacklist: [pool, example.com/pool]
  additionalChecks: [NodeAffinity, Tolerations]
  protectedTaints: [{key: pool}, {key: pool-c}]
podTolerationRestriction: {tolerationsWhitelist: [{key: spot, operator: Exists}]}
"""
CHOOSING = Reviewer(admission_spec(f"{OTHER_RULES}dedicatedNodes:{SEVERAL_POOLS}"))
CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"


def labels_required(pod: dict[str, Any]) -> list[tuple[str, tuple[str, ...]]]:
    spec = msgspec.convert(pod["spec"], PodSpec)
    required = spec.node_affinity.required
    terms = (required.node_selector_terms if required is not None else None) or ()
    return [(each.key, each.values or ()) for term in terms for each in term.match_expressions or ()]


@pytest.mark.parametrize(
    ("chosen", "namespace", "groups", "label"),
    [
        ((), "shared", (), ("pool", ("a",))),
        (("pool=a:NoSchedule",), "shared", (), ("pool", ("a",))),
        (("pool-c=c:NoSchedule",), "shared", (), ("example.com/pool", ("c",))),
        ((), "shared", ("team-b",), ("pool", ("a",))),
        (("pool=b:NoSchedule",), "shared", ("team-b",), ("pool", ("b",))),
        (("pool-c=c:NoSchedule",), "shared", ("team-b",), ("example.com/pool", ("c",))),
        (("pool=b:NoSchedule",), "shop", ("team-b",), ("pool", ("b",))),
    ],
)
def test_other_rules_permit_what_dedicated_nodes_adds_for_the_pool_that_the_pod_chooses(
    chosen: tuple[str, ...], namespace: str, groups: tuple[str, ...], label: Any
) -> None:
    stored, refusals = admit(pod_with(*chosen), NamespaceInfo(namespace), reviewer=CHOOSING, groups=groups)
    assert (refusals, labels_required(stored)) == ([], [label])


@pytest.mark.parametrize("chosen", ["pool-c:NoSchedule", "pool", "*"])
def test_wider_toleration_than_that_of_the_chosen_pool_is_refused(chosen: str) -> None:
    _, refusals = admit(pod_with(chosen), NamespaceInfo("shared"), reviewer=CHOOSING)
    assert refusals


def test_controller_creates_the_pods_of_a_template_for_which_its_author_chose_a_pool() -> None:
    shop = NamespaceInfo("shop")
    pod, _ = admit(pod_with(), shop, reviewer=CHOOSING, groups=("team-b",))
    stored, refusals = admit(pod, shop, reviewer=CHOOSING, user=CONTROLLER, groups=("system:serviceaccounts",))
    assert (refusals, labels_required(stored)) == ([], [("pool", ("b",))])
    _, refusals = admit(pod, shop, reviewer=CHOOSING)
    assert refusals, "another user may not create such a pod"


PROTECTED = """
podNodeConstraints:
  additionalChecks: [Tolerations]
  protectedTaints: [{key: node.kubernetes.io/unreachable}]
"""


@pytest.mark.parametrize(
    ("rules", "tolerated", "refused"),
    [
        ("", (), False),
        ("", IN_TREE, False),
        ("", ("node.kubernetes.io/unreachable:NoExecute@301",), True),
        ("", ("node.kubernetes.io/unreachable:NoExecute",), True),
        ("", ("node.kubernetes.io/unreachable@300",), True),
        ("", ("node.kubernetes.io/unreachable:NoSchedule",), True),
        ("defaultTolerationSeconds: {unreachableTolerationSeconds: 30}", (), False),
        ("defaultTolerationSeconds: {apiServerDefaultSeconds: 20, adjustApiServerDefaults: false}",
         ("node.kubernetes.io/unreachable:NoExecute@20",), False),
    ],
)  # fmt: skip
def test_tolerations_that_kube_apiserver_adds_are_not_chosen_by_the_user(
    rules: str, tolerated: tuple[str, ...], refused: bool
) -> None:
    _, refusals = admit(
        pod_with(*tolerated), NamespaceInfo("shop"), reviewer=Reviewer(admission_spec(PROTECTED + rules))
    )
    assert bool(refusals) is refused


TEXTS = st.lists(
    st.sampled_from(
        [
            "*",
            "*:NoExecute@9",
            "dedicated=a:NoSchedule",
            "dedicated",
            "dedicated=b:NoExecute@5",
            "nvidia.com/gpu:NoSchedule",
            "spot",
            "spot=x:NoSchedule",
            *IN_TREE,
        ]
    ),
    max_size=4,
)
LISTS = st.none() | st.just("") | TEXTS.map(lambda texts: listed(*texts))


@settings(max_examples=300, deadline=None)
@given(
    TEXTS,
    LISTS,
    LISTS,
    st.sampled_from(["shop", "team-a"]),
    st.sampled_from([("team-b",), ("system:authenticated",)]),
    st.sampled_from([None, "0", "1"]),
)
def test_no_pod_of_others_is_stored_with_a_toleration_of_reserved_nodes(
    texts: list[str],
    defaults: str | None,
    whitelist: str | None,
    namespace: str,
    groups: tuple[str, ...],
    gpus: str | None,
) -> None:
    found = {DEFAULTS_ANNOTATION: defaults, WHITELIST_ANNOTATION: whitelist}
    annotations = {key: value for key, value in found.items() if value is not None}
    stored, refusals = admit(
        pod_with(*texts, gpus=gpus), NamespaceInfo(namespace, annotations=annotations), groups=groups
    )
    if refusals:
        return
    reserved = [
        (NodeTaint(key="dedicated", value="a"), namespace == "team-a"),
        (NodeTaint(key="dedicated", value="b", effect="NoExecute"), groups == ("team-b",)),
        (NodeTaint(key="nvidia.com/gpu"), gpus == "1"),
    ]
    for taint, permitted in reserved:
        assert permitted or not tolerations_for(stored_tolerations(stored), taint)


# --- One mutating webhook or two --------------------------------------------------------------------------------------

ANY_POLICY = st.sampled_from([None, "Fail", "Ignore"])
LIST = "[{key: a, operator: Exists}, {key: nvidia.com/gpu, operator: Exists}]"
RULE_BLOCKS = {
    "podNodeConstraints": st.just("additionalChecks: [Tolerations], protectedTaints: [{key: dedicated}]"),
    "podNodeSelector": st.just("clusterDefaultNodeSelector: dedicated=a"),
    "defaultTolerationSeconds": st.just("notReadyTolerationSeconds: 60"),
    "podTolerationRestriction": st.sampled_from(
        [
            "defaultTolerations: [{key: a, operator: Exists}]",
            f"tolerationsWhitelist: {LIST}",
            f"tolerationsWhitelist: {LIST}, allowApiServerDefaults: false",
        ]
    ),
    "extendedResourceToleration": st.just("ignoredResources: []"),
    "dedicatedNodes": st.just(
        "pools: [{name: a, namespaces: [shop], taint: {key: dedicated, value: a}},"
        "{name: b, namespaces: [shop], taint: {key: dedicated, value: b}},"
        "{name: c, namespaces: [shop], taint: {key: nvidia.com/gpu, value: c}}]"
    ),
    "specialHardware": st.builds(
        "classes: [{{name: gpu, resources: [nvidia.com/gpu], taint: {{key: dedicated, value: b}},"
        "nodeLabel: {{key: dedicated, value: b}}, exclusive: {}}}]".format,
        st.sampled_from(["true", "false"]),
    ),
}
SPECS = st.fixed_dictionaries({name: st.tuples(ANY_POLICY, block) for name, block in RULE_BLOCKS.items()}).map(
    lambda rules: admission_spec(
        "{"
        + ", ".join(f"{name}: {{failurePolicy: {each}, {block}}}" for name, (each, block) in rules.items() if each)
        + "}"
    )
)
CHOSEN = st.lists(
    st.sampled_from(
        [
            "*",
            "*:NoSchedule",
            "a",
            "b",
            "dedicated=b:NoSchedule",
            "nvidia.com/gpu=c:NoSchedule",
            "nvidia.com/gpu",
            *IN_TREE,
        ]
    ),
    max_size=3,
)


class ApiServer:
    """Calls the registered webhooks as kube-apiserver does, and again if the pod has changed since."""

    def __init__(self, reviewer: Reviewer, webhooks: Collection[str]) -> None:
        self.reviewer = reviewer
        self.webhooks = webhooks

    def _review(self, stage: Stage, policy: FailurePolicy, pod: Any) -> Review:
        namespace = NamespaceInfo("shop")
        return self.reviewer.decide(wire(pod), namespace, stage=stage, failure_policy=policy).review

    def admit(self, pod: Any) -> Any:
        """The pod as it is stored; ``None`` if it is refused."""
        called: set[FailurePolicy] = set()
        again: set[FailurePolicy] = set(POLICIES)
        for _ in range(2):
            before, pod = pod, in_tree(pod)
            if before != pod:
                again |= called
            for policy in POLICIES:
                if policy not in again or f"mutate-{policy.lower()}" not in self.webhooks:
                    continue
                review, before = self._review(MUTATE, policy, pod), pod
                if review.refusals:
                    return None
                pod = apply_patch(pod, review.patch)
                called.add(policy)
                again = (again | called if pod != before else again) - {policy}
        refused = any(
            self._review(VALIDATE, policy, pod).refusals
            for policy in POLICIES
            if f"validate-{policy.lower()}" in self.webhooks
        )
        return None if refused else pod


def placement(pod: Any) -> Any:
    """What a stored pod selects, requires and tolerates."""
    if pod is None:
        return None
    spec = msgspec.json.decode(msgspec.json.encode(pod["spec"]), type=PodSpec)
    return spec.node_selector, spec.affinity, set(merge_tolerations(spec.tolerations or (), ()))


@settings(max_examples=1000, deadline=None)
@given(spec=SPECS, chosen=CHOSEN, gpus=st.sampled_from([None, "1"]))
def test_one_mutating_webhook_admits_and_changes_the_same_pods_as_two(
    spec: PlacementAdmissionSpec, chosen: list[str], gpus: str | None
) -> None:
    """PodTolerationRestriction may also remove a toleration that another one covers if it is applied again."""
    found = webhooks(spec, Endpoint(url="https://localhost"), b"")
    registered = {each["name"].partition(".")[0] for each in (*found.mutating, *found.validating)}
    separate = Reviewer(spec)
    separate._shared = frozenset()
    every = [f"{stage}-{policy}" for stage in (MUTATE, VALIDATE) for policy in ("fail", "ignore")]
    pod = pod_with(*chosen, gpus=gpus)
    expected = placement(ApiServer(separate, every).admit(pod))
    assert placement(ApiServer(Reviewer(spec), registered).admit(pod)) == expected


@pytest.mark.live
def test_pods_of_the_maximal_size_are_reviewed_quickly() -> None:
    """kube-apiserver accepts requests of 3 MiB."""
    many = [{"key": f"k{number}", "operator": "Exists"} for number in range(60_000)]
    names = {f"example.com/r{number}": "1" for number in range(50_000)}
    terms = [{"matchExpressions": [{"key": "k", "operator": "Exists"}]} for _ in range(30_000)]
    required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    for fields in (
        {"tolerations": many},
        {"containers": [{"name": "main", "resources": {"requests": names, "limits": names}}]},
        {"affinity": required},
    ):
        pod = {"metadata": {"name": "web"}, "spec": fields}
        for old in (None, pod):
            request = wire(pod, old=old, namespace="team-a")
            started = time.process_time()
            for policy in POLICIES:
                for stage in (MUTATE, VALIDATE):
                    decision = REVIEWER.decide(request, NamespaceInfo("team-a"), stage=stage, failure_policy=policy)
                    messages = {refusal.message for _, refusal in decision.review.refusals}
                    assert (TOO_MANY in messages) is ("tolerations" in fields and old is None and policy == "Fail")
            assert time.process_time() - started < 3
