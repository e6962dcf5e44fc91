"""Decoding of admission requests, and the decisions of all rules together."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections import Counter
from functools import cache
from itertools import product
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.admission_requests import NAMESPACE, admission_spec, container, nest, toleration, wire
from tests.fixtures.golden import Golden
from tests.json_patch import apply_patch
from trimtab.admission.requests import (
    TEMPLATE_PATHS,
    Attributes,
    Metadata,
    NamespaceInfo,
    PodSpec,
    WireRequest,
    pointer,
)
from trimtab.admission.reviewer import (
    CACHED_REVIEWS,
    MAX_CACHED,
    READ_ANNOTATIONS,
    Decision,
    Reviewer,
    attributes,
)
from trimtab.admission.rule_scopes import MUTATE, VALIDATE, WARN, Stage, rule_scopes
from trimtab.admission.rules import Refusal, Review, RuleDefaults
from trimtab.admission.rules.toleration_restriction import DEFAULTS_ANNOTATION
from trimtab.admission.webhooks import Endpoint, webhooks
from trimtab.api.placement_admission import FailurePolicy, RuleName
from trimtab.kube.errors import InputError


def decide(
    reviewer: Reviewer,
    request: WireRequest,
    stage: Stage = MUTATE,
    policy: FailurePolicy = "Fail",
    namespace: NamespaceInfo = NAMESPACE,
) -> Decision:
    return reviewer.decide(request, namespace, stage=stage, failure_policy=policy)


STAGES: tuple[Stage, ...] = (MUTATE, VALIDATE, WARN)
POLICIES: tuple[FailurePolicy, ...] = ("Fail", "Ignore")
UNKNOWN = "field-of-a-later-version"

POOL = """
dedicatedNodes:
  pools:
  - {name: a, namespaces: [team-a], groups: [team-a], taint: {key: pool, value: a}}
