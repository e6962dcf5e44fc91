"""PodNodeSelector: the unit tests of Kubernetes' podnodeselector and OpenShift's nodeenv, and our own.

The cases of ``TestPodAdmission`` of k8s.io/kubernetes v1.36 ``plugin/pkg/admission/podnodeselector`` (11) and of
openshift/origin ``pkg/scheduler/admission/nodeenv`` (8) have the names that they have there. ``TestHandles`` is the
same in both (4 operations): creations, and no updates, connections and deletions.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.admission_requests import NAMESPACE, admission_spec, mutate, refusals, request, wire
from tests.fixtures.golden import Golden
from tests.json_patch import apply_patch
from trimtab.admission.patch import json_patch
from trimtab.admission.requests import CREATE, Attributes, NamespaceInfo, PodSpec
from trimtab.admission.reviewer import Reviewer
from trimtab.admission.rule_scopes import MUTATE, VALIDATE
from trimtab.admission.rules import Refusal
from trimtab.admission.rules.node_selector import (
    CONFLICT,
    KUBERNETES_ANNOTATION,
    NOT_EXTENDED,
    OPENSHIFT_ANNOTATION,
    PROJECT_CONFLICT,
    PROJECT_NOT_EXTENDED,
    WHITELIST_CONFLICT,
    PodNodeSelectorRule,
)
from trimtab.api.placement_admission import PodNodeSelector
from trimtab.kube.errors import InputError

DAEMON_SET_CONTROLLER = "system:serviceaccount:kube-system:daemon-set-controller"
OWNED = {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": True}]}
ABSENT = None

LABELS = st.dictionaries(st.sampled_from(["env", "infra", "region"]), st.sampled_from(["a", "b"]), max_size=3)


def text(labels: dict[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())


def rule(default: str = "", whitelist: str = "", **fields: Any) -> PodNodeSelectorRule:
    return PodNodeSelectorRule(
        PodNodeSelector(
            cluster_default_node_selector=default,
            namespace_whitelists={"default": whitelist} if whitelist else {},
            **fields,
        )
    )


def pod(selector: dict[str, str] | None = None, **fields: Any) -> Attributes:
    return request(PodSpec(node_selector=selector), **fields)


def validated(tested: PodNodeSelectorRule, of: Attributes, selector: dict[str, str] | None) -> list[str]:
    final = replace(of, pod=replace(of.pod, spec=PodSpec(node_selector=selector)))
    return [refusal.message for refusal in tested.validate(final)]


# name, cluster default, annotation of the namespace, whitelist, pod, merged (or the message of the refusal)
KUBERNETES = [
    ("No node selectors", "", ABSENT, "", {}, {}),
    ("Default node selector and no conflicts", "infra = false", ABSENT, "", {}, {"infra": "false"}),
    (
        "TestNamespace node selector with whitespaces and no conflicts",
        "", " infra = false ", "", {}, {"infra": "false"},
    ),
    ("Default and namespace node selector, no conflicts", "infra = false", "infra=true", "", {}, {"infra": "true"}),
    ("Empty namespace node selector and no conflicts", "infra = false", "", "", {}, {}),
    (
        "TestNamespace and pod node selector, no conflicts",
        "infra = false", "infra=true", "", {"env": "test"}, {"infra": "true", "env": "test"},
    ),
    (
        "Conflicting pod and namespace node selector, one label",
        "env = test", "infra=true", "", {"infra": "false"}, CONFLICT,
    ),
    (
        "Conflicting pod and namespace node selector, multiple labels",
        "env=dev", "infra=false, env = test", "", {"env": "dev", "color": "blue"}, CONFLICT,
    ),
    (
        "Merged pod node selectors satisfy the whitelist",
        "env=dev", "infra=false, env = dev", "env=dev, infra=false, color=blue", {"env": "dev", "color": "blue"},
        {"infra": "false", "env": "dev", "color": "blue"},
    ),
    (
        "Merged pod node selectors conflict with the whitelist",
        "env=dev", "infra=false, env = dev", "env=dev, infra=true, color=blue", {"env": "dev", "color": "blue"},
        WHITELIST_CONFLICT,
    ),
    ("Default node selector conflict with the whitelist", "env=dev", ABSENT, "env=prd", {}, WHITELIST_CONFLICT),
]  # fmt: skip


@pytest.mark.parametrize(
    ("default", "annotation", "whitelist", "selector", "expected"),
    [case[1:] for case in KUBERNETES],
    ids=[case[0] for case in KUBERNETES],
)
def test_podnodeselector(default: str, annotation: str | None, whitelist: str, selector: Any, expected: Any) -> None:
    tested = rule(default, whitelist)
    of = pod(selector, annotations={} if annotation is None else {KUBERNETES_ANNOTATION: annotation})
    if isinstance(expected, str):
        with pytest.raises(Refusal) as refused:
            mutate(tested, of)
        assert (refused.value.message, refused.value.unless_may_bind) == (expected, False)
        assert validated(tested, of, selector) == [expected]
    else:
        merged = mutate(tested, of).node_selector
        assert merged == expected
        assert validated(tested, of, merged) == []


# name, default, annotation of the project, pod, merged, admitted
OPENSHIFT = [
    ("No node selectors", "", ABSENT, {}, {}, True),
    ("Default node selector and no conflicts", "infra = false", ABSENT, {}, {"infra": "false"}, True),
    ("Project node selector and no conflicts", "", "infra = false", {}, {"infra": "false"}, True),
    ("Empty project node selector and no conflicts", "infra = false", "", {}, {}, True),
    ("Default and project node selector, no conflicts", "infra = false", "infra=true", {}, {"infra": "true"}, True),
    (
        "Project and pod node selector, no conflicts",
        "infra = false", "infra=true", {"env": "test"}, {"infra": "true", "env": "test"}, True,
    ),
    (
        "Conflicting pod and project node selector, one label",
        "env = test", "infra=true", {"infra": "false"}, {"infra": "false"}, False,
    ),
    (
        "Conflicting pod and project node selector, multiple labels",
        "env=dev", "infra=false, env = test", {"env": "dev", "color": "blue"}, {"env": "dev", "color": "blue"}, False,
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("default", "annotation", "selector", "merged", "admitted"),
    [case[1:] for case in OPENSHIFT],
    ids=[case[0] for case in OPENSHIFT],
)
def test_nodeenv(default: str, annotation: str | None, selector: Any, merged: Any, admitted: bool) -> None:
    tested = rule(default)
    of = pod(selector, annotations={} if annotation is None else {OPENSHIFT_ANNOTATION: annotation})
    if admitted:
        assert mutate(tested, of).node_selector == merged
        assert validated(tested, of, merged) == []
    else:
        with pytest.raises(Refusal) as refused:
            mutate(tested, of)
        assert refused.value.message == PROJECT_CONFLICT
    if annotation:
        first = annotation.split("=")[0].strip()
        without = {key: value for key, value in merged.items() if key != first}
        expected = PROJECT_CONFLICT if without.get("env") == "dev" else PROJECT_NOT_EXTENDED
        assert validated(tested, of, without) == [expected]


@pytest.mark.parametrize(
    ("operation", "handled"), [("CREATE", True), ("UPDATE", False), ("CONNECT", False), ("DELETE", False)]
)
def test_handles(operation: str, handled: bool) -> None:
    pod = {"spec": {"nodeSelector": {"infra": "false"}}}
    of = wire(pod, operation=operation, oldObject=None if operation == "CREATE" else pod)
    reviewer = Reviewer(admission_spec("podNodeSelector: {clusterDefaultNodeSelector: infra=true}"))
    for stage in (MUTATE, VALIDATE):
        review = reviewer.decide(of, NAMESPACE, stage=stage, failure_policy="Fail").review
        assert [refusal.message for _, refusal in review.refusals] == [CONFLICT] * handled


@pytest.mark.parametrize("default", ["", "infra=true"])
def test_node_selector_that_another_webhook_removes_is_missed(default: str) -> None:
    annotations = {} if default else {KUBERNETES_ANNOTATION: "infra=true"}
    of = pod({}, annotations=annotations)
    assert validated(rule(default), of, {"env": "test"}) == [NOT_EXTENDED]
    assert validated(rule(default), of, {"env": "test", "infra": "true"}) == []


@pytest.mark.parametrize(
    ("kubernetes", "openshift", "merged"),
    [
        ("infra=true", "region=west", {"infra": "true"}),
        ("", "region=west", None),
        (ABSENT, "region=west", {"region": "west"}),
        (ABSENT, "", None),
        (ABSENT, ABSENT, {"env": "test"}),
    ],
)
def test_first_annotation_that_exists_decides(kubernetes: str | None, openshift: str | None, merged: Any) -> None:
    given = {KUBERNETES_ANNOTATION: kubernetes, OPENSHIFT_ANNOTATION: openshift}
    of = pod(annotations={key: value for key, value in given.items() if value is not None})
    assert mutate(rule("env=test"), of).node_selector == merged


@pytest.mark.parametrize("key", [KUBERNETES_ANNOTATION, OPENSHIFT_ANNOTATION])
@pytest.mark.parametrize(
    "annotation", ["infra", " ", "infra==true", "infra=true,", "infra!=true", "in fra=true", "infra in (true)", "=x"]
)
def test_invalid_annotation_refuses_pods(key: str, annotation: str) -> None:
    of = pod({"infra": "true"}, annotations={key: annotation})
    with pytest.raises(Refusal) as refused:
        mutate(rule(), of)
    assert key in refused.value.message
    assert validated(rule(), of, {"infra": "true"}) == [refused.value.message]


def test_invalid_annotation_is_quoted(golden: Golden) -> None:
    with pytest.raises(Refusal) as refused:
        mutate(rule(), pod(annotations={KUBERNETES_ANNOTATION: "infra!=true"}))
    golden(refused.value.message)


def test_long_annotation_is_parsed() -> None:
    many = {f"key-{number}": "value" for number in range(2_000)}
    assert mutate(rule(), pod(annotations={KUBERNETES_ANNOTATION: text(many)})).node_selector == many


def test_invalid_configuration() -> None:
    with pytest.raises(InputError, match="must be key=value pairs"):
        rule("infra")
    with pytest.raises(InputError, match="must be key=value pairs"):
        rule(whitelist="infra")


@pytest.mark.parametrize("whitelist", ["", "infra=true,env=test"])
def test_whitelist_of_another_namespace_does_not_matter(whitelist: str) -> None:
    of = replace(pod({"region": "west"}), namespace=NamespaceInfo("other"))
    assert mutate(rule("infra=true", whitelist), of).node_selector == {"infra": "true", "region": "west"}


@pytest.mark.parametrize(
    ("old", "new", "check", "expected"),
    [
        ({}, {}, True, {}),
        ({"infra": "false"}, {"infra": "false"}, True, {"infra": "false"}),
        (None, {}, True, {}),
        ({}, {"env": "test"}, True, {"env": "test", "infra": "true"}),
        ({}, {"env": "test"}, False, {"env": "test"}),
        ({}, {"infra": "false"}, True, CONFLICT),
        ({}, {"infra": "false"}, False, {"infra": "false"}),
    ],
)
def test_update_is_checked_if_it_changes_the_node_selector(old: Any, new: Any, check: bool, expected: Any) -> None:
    tested = rule("infra=true", check_updates=check)
    of = pod(new, old=PodSpec(node_selector=old))
    if isinstance(expected, str):
        with pytest.raises(Refusal, match=expected):
            mutate(tested, of)
        assert [each.message for each in tested.validate(of)] == [expected]
    else:
        assert mutate(tested, of).node_selector == expected


@pytest.mark.parametrize(
    "fields", [{"subresource": "ephemeralcontainers"}, {"kind": "Deployment"}, {"kind": "DaemonSet"}]
)
def test_only_pods_are_changed(fields: Any) -> None:
    of = pod({"infra": "false"}, **fields)
    assert mutate(rule("infra=true"), of) is of.pod.spec
    assert list(rule("infra=true").validate(of)) == []


@pytest.mark.parametrize(
    ("user", "metadata", "exempt"),
    [
        (DAEMON_SET_CONTROLLER, OWNED, True),
        ("system:kube-controller-manager", OWNED, True),
        (DAEMON_SET_CONTROLLER, {}, False),
        ("alice", OWNED, False),
        ("system:serviceaccount:default:daemon-set-controller", OWNED, False),
    ],
)
def test_exempt_daemon_set_pods(user: str, metadata: Any, exempt: bool) -> None:
    of = pod({"infra": "false"}, user=user, metadata=metadata)
    exempting, other = rule("infra=true", exempt_daemon_set_pods=True), rule("infra=true")
    assert [each.message for each in exempting.validate(of)] == ([] if exempt else [CONFLICT])
    assert [each.message for each in other.validate(of)] == [CONFLICT]


@pytest.mark.parametrize(
    ("kind", "selector", "fields", "part"),
    [
        ("DaemonSet", {}, {}, "the node selector env=test,infra=true of namespace default"),
        ("DaemonSet", {"infra": "true"}, {}, "the node selector env=test of namespace default"),
        ("DaemonSet", {"infra": "false"}, {}, "pods of this DaemonSet will be refused in namespace default: pod node"),
        ("DaemonSet", {"env": "test", "infra": "true"}, {}, ""),
        ("DaemonSet", {}, {"old": PodSpec()}, "again and again"),
        ("DaemonSet", {}, {"old": PodSpec(), "same_template": True}, ""),
        ("Deployment", {}, {}, ""),
        ("Deployment", {"infra": "false"}, {}, f"Deployment will be refused in namespace default: {CONFLICT}"),
        ("CronJob", {"region": "west"}, {}, WHITELIST_CONFLICT),
        ("ReplicaSet", {"infra": "false"}, {"user": "system:serviceaccount:kube-system:deployment-controller"}, ""),
        ("Deployment", {}, {"annotations": {KUBERNETES_ANNOTATION: "x"}}, "is invalid"),
        ("Pod", {"infra": "false"}, {}, ""),
    ],
)  # fmt: skip
def test_warnings_about_templates(kind: str, selector: Any, fields: Any, part: str) -> None:
    of = pod(selector, kind=kind, **fields)
    found = list(rule("infra=true,env=test", "infra=true,env=test").warnings(of))
    assert [part in each for each in found] == ([True] if part else [])


def test_no_warning_if_daemon_set_pods_are_exempt() -> None:
    assert list(rule("infra=true", exempt_daemon_set_pods=True).warnings(pod({}, kind="DaemonSet"))) == []


@given(default=LABELS, annotation=st.none() | LABELS, whitelist=LABELS, selector=st.none() | LABELS)
def test_what_mutate_makes_of_a_pod_is_valid(default: Any, annotation: Any, whitelist: Any, selector: Any) -> None:
    tested = rule(text(default), text(whitelist))
    of = pod(selector, annotations={} if annotation is None else {KUBERNETES_ANNOTATION: text(annotation)})
    raw = {"spec": {"x": 1, **({} if selector is None else {"nodeSelector": selector})}}
    found = refusals(tested, of)
    if found:
        assert validated(tested, of, selector) == [each.message for each in found]
        return
    changed = mutate(tested, of)
    assert validated(tested, of, changed.node_selector) == []
    patched = apply_patch(raw, json_patch(of.pod.spec, changed))
    assert (patched["spec"].pop("nodeSelector", None) or {}) == (changed.node_selector or {})
    assert patched == {"spec": {"x": 1}}


def test_seed_example() -> None:
    """Chapter 16.5.4: the default, the whitelist and the annotation of the namespace ns1."""
    spec = admission_spec(
        """
        podNodeSelector:
          clusterDefaultNodeSelector: k3=v3
          namespaceWhitelists: {ns1: "region=west,env=test,infra=fedora,os=fedora"}
        """
    )
    assert spec.pod_node_selector is not None
    tested = PodNodeSelectorRule(spec.pod_node_selector)
    namespace = NamespaceInfo("ns1", annotations={KUBERNETES_ANNOTATION: "env=test,infra=fedora"})

    def create(**selector: str) -> Any:
        return replace(pod(dict(selector)), namespace=namespace, operation=CREATE)

    merged = {"env": "test", "infra": "fedora", "os": "fedora"}
    assert mutate(tested, create(env="test", os="fedora")).node_selector == merged
    with pytest.raises(Refusal, match=WHITELIST_CONFLICT):
        mutate(tested, create(region="east"))
    assert msgspec.json.encode(json_patch(PodSpec(), mutate(tested, create()))) == (
        b'[{"op":"add","path":"/spec/nodeSelector","value":{"env":"test","infra":"fedora"}}]'
    )
