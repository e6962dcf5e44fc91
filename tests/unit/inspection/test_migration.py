"""The report of ``trimtab migrate check``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from tests.builders import node, pod
from tests.unit.inspection.clusters import NOW, cluster_of, descheduler
from trimtab.api.taint_manager import TaintManager
from trimtab.inspection.cluster import PolicySet
from trimtab.inspection.migration import migration_report

POLICY = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: default
  plugins:
    balance: {enabled: [RemoveDuplicates]}
"""


def workload(name: str, image: str, *arguments: str, kind: str = "Deployment", **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": image, "args": list(arguments)}
    volumes = [{"name": "policy", "configMap": {"name": "descheduler-policy"}}]
    template = {"spec": {"containers": [container], "volumes": volumes}}
    inner = {"jobTemplate": {"spec": {"template": template}}} if kind == "CronJob" else {"template": template}
    metadata = {"name": name, "namespace": "kube-system"}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {**inner, **spec}}


def autoscaler(*arguments: str, **spec: Any) -> dict[str, Any]:
    image = "registry.k8s.io/autoscaling/cluster-autoscaler:v1.37.0"
    return workload("cluster-autoscaler", image, "--cloud-provider=clusterapi", *arguments, **spec)


def policy_map(text: str = POLICY) -> dict[str, Any]:
    metadata = {"name": "descheduler-policy", "namespace": "kube-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"policy.yaml": text}}


def controller_manager(*arguments: str) -> dict[str, Any]:
    command = ["kube-controller-manager", *arguments]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "kube-controller-manager-m1",
            "namespace": "kube-system",
            "annotations": {"kubernetes.io/config.mirror": "x"},
        },
        "spec": {"containers": [{"name": "kcm", "image": "kcm:v1.34.0", "command": command}]},
    }


def event(reason: str, name: str, *, kind: str = "Pod", by: str = "cluster-autoscaler", hours: float = 1, **more: Any):
    when = datetime.fromtimestamp(NOW, UTC) - timedelta(hours=hours)
    regarding = {"kind": kind, "name": name} | ({"namespace": "shop"} if kind == "Pod" else {})
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{reason}", "namespace": "shop"},
        "reason": reason,
        "involvedObject": regarding,
        "source": {"component": by},
        "lastTimestamp": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
        **more,
    }


def report(*manifests: dict[str, Any], cluster: Any = None) -> dict[str, Any]:
    return migration_report(cluster or cluster_of(node("n1"), node("n2")), manifests)


def programs(document: dict[str, Any]) -> dict[str, tuple[bool, bool]]:
    """Whether each program is active and converted."""
    return {each["program"]: (each["active"], each["converted"]) for each in document["programs"]}


