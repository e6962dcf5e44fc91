"""The state of all custom resources."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tests.placement_admissions import placement_admission
from tests.unit.inspection.clusters import NOW, descheduler
from trimtab.api.cluster_autoscaler import ClusterAutoscaler
from trimtab.api.history_record import HistoryEntry
from trimtab.api.placement_admission import PlacementAdmission
from trimtab.api.taint_manager import TaintManager
from trimtab.cluster.snapshot import Snapshot
from trimtab.inspection.cluster import ClusterInput, PolicySet
from trimtab.inspection.policy import explain_policy
from trimtab.inspection.status import STATES, OperatorInstance, OperatorState, status_document

SINCE = "2026-11-20T11:00:00Z"


def condition(type_: str, status: str, reason: str = "Reason", message: str = "why") -> dict[str, Any]:
    return {
        "type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": SINCE,
        "observedGeneration": 1,
    }  # fmt: skip


def policy(*conditions: dict[str, Any], name: str = "default", spec: Any = None, **status: Any) -> Any:
    return descheduler(
        {"strategies": {}, "mode": "Act", **(spec or {})},
        name=name,
        status={"observedGeneration": 1, "conditions": list(conditions), **status},
    )


READY = condition("Ready", "True", "CycleCompleted")
WAITING = {"reason": "WaitingForBudget", "since": SINCE, "count": 2, "waitsFor": "autoscaler default", "message": "m"}


@pytest.mark.parametrize(
    ("made", "state", "blocked"),
    [
        (policy(), "Unknown", []),
        (policy(READY), "Idle", []),
        (policy(READY, condition("Progressing", "True")), "Acting", []),
        (policy(condition("Ready", "False", "InvalidPolicy")), "NotReady", ["InvalidPolicy"]),
        (policy(condition("Ready", "False", "Suspended"), spec={"suspend": True}), "Suspended", ["Suspended"]),
        (policy(READY, condition("Degraded", "True", "EvictionsFailed")), "Degraded", ["EvictionsFailed"]),
        (policy(READY, condition("PermissionsMissing", "True", "None")), "Degraded", ["None"]),
        (policy(READY, condition("Conflicting", "True", "SettingsConflict")), "Conflicting", ["SettingsConflict"]),
        (policy(READY, condition("Contended", "True", "Another")), "Conflicting", ["Another"]),
        (policy(READY, condition("Conflicting", "False", "NoConflict")), "Idle", []),
        (policy(READY, waitingEvictions=[WAITING]), "Waiting", ["WaitingForBudget"]),
        (policy(READY, observedGeneration=0), "Idle", []),
    ],
)  # fmt: skip
def test_state_and_what_blocks(made: Any, state: str, blocked: list[str]) -> None:
    (found,) = status_document(PolicySet(descheduler=(made,)), now=NOW)["resources"]

    assert found["state"] == state
    assert [each["reason"] for each in found["blockedBy"]] == blocked


def test_status_for_an_earlier_generation_is_stale() -> None:
    made = policy(READY)
    made = msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, generation=2))
    (found,) = status_document(PolicySet(descheduler=(made,)), now=NOW)["resources"]

    assert (found["state"], [each["type"] for each in found["blockedBy"]]) == ("Stale", ["Stale"])


def test_closed_windows_name_the_next_opening() -> None:
    made = policy(READY, spec={"windows": [{"schedule": "0 22 * * *", "duration": "2h"}]})
    (found,) = status_document(PolicySet(descheduler=(made,)), now=NOW)["resources"]

    assert found["state"] == "OutsideWindows"
    assert found["window"] == {"open": False, "opens": "2026-11-20T22:00:00Z"}


@pytest.mark.parametrize(
    ("ages", "state", "reasons", "running"),
    [
        ((10.0, 400.0), "Idle", [], 1),
        ((170.0,), "Idle", [], 1),
        ((190.0, 400.0), "NotReady", ["NoReplica"], 0),
        ((), "NotReady", ["NoReplica"], 0),
    ],
)
def test_replicas_of_admission_that_were_killed_do_not_count(
    ages: tuple[float, ...], state: str, reasons: list[str], running: int
) -> None:
    seen = [datetime.fromtimestamp(NOW - age, UTC).isoformat().replace("+00:00", "Z") for age in ages]
    replicas = [{"name": f"r{at}", "lastSeen": each, "problem": ""} for at, each in enumerate(seen)]
    manifest = placement_admission({"podNodeConstraints": {}}) | {
        "status": {
            "observedGeneration": 1,
            "conditions": [condition("Ready", "True", "Enforcing"), condition("Degraded", "False", "AllWell")],
            "replicas": replicas,
        }
    }
    made = msgspec.convert(manifest, PlacementAdmission)
    (found,) = status_document(PolicySet(admission=made), now=NOW)["resources"]

    assert (found["state"], [each["reason"] for each in found["blockedBy"]]) == (state, reasons)
    assert found["details"]["replicas"] == running


@pytest.mark.parametrize(
    ("read_at", "running"),
    [(None, 0), (0.0, 1), (-7200.0, 1), (-7200.0 + 170, 1), (-7200.0 + 190, 0)],
    ids=["now", "no other time", "file of two hours ago", "read soon after", "killed before the file was written"],
)
def test_replicas_of_admission_are_compared_with_the_time_of_the_cluster(read_at: float | None, running: int) -> None:
    seen = datetime.fromtimestamp(NOW - 7200, UTC).isoformat().replace("+00:00", "Z")
    manifest = placement_admission({"podNodeConstraints": {}}) | {
        "status": {
            "observedGeneration": 1,
            "conditions": [condition("Ready", "True", "Enforcing"), condition("Degraded", "False", "AllWell")],
            "replicas": [{"name": "r", "lastSeen": seen, "problem": ""}],
        }
    }
    policies = PolicySet(admission=msgspec.convert(manifest, PlacementAdmission))
    at = NOW + read_at if read_at else read_at
    (found,) = status_document(policies, now=NOW, read_at=at)["resources"]

    assert found["state"] == ("Idle" if running else "NotReady")
    assert found["details"]["replicas"] == running
    cluster = ClusterInput(snapshot=Snapshot(()), now=NOW, read_at=at, policies=policies)
    assert explain_policy(cluster, "PlacementAdmission", "default")["state"] == found["state"]


def test_missing_permissions_are_listed() -> None:
    made = policy(READY, condition("PermissionsMissing", "True", message="pods/eviction: create"))
    document = status_document(PolicySet(descheduler=(made,)), now=NOW)

    assert document["degraded"]
    assert document["resources"][0]["missingPermissions"] == "pods/eviction: create"


def test_worst_resources_come_first() -> None:
    made = (policy(READY, name="a"), policy(READY, condition("Degraded", "True"), name="b"))
    document = status_document(PolicySet(descheduler=made), now=NOW)

    assert [each["name"] for each in document["resources"]] == ["b", "a"]
    assert {each["state"] for each in document["resources"]} <= set(STATES)


def test_autoscaler_reports_what_is_in_flight_and_backoff() -> None:
    autoscaler = msgspec.convert(
        {
            "metadata": {"name": "default"},
            "spec": {"scaleDown": {"enabled": True}},
            "status": {
                "observedGeneration": 1,
                "conditions": [condition("Ready", "True")],
                "removing": [{"name": "n1"}],
                "unneeded": [{"name": "n1", "since": SINCE}],
                "lastIteration": {"time": SINCE, "pendingPods": 3},
                "nodeGroups": [
                    {"id": "a", "scaleUp": {"from": 1, "to": 2, "since": SINCE, "deadline": SINCE}},
                    {"id": "b", "backoffUntil": "2026-11-20T13:00:00Z"},
                    {"id": "c", "backoffUntil": SINCE},
                ],
            },
        },
        ClusterAutoscaler,
    )
    (found,) = status_document(PolicySet(cluster_autoscaler=autoscaler), now=NOW)["resources"]

    assert (found["mode"], found["inFlight"]) == ("ScaleDown on", "1 scale-up, 1 removal")
    assert [(each["reason"], "group b" in each["message"]) for each in found["blockedBy"]] == [("GroupBacksOff", True)]
    assert (found["details"]["pendingPods"], found["details"]["unneeded"]) == (3, 1)


def test_taint_manager_reports_its_next_deadline() -> None:
    deadline = {"namespace": "shop", "pod": "web", "node": "n1", "due": "2026-11-20T12:05:00Z", "taint": "a:NoExecute"}
    manager = msgspec.convert(
        {
            "metadata": {"name": "default"},
            "spec": {"mode": "EvictPods"},
            "status": {"conditions": [condition("Ready", "True")], "nextDeadlines": [deadline]},
        },
        TaintManager,
    )
    (found,) = status_document(PolicySet(taint_manager=manager), now=NOW)["resources"]

    assert (found["mode"], found["nextRun"]) == ("EvictPods", "2026-11-20T12:05:00Z")


def test_last_actions_are_those_of_the_policy_latest_first() -> None:
    def entry(minute: int, name: str) -> HistoryEntry:
        return HistoryEntry(
            time=datetime(2026, 11, 20, 11, minute, tzinfo=UTC), controller="descheduler", action="Evict",
            reason="DuplicateOnNode", policy=name, namespace="shop", pod=f"web-{minute}",
        )  # fmt: skip

    history = [entry(minute, "default" if minute != 3 else "other") for minute in range(9)]
    (found,) = status_document(PolicySet(descheduler=(policy(READY),)), now=NOW, history=history)["resources"]

    assert [each["object"] for each in found["lastActions"]] == [f"shop/web-{each}" for each in (8, 7, 6, 5, 4)]


LEADER = OperatorInstance(identity="trimtab-1", namespace="trimtab", since=SINCE, renewed=NOW - 5, duration=35.0)


@pytest.mark.parametrize(
    ("operator", "running", "degraded"),
    [
        (OperatorState(instances=(LEADER,), ready=2, replicas=2), True, False),
        (OperatorState(instances=(msgspec.structs.replace(LEADER, renewed=NOW - 60),)), False, True),
        (OperatorState(instances=(msgspec.structs.replace(LEADER, identity=""),)), False, True),
        (OperatorState(), False, True),
        (OperatorState(unknown="forbidden"), None, False),
        (None, "no operator", False),
    ],
)
def test_stopped_operator_is_a_problem(operator: OperatorState | None, running: Any, degraded: bool) -> None:
    document = status_document(PolicySet(descheduler=(policy(READY),)), now=NOW, operator=operator)

    assert document["degraded"] is degraded
    if operator is None:
        assert document["operator"] is None
    else:
        assert document["operator"]["running"] is running
        assert ("not running" in document["message"]) is (running is False)
