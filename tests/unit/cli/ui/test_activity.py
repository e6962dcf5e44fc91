"""The actions in flight that the page lists."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from tests.builders import node, pod
from tests.unit.descheduling.planning import NOW, built
from tests.unit.inspection.test_status import WAITING, policy
from trimtab.api.cluster_autoscaler import ClusterAutoscaler
from trimtab.api.taint_manager import TaintManager
from trimtab.cli.ui import activity as module
from trimtab.cli.ui.activity import activity
from trimtab.cluster.snapshot import Snapshot
from trimtab.inspection.cluster import ClusterInput, PolicySet

SINCE = "2026-11-20T11:00:00Z"
LATER = "2026-11-20T13:00:00Z"


def rows(*things: Any, **policies: Any) -> dict[str, Any]:
    cluster = ClusterInput(snapshot=Snapshot(built(things)), now=NOW, source="test", policies=PolicySet(**policies))
    return activity(cluster)


def test_idle_cluster_has_no_actions() -> None:
    assert rows(node("n1"), pod("web-1").on("n1")) == {"total": 0, "rows": []}


def test_actions_of_the_autoscaler() -> None:
    status = {
        "removing": [{"name": "n1", "group": "a", "phase": "Draining", "since": SINCE, "message": "m"}],
        "nodeGroups": [
            {"id": "a", "upcoming": 2, "scaleUp": {"from": 1, "to": 3, "since": SINCE, "deadline": LATER}},
            {"id": "b"},
        ],
        "waitingEvictions": [WAITING],
    }
    autoscaler = msgspec.convert({"metadata": {"name": "default"}, "spec": {}, "status": status}, ClusterAutoscaler)

    found = rows(cluster_autoscaler=autoscaler)["rows"]

    assert [each["what"] for each in found] == ["RemoveNode", "ScaleUp", "Waiting"]
    removal, scale_up, waiting = found
    assert {key: removal[key] for key in ("node", "group", "reason", "since")} == {
        "node": "n1",
        "group": "a",
        "reason": "Draining",
        "since": SINCE,
    }
    assert (scale_up["group"], scale_up["since"], scale_up["until"]) == ("a", SINCE, LATER)
    assert (waiting["reason"], waiting["by"]) == ("WaitingForBudget", "ClusterAutoscaler")


def test_evictions_of_descheduler_policies_that_wait() -> None:
    [found] = rows(descheduler=(policy(waitingEvictions=[WAITING], name="nightly"),))["rows"]

    assert (found["what"], found["by"], found["since"]) == ("Waiting", "DeschedulerPolicy nightly", SINCE)
    assert "2 evictions" in found["message"]


def test_deadlines_and_refusals_of_the_taint_manager() -> None:
    due = {"namespace": "shop", "pod": "web-1", "node": "n1", "due": LATER}
    status = {
        "nextDeadlines": [{**due, "taint": "gpu:NoExecute"}],
        "refused": [{**due, "due": SINCE, "message": "PDB"}],
    }
    manager = msgspec.convert({"metadata": {"name": "default"}, "spec": {}, "status": status}, TaintManager)

    deadline, refused = rows(taint_manager=manager)["rows"]

    assert (deadline["what"], deadline["pod"], deadline["until"]) == ("Deadline", "shop/web-1", LATER)
    assert (refused["what"], refused["since"], refused["message"]) == ("Refused", SINCE, "PDB")


def test_terminating_pods_say_who_disrupts_them(monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_TERMINATING", 2)
    at = datetime.fromtimestamp(NOW, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "m"}
    gone = {"metadata": {"deletionTimestamp": at}}
    things = [pod(f"web-{number}").on("n1").merge(**gone) for number in range(3)]
    things[0] = things[0].merge(status={"conditions": [condition]})

    found = rows(node("n1"), *things)

    assert found["total"] == 3
    assert [(each["pod"], each.get("reason"), each["until"]) for each in found["rows"]] == [
        ("shop/web-0", "EvictionByEvictionAPI", at),
        ("shop/web-1", None, at),
    ]
