"""Reviews of trimtab's own resources against the other objects of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.admission_requests import wire
from tests.fakes.api import Call, FakeApi
from tests.fixtures.golden import Golden
from trimtab.admission.own_resources import (
    ADMITTED,
    AUDITED_BYTES,
    AUDITED_PAGE,
    KINDS,
    READ_TIMEOUT,
    OtherObjects,
    OwnResourceReviewer,
    review_own_resource,
)
from trimtab.descheduling.policy_conflicts import conflicts
from trimtab.kube.api import Forbidden
from trimtab.pressure.assignment import threshold_conflicts

VERSIONS = {kind: decodable.api_version for kind, decodable in KINDS.items()}
SPREAD = """
LowNodeUtilization:
  params: {nodeResourceUtilizationThresholds: {thresholds: {cpu: 20}, targetThresholds: {cpu: 50}}}
"""
PACK = "HighNodeUtilization: {params: {nodeResourceUtilizationThresholds: {thresholds: {cpu: 20}}}}"
DUPLICATES = "RemoveDuplicates: {}"


def own(kind: str, spec: dict[str, Any] | str, name: str = "default", namespace: str = "") -> dict[str, Any]:
    content = msgspec.yaml.decode(spec) if isinstance(spec, str) else spec
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": VERSIONS[kind], "kind": kind, "metadata": metadata, "spec": content}


def policy(strategies: str, name: str = "test", **spec: Any) -> dict[str, Any]:
    return own("DeschedulerPolicy", {"strategies": msgspec.yaml.decode(strategies), **spec}, name)


def autoscaler(**spec: Any) -> dict[str, Any]:
    return own("ClusterAutoscaler", spec)


def machines(name: str, target: str = "workers", *, namespace: str = "machines", **spec: Any) -> dict[str, Any]:
    reference = {"apiVersion": spec.pop("version", "machine.openshift.io/v1beta1"), "kind": "MachineSet"}
    content = {"minReplicas": 0, "maxReplicas": 3, "scaleTargetRef": {**reference, "name": target}, **spec}
    return own("MachineAutoscaler", content, name, namespace)


def others(*objects: dict[str, Any], classes: tuple[str, ...] | None = ()) -> OtherObjects:
    return OtherObjects.of(
        objects, priority_classes=classes, find_conflicts=conflicts, find_threshold_conflicts=threshold_conflicts
    )


def fields(findings: Any) -> list[str]:
    return [each.field for each in findings]


def pressure(name: str = "m", labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    selector = {} if labels is None else {"nodeSelector": {"matchLabels": labels}}
    return own("NodePressurePolicy", {"evictionHard": {"memory.available": "1Gi"}, **selector, **spec}, name)


NAMED = policy(DUPLICATES, priorityThreshold={"name": "gold"})
SCHEDULER = own("SchedulerPolicy", {"schedulerName": "batch"}, "batch")
CALM = {"limits": {"perCycle": 10}}

ERRORS = {
    "PriorityClass is missing": (NAMED, others(), "spec.priorityThreshold.name"),
    "PriorityClass exists": (NAMED, others(classes=("gold",)), ""),
    "PriorityClasses are unknown": (NAMED, others(classes=None), ""),
    "policy fights another": (policy(PACK), others(policy(SPREAD, "other")), "spec.strategies"),
    "policy fights itself in an older version": (policy(PACK), others(policy(SPREAD)), ""),
    "other policy is suspended": (policy(PACK), others(policy(SPREAD, "other", suspend=True)), ""),
    "policy is suspended": (policy(PACK, suspend=True), others(policy(SPREAD, "other")), ""),
    "cron is invalid": (policy(DUPLICATES, schedule={"cron": "61 * * * *"}), others(), "spec.schedule.cron"),
    "time zone is invalid": (
        policy(DUPLICATES, schedule={"cron": "1 * * * *", "timeZone": "Mars/Base"}),
        others(),
        "spec.schedule.timeZone",
    ),
    "label selector is invalid": (
        policy(DUPLICATES, podSelector={"matchLabels": {"app": "-"}}),
        others(),
        "spec.podSelector.matchLabels[app]",
    ),
    "selector of nodes is invalid": (
        pressure(labels={"pool": "-"}),
        others(),
        "spec.nodeSelector.matchLabels[pool]",
    ),
    "ClusterAutoscaler with another name": (own("ClusterAutoscaler", {}, "other"), others(), "metadata.name"),
}


@pytest.mark.parametrize(("new", "cluster", "field"), ERRORS.values(), ids=ERRORS)
def test_creation_is_refused_for_what_the_operator_would_not_run(
    new: dict[str, Any], cluster: OtherObjects, field: str
) -> None:
    assert fields(review_own_resource(new["kind"], new, None, cluster).errors) == ([field] if field else [])


@pytest.mark.parametrize(("new", "cluster", "field"), ERRORS.values(), ids=ERRORS)
def test_unchanged_spec_and_deletion_are_admitted(new: dict[str, Any], cluster: OtherObjects, field: str) -> None:
    labelled = new | {"metadata": new["metadata"] | {"labels": {"team": "a"}}, "status": {"conditions": []}}
    leaving = new | {"metadata": new["metadata"] | {"deletionTimestamp": "2026-11-22T00:00:00Z"}}

    assert review_own_resource(new["kind"], labelled, new, cluster) == ADMITTED
    assert review_own_resource(new["kind"], None, new, cluster) == ADMITTED
    assert review_own_resource(new["kind"], leaving, new | {"spec": {}}, cluster) == ADMITTED


@pytest.mark.parametrize(
    ("new", "cluster", "field"), [each for each in ERRORS.values() if each[2]], ids=[i for i in ERRORS if ERRORS[i][2]]
)
def test_error_that_the_old_object_also_has_becomes_a_warning(
    new: dict[str, Any], cluster: OtherObjects, field: str
) -> None:
    change = {
        "DeschedulerPolicy": {"limits": {"perCycle": 3}},
        "NodePressurePolicy": {"mode": "Act"},
        "ClusterAutoscaler": {"maxPodGracePeriod": 30},
    }[new["kind"]]
    review = review_own_resource(new["kind"], new | {"spec": new["spec"] | change}, new, cluster)

    assert review.errors == ()
    assert field in fields(review.warnings)


def test_resumed_policy_is_refused_if_it_fights_another(golden: Golden) -> None:
    other = policy(SPREAD, "other", **CALM)
    review = review_own_resource("DeschedulerPolicy", policy(PACK), policy(PACK, suspend=True), others(other))

    assert [each.field for each in review.errors] == ["spec.strategies"]
    golden(review.errors[0].message)


def admission(text: str) -> dict[str, Any]:
    return own("PlacementAdmission", text)


POOL = "dedicatedNodes: {pools: [{name: a, namespaces: [a], taint: {key: dedicated, value: a}}]%s}"
WARNINGS = {
    "Act without limits": (policy(DUPLICATES, mode="Act"), others(), ["spec.limits"]),
    "Act with a limit": (policy(DUPLICATES, mode="Act", **CALM), others(), []),
    "Simulate without limits": (policy(DUPLICATES), others(), []),
    "suspended": (policy(DUPLICATES, mode="Act", suspend=True), others(), []),
    "short cooldown": (policy(DUPLICATES, cooldown={"initial": "1s"}), others(), ["spec.cooldown.initial"]),
    "maximum below initial": (policy(DUPLICATES, cooldown={"maximum": "5m"}), others(), ["spec.cooldown.maximum"]),
    "system namespaces": (
        policy(DUPLICATES, protections={"disabled": ["SystemNamespaces"]}),
        others(),
        ["spec.protections.disabled"],
    ),
    "policy against scale-down": (policy(SPREAD), others(autoscaler()), ["spec.strategies"]),
    "no maximum": (autoscaler(), others(), ["spec.resourceLimits.maxNodesTotal"]),
    "maximum of 0": (
        autoscaler(resourceLimits={"maxNodesTotal": 0}),
        others(),
        ["spec.resourceLimits.maxNodesTotal"],
    ),
    "maximum below that of the groups": (
        autoscaler(resourceLimits={"maxNodesTotal": 5}),
        others(machines("a", "a"), machines("b", "b")),
        ["spec.resourceLimits.maxNodesTotal"],
    ),
    "sensible autoscaler": (
        autoscaler(resourceLimits={"maxNodesTotal": 6}),
        others(machines("a", "a"), machines("b", "b")),
        [],
    ),
    "unneeded for no time": (
        autoscaler(resourceLimits={"maxNodesTotal": 6}, scaleDown={"enabled": True, "unneededTime": "0s"}),
        others(),
        ["spec.scaleDown.unneededTime"],
    ),
    "ordinary pods below the threshold": (
        autoscaler(resourceLimits={"maxNodesTotal": 6}, podPriorityThreshold=1),
        others(),
        ["spec.podPriorityThreshold"],
    ),
    "scale-down against a policy": (
        autoscaler(resourceLimits={"maxNodesTotal": 6}),
        others(policy(SPREAD)),
        ["spec.scaleDown"],
    ),
    "target has another owner": (machines("b"), others(autoscaler(), machines("a")), ["spec.scaleTargetRef"]),
    "target has an owner in another API version": (
        machines("b", version="cluster.x-k8s.io/v1beta1"),
        others(autoscaler(), machines("a", version="cluster.x-k8s.io/v1beta2")),
        ["spec.scaleTargetRef"],
    ),
    "target of another API": (
        machines("b", version="cluster.x-k8s.io/v1beta1"),
        others(autoscaler(), machines("a")),
        [],
    ),
    "target is in another namespace": (machines("b"), others(autoscaler(), machines("a", namespace="other")), []),
    "another target": (machines("b"), others(autoscaler(), machines("a", "others")), []),
    "MachineAutoscaler alone": (machines("a"), others(), [""]),
    "fixed size": (machines("a", minReplicas=3), others(autoscaler()), ["spec.maxReplicas"]),
    "sizes above the total": (
        machines("a", maxReplicas=9),
        others(autoscaler(resourceLimits={"maxNodesTotal": 8})),
        ["spec.maxReplicas"],
    ),
    "default-scheduler": (
        own("SchedulerPolicy", {"schedulerName": "default-scheduler"}, "x"),
        others(),
        ["spec.schedulerName"],
    ),
    "another scheduler": (SCHEDULER, others(), []),
    "schedulerName is taken": (
        own("SchedulerPolicy", {"schedulerName": "batch"}, "other"),
        others(SCHEDULER),
        ["spec.schedulerName"],
    ),
    "schedulerName is its own": (SCHEDULER, others(SCHEDULER), []),
    "TaintAndEvict": (own("TaintManager", {"mode": "TaintAndEvict"}), others(), ["spec.mode"]),
    "lifecycle without tainting": (
        own("TaintManager", {"nodeLifecycle": {"nodeMonitorGracePeriod": "60s"}}),
        others(),
        ["spec.nodeLifecycle"],
    ),
    "another policy handles all nodes": (pressure(), others(pressure("a"), pressure("b")), ["spec.nodeSelector"]),
    "another policy handles the same nodes": (
        pressure(labels={"pool": "x"}),
        others(pressure("a", {"pool": "x"})),
        ["spec.nodeSelector"],
    ),
    "another policy handles more nodes": (
        pressure(labels={"pool": "x", "zone": "a"}),
        others(pressure("a", {"pool": "x"})),
        ["spec.nodeSelector"],
    ),
    "policy handles nodes in an older version": (pressure(), others(pressure()), []),
    "nodes of another pressure policy": (
        pressure(),
        others(pressure("a", {"pool": "x"}), pressure("z")),
        ["spec.nodeSelector", "spec.nodeSelector"],
    ),
    "other nodes than those of another pressure policy": (
        pressure(labels={"pool": "y"}),
        others(pressure("a", {"pool": "x"}), pressure("z", {"pool": "z"})),
        [],
    ),
    "threshold below that of the kubelet": (
        pressure(evictionHard={"memory.available": "100Mi", "nodefs.available": "12%"}),
        others(),
        ["spec"],
    ),
    "threshold that may be below that of the kubelet": (
        pressure(evictionHard={"memory.available": "1%"}),
        others(),
        [],
    ),
    "no rule": (admission("{}"), others(), ["spec"]),
    "fail open": (
        admission(POOL % ", failurePolicy: Ignore"),
        others(),
        ["spec.dedicatedNodes.failurePolicy"],
    ),
    "fail closed": (admission(POOL % ""), others(), []),
    "pool of an exempt namespace": (
        admission(f"exemptNamespaces: [a]\n{POOL % ''}"),
        others(),
        ["spec.dedicatedNodes.pools[0].namespaces"],
    ),
    "taint of a pool and of a class": (
        admission(
            f"{POOL % ''}\nspecialHardware: {{classes: [{{name: g, resources: [x/y], "
            "taint: {key: dedicated, value: a}}]}"
        ),
        others(),
        ["spec.dedicatedNodes.pools[0].taint"],
    ),
    "whitelist without the default": (
        admission(
            "podNodeSelector: {clusterDefaultNodeSelector: k3=v3, namespaceWhitelists: "
            "{ns1: 'region=west,env=test', ns2: 'k3=v3,a=b', ns3: k3=v4, ns4: ''}}"
        ),
        others(),
        ["spec.podNodeSelector.namespaceWhitelists.ns1", "spec.podNodeSelector.namespaceWhitelists.ns3"],
    ),
    "tolerations without those of the API server": (
        admission(
            "podTolerationRestriction: {allowApiServerDefaults: false, defaultTolerations: "
            "[{key: a, operator: Exists}, {key: b, operator: Exists}], "
            "tolerationsWhitelist: [{key: a, operator: Exists}]}"
        ),
        others(),
        ["spec.podTolerationRestriction.defaultTolerations[1]", "spec.podTolerationRestriction.tolerationsWhitelist"],
    ),
    "tolerations with those of the API server": (
        admission(
            "podTolerationRestriction: {allowApiServerDefaults: false, tolerationsWhitelist: [{operator: Exists, "
            "effect: NoExecute, tolerationSeconds: 300}]}"
        ),
        others(),
        [],
    ),
    "whitelist of an exempt namespace": (
        admission("{exemptNamespaces: [a], podNodeSelector: {namespaceWhitelists: {a: k=v}}}"),
        others(),
        ["spec.podNodeSelector.namespaceWhitelists.a"],
    ),
}


@pytest.mark.parametrize(("new", "cluster", "expected"), WARNINGS.values(), ids=WARNINGS)
def test_legal_but_unwise_settings_are_warnings(
    new: dict[str, Any], cluster: OtherObjects, expected: list[str]
) -> None:
    review = review_own_resource(new["kind"], new, None, cluster)
    assert review.errors == ()
    assert fields(review.warnings) == expected


@pytest.mark.parametrize(
    ("new", "listed"),
    [
        (policy(DUPLICATES), {"deschedulerpolicies", "clusterautoscalers", "priorityclasses"}),
        (autoscaler(), {"deschedulerpolicies", "machineautoscalers"}),
        (machines("a"), {"machineautoscalers", "clusterautoscalers"}),
        (SCHEDULER, {"schedulerpolicies"}),
        (pressure(), {"nodepressurepolicies"}),
        (own("TaintManager", {}), set()),
        (own("PlacementAdmission", {}), set()),
        (own("PlacementAdmission", {"podNodeSelector": {}}), {"namespaces", "daemonsets"}),
        ({"kind": "DeschedulingRun", "spec": {}}, set()),
    ],
)
async def test_only_the_objects_with_which_the_kind_is_compared_are_listed(
    new: dict[str, Any], listed: set[str]
) -> None:
    api = Lists()
    await OwnResourceReviewer(api, conflicts).review(wire(new, kind=new["kind"]))
    assert {call.path.rpartition("/")[2] for call in (*api.sent("GET"), *api.sent("WATCH"))} == listed


class Lists(FakeApi):
    """Serves lists in pages. The second page of a resource, or the first one of namespaces, may fail."""

    CHUNK = b" " * 65_536

    def __init__(self, **failures: str) -> None:
        super().__init__()
        self._failures = failures
        self.most = 0

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Any = None, accept: str = "", idle_timeout: float = 60.0
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        resource, start = path.rpartition("/")[2], int(params.get("continue", "0"))
        self.calls.append(Call("WATCH", path, params, None, accept))
        failure = self._failures.get(resource, "") if start or resource == "namespaces" else ""
        if failure == "forbidden":
            raise Forbidden("no", status=403)

        async def chunks() -> AsyncIterator[bytes]:
            if failure == "slow":
                await asyncio.sleep(READ_TIMEOUT + 1)
            while failure == "large":
                self.most += len(self.CHUNK)
                yield self.CHUNK
            items, end = self._get(path)["items"], start + int(params["limit"])
            metadata = {"continue": str(end)} if end < len(items) else {}
            yield (
                b"{" if failure == "garbage" else msgspec.json.encode({"items": items[start:end], "metadata": metadata})
            )

        yield chunks()


@pytest.mark.parametrize(
    ("rules", "stranded"),
    [
        ("podNodeSelector: {clusterDefaultNodeSelector: zone=a}", True),
        ("{exemptNamespaces: [shop], podNodeSelector: {clusterDefaultNodeSelector: zone=a}}", False),
        ("podNodeSelector: {clusterDefaultNodeSelector: zone=a, exemptDaemonSetPods: true}", False),
        ("podNodeSelector: {}", False),
        ("podNodeConstraints: {}", False),
    ],
)
async def test_daemon_sets_that_a_node_selector_strands_are_a_warning(rules: str, stranded: bool) -> None:
    api = Lists()
    for name in ("shop", "kube-system", "empty"):
        annotations = {"scheduler.alpha.kubernetes.io/node-selector": ""} if name == "empty" else {}
        api.put(f"/api/v1/namespaces/{name}", {"metadata": {"name": name, "annotations": annotations}})
        for each, selector in (("logs", {}), ("fits", {"zone": "a"})):
            template = {"spec": {"nodeSelector": selector}}
            metadata = {"name": each, "namespace": name}
            api.put(
                f"/apis/apps/v1/namespaces/{name}/daemonsets/{each}",
                {"metadata": metadata, "spec": {"template": template}},
            )
    review = await OwnResourceReviewer(api).review(wire(admission(rules), kind="PlacementAdmission"))
    assert review.errors == ()
    assert fields(review.warnings) == (["spec.podNodeSelector"] if stranded else [])
    assert [name for name in ("shop/logs", "fits", "kube-system", "empty") if name in str(review.warnings)] == (
        ["shop/logs"] if stranded else []
    )


@pytest.mark.looptime(start=0)
@pytest.mark.parametrize("failing", ["namespaces", "daemonsets"])
@pytest.mark.parametrize("failure", ["large", "slow", "garbage", "forbidden"])
async def test_objects_that_cannot_be_listed_make_the_check_incomplete(failing: str, failure: str) -> None:
    """A tenant's large objects neither fail the review nor use up the memory of the replica."""
    api = Lists(**{failing: failure})
    for number in range(3 * AUDITED_PAGE):
        path = f"/apis/apps/v1/namespaces/shop/daemonsets/{number:03}"
        api.put(path, {"metadata": {"name": f"{number:03}", "namespace": "shop"}, "spec": {"template": {"spec": {}}}})
    new = admission("podNodeSelector: {clusterDefaultNodeSelector: zone=a}")
    review = await OwnResourceReviewer(api).review(wire(new, kind="PlacementAdmission"))

    stranded = failing == "daemonsets"  # the first page is complete
    assert (review.errors, len(review.warnings)) == ((), 2 if stranded else 1)
    assert ("100 DaemonSets" in str(review.warnings)) == stranded
    assert api.most <= AUDITED_BYTES + len(Lists.CHUNK)


