"""The TaintManager's status: what it says, that it stays small, and when it is written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.fakes.api import Call, FakeApi
from tests.fakes.clock import SetClock
from tests.fixtures.golden import Golden
from tests.unit.tainting.deadlines import START
from tests.unit.tainting.reporting import limit, refused, seen, stuck, zone
from trimtab.api.bounds import stored_size
from trimtab.api.conditions import find_condition
from trimtab.api.scalars import to_time
from trimtab.api.taint_manager import (
    MAX_DEADLINES,
    MAX_REFUSED,
    MAX_STUCK,
    MAX_ZONES,
    PodCounts,
    TaintManagerStatus,
)
from trimtab.api.waiting_evictions import WaitingEvictions
from trimtab.controller.reporter import next_status, not_ready
from trimtab.tainting.dependencies import ActionCounts
from trimtab.tainting.report import build_status, status_writer
from trimtab.tainting.report.status import MIN_WRITE_PERIOD, WRITE_PERIOD, worth_writing

NONE = TaintManagerStatus()
NOTHING = PodCounts()
DOWN = (zone("a", "FullDisruption", nodes=3, not_ready=3), zone("b", "FullDisruption", nodes=2, not_ready=2))


def status(previous: TaintManagerStatus = NONE, *, base: PodCounts = NOTHING, **more: Any) -> TaintManagerStatus:
    return build_status(seen(**more), previous, base=base)


def said(found: TaintManagerStatus, type_: str) -> tuple[str, str, str]:
    condition = find_condition(found.conditions, type_)
    assert condition is not None
    return condition.status, condition.reason, condition.message


class TestConditions:
    @pytest.mark.parametrize(
        ("more", "state", "reason", "message"),
        [
            pytest.param(
                {"mode": "Observe", "deadlines": (limit(),), "tainted_nodes": 1},
                "True",
                "Observing",
                "1 node with NoExecute taints, 1 pod with a deadline; spec.mode is Observe: "
                "no pod is evicted and no node is tainted",
                id="it observes",
            ),
            pytest.param(
                {"deadlines": (limit("a", due=0), limit("b")), "tainted_nodes": 2, "zones": (zone("a"),)},
                "True",
                "ManagingTaints",
                "2 nodes with NoExecute taints, 2 pods with a deadline, 1 of them overdue",
                id="it manages",
            ),
            pytest.param(
                {"zones": (zone("a", "PartialDisruption", not_ready=6), zone("b"))},
                "True",
                "ManagingTaints",
                "0 nodes with NoExecute taints, 0 pods with a deadline, of 2 zones a is PartialDisruption",
                id="a zone is ill",
            ),
            pytest.param(
                {"zones": (*DOWN, zone("excluded", nodes=0))},
                "True",
                "ManagingTaints",
                "0 nodes with NoExecute taints, 0 pods with a deadline, all zones are in "
                "FullDisruption: no node is tainted",
                id="all zones are down",
            ),
            pytest.param(
                {"synced": False},
                "Unknown",
                "WaitingForFirstSync",
                "nodes and pods are not synced yet",
                id="nothing was seen yet",
            ),
            pytest.param(
                {"synced": False, "stale": "waiting for pods"},
                "Unknown",
                "WaitingForFirstSync",
                "waiting for pods",
                id="nothing could be seen yet",
            ),
            pytest.param(
                {"stale": "pods: no word for 40s"},
                "False",
                "ClusterUnreachable",
                "paused: pods: no word for 40s",
                id="it is blind",
            ),
        ],
    )
    def test_ready_condition(self, more: dict[str, Any], state: str, reason: str, message: str) -> None:
        assert said(status(**more), "Ready") == (state, reason, message)

    @pytest.mark.parametrize(
        ("more", "state", "reason", "message"),
        [
            pytest.param({}, "False", "Idle", "no pod is overdue, no failed node is queued for tainting", id="nothing"),
            pytest.param({"mode": "EvictPods"}, "False", "Idle", "no pod is overdue", id="nothing, beside others"),
            pytest.param(
                {"mode": "Observe"},
                "False",
                "Idle",
                "spec.mode is Observe: no pod is evicted and no node is tainted",
                id="nothing, observing",
            ),
            pytest.param(
                {"waiting": 12, "held": 5, "refused": (refused("a"),)},
                "True",
                "EvictingPods",
                "evicting 12 overdue pods (5 delayed by userTaintRates, 1 refused)",
                id="pods are ended",
            ),
            pytest.param(
                {"zones": (zone("eu/a", not_ready=3, waiting=2), zone("", not_ready=1, waiting=1), zone("c"))},
                "True",
                "TaintingNodes",
                "3 failed nodes queued for tainting: zone eu/a 2 at 0.1 nodes/s, without a name 1 at 0.1 nodes/s",
                id="nodes wait",
            ),
        ],
    )
    def test_progressing_condition(self, more: dict[str, Any], state: str, reason: str, message: str) -> None:
        assert said(status(**more), "Progressing") == (state, reason, message)

    @pytest.mark.parametrize(
        ("more", "reason", "message"),
        [
            pytest.param({"stale": "no word"}, "ClusterUnreachable", "no word", id="blind"),
            pytest.param(
                {"lifecycle_problem": "ApiError: 403"},
                "NodeLifecycleFailed",
                "node lifecycle: ApiError: 403",
                id="lifecycle",
            ),
            pytest.param(
                {"task_failures": "due pods: KeyError: 'a'", "lifecycle_problem": "boom"},
                "IterationFailed",
                "due pods: KeyError: 'a'; node lifecycle: boom",
                id="a loop failed",
            ),
            pytest.param(
                {"refused": (refused("a"), refused("b"))},
                "PodsRefused",
                "eviction of 2 overdue pods refused: shop/a, due 2027-01-15T08:00:00Z: a webhook says no",
                id="refused",
            ),
            pytest.param(
                {"stuck": (stuck("n1"), stuck("n2"))},
                "PodsStuck",
                "pods are stuck terminating on 2 unreachable nodes (n1, n2); n1: taint it out-of-service",
                id="stuck",
            ),
            pytest.param(
                {"stuck": (stuck("n1"),), "lifecycle_problem": "boom"},
                "NodeLifecycleFailed",
                "node lifecycle: boom; pods are stuck terminating on 1 unreachable node "
                "(n1); n1: taint it out-of-service",
                id="several: the worst is the reason, all are told",
            ),
        ],
    )
    def test_degraded_condition(self, more: dict[str, Any], reason: str, message: str) -> None:
        assert said(status(**more), "Degraded") == ("True", reason, message)

    def test_degraded_condition_without_problems(self) -> None:
        assert said(status(), "Degraded")[:2] == ("False", "AllWell")

    def test_condition_keeps_transition_time(self) -> None:
        before = status(stuck=(stuck("n1"),))
        after = status(before, now=START + 60, stuck=(stuck("n1", 9),))
        condition = find_condition(after.conditions, "Degraded")
        assert condition is not None
        assert condition.last_transition_time == to_time(START)

    def test_invalid_spec_keeps_the_rest_of_the_status(self) -> None:
        before = status(deadlines=(limit(),))
        after = next_status(before, not_ready("InvalidTaintManager", "no"), generation=4, now=START + 5)
        assert said(after, "Ready") == ("False", "InvalidTaintManager", "no")
        assert (after.next_deadlines, after.observed_generation) == (before.next_deadlines, 4)


class TestNumbers:
    def test_pending_evictions_are_reported(self) -> None:
        entry = WaitingEvictions(reason="WaitingForBudget", since=to_time(START), waits_for="descheduler a", count=2)
        found = status(waiting_evictions=(entry,))
        assert found.waiting_evictions == (entry,)

    def test_status_counts_continue_from_earlier_processes(self) -> None:
        found = status(
            base=PodCounts(deleted=100, evicted=10, nodes_tainted=4, overdue=9),
            deadlines=(limit("a", due=-5), limit("b")),
            tainted_nodes=2,
            held=1,
            actions=ActionCounts(deleted=3, evicted=2, nodes_tainted=1),
        )
        assert found.counts == PodCounts(
            tainted_nodes=2, pods_with_deadline=2, overdue=1, held=1, deleted=103, evicted=12, nodes_tainted=5
        )

    def test_next_deadlines_are_sorted_with_reasons(self, golden: Golden) -> None:
        found = status(deadlines=(limit("late", due=300), limit("soon", due=9.2)))
        first, second = found.next_deadlines
        assert (first.pod, second.pod, first.node, first.due) == ("soon", "late", "n1", to_time(START + 10))
        assert first.taint == "node.kubernetes.io/unreachable:NoExecute"
        golden(first.toleration)

    def test_disrupted_zones_are_never_omitted(self) -> None:
        many = tuple(zone(f"z{number:03}") for number in range(MAX_ZONES))
        ill = (zone("zz-partly", "PartialDisruption", not_ready=5), zone("zz-some", not_ready=1), DOWN[0])
        found = status(zones=(*many, *ill))
        names = [each.name for each in found.zones]
        assert names == sorted(names)
        assert {"a", "zz-partly", "zz-some"} <= set(names)
        assert (len(names), found.zones_omitted) == (MAX_ZONES, 3)

    def test_status_size_is_bounded(self) -> None:
        long = "x" * 253
        words = "<&>" * 340
        worst = status(
            deadlines=tuple(replace(limit(f"{long}{n}", due=n), node=long) for n in range(MAX_DEADLINES + 1)),
            refused=tuple(replace(refused(long, message=words), node=long) for _ in range(MAX_REFUSED + 1)),
            stuck=tuple(replace(stuck(long), message=words) for _ in range(MAX_STUCK + 1)),
            zones=tuple(zone("z" * 156 + f"{n}") for n in range(MAX_ZONES + 1)),
            lifecycle_problem=words,
            stale=words,
        )
        assert stored_size(worst) < 300_000
        assert worst.deadlines_omitted == 1
        assert min(worst.refused_omitted, worst.stuck_nodes_omitted, worst.zones_omitted) > 0

    @given(st.lists(st.integers(min_value=-10, max_value=10), max_size=70))
    def test_omitted_entries_are_counted(self, dues: list[int]) -> None:
        found = status(deadlines=tuple(limit(f"p{n}", due=due) for n, due in enumerate(dues)))
        assert len(found.next_deadlines) + found.deadlines_omitted == found.counts.pods_with_deadline == len(dues)
        assert found.counts.overdue == sum(due <= 0 for due in dues)
        recorded = [each.due for each in found.next_deadlines]
        assert recorded == sorted(to_time(START + due) for due in dues)[:MAX_DEADLINES]


class TestWriting:
    @pytest.mark.parametrize(
        ("more", "since", "due"),
        [
            pytest.param({}, 1000.0, False, id="nothing new"),
            pytest.param({"deadlines": (limit(),)}, WRITE_PERIOD, True, id="numbers after a quiet while"),
            pytest.param({"deadlines": (limit(),)}, WRITE_PERIOD - 0.1, False, id="numbers so soon"),
            pytest.param({"deadlines": (limit(),)}, -5.0, True, id="the clock was set back"),
            pytest.param({"waiting": 1}, MIN_WRITE_PERIOD, True, id="a condition"),
            pytest.param({"waiting": 1}, MIN_WRITE_PERIOD - 0.1, False, id="a condition within a second"),
            pytest.param({"stuck": (stuck("n1"),)}, MIN_WRITE_PERIOD, True, id="a node is stuck"),
            pytest.param({"generation": 4}, MIN_WRITE_PERIOD, True, id="another spec"),
            pytest.param({"deadlines": (limit(),)}, None, True, id="this process has written none"),
            pytest.param({}, None, False, id="this process has nothing to write"),
        ],
    )
    def test_urgent_changes_are_written_at_once(self, more: dict[str, Any], since: float | None, due: bool) -> None:
        before = status()
        written = None if since is None else START - since
        assert worth_writing(before, status(before, **more), written=written, now=START) == due

    async def test_writer_resumes_counts_and_flushes_at_stop(self) -> None:
        api, clock = FakeApi(), SetClock(START)
        api.put("/apis/trimtab.dev/v1alpha1/taintmanagers/default", {"status": {"counts": {"deleted": 7}}})
        writer = status_writer(api, clock)
        writer.resume({"counts": {"deleted": 7}})
        base = writer.status.counts
        writer.put(status(writer.status, base=base))
        await writer.flush(1.0)
        writer.put(status(writer.status, base=base, actions=ActionCounts(deleted=2)))
        await writer.flush(1.0)
        assert [deleted(call) for call in api.calls] == [7]
        await writer.stop(everything=True)
        assert [deleted(call) for call in api.calls] == [7, 9]
        assert {call.path for call in api.calls} == {"/apis/trimtab.dev/v1alpha1/taintmanagers/default/status"}


def deleted(call: Call) -> int:
    """The count that a write of the status has."""
    count = call.body["status"]["counts"]["deleted"]
    assert isinstance(count, int)
    return count
