"""The checker of the churn: each invariant has a log that violates it and one that does not."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures import cluster_history, invariants
from tests.fixtures.audit import OPERATOR, AuditEvent, ObjectRef, ResponseStatus, User
from tests.fixtures.cluster_history import UNCONFIRMED, History
from tests.fixtures.invariants import (
    DEADLINE,
    DRAIN,
    NODE_FAILURE,
    NODE_PRESSURE,
    POLICY_MOVE,
    PREEMPTION,
    amount,
    budgets_broken,
    busy_machines_removed,
    disruptions,
    orphans,
    pace_exceeded,
    restless,
    sizes_out_of_bounds,
    unplaceable,
    unsettled_moves,
    writes_after_lease,
)

LAG = 5.0
ADMIN, KUBELET, MACHINES, SCHEDULER = "admin", "kubelet", "machine-controller", "scheduler"
READY = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}
ANTI_AFFINITY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
        ]
    }
}


class Log:
    """An audit log; each write is received and answered at the same moment."""

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []
        self._revision = 0

    def write(
        self,
        at: float,
        what: str,
        verb: str,
        key: str,
        *,
        user: str = ADMIN,
        request: Any = None,
        response: Any = None,
        token: str = "first",
        code: int = 200,
    ) -> None:
        resource, _, subresource = what.partition("/")
        namespace, _, name = key.rpartition("/")
        if isinstance(response, dict) and "metadata" in response:
            self._revision += 1
            response["metadata"]["resourceVersion"] = str(self._revision)
        moment = datetime.fromtimestamp(at, UTC)
        self.events.append(
            AuditEvent(
                verb=verb,
                user=User(user, {"authentication.kubernetes.io/credential-id": [token]}),
                request_received_timestamp=moment,
                stage_timestamp=moment,
                object_ref=ObjectRef(resource=resource, subresource=subresource, namespace=namespace, name=name),
                response_status=ResponseStatus(code),
                request_object=request,
                response_object=response,
            )
        )

    def node(self, name: str, at: float = 0.0, *, verb: str = "create", cpu: str = "2", **spec: Any) -> None:
        status = spec.pop("status", READY)
        body = {
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **spec.pop("labels", {})}},
            "spec": spec,
            "status": {**status, "allocatable": {"cpu": cpu, "memory": "4Gi", "pods": "110"}},
        }
        self.write(at, "nodes", verb, name, response=body)

    def pod(
        self,
        name: str,
        node: str,
        at: float = 0.0,
        *,
        ready: bool = True,
        owner: str = "rs",
        cpu: str = "1",
        **spec: Any,
    ) -> None:
        kind = spec.pop("kind", "ReplicaSet")
        body = {
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "shop",
                "uid": f"uid-{name}",
                "labels": {"app": "web"},
                "ownerReferences": [{"controller": True, "kind": kind, "name": owner, "uid": owner}] if owner else [],
            },
            "spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}], **spec},
            "status": {},
        }
        self.write(at, "pods", "create", f"shop/{name}", response=body)
        self.write(
            at,
            "pods/binding",
            "create",
            f"shop/{name}",
            user=SCHEDULER,
            request={"target": {"name": node}},
            response={"kind": "Status"},
        )
        if ready:
            self.ready(name, at)

    def ready(self, name: str, at: float) -> None:
        self.write(at, "pods/status", "patch", f"shop/{name}", user=KUBELET, request={"status": READY})

    def evict(self, name: str, at: float, *, token: str = "first") -> None:
        body = {"deleteOptions": {"preconditions": {"uid": f"uid-{name}"}}}
        self.write(
            at,
            "pods/eviction",
            "create",
            f"shop/{name}",
            user=OPERATOR,
            token=token,
            request=body,
            response={"kind": "Status"},
            code=201,
        )

    def lease(self, at: float, token: str, holder: str = "") -> None:
        spec = {"holderIdentity": holder or token, "leaseDurationSeconds": 15}
        body = {"metadata": {"name": "trimtab"}, "spec": spec}
        self.write(at, "leases", "update", "trimtab-system/trimtab", user=OPERATOR, token=token, request=body)

    @property
    def history(self) -> History:
        return History(self.events)


@pytest.fixture
def log() -> Log:
    """Two nodes of two cores, and an owner with a pod of one core on each."""
    log = Log()
    log.node("n1")
    log.node("n2")
    log.pod("web-1", "n1")
    log.pod("web-2", "n2")
    return log


def test_the_checker_uses_nothing_of_the_operator() -> None:
    for module in (cluster_history, invariants):
        assert module.__file__ is not None
        tree = ast.parse(Path(module.__file__).read_text())
        imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not {name for name in imported if name.split(".")[0].startswith("trimtab")}


# Reconstruction


def test_history_applies_writes_whose_response_has_no_object(log: Log) -> None:
    taint = {"key": "k", "effect": "NoExecute"}
    log.write(10, "nodes", "patch", "n1", request=[{"op": "add", "path": "/spec/taints", "value": [taint]}])
    log.write(20, "nodes", "patch", "n1", request=[{"op": "remove", "path": "/spec/taints/0"}])
    log.write(30, "nodes", "patch", "n1", request={"spec": {"unschedulable": True}})

    history = log.history

    assert history.at("pods", "shop/web-1", 1)["spec"]["nodeName"] == "n1"  # type: ignore[index]
    assert [history.at("nodes", "n1", at)["spec"] for at in (5, 15, 25, 35)] == [  # type: ignore[index]
        {},
        {"taints": [taint]},
        {"taints": []},
        {"taints": [], "unschedulable": True},
    ]


def test_history_merges_the_fields_of_a_condition(log: Log) -> None:
    beat = {"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": "now"}]}}
    log.write(10, "nodes/status", "patch", "n1", user=KUBELET, request=beat)

    found = log.history.at("nodes", "n1", 11) or {}
    assert found["status"]["conditions"] == [{"type": "Ready", "status": "True", "lastHeartbeatTime": "now"}]


def test_deleted_object_exists_until_its_grace_period_and_finalizers_end(log: Log) -> None:
    log.evict("web-1", 10)
    log.write(12, "pods", "delete", "shop/web-1", user=KUBELET, response={"kind": "Status"})

    history = log.history

    assert "deletionTimestamp" in history.at("pods", "shop/web-1", 11)["metadata"]  # type: ignore[index]
    assert history.at("pods", "shop/web-1", 13) is None
    assert set(history.all_at("pods", 13)) == {"shop/web-2"}


def test_response_of_an_earlier_write_that_was_logged_later_is_ignored(log: Log) -> None:
    log.node("n1", 10, verb="update", unschedulable=True)
    log.node("n1", 11, verb="update")
    log.events[-1], log.events[-2] = log.events[-2], log.events[-1]

    assert "unschedulable" not in (log.history.at("nodes", "n1", 12) or {})["spec"]


@pytest.mark.parametrize(
    ("quantity", "found"),
    [("1500m", 1500), ("2", 2000), (3, 3000), ("1Ki", 1_024_000), ("0.5", 500), ("2G", 2 * 10**12)],
)
def test_quantities(quantity: str | int, found: int) -> None:
    assert amount(quantity) == found


# Causes


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        ({}, POLICY_MOVE),
        ({"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}, DRAIN),
        ({"taints": [{"key": "k", "effect": "NoExecute"}]}, DEADLINE),
        ({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, NODE_FAILURE),
        (
            {"status": {"conditions": [*READY["conditions"], {"type": "MemoryPressure", "status": "True"}]}},
            NODE_PRESSURE,
        ),
    ],
)
def test_cause_of_an_eviction_is_the_state_of_its_node(log: Log, state: dict[str, Any], cause: str) -> None:
    log.node("n1", 10, verb="update", **state)
    log.evict("web-1", 11)

    assert [each.cause for each in disruptions(log.history, lag=LAG)] == [cause]


@pytest.mark.parametrize("marked", [10, 12], ids=["before", "after"])
@pytest.mark.parametrize("evicted", [False, True], ids=["deleted", "evicted"])
def test_cause_of_a_preemption_is_the_condition_of_the_pod(log: Log, marked: float, evicted: bool) -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    if evicted:
        log.evict("web-1", 11)
    log.write(
        marked, "pods/status", "patch", "shop/web-1", user=OPERATOR, request={"status": {"conditions": [condition]}}
    )
    if not evicted:
        log.write(13, "pods", "delete", "shop/web-1", user=OPERATOR, response={"kind": "Status"})
    log.events.sort(key=lambda each: each.stage_timestamp)

    assert [each.cause for each in disruptions(log.history, lag=LAG)] == [PREEMPTION]


LATER = 12 + 2 * LAG
"""When a leader evicts a pod for one that an earlier leader has nominated."""


def nominated(log: Log, *, priority: int = 1000, node: str = "n1", at: float = 11.0) -> None:
    """Nominate an unbound pod for a node."""
    urgent = {"kind": "Pod", "metadata": {"name": "u", "namespace": "shop", "uid": "u"}, "spec": {"priority": priority}}
    log.write(at - 1, "pods", "create", "shop/u", response={**urgent, "status": {}})
    log.write(at, "pods/status", "patch", "shop/u", user=OPERATOR, request={"status": {"nominatedNodeName": node}})


@pytest.mark.parametrize(
    ("priority", "node", "nominated_at", "evicted", "cause"),
    [
        (1000, "n1", 11, 12, PREEMPTION),
        (1000, "n2", 11, 12, POLICY_MOVE),
        (0, "n1", 11, 12, POLICY_MOVE),
        (1000, "n1", 11, LATER, PREEMPTION),
        (1000, "n1", 11, 10.8, PREEMPTION),
        (1000, "n1", 11, 10.2, POLICY_MOVE),
        (1000, "n1", 11, 12 + UNCONFIRMED + LAG, POLICY_MOVE),
    ],
    ids=["higher", "other node", "same priority", "later", "answered later", "nominated afterwards", "not shown"],
)
def test_eviction_for_a_nominated_pod_of_higher_priority_is_a_preemption(
    log: Log, priority: int, node: str, nominated_at: float, evicted: float, cause: str
) -> None:
    nominated(log, priority=priority, node=node, at=nominated_at)
    log.evict("web-1", evicted)
    log.events.sort(key=lambda each: each.stage_timestamp)

    assert [each.cause for each in disruptions(log.history, lag=LAG)] == [cause]


@pytest.mark.parametrize(
    ("what", "verb", "request_", "response"),
    [
        ("pods/binding", "create", {"target": {"name": "n2"}}, {"kind": "Status"}),
        ("pods/status", "patch", {"status": {"nominatedNodeName": None}}, None),
        ("pods/status", "patch", {"status": {"nominatedNodeName": "n2"}}, None),
        ("pods/status", "patch", {"status": {"phase": "Failed"}}, None),
        ("pods/eviction", "create", {}, {"kind": "Status"}),
        ("pods", "delete", {}, {"kind": "Status"}),
    ],
    ids=["bound", "cleared", "other node", "failed", "terminating", "deleted"],
)
def test_nomination_ends(log: Log, what: str, verb: str, request_: Any, response: Any) -> None:
    nominated(log)
    log.write(11.5, what, verb, "shop/u", request=request_, response=response)

    history = log.history

    assert history.nominated("n1", 11.2, 11.4) == [1000]
    assert history.nominated("n1", 11.6, LATER) == []


def test_nomination_that_a_later_version_shows_lasts_longer(log: Log) -> None:
    nominated(log)
    log.write(11 + UNCONFIRMED, "pods/status", "patch", "shop/u", request={"status": {"reason": "Unschedulable"}})

    history = log.history

    assert history.nominated("n1", 10 + 2 * UNCONFIRMED, 10 + 2 * UNCONFIRMED) == [1000]
    assert history.nominated("n1", 12 + 2 * UNCONFIRMED, 12 + 2 * UNCONFIRMED) == []


def test_nomination_accounts_only_for_what_nothing_else_does(log: Log) -> None:
    log.node("n1", 10, verb="update", taints=[{"key": "k", "effect": "NoExecute"}])
    nominated(log)
    log.evict("web-1", 12)
    log.evict("web-2", 12)

    assert [each.cause for each in disruptions(log.history, lag=LAG)] == [DEADLINE, POLICY_MOVE]


def test_nomination_accounts_for_nothing_if_the_operator_does_not_schedule(log: Log) -> None:
    nominated(log)
    log.evict("web-1", 12)

    assert [each.cause for each in disruptions(log.history, lag=LAG, preempts=False)] == [POLICY_MOVE]


# Budgets


def broken(log: Log, at: float = 50.0) -> list[str]:
    for moment, healthy in ((1.0, 2), (at, 1)):
        status = {"expectedPods": 2, "currentHealthy": healthy, "desiredHealthy": 2}
        body = {"kind": "PodDisruptionBudget", "metadata": {"name": "web"}, "status": status}
        log.write(moment, "poddisruptionbudgets/status", "update", "shop/web", response=body)
    return budgets_broken(log.history, "shop", lag=LAG)


def test_budget_that_was_met_must_not_be_broken(log: Log) -> None:
    assert len(broken(log)) == 1


@pytest.mark.parametrize(("node", "failed", "violations"), [("n1", 40.0, 0), ("n1", 200.0, 1), ("n3", 40.0, 1)])
def test_failure_of_a_node_of_its_pods_may_break_a_budget(log: Log, node: str, failed: float, violations: int) -> None:
    log.node("n3")
    log.node(node, failed, verb="update", status={"conditions": []})
    log.node(node, failed + 2, verb="update")

    assert len(broken(log)) == violations


def test_new_node_had_no_pods_while_it_was_not_ready(log: Log) -> None:
    log.node("n3", 30.0, status={"conditions": []})
    log.node("n3", 32.0, verb="update")
    log.pod("web-9", "n3", 33.0)

    assert len(broken(log)) == 1


# Pace


@pytest.mark.parametrize(("seconds", "violations"), [(59.9, 1), (60.0, 0)])
def test_policies_keep_their_pace(log: Log, seconds: float, violations: int) -> None:
    log.pod("db-1", "n2", owner="db")
    log.evict("web-1", 10)
    log.evict("web-2", 20)
    log.evict("db-1", 10 + seconds)

    assert len(pace_exceeded(disruptions(log.history, lag=LAG), per_minute=2)) == violations


# Settling time


def unsettled(log: Log) -> list[str]:
    return unsettled_moves(log.history, disruptions(log.history, lag=LAG), lag=LAG)


def test_second_move_before_the_replacement_is_ready_is_a_violation(log: Log) -> None:
    log.evict("web-1", 10)
    log.pod("web-3", "n2", 12, ready=False)
    log.evict("web-2", 20)

    assert len(unsettled(log)) == 1


def test_second_move_after_the_replacement_is_ready_is_no_violation(log: Log) -> None:
    log.evict("web-1", 10)
    log.pod("web-3", "n2", 12, ready=False)
    log.ready("web-3", 18)
    log.evict("web-2", 20)

    assert unsettled(log) == []


def test_moves_of_other_owners_and_because_of_taints_need_no_settling(log: Log) -> None:
    log.pod("db-1", "n2", owner="db")
    log.evict("web-1", 10)
    log.evict("db-1", 11)
    log.node("n2", 12, verb="update", taints=[{"key": "k", "effect": "NoExecute"}])
    log.evict("web-2", 13)

    assert unsettled(log) == []


@pytest.mark.parametrize(
    ("user", "violations"),
    [("replicaset-controller", 0), ("statefulset-controller", 0), ("generic-garbage-collector", 1)],
)
def test_owner_that_was_scaled_down_needs_no_replacement(log: Log, user: str, violations: int) -> None:
    log.pod("web-3", "n1")
    log.evict("web-1", 10)
    log.write(15, "pods", "delete", "shop/web-3", user=f"system:serviceaccount:kube-system:{user}")
    log.evict("web-2", 20)

    assert len(unsettled(log)) == violations


def test_pod_that_its_owner_deletes_and_creates_again_has_to_be_replaced(log: Log) -> None:
    log.pod("web-3", "n1")
    log.evict("web-1", 10)
    log.write(15, "pods", "delete", "shop/web-3", user="system:serviceaccount:kube-system:statefulset-controller")
    log.evict("web-2", 20)
    log.pod("web-3", "n2", 40)

    assert len(unsettled(log)) == 1


def test_move_of_another_process_needs_no_pod_that_starts(log: Log) -> None:
    log.evict("web-1", 10)
    log.evict("web-2", 30, token="second")
    assert unsettled(log) == []

    other = Log()
    other.node("n1")
    other.pod("web-1", "n1")
    other.pod("web-2", "n1")
    other.evict("web-1", 10)
    other.pod("web-3", "", 12, ready=False)
    other.evict("web-2", 30, token="second")
    assert len(unsettled(other)) == 1


# Places


def nowhere(log: Log) -> list[str]:
    return unplaceable(log.history, disruptions(log.history, lag=LAG), lag=LAG)


def test_pod_with_a_place_elsewhere_may_be_moved(log: Log) -> None:
    log.evict("web-1", 20)

    assert nowhere(log) == []


@pytest.mark.parametrize(
    "spec",
    [
        {"unschedulable": True},
        {"taints": [{"key": "k", "effect": "NoSchedule"}]},
        {"status": {"conditions": []}},
        {"cpu": "1500m"},
        {"labels": {"kubernetes.io/hostname": "other", "pool": "b"}},
    ],
)
def test_pod_without_a_place_elsewhere_must_not_be_moved(spec: dict[str, Any]) -> None:
    log = Log()
    log.node("n1", labels={"pool": "a"})
    log.node("n2", **{"labels": {"pool": "a"}, **spec})
    log.pod("web-1", "n1", nodeSelector={"pool": "a"})
    log.pod("web-2", "n2")
    log.evict("web-1", 20)

    assert len(nowhere(log)) == 1


def test_anti_affinity_leaves_no_place() -> None:
    log = Log()
    log.node("n1")
    log.node("n2")
    log.pod("web-1", "n1", affinity=ANTI_AFFINITY)
    log.pod("web-2", "n2", cpu="100m")
    log.evict("web-1", 20)

    assert len(nowhere(log)) == 1


def test_drain_needs_a_place_and_a_deadline_does_not(log: Log) -> None:
    log.node("n2", 1, verb="update", unschedulable=True)
    log.node("n1", 10, verb="update", taints=[{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}])
    log.evict("web-1", 20)
    assert len(nowhere(log)) == 1

    log.node("n1", 11, verb="update", taints=[{"key": "k", "effect": "NoExecute"}])
    log.events[-1], log.events[-2] = log.events[-2], log.events[-1]
    assert nowhere(log) == []


@pytest.mark.parametrize(("full_since", "violations"), [(20 - LAG / 2, 0), (20 - 2 * LAG, 1)])
def test_place_that_was_taken_within_the_lag_is_no_violation(log: Log, full_since: float, violations: int) -> None:
    log.pod("db-1", "n2", full_since, owner="db")
    log.evict("web-1", 20)

    assert len(nowhere(log)) == violations


# Machines


def machine(log: Log, at: float, *, user: str = MACHINES) -> list[str]:
    body = {"kind": "Machine", "metadata": {"name": "m1"}, "status": {"nodeRef": {"name": "n1"}}}
    log.write(0, "machines", "create", "mapi/m1", response=body)
    log.write(at, "machines", "delete", "mapi/m1", user=user, response={"kind": "Status"})
    return busy_machines_removed(log.history, by_hand=[ADMIN])


def test_machine_of_a_busy_node_must_not_be_removed(log: Log) -> None:
    assert len(machine(log, 20)) == 1


def test_machine_of_a_drained_node_may_be_removed(log: Log) -> None:
    log.pod("agent", "n1", kind="DaemonSet", owner="agent")
    log.evict("web-1", 10)

    assert machine(log, 20) == []


def test_machine_of_a_failed_node_or_deleted_by_hand_may_be_busy(log: Log) -> None:
    assert machine(log, 20, user=ADMIN) == []

    log.node("n1", 5, verb="update", status={"conditions": []})
    log.events = sorted(log.events, key=lambda each: each.stage_timestamp)
    assert machine(log, 20) == []


# Sizes


def sized(*sizes: int, low: int = 2, high: int = 5, begin: int = 3, deleted: float | None = None) -> list[str]:
    log = Log()
    bounds = {"minReplicas": low, "maxReplicas": high, "scaleTargetRef": {"name": "workers"}}
    body = {"kind": "MachineAutoscaler", "metadata": {"name": "w", "namespace": "mapi"}, "spec": bounds}
    log.write(0, "machineautoscalers", "create", "mapi/w", response=body)
    group = {"kind": "MachineSet", "metadata": {"name": "workers"}, "spec": {"replicas": begin}}
    log.write(0, "machinesets", "create", "mapi/workers", response=group)
    for at, size in enumerate(sizes, 10):
        scale = {"kind": "Scale", "metadata": {"name": "workers"}, "spec": {"replicas": size}}
        request = {"spec": {"replicas": size}}
        log.write(at, "machinesets/scale", "patch", "mapi/workers", user=OPERATOR, request=request, response=scale)
    if deleted is not None:
        log.write(deleted, "machineautoscalers", "delete", "mapi/w", response={"kind": "Status"})
    return sizes_out_of_bounds(log.history, lag=LAG)


def test_sizes_within_the_bounds_are_no_violation() -> None:
    assert sized(5, 2, 3) == []


def test_sizes_outside_the_bounds_are_violations() -> None:
    assert len(sized(6)) == 1
    assert len(sized(1)) == 1


def test_size_may_move_toward_changed_bounds() -> None:
    assert sized(8, 7, 6, begin=9) == []
    assert len(sized(10, begin=9)) == 1
    assert sized(1, begin=0) == []


def test_bounds_count_for_a_short_time_after_their_deletion() -> None:
    assert sized(4, deleted=9.9) == []
    assert len(sized(6, deleted=9.9)) == 1
    assert len(sized(4, deleted=9.9 - LAG)) == 1


# Leaders


def written(log: Log, at: float, token: str) -> list[str]:
    log.write(at, "nodes", "patch", "n1", user=OPERATOR, token=token, request=[])
    return writes_after_lease(log.history)


def test_writes_of_the_leader_are_no_violation() -> None:
    log = Log()
    log.lease(0, "first")
    log.lease(10, "first")
    assert written(log, 20, "first") == []


def test_write_without_the_lease_is_a_violation() -> None:
    log = Log()
    log.lease(0, "first")
    assert len(written(log, 5, "second")) == 1


def test_write_after_the_lease_has_expired_is_a_violation() -> None:
    log = Log()
    log.lease(0, "first")
    assert len(written(log, 16, "first")) == 1


@pytest.mark.parametrize(
    ("resource", "token", "times", "violations"),
    [
        ("events", "first", [30.4], 0),
        ("events", "first", [30.6], 1),
        ("events", "first", [29.9], 1),
        ("events", "third", [30.4], 1),
        ("events", "fourth", [30.4], 1),
        ("nodes", "first", [30.4], 1),
        ("events", "first", [30.1, 30.2], 1),
    ],
    ids=["event", "later", "before", "never a leader", "another former leader", "node", "second event"],
)
def test_event_of_a_process_that_was_just_continued_is_no_violation(
    resource: str, token: str, times: list[float], violations: int
) -> None:
    log = Log()
    log.lease(0, "fourth")
    log.lease(10, "first")
    log.lease(20, "second")
    log.write(25, "events", "create", "shop/web", user=OPERATOR, token="second", request={})
    for at in times:
        log.write(at, resource, "create", "shop/web", user=OPERATOR, token=token, request={})
    assert len(writes_after_lease(log.history, continued=[(30.0, "first")])) == violations


def test_each_continuation_excuses_an_event() -> None:
    log = Log()
    for moment, token in ((0, "first"), (10, "second"), (20, "third")):
        log.lease(moment, token)
    for moment, token in ((30.2, "first"), (30.3, "second"), (60.1, "first")):
        log.write(moment, "events", "create", "shop/web", user=OPERATOR, token=token, request={})
    continued = [(30.0, "first"), (30.1, "second"), (60.0, "first")]

    assert writes_after_lease(log.history, continued=continued) == []


def test_write_after_a_takeover_is_a_violation() -> None:
    log = Log()
    log.lease(0, "first")
    log.lease(10, "second")
    assert len(written(log, 11, "first")) == 1
    assert len(written(log, 12, "second")) == 1, "only the first write"


# At rest


def body(
    name: str = "n1", *, status: dict[str, Any] | None = None, spec: dict[str, Any] | None = None, **meta: Any
) -> dict[str, Any]:
    return {"metadata": {"name": name, **meta}, "spec": spec or {}, "status": status or READY}


def taint(key: str) -> dict[str, Any]:
    return {"taints": [{"key": key, "effect": "NoSchedule"}]}


def test_no_mark_is_no_orphan() -> None:
    foreign = body(spec=taint("example.com/dedicated"), annotations={"trimtab.dev/unneeded-since": "x"})
    failed = body(status={"conditions": []}, spec=taint("node.kubernetes.io/unreachable"))
    deleting = body("m2", annotations={"machine.openshift.io/delete-machine": "x"}, deletionTimestamp="now")
    kept = body("p", finalizers=["machinetarget.autoscaling.openshift.io"])
    kubelet = body("n2", status={"conditions": [{"type": "MemoryPressure", "status": "True"}]})

    assert orphans(nodes=[foreign, failed, kubelet], machines=[deleting], groups=[body("w")], deleted=[kept]) == []


@pytest.mark.parametrize(
    "objects",
    [
        {"nodes": [body(spec=taint("ToBeDeletedByClusterAutoscaler"))]},
        {"nodes": [body(spec=taint("DeletionCandidateOfClusterAutoscaler"))]},
        {"nodes": [body(spec=taint("pressure.trimtab.dev/memory"))]},
        {"nodes": [body(spec=taint("node.kubernetes.io/unreachable"))]},
        {"nodes": [body(spec={"unschedulable": True})]},
        {"nodes": [body(annotations={"trimtab.dev/cordoned-by": "cluster-autoscaler"})]},
        {"nodes": [body(annotations={"pressure.trimtab.dev/state": "{}"})]},
        {"nodes": [body(status={"conditions": [{"type": "pressure.trimtab.dev/MemoryPressure", "status": "True"}]})]},
        {"machines": [body("m1", annotations={"machine.openshift.io/delete-machine": "x"})]},
        {"groups": [body("w", annotations={"trimtab.dev/removal-in-progress": "{}"})]},
        {"deleted": [body("p", finalizers=["trimtab.dev/finalizer"], deletionTimestamp="now")]},
    ],
)
def test_what_the_operator_leaves_behind_is_an_orphan(objects: dict[str, Any]) -> None:
    assert len(orphans(**objects)) in (1, 2)


def test_actions_before_the_rest_are_no_violation(log: Log) -> None:
    log.evict("web-1", 50)

    assert restless(log.history, end=100, quiet=20) == []


def test_actions_at_rest_are_violations(log: Log) -> None:
    log.evict("web-1", 90)
    log.node("n3", 95)
    scale = {"kind": "Scale", "metadata": {"name": "w"}, "spec": {"replicas": 2}}
    log.write(
        96, "machinesets/scale", "patch", "mapi/w", user=OPERATOR, request={"spec": {"replicas": 2}}, response=scale
    )

    assert len(restless(log.history, end=100, quiet=20)) == 3