def test_field_of_a_newer_schema_is_not_refused() -> None:
    review = review_own_resource("DeschedulerPolicy", policy(DUPLICATES, newField=1), None, others())
    assert (review.errors, fields(review.warnings)) == ((), ["spec.newField"])


def test_existing_omits_invalid_objects_and_those_being_deleted() -> None:
    leaving = machines("a") | {"metadata": {"name": "a", "namespace": "machines", "deletionTimestamp": "x"}}
    invalid = policy("{}", "other")
    found = others(leaving, invalid, {"kind": "Pod"}, autoscaler())

    assert (found.machine_autoscalers, found.policies) == ((), ())
    assert found.cluster_autoscaler is not None
    assert review_own_resource("MachineAutoscaler", machines("b"), None, found).errors == ()


@given(
    kind=st.sampled_from(sorted(KINDS)),
    spec=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=10,
    ),
)
def test_any_object_is_reviewed_without_an_exception(kind: str, spec: Any) -> None:
    new = {"apiVersion": VERSIONS[kind], "kind": kind, "metadata": {"name": "default"}, "spec": spec}
    review_own_resource(kind, new, {"spec": []}, others())
    review_own_resource(kind, {"spec": spec, "metadata": spec}, None, others())
    assert review_own_resource(kind, new, dict(new), others()) == ADMITTED