defaultTolerationSeconds: {notReadyTolerationSeconds: 60, failurePolicy: Fail}
extendedResourceToleration: {}
"""


@pytest.mark.parametrize(("group", "kind"), sorted(TEMPLATE_PATHS))
def test_template_of_each_workload_is_found(group: str, kind: str) -> None:
    path = TEMPLATE_PATHS[group, kind]
    template = {"metadata": {"creationTimestamp": None}, "spec": {"nodeName": "n1", "containers": None}}
    found = attributes(wire(nest(template, path), kind=kind, group=group), NAMESPACE)
    assert found is not None
    assert (found.kind, found.group, found.is_pod) == (kind, group, False)
    assert found.pod.spec.node_name == "n1"
    assert found.path == pointer(path)


def test_attributes_of_a_pod() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}
    pod = {"metadata": {"generateName": "web-", "ownerReferences": [owner]}, "spec": {"nodeSelector": {"a": "b"}}}
    old = {"metadata": {"name": "web-1"}, "spec": {}}
    found = attributes(wire(pod, old=old, subResource="ephemeralcontainers"), NAMESPACE)
    assert found is not None
    assert (found.name, found.subresource, found.operation) == ("web-", "ephemeralcontainers", "UPDATE")
    assert found.pod.spec.node_selector == {"a": "b"}
    assert found.old is not None
    assert found.old.spec.node_selector is None
    assert (found.user.username, found.user.groups) == ("alice", ("system:authenticated",))
    assert found.of_daemon_set
    assert found.controlled
    assert found.path == ""


def test_update_of_a_workload_without_a_change_of_its_template_is_not_checked() -> None:
    def deployment(replicas: int, **spec: Any) -> Any:
        return {"metadata": {"name": "web"}, "spec": {"replicas": replicas, "template": {"spec": spec}}}

    def found(new: Any, old: Any) -> Any:
        return attributes(wire(new, old=old, kind="Deployment", group="apps"), NAMESPACE)

    assert found(deployment(3, hostname="h"), deployment(1, hostname="h")).same_template
    changed = found(deployment(1, hostname="h"), deployment(1, hostname="i"))
    assert not changed.same_template
    assert changed.old.spec == changed.pod.spec
    assert changed.name == "web"


@pytest.mark.parametrize(
    "request_",
    [
        wire({"spec": {}}, operation="DELETE"),
        wire({"spec": {}}, operation="CONNECT"),
        wire({"spec": {}}, subResource="status", old={}),
        wire({"spec": {}}, subResource="resize", old={}),
        wire({"target": {"name": "n1"}}, kind="Binding", subResource="binding"),
        wire({"spec": {"hard": {}}}, kind="ResourceQuota"),
        wire({"spec": {"template": {"spec": {}}}}, kind="Deployment", group="example.com"),
        wire({"spec": {"replicas": 1}}, kind="Deployment", group="apps", subResource="scale", old={}),
        wire({"spec": {"template": None}}, kind="DeploymentConfig", group="apps.openshift.io"),
        wire({"spec": {"template": {"spec": None}}}, kind="DeploymentConfig", group="apps.openshift.io"),
        wire({"spec": None}, kind="CronJob", group="batch"),
        wire({}, kind="CronJob", group="batch"),
        wire(None),
    ],
    ids=lambda each: f"{each.operation} {each.kind.kind}/{each.sub_resource}",
)
def test_request_that_concerns_no_rule(request_: WireRequest) -> None:
    assert attributes(request_, NAMESPACE) is None
    decision = decide(Reviewer(admission_spec(POOL)), request_)
    assert (decision.review.patch, decision.review.applied) == (b"", ())


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": None, "tolerations": None, "affinity": None, "nodeName": None, "containers": None},
        {"affinity": {"nodeAffinity": None}, "tolerations": [{"key": "a", "value": None, "operator": None}]},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": None}}}},
        {"containers": [{"name": "c", "resources": None, "image": None}], "schedulingGates": None, "x": {"y": None}},
    ],
)
def test_null_is_the_same_as_a_missing_field(spec: Any) -> None:
    pod = {"metadata": {"labels": None, "name": "p", "generateName": None, "ownerReferences": None}, "spec": spec}
    found = attributes(wire(pod), NAMESPACE)
    assert found is not None
    assert (found.name, found.pod.spec.node_name, found.pod.spec.node_selector) == ("p", "", None)


def test_null_in_a_node_selector_is_an_empty_value() -> None:
    """Otherwise a custom resource could hide from PodNodeConstraints that it selects a label."""
    found = attributes(wire({"spec": {"nodeSelector": {"region": None, "disk": "ssd"}, "affinity": None}}), NAMESPACE)
    assert found is not None
    assert found.pod.spec.node_selector == {"region": "", "disk": "ssd"}


GARBAGE = [
    {"spec": {"nodeSelector": {"a": 1}}},
    {"spec": {"nodeSelector": ["a"]}},
    {"spec": {"tolerations": [None]}},
    {"spec": {"tolerations": {"key": "a"}}},
    {"spec": {"tolerations": [{"tolerationSeconds": 0.5}]}},
    {"spec": {"affinity": {"nodeAffinity": "n1"}}},
    {"spec": 3},
    {"metadata": {"ownerReferences": [{"controller": "yes"}]}, "spec": {}},
    "pod",
    [],
    {"spec": {"affinity": None, "nodeName": 1}},
]


@pytest.mark.parametrize("pod", GARBAGE)
@pytest.mark.parametrize("stage", [MUTATE, VALIDATE])
def test_object_that_cannot_be_decoded_is_refused(pod: Any, stage: Stage) -> None:
    with pytest.raises(InputError) as invalid:
        attributes(wire(pod), NAMESPACE)
    reviewer = Reviewer(admission_spec(POOL))
    for policy in POLICIES:
        decision = decide(reviewer, wire(pod), stage, policy)
        [(_, refusal)] = decision.review.refusals
        assert refusal.message == str(invalid.value)
        assert not refusal.unless_may_bind
        assert decision.review.patch == b""


def test_deeply_nested_object_is_refused() -> None:
    pod: Any = {"spec": {"x": None, "nodeName": None}}
    for _ in range(20_000):
        pod = {"x": pod}
    body = b'{"a":' * 20_000 + b"1" + b"}" * 20_000
    request = replace(wire({}), object=msgspec.Raw(b'{"spec":{"nodeName":null,"x":' + body + b"}}"))
    [(_, refusal)] = decide(Reviewer(admission_spec(POOL)), request).review.refusals
    assert "cannot be decoded" in refusal.message


def test_rules_build_on_each_other_and_are_idempotent() -> None:
    reviewer = Reviewer(admission_spec(POOL))
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}], "tolerations": []}}
    decision = decide(reviewer, wire(pod, groups=("team-a",)))
    assert decision.review.mutated == ("DefaultTolerationSeconds", "DedicatedNodes")
    assert decision.review.applied == ("DefaultTolerationSeconds", "DedicatedNodes")
    patched = apply_patch(pod, decision.review.patch)
    assert [each["key"] for each in patched["spec"]["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "pool",
    ]
    assert patched["spec"]["containers"] == [{"name": "c"}]
    again = decide(reviewer, wire(patched, groups=("team-a",)))
    assert (again.review.patch, again.review.mutated, again.review.refusals) == (b"", (), ())
    assert decide(reviewer, wire(patched, groups=("team-a",)), VALIDATE).review.refusals == ()
    [(rule, _)] = decide(reviewer, wire(patched), VALIDATE).review.refusals
    assert rule == "DedicatedNodes"


class CountingRule(RuleDefaults):
    """Counts its calls. It refuses pods that tolerate `bad`."""

    name: RuleName = "SpecialHardware"
    failure_policy: FailurePolicy = "Fail"

    def __init__(self) -> None:
        self.calls = 0
        self.error: Exception | None = None

    def mutate(self, _request: Attributes, spec: PodSpec) -> PodSpec:
        self.calls += 1
        if self.error is not None:
            raise self.error
        if any(each.key == "bad" for each in spec.tolerations or ()):
            raise Refusal("bad")
        return spec


LABELED = "specialHardware: {classes: [{name: gpu, taint: {key: gpu}, podLabels: {a: b}}]}"


def counted() -> tuple[Reviewer, CountingRule]:
    reviewer, rule = Reviewer(admission_spec(LABELED)), CountingRule()
    object.__setattr__(reviewer, "rules", (rule,))
    return reviewer, rule


def test_similar_pods_are_reviewed_once() -> None:
    """They belong to the same workload, or for example to several Jobs with the same template."""
    reviewer, rule = counted()
    for number in range(3):
        index = {"batch.kubernetes.io/job-completion-index": str(number)}
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"web-{number}", "controller": True}
        metadata = {"name": f"web-{number}", "generateName": f"web-{number}-", "labels": {"a": "b"} | index}
        pod = {"metadata": metadata | {"annotations": index, "ownerReferences": [owner]}, "spec": {"x": number}}
        extra = {"authentication.kubernetes.io/credential-id": [f"JTI={number}"]}
        user = {"username": "alice", "uid": str(number), "groups": ["team-a"], "extra": extra}
        namespace = NamespaceInfo("shop", labels=index, annotations=index)
        decision = decide(reviewer, wire(pod, uid=str(number), userInfo=user), namespace=namespace)
        assert decision.name == f"web-{number}"
    assert rule.calls == 1


@pytest.mark.parametrize(
    "other",
    [
        {"user": "system:kube-controller-manager"},
        {"groups": ("team-a",)},
        {"content": {"metadata": {"labels": {"a": "c"}}, "spec": {}}},
        {"content": {"metadata": {}, "spec": {}}},
        {"content": {"metadata": {"labels": {"a": "b"}, "ownerReferences": [{"kind": "DaemonSet"}]}, "spec": {}}},
        {"content": {"metadata": {"labels": {"a": "b"}}, "spec": {"nodeName": "n"}}},
        {"content": {"metadata": {"labels": {"a": "b"}}, "spec": {"tolerations": [{"key": "bad"}]}}},
        {"old": {"spec": {}}},
        {"namespace": NamespaceInfo("other")},
        *({"namespace": NamespaceInfo("shop", annotations={key: "x"})} for key in READ_ANNOTATIONS),
    ],
)
def test_request_that_differs_in_what_rules_get_is_reviewed_again(other: dict[str, Any]) -> None:
    reviewer, rule = counted()
    namespaces = [NAMESPACE, other.pop("namespace", NAMESPACE)]
    first: dict[str, Any] = {"content": {"metadata": {"labels": {"a": "b"}}, "spec": {}}}
    for fields, namespace in zip((first, first | other) * 2, namespaces * 2, strict=True):
        decide(reviewer, wire(**fields), namespace=namespace)
    assert rule.calls == 2


def test_cached_refusal_refers_to_no_frames() -> None:
    reviewer, rule = counted()
    pod = {"spec": {"tolerations": [{"key": "bad", "operator": "Exists"}]}}
    for _ in range(2):
        [(_, refusal)] = decide(reviewer, wire(pod)).review.refusals
        assert refusal.message == "bad"
        assert refusal.__traceback__ is None
    assert rule.calls == 1


def test_reviews_of_large_objects_are_not_cached() -> None:
    reviewer, rule = counted()
    pod = {"spec": {"containers": [{"image": "a" * MAX_CACHED}]}}
    decide(reviewer, wire(pod))
    decide(reviewer, wire(pod))
    assert rule.calls == 2


NAMESPACE_DEFAULTS = NamespaceInfo("shop", annotations={DEFAULTS_ANNOTATION: '[{"key": "a", "operator": "Exists"}]'})
DEFAULT_POLICIES = "{podTolerationRestriction: {}, defaultTolerationSeconds: {notReadyTolerationSeconds: 60}}"


def test_webhook_with_fail_applies_rules_with_ignore_that_refuse_nothing_last() -> None:
    reviewer = Reviewer(admission_spec(DEFAULT_POLICIES))
    fail = decide(reviewer, wire({"spec": {}}), namespace=NAMESPACE_DEFAULTS).review
    assert fail.mutated == fail.applied == ("PodTolerationRestriction", "DefaultTolerationSeconds")
    final = wire(apply_patch({"spec": {}}, fail.patch))
    ignore = decide(reviewer, final, policy="Ignore", namespace=NAMESPACE_DEFAULTS).review
    assert (ignore.applied, ignore.patch) == ((), b"")


def test_webhooks_in_mode_warn_report_each_change_once() -> None:
    """Neither of them gets the changes of the other one."""
    reviewer = Reviewer(admission_spec(DEFAULT_POLICIES[:-1] + ", mode: Warn}"))
    reviews = [decide(reviewer, wire({"spec": {}}), policy=each, namespace=NAMESPACE_DEFAULTS).review
               for each in POLICIES]  # fmt: skip
    assert [each.mutated for each in reviews] == [("PodTolerationRestriction",), ("DefaultTolerationSeconds",)]
    assert len({warning for each in reviews for warning in each.warnings}) == sum(
        len(each.warnings) for each in reviews
    )


def test_changes_of_a_refused_pod_are_not_counted() -> None:
    pod = {"spec": {"nodeSelector": {"pool": "b"}}}
    reviewer = Reviewer(
        admission_spec("{podNodeSelector: {clusterDefaultNodeSelector: pool=a}, defaultTolerationSeconds: {}}")
    )
    review = decide(reviewer, wire(pod)).review
    assert (review.mutated, review.applied) == ((), ("PodNodeSelector",))
    review = decide(reviewer, wire({"spec": {"tolerations": 1}})).review
    assert review.applied == ("PodNodeSelector",)


def test_failure_of_a_rule_with_ignore_refuses_no_request(caplog: pytest.LogCaptureFixture) -> None:
    reviewer, failing = Reviewer(admission_spec(DEFAULT_POLICIES)), CountingRule()
    failing.name, failing.failure_policy, failing.error = "DefaultTolerationSeconds", "Ignore", ValueError("broken")
    rules = [failing if each.name == failing.name else each for each in reviewer.rules]
    object.__setattr__(reviewer, "rules", tuple(rules))
    for calls in (1, 2):  # the review is not cached
        review = decide(reviewer, wire({"spec": {}}), namespace=NAMESPACE_DEFAULTS).review
        assert (review.mutated, review.failed) == (("PodTolerationRestriction",), ("DefaultTolerationSeconds",))
        assert review.patch
        assert failing.calls == calls
    logged = [(record.levelname, record.exc_info and record.exc_info[1]) for record in caplog.records]
    assert logged == [("ERROR", failing.error)] * 2
    assert all("DefaultTolerationSeconds" in record.getMessage() for record in caplog.records)
    with pytest.raises(ValueError, match="broken"):
        decide(reviewer, wire({"spec": {}}), policy="Ignore")
    failing.failure_policy = "Fail"
    with pytest.raises(ValueError, match="broken"):
        decide(reviewer, wire({"spec": {}}))


# --- Which webhooks apply which rules ---------------------------------------------------------------------------------

BLOCKS = {
    "podNodeSelector": "clusterDefaultNodeSelector: pool=a",
    "defaultTolerationSeconds": "notReadyTolerationSeconds: 60",
    "podTolerationRestriction": "tolerationsWhitelist: [{key: a, operator: Exists}]",
    "extendedResourceToleration": "ignoredResources: []",
    "specialHardware": "classes: [{name: g, taint: {key: g}, resources: [e.com/g], exclusive: true}]",
}
BLOCK_NAMES: tuple[RuleName, ...] = (
    "PodNodeSelector",
    "DefaultTolerationSeconds",
    "PodTolerationRestriction",
    "ExtendedResourceToleration",
    "SpecialHardware",
)
Policies = tuple[FailurePolicy | None, ...]


class Cluster:
    """The webhooks that are registered for rules with these failure policies, and a replica with the same rules."""

    def __init__(self, policies: Policies, *, exclusive: bool) -> None:
        rules = zip(BLOCKS.items(), policies, strict=True)
        text = ", ".join(f"{name}: {{failurePolicy: {each}, {block}}}" for (name, block), each in rules if each)
        spec = admission_spec("{" + (text if exclusive else text.replace(", exclusive: true", "")) + "}")
        self.scopes = {each.rule: each for each in rule_scopes(spec)}
        self.reviewer = Reviewer(spec)
        found = webhooks(spec, Endpoint(url="https://localhost"), b"")
        self.registered = {each["name"].partition(".")[0] for each in (*found.mutating, *found.validating)}

    def applied(self, reviewer: Reviewer, stage: Stage) -> list[RuleName]:
        """The rules that a replica applies when the API server calls the registered webhooks for a pod."""
        return [
            rule.name
            for policy in POLICIES
            if f"{stage}-{policy.lower()}" in self.registered
            for rule in reviewer._rules("", "Pod", stage, policy)
        ]


@cache
def clusters(*, exclusive: bool) -> dict[Policies, Cluster]:
    policies: tuple[FailurePolicy | None, ...] = (None, *POLICIES)
    return {each: Cluster(each, exclusive=exclusive) for each in product(policies, repeat=len(BLOCKS))}


@pytest.mark.parametrize("exclusive", [False, True])
def test_rule_that_may_refuse_is_applied_by_one_webhook(exclusive: bool) -> None:
    for cluster in clusters(exclusive=exclusive).values():
        for stage in (MUTATE, VALIDATE):
            applied = Counter(cluster.applied(cluster.reviewer, stage))
            for rule, scope in cluster.scopes.items():
                assert applied[rule] or not scope.resources(stage)
                assert applied[rule] <= 1 or not scope.validates


@pytest.mark.parametrize("exclusive", [False, True])
def test_change_of_a_rule_suspends_no_other_rule(exclusive: bool) -> None:
    """The API server and the replicas learn of the change at different times."""
    found = clusters(exclusive=exclusive)
    for (before, old), (number, rule) in product(found.items(), enumerate(BLOCK_NAMES)):
        for policy in {None, *POLICIES} - {before[number]}:
            new = found[(*before[:number], policy, *before[number + 1 :])]
            # A rule that refuses nothing waits for its webhook if a rule with Ignore precedes it that may refuse.
            fail, ignore = (
                [each for each in new.scopes.values() if each.failure_policy == policy] for policy in POLICIES
            )
            separate = bool(fail) and any(each.validates for each in ignore)
            for stage in (MUTATE, VALIDATE):
                applied = old.applied(new.reviewer, stage)
                for name in (old.scopes.keys() & new.scopes.keys()) - {rule}:
                    scope = new.scopes[name]
                    waits = separate and not scope.validates
                    assert name in applied or not scope.resources(stage) or waits


def test_least_recently_used_reviews_are_dropped() -> None:
    reviewer, rule = counted()
    for number in range(CACHED_REVIEWS + 1):
        decide(reviewer, wire({"spec": {"nodeName": f"n{number}"}}))
        decide(reviewer, wire({"spec": {"nodeName": "n0"}}))
    assert rule.calls == len(reviewer._reviews) + 1 == CACHED_REVIEWS + 1
    decide(reviewer, wire({"spec": {"nodeName": "n1"}}))
    assert rule.calls == CACHED_REVIEWS + 2


HARDWARE_CLASSES = "specialHardware: {{failurePolicy: Fail, classes: [{}]}}"
MANY_CLASSES = HARDWARE_CLASSES.format(
    ", ".join(
        f"{{name: c{number}, resources: [a/b], taint: {{key: k{number}}}, nodeLabel: {{key: l{number}}}}}"
        for number in range(16)
    )
)
MANY_REFUSALS = HARDWARE_CLASSES.format(
    ", ".join(f"{{name: c{number}, resources: [a/b], taint: {{key: k}}, exclusive: true}}" for number in range(3))
)


def pod_with_terms(terms: int, *, resource: str = "a/b", node: str = "", padding: int = 0) -> Any:
    required = {"nodeSelectorTerms": [{"matchFields": [{}]}] * terms}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    containers = [{"name": "a" * padding, "resources": {"requests": {resource: "1"}}}]
    spec = {"nodeName": f"\U0001f40b{node}", "containers": containers, "affinity": affinity if terms else None}
    return {"spec": spec | {"tolerations": [{"operator": "Exists"}]}}


def test_large_patches_are_not_cached() -> None:
    reviewer = Reviewer(admission_spec(MANY_CLASSES))
    request = wire(pod_with_terms(100))
    assert len(msgspec.json.encode(attributes(request, NAMESPACE))) < MAX_CACHED
    assert len(decide(reviewer, request).review.patch) > MAX_CACHED
    assert not reviewer._reviews


@pytest.mark.parametrize(
    ("rules", "stage", "resource", "terms"),
    [
        (MANY_CLASSES, MUTATE, "a/b", 2),
        (MANY_CLASSES + "\nmode: Warn", MUTATE, "a/b", 2),
        (MANY_REFUSALS, VALIDATE, "c/d", 0),
        (POOL, VALIDATE, "c/d", 0),
    ],
    ids=["patches", "warnings", "refusals", "pods"],
)
def test_cache_has_a_maximum_size(rules: str, stage: Stage, resource: str, terms: int) -> None:
    reviewer = Reviewer(admission_spec(rules))
    for padding in range(MAX_CACHED, -1, -64):
        decide(reviewer, wire(pod_with_terms(terms, resource=resource, node="0000", padding=padding)), stage)
        if reviewer._reviews:
            break  # the largest padding with which reviews are cached
    reviewer._reviews.clear()
    tracemalloc.start()
    try:
        for number in range(CACHED_REVIEWS + 10):
            pod = pod_with_terms(terms, resource=resource, node=f"{number:04}", padding=padding)
            for _ in range(2):  # a review that is used again needs no more memory
                decide(reviewer, wire(pod), stage)
        gc.collect()
        assert len(reviewer._reviews) == CACHED_REVIEWS
        assert tracemalloc.get_traced_memory()[0] < 4.5 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("mode", ["Enforce", "Warn"])
def test_reviewer_is_deleted_without_a_garbage_collection(mode: str) -> None:
    """Full collections are rare, and exclude objects that survive one from the next ones."""
    specs: list[Any] = [{}, {"nodeSelector": {"region": "x"}, "tolerations": [{"operator": "Exists"}]}]
    specs += [{"tolerations": "x"}, {**specs[1], "containers": [{"image": "a" * MAX_CACHED}]}]
    gc.collect()
    gc.disable()
    try:
        reviewer = Reviewer(admission_spec(EVERYTHING + f"mode: {mode}"))
        for spec in specs:
            for stage in STAGES:
                for policy in POLICIES:
                    decide(reviewer, wire({"spec": spec}), stage, policy)
        deleted = weakref.ref(reviewer)
        del reviewer
        assert deleted() is None
    finally:
        gc.enable()


def test_rules_of_one_failure_policy() -> None:
    reviewer = Reviewer(admission_spec(POOL))
    decision = decide(reviewer, wire({"spec": {}}, groups=("team-a",)), policy="Ignore")
    assert (decision.review.applied, decision.review.patch) == ((), b"")
    decision = decide(reviewer, wire({"spec": {}}, groups=("team-a",)), VALIDATE, policy="Ignore")
    assert decision.review.applied == ("ExtendedResourceToleration",)


@pytest.mark.parametrize("namespace", ["kube-system", "trimtab-system", "exempt"])
def test_exempt_namespace(namespace: str) -> None:
    reviewer = Reviewer(admission_spec(POOL + "exemptNamespaces: [exempt]"), own_namespace="trimtab-system")
    pods: list[Any] = [{"spec": {"tolerations": [{"operator": "Exists"}]}}, *GARBAGE]
    for pod in pods:
        for stage in (MUTATE, VALIDATE):
            decision = decide(reviewer, wire(pod), stage, namespace=NamespaceInfo(namespace))
            assert (decision.review.patch, decision.review.refusals, decision.review.mutated) == (b"", (), ())


@pytest.mark.parametrize(
    ("user", "groups", "node", "exempt"),
    [
        ("system:node:n1", ("system:nodes",), "n1", True),
        ("system:node:n1", ("system:nodes",), "n2", False),
        ("system:node:n1", (), "n1", False),
        ("alice", ("system:nodes",), "n1", False),
        ("system:node:", ("system:nodes",), "", False),
    ],
)
def test_mirror_pod_of_the_node_itself(user: str, groups: tuple[str, ...], node: str, exempt: bool) -> None:
    mirror = {
        "metadata": {"annotations": {"kubernetes.io/config.mirror": "h"}},
        "spec": {"nodeName": node, "tolerations": [{"operator": "Exists"}]},
    }
    found = attributes(wire(mirror, user=user, groups=groups), NAMESPACE)
    assert found is not None
    assert Reviewer(admission_spec(POOL)).is_exempt(found) is exempt


def test_mode_warn_changes_and_refuses_nothing(golden: Golden) -> None:
    reviewer = Reviewer(admission_spec(POOL + "mode: Warn"))
    pod = {"spec": {}}
    decision = decide(reviewer, wire(pod, groups=("team-a",)))
    assert (decision.review.patch, decision.review.refusals) == (b"", ())
    assert decision.review.mutated == ("DefaultTolerationSeconds", "DedicatedNodes")
    golden("\n".join(decision.review.warnings))
    assert decide(reviewer, wire(pod, groups=("team-a",)), VALIDATE).review.refusals == ()


def test_mode_warn_reports_refusals_once() -> None:
    whitelist = "{podTolerationRestriction: {tolerationsWhitelist: [{key: a, operator: Exists}]}, mode: Warn}"
    reviewer = Reviewer(admission_spec(whitelist))
    pod = {"spec": {"tolerations": [msgspec.to_builtins(toleration("b"))]}}
    assert decide(reviewer, wire(pod)).review.refusals == ()
    [(rule, _)] = decide(reviewer, wire(pod), VALIDATE).review.refusals
    assert rule == "PodTolerationRestriction"


# --- Properties of all rules together ---------------------------------------------------------------------------------

EVERYTHING = """
podNodeConstraints:
  nodeSelectorLabelBlacklist: [region, pool]
  additionalChecks: [NodeAffinity, Tolerations, GatedPodUpdates, EphemeralContainers, DaemonSets]
  protectedTaints: [{key: pool}, {key: example.com/gpu}, {key: special}]
