"""Explanations of pods in all states."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tests.builders import budget, machine_set, node, pod
from tests.fixtures.golden import Golden
from tests.unit.inspection.clusters import NOW, cluster_of, descheduler
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.history_record import HistoryEntry
from trimtab.api.plan import rfc3339
from trimtab.api.scheduler_policy import SchedulerPolicy, SchedulerPolicySpec
from trimtab.inspection.cluster import PolicySet
from trimtab.inspection.pod import explain_pod
from trimtab.inspection.pod_node_groups import CLEAR_BACKOFF

GROUP = "openshift-machine-api/workers-a"
UNSCHEDULABLE = {"reason": "Unschedulable"}


def group(replicas: int = 1, maximum: int = 3, cpu: str = "8") -> Any:
    return machine_set().replicas(replicas).limits(0, maximum).capacity(cpu=cpu, memory="32Gi", pods="110")


def registered(name: str = "n1") -> list[Any]:
    """A full node of the group, and its machine."""
    return [
        node(name).allocatable(cpu="1"),
        machine_set().machine("workers-a-1").on(name),
        pod("filler", "shop").cpu("1").on(name).owned_by("ReplicaSet", "filler").ready(),
    ]


def waiting(name: str = "web-1", cpu: str = "1") -> Any:
    made = pod(name, "shop").cpu(cpu).owned_by("ReplicaSet", "web")
    return made.condition("PodScheduled", "False", reason="Unschedulable")


def explained(*builders: Any, name: str = "web-1", events: Any = (), **more: Any) -> dict[str, Any]:
    document = explain_pod(cluster_of(*builders, **more), "shop", name, events=events)
    assert document is not None
    return document


def entry(pod: str = "web-1", *, ago: float = 3600.0, **more: Any) -> HistoryEntry:
    values: dict[str, Any] = {
        "controller": "descheduler",
        "action": "Evict",
        "reason": "DuplicateOnNode",
        "policy": "default",
        "strategy": "RemoveDuplicates",
        "owner": "ReplicaSet/web",
        "uid": "old",
        "node": "n1",
        "target": "n2",
    }
    time = datetime.fromtimestamp(NOW - ago, UTC)
    return HistoryEntry(time=time, namespace="shop", pod=pod, **{**values, **more})


# --- pending ----------------------------------------------------------------------------------------------------------


def test_pending_pod_names_what_the_autoscaler_does(golden: Golden) -> None:
    document = explained(*registered(), group(), waiting(), autoscaler={})

    assert document["state"] == "Pending"
    assert document["autoscaling"]["reason"] == "PendingPods"
    [found] = document["nodeGroups"]
    assert (found["nodeGroup"], found["size"], found["maximum"], found["fits"]) == (GROUP, 1, 3, True)
    assert found["scaleUp"] == {"from": 1, "to": 2}
    assert document["remedy"]["reason"] == "WaitForScaleUp"
    golden(document["summary"])


def test_maximum_is_raised_before_a_request_is_lowered() -> None:
    document = explained(*registered(), group(maximum=1), waiting(), autoscaler={})

    [found] = document["nodeGroups"]
    assert found["limit"]["reason"] == "MaxSizeReached"
    assert found["scaleUp"] is None
    remedy = document["remedy"]
    assert remedy["reason"] == "RaiseMaximum"
    assert remedy["nodeGroup"] == GROUP
    assert (remedy["steps"][0]["from"], remedy["steps"][0]["to"]) == (1, 2)
    assert "LowerRequests" not in [each["reason"] for each in (remedy, *remedy["alternatives"])][:1]


@pytest.mark.parametrize(
    ("limits", "field"),
    [({"maxNodesTotal": 1}, "maxNodesTotal"), ({"cores": {"min": 0, "max": 1}}, "cores.max")],
)
def test_limit_of_the_cluster_is_named(limits: dict[str, Any], field: str) -> None:
    document = explained(*registered(), group(), waiting(), autoscaler={"resourceLimits": limits})

    assert document["remedy"]["reason"] == "RaiseResourceLimit"
    assert document["remedy"]["steps"][0]["field"] == f"spec.resourceLimits.{field}"


def test_several_limits_of_a_group_are_several_steps() -> None:
    spec = {"resourceLimits": {"maxNodesTotal": 1}}
    document = explained(*registered(), group(maximum=1), waiting(), autoscaler=spec)

    steps = [each["reason"] for each in document["remedy"]["steps"]]
    assert steps == ["RaiseMaximum", "RaiseResourceLimit"]


def test_group_in_backoff_shows_until_when_and_why() -> None:
    cluster = cluster_of(*registered(), group(), waiting(), autoscaler={})
    id_ = "MachineSet/openshift-machine-api/workers-a"
    until = datetime.fromtimestamp(NOW + 200, UTC)
    status = {
        "nodeGroups": [
            {
                "id": id_,
                "target": 1,
                "backoffUntil": until.isoformat(),
                "failures": 1,
                "lastError": {
                    "time": datetime.fromtimestamp(NOW - 100, UTC).isoformat(),
                    "reason": "InsufficientResources",
                    "message": "no capacity",
                },
            }
        ]
    }
    autoscaler = cluster.policies.cluster_autoscaler
    assert autoscaler is not None
    autoscaler = msgspec.structs.replace(autoscaler, status=msgspec.convert(status, ClusterAutoscalerStatus))
    policies = msgspec.structs.replace(cluster.policies, cluster_autoscaler=autoscaler)
    document = explain_pod(msgspec.structs.replace(cluster, policies=policies), "shop", "web-1")

    assert document is not None
    [found] = document["nodeGroups"]
    assert found["id"] == id_
    assert found["backoff"] == {
        "until": "2026-11-20T12:03:20Z",
        "failures": 1,
        "reason": "InsufficientResources",
        "message": "no capacity",
    }
    assert document["remedy"]["reason"] == "ClearBackoff"
    assert document["remedy"]["steps"][0]["command"] == CLEAR_BACKOFF


def test_group_that_does_not_fit_has_the_schedulers_reasons() -> None:
    document = explained(*registered(), group(cpu="2"), waiting(cpu="4"), autoscaler={})

    [found] = document["nodeGroups"]
    assert (found["fits"], found["reasons"]) == (False, ["Insufficient cpu"])
    assert document["autoscaling"]["reason"] == "NoGroupFits"


def test_unreported_pod_is_planned_as_if_the_scheduler_had_reported_it() -> None:
    unreported = pod("web-1", "shop").cpu("1").owned_by("ReplicaSet", "web")
    document = explained(*registered(), group(), unreported, autoscaler={})

    assert document["autoscaling"]["assumed"]
    assert document["nodeGroups"][0]["scaleUp"] == {"from": 1, "to": 2}


def test_pod_below_the_priority_threshold_gets_a_node_by_hand() -> None:
    low = waiting().priority(-20)
    document = explained(*registered(), group(), low, autoscaler={"podPriorityThreshold": -10})

    assert document["autoscaling"]["reason"] == "PriorityBelowThreshold"
    assert document["remedy"]["reason"] == "AddNodeToGroup"


def test_without_an_autoscaler_there_are_no_node_groups() -> None:
    document = explained(*registered(), group(), waiting())

    assert (document["autoscaling"], document["nodeGroups"]) == (None, [])


def test_victims_of_the_preemption_are_named() -> None:
    full = node("n1").allocatable(cpu="2")
    low = [
        pod(name, "shop").cpu("1").priority(5).on("n1").owned_by("ReplicaSet", "low").labels({"app": name}).ready()
        for name in ("low-1", "low-2")
    ]
    guard = budget("guard", "shop").selecting(app="low-1").allowing(0, healthy=1, expected=1)
    preemption = explained(full, *low, guard, waiting().priority(10))["preemption"]
    assert preemption == {
        "node": "n1",
        "victims": [{"pod": "shop/low-2", "priority": 5, "violatesBudget": False}],
        "message": "",
    }

    preemption = explained(full, *low, guard, waiting(cpu="2").priority(10))["preemption"]
    assert {each["pod"]: each["violatesBudget"] for each in preemption["victims"]} == {
        "shop/low-1": True,
        "shop/low-2": False,
    }

    policy = SchedulerPolicy(spec=SchedulerPolicySpec(scheduler_name="default-scheduler", disable_preemption=True))
    ours = cluster_of(full, *low, waiting().priority(10), policies=PolicySet(schedulers=(policy,)))
    document = explain_pod(ours, "shop", "web-1")
    assert document is not None
    assert (document["preemption"]["node"], document["preemption"]["victims"]) == (None, [])

    preemption = explained(full, *low, waiting().priority(5))["preemption"]
    assert (preemption["node"], preemption["victims"]) == (None, [])
    assert preemption["message"]


@pytest.mark.parametrize(
    ("priority", "scheduler", "expected"),
    [(10, "default-scheduler", "n2"), (9, "default-scheduler", "n1"), (10, "other", "n1")],
)
def test_preemption_does_not_use_the_capacity_of_nominated_pods(priority: int, scheduler: str, expected: str) -> None:
    nodes = [node(name).allocatable(cpu="2") for name in ("n1", "n2")]
    ending = pod("ending", "shop").cpu("2").on("n1").deleted()
    low = pod("low", "shop").cpu("2").on("n2").ready()
    nominated = waiting("nominated", cpu="2").priority(priority)
    nominated.merge(spec={"schedulerName": scheduler}, status={"nominatedNodeName": "n1"})
    preemption = explained(*nodes, ending, low, nominated, waiting(cpu="2").priority(10))["preemption"]
    assert preemption["node"] == expected


def test_gates_and_nominated_node_are_shown() -> None:
    gated = pod("web-1", "shop").merge(
        spec={"schedulingGates": [{"name": "example.com/quota"}]}, status={"nominatedNodeName": "n1"}
    )
    scheduling = explained(node("n1"), gated)["scheduling"]

    assert (scheduling["gates"], scheduling["nominatedNode"]) == (["example.com/quota"], "n1")


def test_protected_pod_is_not_the_first_suggestion() -> None:
    guarded = pod("db-0", "shop").labels(app="db").cpu("3").on("n1").owned_by("StatefulSet", "db").ready()
    free = pod("job-0", "shop").cpu("3").on("n2").owned_by("ReplicaSet", "job").ready()
    document = explained(
        node("n1").allocatable(cpu="4"),
        node("n2").allocatable(cpu="4"),
        guarded,
        free,
        budget("db", "shop").selecting(app="db").allowing(0),
        waiting(cpu="4"),
    )

    remedies = [document["remedy"], *document["remedy"]["alternatives"]]
    evicted = [each["pod"] for remedy in remedies for step in remedy["steps"] for each in step.get("pods", ())]
    assert "shop/db-0" not in evicted[:1]


# --- running ----------------------------------------------------------------------------------------------------------

DUPLICATES = {
    "strategies": {
        "RemoveDuplicates": {"enabled": True},
        "PodLifeTime": {"enabled": True, "params": {"maxPodLifeTimeSeconds": 86400}},
    }
}


def replicas(*nodes: str) -> list[Any]:
    return [
        pod(f"web-{number}", "shop").labels(app="web").cpu("100m").on(name).owned_by("ReplicaSet", "web").ready()
        for number, name in enumerate(nodes, start=1)
    ]


def test_running_pod_has_the_verdict_of_each_strategy() -> None:
    policies = PolicySet(descheduler=(descheduler(DUPLICATES),))
    document = explained(node("n1"), node("n2"), *replicas("n1", "n1"), name="web-2", policies=policies)

    assert document["state"] == "Running"
    [policy] = document["policies"]
    verdicts = {each["strategy"]: each["verdict"] for each in policy["strategies"]}
    assert verdicts["PodLifeTime"] == "NotConsidered"
    evicted = [name for name in ("web-1", "web-2") if _verdict(policies, name) == "Evict"]
    assert len(evicted) == 1


def _verdict(policies: PolicySet, name: str) -> str:
    document = explained(node("n1"), node("n2"), *replicas("n1", "n1"), name=name, policies=policies)
    return str(document["policies"][0]["verdict"])


def test_budget_and_protections_of_a_running_pod() -> None:
    policies = PolicySet(descheduler=(descheduler({**DUPLICATES, "protections": {"minPodAge": "1h"}}),))
    bare = pod("web-1", "shop").labels(app="web").on("n1").ready()
    budgets = budget("web", "shop").selecting(app="web").allowing(0)
    document = explained(node("n1"), bare, budgets, policies=policies)

    assert [each["reason"] for each in document["policies"][0]["protections"]][:1] == ["BarePod"]
    assert [(each["pdb"], each["blocks"]) for each in document["pdbs"]] == [("shop/web", True)]


def test_policy_of_other_namespaces_is_out_of_scope() -> None:
    spec = {**DUPLICATES, "namespaces": {"include": ["billing"]}}
    policies = PolicySet(descheduler=(descheduler(spec),))
    document = explained(node("n1"), *replicas("n1"), policies=policies)

    assert document["policies"][0]["verdict"] == "OutOfScope"
    assert document["policies"][0]["strategies"] == []


def test_deadline_of_a_taint() -> None:
    document = explained(node("n1").taint("maintenance", effect="NoExecute"), *replicas("n1"))

    assert document["deadline"]["by"] == "kube-controller-manager"
    assert document["deadline"]["due"] == "2026-11-20T12:00:00Z"


def test_earlier_pod_of_the_same_name_was_evicted() -> None:
    document = explained(node("n1"), *replicas("n1"), history=(entry(),))

    assert document["state"] == "Running"
    assert document["eviction"]["policy"] == "default"
    assert document["eviction"]["replacement"]["pod"] == "shop/web-1"


def test_refused_eviction_is_in_the_history() -> None:
    [running] = replicas("n1")
    refused = entry(uid="x", result="Refused", result_reason="DisruptionBudget")
    document = explained(node("n1"), running, history=(refused,))

    assert document["eviction"] is None
    assert [(each["result"], each["reason"]) for each in document["history"]] == [("Refused", "DisruptionBudget")]


# --- terminating and gone ---------------------------------------------------------------------------------------------


def replacement(name: str = "web-9", *, age: float = 3590.0, on: str = "n2") -> Any:
    return pod(name, "shop").cpu("100m").on(on).owned_by("ReplicaSet", "web").created(rfc3339(NOW - age)).ready()


def test_gone_pod_is_explained_hours_later() -> None:
    document = explained(node("n2"), replacement(), history=(entry(ago=7200.0), entry()))

    assert document["state"] == "Gone"
    eviction = document["eviction"]
    assert (eviction["source"], eviction["policy"], eviction["reason"]) == ("History", "default", "DuplicateOnNode")
    assert eviction["time"] == "2026-11-20T11:00:00Z"
    assert eviction["replacement"] == {
        "pod": "shop/web-9",
        "node": "n2",
        "phase": "Running",
        "created": "2026-11-20T11:00:10Z",
    }
    assert (document["fits"], document["nodes"], document["remedy"]) == ([], [], None)


def test_pod_that_existed_before_the_eviction_is_no_replacement() -> None:
    document = explained(node("n2"), replacement(age=4000.0), history=(entry(),))

    assert document["eviction"]["replacement"] is None


def test_events_explain_a_pod_that_is_not_in_the_history() -> None:
    event = {
        "reportingController": "trimtab.dev/trimtab",
        "action": "Evict",
        "reason": "DuplicateOnNode",
        "type": "Normal",
        "note": "2 pods of ReplicaSet shop/web on n1; n2 has none",
        "eventTime": "2026-11-20T11:00:00.000000Z",
        "regarding": {"kind": "Pod", "name": "web-1", "uid": "old"},
        "related": {"kind": "Node", "name": "n1"},
    }
    document = explained(node("n2"), replacement(), events=[event])

    eviction = document["eviction"]
    assert (document["state"], eviction["source"], eviction["node"]) == ("Gone", "Events", "n1")
    assert eviction["controller"] == "descheduler"
    assert eviction["replacement"]["pod"] == "shop/web-9"


@pytest.mark.parametrize(
    ("reason", "by"),
    [
        ("TaintManagerEviction", "taint manager of kube-controller-manager"),
        ("Preempted", "kube-scheduler"),
        ("Killing", None),
    ],
)
def test_events_of_other_programs(reason: str, by: str | None) -> None:
    event = {"reason": reason, "type": "Normal", "eventTime": "2026-11-20T11:00:00Z", "regarding": {"name": "web-1"}}
    document = explain_pod(cluster_of(node("n1")), "shop", "web-1", events=[event])

    assert (None if document is None else document["eviction"]["by"]) == by


def test_condition_explains_a_terminating_pod() -> None:
    terminating = replicas("n1")[0].condition("DisruptionTarget", "True", reason="EvictionByEvictionAPI")
    document = explained(node("n1"), terminating.deleted(rfc3339(NOW + 30)))

    assert document["state"] == "Terminating"
    assert (document["eviction"]["source"], document["eviction"]["reason"]) == ("Condition", "EvictionByEvictionAPI")


def test_unknown_pod_has_no_document() -> None:
    assert explain_pod(cluster_of(node("n1")), "shop", "web-1") is None


def test_all_states_have_the_same_keys() -> None:
    documents = [
        explained(node("n1"), waiting()),
        explained(node("n1"), *replicas("n1")),
        explained(node("n1"), replicas("n1")[0].deleted(rfc3339(NOW + 30))),
        explained(node("n1"), history=(entry(),)),
        explained(node("n1"), replicas("n1")[0].phase("Failed")),
    ]

    assert [each["state"] for each in documents] == ["Pending", "Running", "Terminating", "Gone", "Failed"]
    assert len({frozenset(each) for each in documents}) == 1
