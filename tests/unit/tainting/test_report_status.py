"""The TaintManager's status: what it says, that it stays small, and when it is written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.fakes.api import Call, FakeApi
from tests.fakes.clock import SetClock
from tests.unit.tainting.deadlines import START
from tests.unit.tainting.telling import limit, refused, seen, stuck, zone
from trimtab.api.bounds import stored
from trimtab.api.conditions import find_condition
from trimtab.api.scalars import to_time
from trimtab.api.taint_manager_status import (
    MAX_DEADLINES,
    MAX_REFUSED,
    MAX_STUCK,
    MAX_ZONES,
    PodCounts,
    TaintManagerStatus,
)
from trimtab.tainting.report import StatusKeeper, build_status, with_conditions
from trimtab.tainting.report.status import PACE, SHORTEST, worth_writing

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
                "1 node with NoExecute taints, 1 pod with a deadline; spec.mode is Observe: nothing is done",
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
                "0 nodes with NoExecute taints, 0 pods with a deadline, all zones are down: no node is tainted",
                id="all zones are down",
            ),
            pytest.param(
                {"looked": False},
                "Unknown",
                "WaitingForFirstLook",
                "nodes and pods have not all been seen yet",
                id="nothing was seen yet",
            ),
            pytest.param(
                {"looked": False, "stale": "waiting for pods"},
                "Unknown",
                "WaitingForFirstLook",
                "waiting for pods",
                id="nothing could be seen yet",
            ),
            pytest.param(
                {"stale": "pods: no word for 40s"},
                "False",
                "ClusterUnreachable",
                "nothing is done: pods: no word for 40s",
                id="it is blind",
            ),
        ],
    )
    def test_ready_says_whether_it_is_carried_out(
        self, more: dict[str, Any], state: str, reason: str, message: str
    ) -> None:
        assert said(status(**more), "Ready") == (state, reason, message)

    @pytest.mark.parametrize(
        ("more", "state", "reason", "message"),
        [
            pytest.param({}, "False", "Idle", "no pod's time is over, no node waits for its taint", id="nothing"),
            pytest.param(
                {"mode": "EarlierOnly"}, "False", "Idle", "no pod's time is over", id="nothing, beside others"
            ),
            pytest.param(
                {"mode": "Observe"}, "False", "Idle", "spec.mode is Observe: nothing is done", id="nothing, observing"
            ),
            pytest.param(
                {"waiting": 12, "held": 5, "refused": (refused("a"),)},
                "True",
                "EndingPods",
                "ending 12 pods whose time is over (5 held back by userTaintRates, 1 refused)",
                id="pods are ended",
            ),
            pytest.param(
                {"zones": (zone("eu/a", not_ready=3, waiting=2), zone("", not_ready=1, waiting=1), zone("c"))},
                "True",
                "TaintingNodes",
                "3 nodes wait for the taint: zone eu/a 2 at 0.1 nodes/s, without a name 1 at 0.1 nodes/s",
                id="nodes wait",
            ),
        ],
    )
    def test_progressing_says_what_is_under_way(
        self, more: dict[str, Any], state: str, reason: str, message: str
    ) -> None:
        assert said(status(**more), "Progressing") == (state, reason, message)

    @pytest.mark.parametrize(
        ("more", "reason", "message"),
        [
            pytest.param({"stale": "no word"}, "ClusterUnreachable", "no word", id="blind"),
            pytest.param(
                {"problem": "ApiError: 403"}, "NodeLifecycleFailed", "node lifecycle: ApiError: 403", id="lifecycle"
            ),
            pytest.param(
                {"failed": "due pods: KeyError: 'a'", "problem": "boom"},
                "PassFailed",
                "due pods: KeyError: 'a'; node lifecycle: boom",
                id="a loop failed",
            ),
            pytest.param(
                {"missing_rights": ("delete pods",)},
                "RightsMissing",
                "mode Own needs rights that trimtab does not have: delete pods",
                id="rights",
            ),
            pytest.param(
                {"refused": (refused("a"), refused("b"))},
                "PodsRefused",
                "2 pods whose time is over are not let go: shop/a, due 2027-01-15T08:00:00Z: a webhook says no",
                id="refused",
            ),
            pytest.param(
                {"stuck": (stuck("n1"), stuck("n2"))},
                "PodsStuck",
                "pods cannot end on 2 dead nodes (n1, n2); n1: taint it out-of-service",
                id="stuck",
            ),
            pytest.param(
                {"stuck": (stuck("n1"),), "problem": "boom"},
                "NodeLifecycleFailed",
                "node lifecycle: boom; pods cannot end on 1 dead node (n1); n1: taint it out-of-service",
                id="several: the worst is the reason, all are told",
            ),
        ],
    )
    def test_degraded_says_what_is_wrong(self, more: dict[str, Any], reason: str, message: str) -> None:
        assert said(status(**more), "Degraded") == ("True", reason, message)

    def test_nothing_wrong_is_said_too(self) -> None:
        assert said(status(), "Degraded")[:2] == ("False", "AllWell")

    def test_a_condition_keeps_the_time_since_when_it_holds(self) -> None:
        before = status(stuck=(stuck("n1"),))
        after = status(before, now=START + 60, stuck=(stuck("n1", 9),))
        condition = find_condition(after.conditions, "Degraded")
        assert condition is not None
        assert condition.last_transition_time == to_time(START)

    def test_a_spec_that_cannot_be_used_leaves_all_else_in_the_status(self) -> None:
        before = status(deadlines=(limit(),))
        after = with_conditions(before, ("Ready", False, "InvalidTaintManager", "no"), generation=4, now=START + 5)
        assert said(after, "Ready") == ("False", "InvalidTaintManager", "no")
        assert (after.next_deadlines, after.observed_generation) == (before.next_deadlines, 4)


class TestNumbers:
    def test_counts_go_on_from_what_earlier_processes_counted(self) -> None:
        found = status(
            base=PodCounts(deleted=100, evicted=10, nodes_tainted=4, overdue=9),
            deadlines=(limit("a", due=-5), limit("b")),
            tainted_nodes=2,
            held=1,
            deleted=3,
            evicted=2,
            nodes_tainted=1,
        )
        assert found.counts == PodCounts(
            tainted_nodes=2, pods_with_deadline=2, overdue=1, held=1, deleted=103, evicted=12, nodes_tainted=5
        )

    def test_the_next_deadlines_are_told_with_why_the_first_first(self) -> None:
        found = status(deadlines=(limit("late", due=300), limit("soon", due=9.2)))
        first, second = found.next_deadlines
        assert (first.pod, second.pod, first.node, first.due) == ("soon", "late", "n1", to_time(START + 10))
        assert first.taint == "node.kubernetes.io/unreachable:NoExecute"
        assert first.toleration == "node.kubernetes.io/unreachable:NoExecute for 300s"

    def test_zones_are_told_by_name_and_those_that_are_ill_are_never_cut(self) -> None:
        many = tuple(zone(f"z{number:03}") for number in range(MAX_ZONES))
        ill = (zone("zz-partly", "PartialDisruption", not_ready=5), zone("zz-some", not_ready=1), DOWN[0])
        found = status(zones=(*many, *ill))
        names = [each.name for each in found.zones]
        assert names == sorted(names)
        assert {"a", "zz-partly", "zz-some"} <= set(names)
        assert (len(names), found.zones_omitted) == (MAX_ZONES, 3)

    def test_whatever_a_cluster_is_like_the_status_stays_small(self) -> None:
        long = "x" * 253
        words = "<&>" * 340
        worst = status(
            deadlines=tuple(replace(limit(f"{long}{n}", due=n), node=long) for n in range(MAX_DEADLINES + 1)),
            refused=tuple(replace(refused(long, message=words), node=long) for _ in range(MAX_REFUSED + 1)),
            stuck=tuple(replace(stuck(long), message=words) for _ in range(MAX_STUCK + 1)),
            zones=tuple(zone("z" * 156 + f"{n}") for n in range(MAX_ZONES + 1)),
            problem=words,
            stale=words,
        )
        assert stored(worst) < 300_000
        assert worst.deadlines_omitted == 1
        assert min(worst.refused_omitted, worst.stuck_nodes_omitted, worst.zones_omitted) > 0

    @given(st.lists(st.integers(min_value=-10, max_value=10), max_size=70))
    def test_what_is_cut_is_counted(self, dues: list[int]) -> None:
        found = status(deadlines=tuple(limit(f"p{n}", due=due) for n, due in enumerate(dues)))
        assert len(found.next_deadlines) + found.deadlines_omitted == found.counts.pods_with_deadline == len(dues)
        assert found.counts.overdue == sum(due <= 0 for due in dues)
        told = [each.due for each in found.next_deadlines]
        assert told == sorted(to_time(START + due) for due in dues)[:MAX_DEADLINES]


class TestWriting:
    @pytest.mark.parametrize(
        ("more", "since", "due"),
        [
            pytest.param({}, 1000.0, False, id="nothing new"),
            pytest.param({"deadlines": (limit(),)}, PACE, True, id="numbers after a quiet while"),
            pytest.param({"deadlines": (limit(),)}, PACE - 0.1, False, id="numbers so soon"),
            pytest.param({"deadlines": (limit(),)}, -5.0, True, id="the clock was set back"),
            pytest.param({"waiting": 1}, SHORTEST, True, id="a condition"),
            pytest.param({"waiting": 1}, SHORTEST - 0.1, False, id="a condition within a second"),
            pytest.param({"stuck": (stuck("n1"),)}, SHORTEST, True, id="a node is stuck"),
            pytest.param({"generation": 4}, SHORTEST, True, id="another spec"),
            pytest.param({"deadlines": (limit(),)}, None, True, id="this process has written none"),
            pytest.param({}, None, False, id="this process has nothing to write"),
        ],
    )
    def test_it_is_written_at_once_where_something_begins_and_at_a_pace_for_numbers(
        self, more: dict[str, Any], since: float | None, due: bool
    ) -> None:
        before = status()
        written = None if since is None else START - since
        assert worth_writing(before, status(before, **more), written=written, now=START) == due

    async def test_the_keeper_goes_on_from_the_counts_in_the_cluster_and_writes_what_is_left_at_the_end(self) -> None:
        api, clock = FakeApi(), SetClock(START)
        api.put("/apis/trimtab.dev/v1alpha1/taintmanagers/default", {"status": {"counts": {"deleted": 7}}})
        keeper = StatusKeeper(api, clock)
        keeper.take_up({"counts": {"deleted": 7}})
        keeper.put(status(keeper.status, base=keeper.base))
        await keeper.flush(1.0)
        keeper.put(status(keeper.status, base=keeper.base, deleted=2))
        await keeper.flush(1.0)
        assert [deleted(call) for call in api.calls] == [7]
        await keeper.stop(everything=True)
        assert [deleted(call) for call in api.calls] == [7, 9]
        assert {call.path for call in api.calls} == {"/apis/trimtab.dev/v1alpha1/taintmanagers/default/status"}


def deleted(call: Call) -> int:
    """The count that a write of the status has."""
    count = call.body["status"]["counts"]["deleted"]
    assert isinstance(count, int)
    return count