def job(document: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [each for each in document["jobs"] if each["job"] == name]
    return found


def compared(document: dict[str, Any], action: str) -> dict[str, Any]:
    [found] = [each for each in document["comparison"] if each["action"] == action]
    return found


def test_an_empty_cluster_has_no_programs() -> None:
    document = report()
    assert document["programs"] == []
    assert [each["conflict"] for each in document["jobs"]] == [False] * 4
    assert document["plan"]["summary"] == {}


@pytest.mark.parametrize(
    ("manifests", "expected"),
    [
        ([autoscaler()], {"cluster-autoscaler": (True, True)}),
        ([autoscaler(replicas=0)], {"cluster-autoscaler": (False, True)}),
        ([autoscaler("--scan-interval=often")], {"cluster-autoscaler": (True, False)}),
        (
            [workload("d", "registry.k8s.io/descheduler/descheduler:v0.34.0"), policy_map()],
            {"descheduler": (True, True)},
        ),
        (
            [workload("d", "descheduler:v0.34.0", kind="CronJob", suspend=True), policy_map()],
            {"descheduler": (False, True)},
        ),
        ([workload("d", "descheduler:v0.34.0")], {"descheduler": (True, False)}),
        # The descheduler ignores an unknown key of the policy, but not a value of the wrong type.
        ([workload("d", "descheduler:v0.34.0"), policy_map(POLICY + "x: 1\n")], {"descheduler": (True, True)}),
        (
            [workload("d", "descheduler:v0.34.0"), policy_map(POLICY.replace("[RemoveDuplicates]", "7"))],
            {"descheduler": (True, False)},
        ),
        ([workload("k", "public.ecr.aws/karpenter/controller:1.6.0")], {"karpenter": (True, False)}),
        (
            [workload("o", "quay.io/openshift/origin-cluster-autoscaler-operator:4.20")],
            {"cluster-autoscaler-operator": (True, True)},
        ),
        ([workload("web", "nginx:1")], {}),
        ([workload("d", "descheduler:v0.34.0", "--dry-run"), policy_map()], {"descheduler": (False, True)}),
        ([controller_manager()], {"kube-controller-manager": (True, False)}),
    ],
)
def test_programs_are_found(manifests: list[dict[str, Any]], expected: dict[str, tuple[bool, bool]]) -> None:
    assert programs(report(*manifests)) == expected


def test_workloads_of_openshifts_operators_are_reported_once() -> None:
    managed = autoscaler()
    managed["metadata"]["ownerReferences"] = [{"kind": "ClusterAutoscaler", "name": "default"}]
    assert programs(report(managed)) == {}


def test_several_pods_of_the_controller_manager_are_no_conflict() -> None:
    second = controller_manager()
    second["metadata"]["name"] = "kube-controller-manager-m2"
    found = job(report(controller_manager(), second), "TaintNodes")
    assert (len(found["owners"]), found["conflict"]) == (2, False)


def test_openshifts_custom_resource_is_converted() -> None:
    manifest = {
        "apiVersion": "operator.openshift.io/v1",
        "kind": "KubeDescheduler",
        "metadata": {"name": "cluster", "namespace": "openshift-kube-descheduler-operator"},
        "spec": {"mode": "Automatic", "deschedulingIntervalSeconds": 3600, "profiles": ["LifecycleAndUtilization"]},
    }
    assert programs(report(manifest)) == {"KubeDescheduler": (True, True)}


@pytest.mark.parametrize(
    ("controllers", "jobs"),
    [
        ("", ["TaintNodes", "EvictTaintedPods"]),
        ("--controllers=*,bootstrapsigner", ["TaintNodes", "EvictTaintedPods"]),
        ("--controllers=*,-taint-eviction-controller", ["TaintNodes"]),
        ("--controllers=*,-nodelifecycle,-taint-eviction-controller", []),
        ("--controllers=node-lifecycle-controller", ["TaintNodes"]),
    ],
)
def test_flags_of_the_controller_manager_give_its_jobs(controllers: str, jobs: list[str]) -> None:
    [found] = report(controller_manager(*filter(None, [controllers])))["programs"]
    assert found["jobs"] == jobs
    assert found["active"] == bool(jobs)


@pytest.mark.parametrize(("mode", "conflict"), [("Simulate", False), ("Act", True)])
def test_two_active_programs_for_a_job_are_a_conflict(mode: str, conflict: bool) -> None:
    policies = PolicySet(descheduler=(descheduler({"mode": mode, "strategies": {"RemoveDuplicates": {}}}),))
    cluster = cluster_of(node("n1"), policies=policies)
    found = job(report(workload("d", "descheduler:v0.34.0"), policy_map(), cluster=cluster), "MovePods")
    assert found["owners"] == ["Deployment/kube-system/d"]
    assert (found["trimtab"]["mode"], found["conflict"]) == (mode, conflict)


@pytest.mark.parametrize(
    ("mode", "tainting", "evicting"),
    [("Observe", False, False), ("EvictPods", False, True), ("TaintAndEvict", True, True)],
)
def test_a_taint_manager_conflicts_with_the_controllers_that_its_mode_replaces(
    mode: str, tainting: bool, evicting: bool
) -> None:
    manager = msgspec.convert({"metadata": {"name": "default"}, "spec": {"mode": mode}}, TaintManager)
    cluster = cluster_of(node("n1"), policies=PolicySet(taint_manager=manager))
    document = report(controller_manager(), cluster=cluster)
    assert job(document, "TaintNodes")["conflict"] is tainting
    assert job(document, "EvictTaintedPods")["conflict"] is evicting


def test_steps_stop_each_active_program_before_trimtab_acts() -> None:
    manifests = [autoscaler(), workload("d", "descheduler:v0.34.0", kind="CronJob"), policy_map()]
    commands = [each["command"] for each in report(*manifests)["steps"] if each["command"]]
    stopped = [
        next(number for number, text in enumerate(commands) if start in text)
        for start in ("deployment cluster-autoscaler --replicas=0", "patch cronjob d")
    ]
    acting = [number for number, text in enumerate(commands) if '"mode": "Act"' in text]
    assert acting == [number + 1 for number in sorted(stopped)]


def test_the_plan_has_the_converted_settings_and_is_compared_with_events() -> None:
    pods = [pod(f"web-{number}").on("n1").owned_by("ReplicaSet", "web") for number in range(2)]
    cluster = cluster_of(node("n1"), node("n2"), *pods)
    document = report(
        workload("d", "descheduler:v0.34.0"),
        policy_map(),
        event("RemoveDuplicates", "web-9", by="sigs.k8s.io/descheduler", action="Descheduled"),
        event("RemoveDuplicates", "old-1", by="sigs.k8s.io/descheduler", action="Descheduled", hours=30),
        event("Evicted", "db-1", by="kubelet"),
        event("ScaleDown", "n7", kind="Node"),
        event("ScaleDown", "web-3"),
        event("TriggeredScaleUp", "web-4"),
        cluster=cluster,
    )
    assert document["plan"]["summary"]["Evict"] == 1
    evicted = compared(document, "Evict")
    assert (evicted["observed"], evicted["planned"], evicted["both"]) == (1, 1, ["shop"])
    removed = compared(document, "RemoveNode")
    assert (removed["observed"], removed["onlyObserved"]) == (1, ["n7"])
    assert compared(document, "ScaleUp")["onlyObserved"] == ["shop/web-4"]
