"""The audit of existing objects: who counts as their creator, and how the results of pods are summed up."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from tests.fixtures.golden import Golden
from trimtab.admission.audit import KINDS, ORDINARY_USER, Audit, AuditResult, decode
from trimtab.admission.requests import Attributes, PodSpec
from trimtab.admission.rules import Refusal
from trimtab.admission.rules.dedicated_nodes import DedicatedNodesRule
from trimtab.admission.rules.node_selector import CONFLICT, PodNodeSelectorRule
from trimtab.admission.rules.toleration_seconds import DefaultTolerationSecondsRule
from trimtab.api.placement_admission import DedicatedNodes, DefaultTolerationSeconds, PodNodeSelector, RuleName
from trimtab.api.plan import Mutate, PlannedToleration, Refuse
from trimtab.api.reasons import ADMISSION_WARNED
from trimtab.kube.errors import InputError

POOLS = msgspec.convert(
    {"pools": [{"name": "a", "namespaces": ["a"], "taint": {"key": "dedicated", "value": "a"}}]}, DedicatedNodes
)
DEDICATED = DedicatedNodesRule(POOLS)
SECONDS = DefaultTolerationSecondsRule(DefaultTolerationSeconds(60, 60))
OWN = {"key": "dedicated", "operator": "Equal", "value": "a", "effect": "NoSchedule"}


class NodeNameRule:
    """Refuses node names and records who asks."""

    name: RuleName = "PodNodeConstraints"
    failure_policy = "Fail"

    def __init__(self) -> None:
        self.seen: list[Attributes] = []

    def mutate(self, request: Attributes, spec: PodSpec) -> PodSpec:
        self.seen.append(request)
        return spec

    def validate(self, request: Attributes) -> Iterable[Refusal]:
        if request.pod.spec.node_name:
            yield Refusal("by name", unless_may_bind=True)

    def warnings(self, request: Attributes) -> Iterable[str]:
        return ()


def owned(kind: str, name: str) -> list[dict[str, Any]]:
    return [{"apiVersion": "v1", "kind": kind, "name": name, "uid": "1", "controller": True}]


def made(kind: str, name: str, namespace: str = "shop", owner: Any = None, **more: Any) -> tuple[str, dict[str, Any]]:
    metadata = {"name": name, "namespace": namespace} | ({"ownerReferences": owner} if owner else {})
    return kind, {"metadata": metadata | more.pop("metadata", {}), **more}


def pod(name: str, namespace: str = "shop", owner: Any = None, phase: str = "Running", **spec: Any) -> Any:
    metadata = spec.pop("metadata", {})
    return made("Pod", name, namespace, owner, metadata=metadata, spec=spec, status={"phase": phase} if phase else {})


def workload(kind: str, name: str, namespace: str = "shop", owner: Any = None, **spec: Any) -> Any:
    template = {"template": {"spec": spec}}
    if kind == "CronJob":
        return made(kind, name, namespace, owner, spec={"jobTemplate": {"spec": template}})
    return made(kind, name, namespace, owner, **(template if kind == "PodTemplate" else {"spec": template}))


def audited(*objects: tuple[str, dict[str, Any]], rules: Any = (DEDICATED,), exempt: Any = ()) -> AuditResult:
    audit = Audit(rules, exempt=exempt)
    for kind in KINDS:
        for each, manifest in objects:
            if each == kind:
                audit.add(decode(kind, manifest))
    return audit.result()


def summary(result: AuditResult) -> list[tuple[str, str, str, int]]:
    return [(type(each).__name__, each.kind, f"{each.namespace}/{each.name}", each.pods) for each in result.admissions]


CLAIMS = {"tolerations": [OWN]}


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"Namespace", "Pod"}))
def test_template_of_every_kind_is_reported_once(kind: str) -> None:
    (refusal,) = audited(workload(kind, "web", **CLAIMS)).admissions
    assert isinstance(refusal, Refuse)
    assert (refusal.kind, refusal.namespace, refusal.name, refusal.pods) == (kind, "shop", "web", 0)
    reason = "RequiresPodsBinding" if kind == "DaemonSet" else "AdmissionRefused"
    assert (refusal.rule, refusal.reason) == ("DedicatedNodes", reason)


def test_pods_are_counted_for_the_workload_at_the_top() -> None:
    deployment = workload("Deployment", "web", **CLAIMS)
    replicas = [workload("ReplicaSet", f"web-{each}", owner=owned("Deployment", "web"), **CLAIMS) for each in "ab"]
    pods = [pod(f"web-a-{each}", owner=owned("ReplicaSet", "web-a"), **CLAIMS) for each in range(3)]
    pods += [pod("web-b-0", owner=owned("ReplicaSet", "web-b"), **CLAIMS), pod("bare", **CLAIMS)]

    result = audited(deployment, *replicas, *pods)

    assert summary(result) == [("Refuse", "Deployment", "shop/web", 4), ("Refuse", "Pod", "shop/bare", 0)]
    assert result.admissions[0].message.endswith("(4 pods)")
    assert audited(*replicas, *pods).admissions[0].pods == 4  # the Deployment is known only by reference


def test_pods_of_a_cron_job_are_counted_for_it() -> None:
    cron = workload("CronJob", "nightly")
    job = workload("Job", "nightly-1", owner=owned("CronJob", "nightly"))
    result = audited(cron, job, pod("nightly-1-x", owner=owned("Job", "nightly-1"), **CLAIMS))
    assert summary(result) == [("Refuse", "CronJob", "shop/nightly", 1)]


def test_result_of_pods_alone_is_reported_for_their_workload() -> None:
    defaults = [
        {"key": f"node.kubernetes.io/{each}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for each in ("not-ready", "unreachable")
    ]
    daemons = workload("DaemonSet", "agent")
    pods = [pod(f"agent-{each}", owner=owned("DaemonSet", "agent"), tolerations=defaults) for each in range(2)]

    (change,) = audited(daemons, *pods, rules=(SECONDS,)).admissions

    assert isinstance(change, Mutate)
    assert (change.kind, change.name, change.pods, change.reason) == ("DaemonSet", "agent", 2, "AdmissionMutated")
    added = PlannedToleration("node.kubernetes.io/not-ready", "Exists", "", "NoExecute", 60)
    assert change.tolerations[0] == added
    assert change.removed_tolerations[0].seconds == 300


def test_workload_without_pods_is_reported_if_its_pods_would_be_refused() -> None:
    rule = PodNodeSelectorRule(PodNodeSelector(cluster_default_node_selector="region=west"))
    kinds = ("CronJob", "DaemonSet", "Deployment", "PodTemplate", "StatefulSet")
    conflicting = [workload(kind, "web", nodeSelector={"region": "east"}) for kind in kinds]
    fitting = [workload(kind, "fits") for kind in kinds]

    result = audited(*conflicting, *fitting, rules=(rule,))

    assert summary(result) == [("Refuse", kind, "shop/web", 0) for kind in kinds if kind != "PodTemplate"]
    assert {each.message for each in result.admissions} == {CONFLICT}


def test_change_lists_toleration_and_affinity(golden: Golden) -> None:
    (change,) = audited(workload("Deployment", "web", "a")).admissions
    assert isinstance(change, Mutate)
    assert change.tolerations == (PlannedToleration("dedicated", "Equal", "a", "NoSchedule"),)
    assert (change.node_affinity, change.node_selector) == (("dedicated in [a]",), {})
    golden(change.message)


USER_SET = {"managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:nodeName": {}}}}]}
SCHEDULED = {"managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:containers": {}}}}]}


@pytest.mark.parametrize(
    ("found", "refused"),
    [
        pytest.param(pod("p", nodeName="n"), False, id="a running pod without managedFields was scheduled"),
        pytest.param(pod("p", nodeName="n", metadata=SCHEDULED), False, id="scheduled"),
        pytest.param(pod("p", nodeName="n", metadata=USER_SET), True, id="created with a node name"),
        pytest.param(pod("p", nodeName="n", phase=""), True, id="a manifest without status"),
        pytest.param(pod("p", nodeName="n", phase="Failed", metadata=USER_SET), False, id="terminated"),
        pytest.param(
            pod("p", nodeName="n", metadata={**USER_SET, "deletionTimestamp": "2026-11-22T00:00:00Z"}),
            False,
            id="being deleted",
        ),
        pytest.param(
            pod("p", nodeName="n", metadata={**USER_SET, "annotations": {"kubernetes.io/config.mirror": "x"}}),
            False,
            id="a mirror pod",
        ),
        pytest.param(
            pod("p", nodeName="n", owner=owned("DaemonSet", "d"), metadata=USER_SET), False, id="may create bindings"
        ),
        pytest.param(
            pod("p", nodeName="n", owner=owned("ReplicaSet", "d"), metadata=USER_SET), True, id="may not create them"
        ),
        pytest.param(workload("Job", "j", nodeName="n"), True, id="a template"),
        pytest.param(
            ("Job", workload("Job", "j", nodeName="n")[1] | {"status": {"conditions": [
                {"type": "Complete", "status": "True"}]}}), False, id="a finished Job"
        ),
        pytest.param(workload("ReplicaSet", "r", owner=owned("Deployment", "d"), nodeName="n"), False, id="owned"),
        pytest.param(workload("ReplicaSet", "r", owner=owned("Rollout", "d"), nodeName="n"), True, id="by others"),
    ],
)  # fmt: skip
def test_node_name_counts_if_a_user_set_it(found: Any, refused: bool) -> None:
    result = audited(found, rules=(NodeNameRule(),))
    assert [each.reason for each in result.admissions] == ["RequiresPodsBinding"] * refused


def test_creator_is_the_controller_or_an_ordinary_user() -> None:
    rule = NodeNameRule()
    audited(
        ("Namespace", {"metadata": {"name": "shop", "labels": {"a": "b"}, "annotations": {"c": "d"}}}),
        workload("Deployment", "web"),
        pod("bare"),
        pod("web-0", owner=owned("ReplicaSet", "web")),
        pod("rollout-0", owner=owned("Rollout", "web")),
        rules=(rule,),
    )

    users = {each.name: each.user for each in rule.seen if each.kind == "Deployment" or each.name != "web"}
    assert users["web"] == users["bare"] == users["rollout-0"] == ORDINARY_USER
    assert users["web-0"].username == "system:serviceaccount:kube-system:replicaset-controller"
    assert {(str(each.namespace.labels), str(each.namespace.annotations)) for each in rule.seen} == {
        ("{'a': 'b'}", "{'c': 'd'}")
    }
    assert [each.path for each in rule.seen] == ["/spec/template", "", "", "", ""]


def test_creator_is_in_the_given_groups() -> None:
    block = {"pools": [{"name": "a", "groups": ["team"], "taint": {"key": "dedicated", "value": "a"}}]}
    rule = DedicatedNodesRule(msgspec.convert(block, DedicatedNodes))
    found = workload("Deployment", "web", tolerations=[OWN])
    for groups, action in (((), Refuse), (("team",), Mutate)):
        audit = Audit([rule], groups=groups)
        audit.add(decode(*found))
        assert [type(each) for each in audit.result().admissions] == [action]


def test_refusals_in_exempt_namespaces_are_kept() -> None:
    objects = [workload("Deployment", "web", each, **CLAIMS) for each in ("kube-system", "mine", "shop")]
    result = audited(*objects, workload("Deployment", "other", "a"), exempt=("mine", "a"))
    assert summary(result) == [("Refuse", "Deployment", "shop/web", 0)]
    assert [(each.kind, each.namespace, each.strategy, each.reason) for each in result.kept] == [
        ("Deployment", "kube-system", "DedicatedNodes", "NamespaceExempt"),
        ("Deployment", "mine", "DedicatedNodes", "NamespaceExempt"),
    ]


DEFAULT_SELECTOR = PodNodeSelectorRule(PodNodeSelector(cluster_default_node_selector="zone=a"))


@pytest.mark.parametrize(
    ("found", "warned"),
    [
        (workload("DaemonSet", "logs"), True),
        (workload("DaemonSet", "logs", nodeSelector={"zone": "a"}), False),
        (workload("DaemonSet", "logs", "exempt"), False),
        (workload("Deployment", "web"), False),
    ],
)
def test_daemon_set_without_the_node_selector_of_its_namespace_is_kept_with_a_warning(found: Any, warned: bool) -> None:
    kept = audited(found, rules=(DEFAULT_SELECTOR,), exempt=("exempt",)).kept
    expected = [("DaemonSet", "shop", "logs", "PodNodeSelector", ADMISSION_WARNED)] if warned else []
    assert [(each.kind, each.namespace, each.name, each.strategy, each.reason) for each in kept] == expected


def test_daemon_set_whose_pods_are_refused_is_reported_once() -> None:
    result = audited(workload("DaemonSet", "logs", nodeSelector={"zone": "b"}), rules=(DEFAULT_SELECTOR,))
    assert ([type(each) for each in result.admissions], result.kept) == ([Refuse], ())


def test_order_of_objects_does_not_matter() -> None:
    objects = [
        workload("Deployment", "web", "a"),
        workload("ReplicaSet", "web-1", "a", owned("Deployment", "web")),
        *(pod(f"web-1-{each}", "a", owned("ReplicaSet", "web-1")) for each in range(4)),
        *(pod(f"bare-{each}", **CLAIMS) for each in range(4)),
        workload("StatefulSet", "db", **CLAIMS),
    ]
    results = {str(audited(*random.Random(seed).sample(objects, len(objects)))) for seed in range(6)}
    assert len(results) == 1


def test_pods_that_are_listed_again_are_counted_once() -> None:
    audit, found = Audit((DEDICATED,)), decode(*pod("bare", **CLAIMS))
    for _ in range(2):
        audit.forget_pods()
        audit.add(found)
    audit.add(decode(*pod("web-0", owner=owned("ReplicaSet", "web"), **CLAIMS)))
    assert summary(audit.result()) == [("Refuse", "Pod", "shop/bare", 0), ("Refuse", "ReplicaSet", "shop/web", 1)]


@pytest.mark.parametrize(
    ("kind", "manifest", "field"),
    [
        ("Deployment", {"metadata": {"name": "web"}, "spec": {"template": {"spec": {"tolerations": 7}}}},
         "spec.template.spec.tolerations"),
        ("Pod", {"metadata": {"name": "web"}, "spec": {"nodeName": 7}}, "spec.nodeName"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("encode", [dict, msgspec.json.encode], ids=["YAML", "JSON"])
def test_invalid_field_is_named(kind: str, manifest: dict[str, Any], field: str, encode: Any) -> None:
    with pytest.raises(InputError) as caught:
        decode(kind, encode(manifest))
    assert (caught.value.field, caught.value.object.rpartition("/")[2]) == (field, "web")


@pytest.mark.parametrize("encode", [dict, msgspec.json.encode], ids=["YAML", "JSON"])
def test_resources_are_read(encode: Any) -> None:
    container = {"name": "main", "resources": {"requests": {"cpu": 1, "example.com/gpu": "1"}, "limits": None}}
    found = decode(
        "Pod", encode({"metadata": {"name": "web"}, "spec": {"containers": [container], "tolerations": None}})
    )
    assert found.template is not None
    (read,) = found.template.spec.containers or ()
    assert read.resources is not None
    assert {name: bytes(each) for name, each in (read.resources.requests or {}).items()} == {
        "cpu": b"1",
        "example.com/gpu": b'"1"',
    }


def test_nulls_count_as_absent() -> None:
    found = decode("Deployment", b'{"metadata":{"name":"web","labels":null},"spec":{"template":{"spec":null}}}')
    assert found.template is not None
    assert found.template.spec == PodSpec()