podNodeSelector: {clusterDefaultNodeSelector: "region=us-east,os=linux"}
defaultTolerationSeconds: {notReadyTolerationSeconds: 60, failurePolicy: Fail}
podTolerationRestriction:
  defaultTolerations: [{key: maintenance, operator: Exists}]
  tolerationsWhitelist: [{key: a, operator: Exists}, {key: maintenance, operator: Exists}]
extendedResourceToleration: {failurePolicy: Fail}
dedicatedNodes:
  pools:
  - {name: a, groups: [team-a], taint: {key: pool, value: a}}
  - {name: b, namespaces: [shop], taint: {key: pool, value: b}}
specialHardware:
  classes:
  - {name: gpu, resources: [example.com/gpu], podLabels: {accelerator: gpu}, taint: {key: special},
     nodeLabel: {key: gpu}, exclusive: true}
"""
CONTAINERS = st.sampled_from([[], [container()], [container(requests={"example.com/gpu": "1", "cpu": "1"})]])
RAW_TOLERATIONS = st.sampled_from(
    [
        *({"key": key, "operator": "Exists", "effect": "NoSchedule", UNKNOWN: 1} for key in ("a", "b", "pool")),
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        {"operator": "Exists", UNKNOWN: 1},
    ]
)
EXPRESSIONS = st.lists(
    st.builds(
        lambda key: {"key": key, "operator": "In", "values": ["x"], UNKNOWN: 1}, st.sampled_from(["region", "disk"])
    ),
    max_size=2,
)
RAW_TERMS = st.fixed_dictionaries({UNKNOWN: st.just(1)}, optional={"matchExpressions": st.none() | EXPRESSIONS})
RAW_AFFINITY = st.fixed_dictionaries(
    {UNKNOWN: st.just(1)},
    optional={
        "podAffinity": st.just({UNKNOWN: 1}),
        "nodeAffinity": st.fixed_dictionaries(
            {UNKNOWN: st.just(1)},
            optional={
                "requiredDuringSchedulingIgnoredDuringExecution": st.fixed_dictionaries(
                    {"nodeSelectorTerms": st.lists(RAW_TERMS, min_size=1, max_size=2)}
                )
            },
        ),
    },
)
RAW_SPECS = st.fixed_dictionaries(
    {"containers": CONTAINERS, UNKNOWN: st.just([1, {"a": None}])},
    optional={
        "nodeSelector": st.none() | st.dictionaries(st.sampled_from(["os", "region", "disk"]), st.just("linux")),
        "tolerations": st.none() | st.lists(RAW_TOLERATIONS, max_size=4),
        "affinity": st.none() | RAW_AFFINITY,
    },
)
KINDS = st.sampled_from([("", "Pod"), ("apps", "DaemonSet"), ("batch", "CronJob"), ("apps", "Deployment")])
GROUPS = st.sampled_from([(), ("team-a",)])
NAMESPACES = st.sampled_from([NAMESPACE, NamespaceInfo("other")])


def without(value: Any, *keys: str) -> Any:
    return {name: each for name, each in value.items() if name not in keys}


def unknown_fields(value: Any) -> int:
    """The number of fields that are not decoded."""
    if isinstance(value, dict):
        return (UNKNOWN in value) + sum(map(unknown_fields, value.values()))
    return sum(map(unknown_fields, value)) if isinstance(value, list) else 0


@settings(max_examples=300)
@given(spec=RAW_SPECS, kind=KINDS, groups=GROUPS, namespace=NAMESPACES)
def test_mutation_is_idempotent_exact_and_valid(
    spec: Any, kind: tuple[str, str], groups: tuple[str, ...], namespace: NamespaceInfo
) -> None:
    reviewer = Reviewer(admission_spec(EVERYTHING))
    path = TEMPLATE_PATHS.get(kind, ())
    metadata = {"labels": {"a": "b"}}

    def review(content: Any, stage: Stage) -> Decision:
        template = {"metadata": metadata, "spec": content}
        of = wire(nest(template, path), group=kind[0], kind=kind[1], groups=groups, namespace=namespace.name)
        return decide(reviewer, of, stage, namespace=namespace)

    decision = review(spec, MUTATE)
    patched = apply_patch(nest({"metadata": metadata, "spec": spec}, path), decision.review.patch)
    template = patched
    for part in path:
        template = template[part]
    found = template["spec"]

    # The patch produces what the rules have decided, and changes nothing else.
    before, after = (
        attributes(wire(each, group=kind[0], kind=kind[1], groups=groups, namespace=namespace.name), namespace)
        for each in (nest({"metadata": metadata, "spec": spec}, path), patched)
    )
    assert before is not None
    assert after is not None
    decided, _ = reviewer.mutate(before, reviewer.rules, failure_policy="Fail")
    assert (after.pod.spec.tolerations or ()) == (decided.tolerations or ())
    assert (after.pod.spec.node_selector or {}) == (decided.node_selector or {})
    assert after.pod.spec.node_affinity == decided.node_affinity
    changed = ("nodeSelector", "tolerations", "affinity")
    assert without(found, *changed) == without(spec, *changed)
    assert without(found.get("affinity") or {}, "nodeAffinity") == without(spec.get("affinity") or {}, "nodeAffinity")
    assert unknown_fields(without(found, "tolerations")) == unknown_fields(without(spec, "tolerations"))
    assert template["metadata"] == metadata

    # A second call changes nothing.
    again = review(found, MUTATE)
    assert (again.review.patch, again.review.mutated) == (b"", ())
    assert [rule for rule, _ in again.review.refusals] == [rule for rule, _ in decision.review.refusals]

    # What the rules have changed is valid. A user's own choice may not be.
    if not decision.review.refusals:
        refusing = {rule for rule, _ in review(found, VALIDATE).review.refusals}
        assert refusing <= {"PodNodeConstraints", "DedicatedNodes", "SpecialHardware"}
        assert not refusing or without(spec, "containers", UNKNOWN)


@given(spec=RAW_SPECS, groups=GROUPS)
def test_mode_warn_finds_the_same_refusals(spec: Any, groups: tuple[str, ...]) -> None:
    """Mode Warn refuses in the validating webhook what mode Enforce refuses in both."""
    enforce, warn = Reviewer(admission_spec(EVERYTHING)), Reviewer(admission_spec(EVERYTHING + "mode: Warn"))
    of = wire({"spec": spec}, groups=groups)
    mutated = decide(enforce, of)
    expected = {rule for rule, _ in mutated.review.refusals}
    final = wire(apply_patch({"spec": spec}, mutated.review.patch), groups=groups)
    expected |= {rule for rule, _ in decide(enforce, final, VALIDATE).review.refusals}
    assert {rule for rule, _ in decide(warn, of, VALIDATE).review.refusals} == expected


# --- Fields that rules do not get -------------------------------------------------------------------------------------

READ = frozenset({*READ_ANNOTATIONS, "accelerator"})


class AnyEntry(dict[str, Any]):
    """Has an entry for each key that no rule reads, so that the result of a rule that reads one differs."""

    def __contains__(self, key: object) -> bool:
        return key not in READ or super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key) if key in READ else "x"

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key, default) if key in READ else "x"


def with_any_entry(metadata: Metadata) -> Metadata:
    labels, annotations = AnyEntry(metadata.labels or {}), AnyEntry(metadata.annotations or {})
    return replace(metadata, labels=labels, annotations=annotations)


def results(review: Review) -> Any:
    refusals = [(rule, refusal.message, refusal.unless_may_bind) for rule, refusal in review.refusals]
    return refusals, review.warnings, review.mutated, review.applied, review.patch


@settings(max_examples=200, deadline=None)
@given(
    mode=st.sampled_from(["Enforce", "Warn"]),
    kind=KINDS,
    spec=RAW_SPECS,
    old=st.none() | RAW_SPECS,
    subresource=st.sampled_from(["", "", "ephemeralcontainers"]),
    labels=st.sampled_from([{}, {"accelerator": "gpu"}]),
    owner=st.sampled_from([{"kind": "ReplicaSet"}, {"kind": "DaemonSet", "controller": True}]),
    user=st.sampled_from(["alice", "system:kube-controller-manager", "system:node:n1"]),
    groups=st.sampled_from([(), ("team-a",), ("system:nodes",)]),
    namespace=st.sampled_from(["shop", "other"]),
    annotations=st.dictionaries(
        st.sampled_from(READ_ANNOTATIONS), st.sampled_from(["", "region=us-east", "[]", '[{"key": "a"}]']), max_size=2
    ),
)
def test_reviews_depend_on_no_dropped_field(
    mode: str,
    kind: tuple[str, str],
    spec: Any,
    old: Any,
    subresource: str,
    labels: dict[str, str],
    owner: dict[str, Any],
    user: str,
    groups: tuple[str, ...],
    namespace: str,
    annotations: dict[str, str],
) -> None:
    """The rules decide the same about a request with all of its fields. A second, similar request is not reviewed."""
    reviewer = Reviewer(admission_spec(EVERYTHING + f"mode: {mode}"))
    assert {each.name for each in reviewer._rules(*kind, VALIDATE, "Fail")} == set(get_args(RuleName))
    reviewed: dict[Stage, Review] = {}
    for number in ("1", "2"):
        metadata = {"name": f"web-{number}", "generateName": f"web-{number}-", "annotations": {"index": number}}
        metadata |= {"labels": labels | {"index": number}, "ownerReferences": [owner | {"name": f"web-{number}"}]}
        new, before = (
            None if each is None else nest({"metadata": metadata, "spec": each}, TEMPLATE_PATHS.get(kind, ()))
            for each in (spec, old)
        )
        of = wire(
            new,
            old=before,
            group=kind[0],
            kind=kind[1],
            subResource=subresource if kind[1] == "Pod" and old else "",
            userInfo={"username": user, "uid": number, "groups": groups, "extra": {"id": [number]}},
            namespace=namespace,
        )
        info = NamespaceInfo(namespace, {"index": number}, annotations | {"index": number})
        found = attributes(of, info)
        assert found is not None
        found = replace(
            found,
            namespace=NamespaceInfo(namespace, AnyEntry(info.labels), AnyEntry(info.annotations)),
            user=replace(found.user, extra=AnyEntry(found.user.extra)),
            pod=replace(found.pod, metadata=with_any_entry(found.pod.metadata)),
            old=None if found.old is None else replace(found.old, metadata=with_any_entry(found.old.metadata)),
        )
        for stage in STAGES:
            review = decide(reviewer, of, stage, namespace=info).review
            assert results(review) == results(reviewer._review(found, reviewer.rules, stage, "Fail"))
            many = len(review.refusals) > 3  # so they are not cached
            assert reviewed.setdefault(stage, review) is review or many


FIELDS = (
    *("spec", "metadata", "template", "jobTemplate", "tolerations", "affinity", "nodeAffinity", "nodeSelector", "key"),
    *("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms", "matchExpressions", "values", "effect"),
    *("ownerReferences", "annotations", "containers", "resources", "requests", "schedulingGates", "tolerationSeconds"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=12,
)
ANNOTATIONS = st.dictionaries(
    st.sampled_from(
        [
            "scheduler.alpha.kubernetes.io/node-selector",
            "scheduler.alpha.kubernetes.io/defaultTolerations",
            "scheduler.alpha.kubernetes.io/tolerationsWhitelist",
            "openshift.io/node-selector",
        ]
    ),
    st.text(max_size=8) | JSON.map(lambda each: msgspec.json.encode(each).decode()),
)


@settings(max_examples=300)
@given(
    content=JSON | st.fixed_dictionaries({"spec": JSON, "metadata": JSON}),
    old=JSON,
    kind=KINDS,
    subresource=st.sampled_from(["", "ephemeralcontainers"]),
    annotations=ANNOTATIONS,
)
def test_garbage_is_refused_or_reviewed(
    content: Any, old: Any, kind: tuple[str, str], subresource: str, annotations: dict[str, str]
) -> None:
    """Whatever a tenant writes, there is a decision; an error would let the failure policy decide."""
    reviewer = Reviewer(admission_spec(EVERYTHING))
    of = wire(content, oldObject=old, group=kind[0], kind=kind[1], subResource=subresource)
    for operation in ("CREATE", "UPDATE"):
        for stage in (MUTATE, VALIDATE):
            sent = replace(of, operation=operation)
            decision = decide(reviewer, sent, stage, namespace=NamespaceInfo("shop", annotations=annotations))
            assert isinstance(msgspec.json.decode(decision.review.patch or b"[]"), list)
            assert all(refusal.message for _, refusal in decision.review.refusals)
