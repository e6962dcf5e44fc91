"""What the taint manager tells in events: whom, why, once, and at a pace that leaves room for others."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from tests.fakes.api import FakeApi
from tests.fakes.clock import LoopClock, SetClock
from tests.fakes.recorder import FakeRecorder
from tests.fixtures.golden import Golden
from tests.unit.tainting.deadlines import START
from tests.unit.tainting.reporting import change, ended, limit, stuck
from trimtab.api.taint_manager import Mode, TaintManagerSpec, TaintManagerStatus
from trimtab.kube.clock import Clock
from trimtab.kube.events.paced import BURST, RATE
from trimtab.kube.events.recorder import EventRecorder, Recorder
from trimtab.kube.resources import ObjectReference
from trimtab.tainting.deadlines import Deadline
from trimtab.tainting.due_pods import DuePodResult
from trimtab.tainting.lifecycle.planner import TaintChange
from trimtab.tainting.report import Reporter, TaintManagerMetrics
from trimtab.tainting.report.reporter import NODES, PODS, REFUSALS

POD, NODE = "Pod/shop/web", "Node/n1"


@pytest.fixture
def recorded() -> FakeRecorder:
    return FakeRecorder()


@pytest.fixture
def clock() -> SetClock:
    return SetClock(START)


@pytest.fixture
def events(recorded: FakeRecorder, clock: SetClock) -> Reporter:
    return a_reporter(recorded, clock, "uid-of-")


def a_reporter(recorder: Recorder, clock: Clock, prefix: str = "") -> Reporter:
    """A reporter; the UID of a node is its name with the prefix, if there is one."""
    metrics = TaintManagerMetrics(CollectorRegistry())
    return own(Reporter(recorder, clock, metrics, uid_of=lambda name: prefix and f"{prefix}{name}"))


def own(events: Reporter, mode: Mode = "TaintAndEvict") -> Reporter:
    events.configure(TaintManagerSpec(mode=mode), uid="uid-of-manager")
    return events


class TestDeadlines:
    def test_deadline_event_has_time_taint_and_toleration(
        self, recorded: FakeRecorder, events: Reporter, golden: Golden
    ) -> None:
        events.deadline_set(limit(), None)
        events.drain()
        node, pod = recorded.take()
        assert (pod[:2], node[:2]) == ((POD, "DeadlineSet"), (NODE, "DeadlineSet"))
        golden(pod[2], "pod")
        golden(node[2], "node")

    def test_events_have_uids(self, recorded: FakeRecorder, events: Reporter) -> None:
        events.deadline_set(limit(), None)
        events.drain()
        node, pod = recorded.events
        assert (node["regarding"].uid, pod["regarding"].uid, pod["related"].name) == ("uid-of-n1", "uid-web", "n1")

    def test_changed_deadline_event_has_the_former_one(
        self, recorded: FakeRecorder, events: Reporter, golden: Golden
    ) -> None:
        events.deadline_set(limit(due=60), limit(due=300))
        events.drain()
        golden(recorded.take()[1][2])

    @pytest.mark.parametrize(
        "before", [pytest.param(limit(), id="nothing"), pytest.param(limit(due=299.5), id="less than a second")]
    )
    def test_irrelevant_change_has_no_event(self, recorded: FakeRecorder, events: Reporter, before: Deadline) -> None:
        events.deadline_set(limit(), before)
        events.drain()
        assert recorded.take() == []

    def test_summary_names_only_current_taints(self, recorded: FakeRecorder, events: Reporter) -> None:
        first = limit()
        second = replace(first, taint=replace(first.taint, key="example.com/second"), due=first.due - 1)
        events.deadline_set(first, None)
        events.deadline_set(second, first)
        events.drain()
        [summary] = [each for each in recorded.take() if "pod due" in each[2]]
        assert first.taint.key not in summary[2]
        assert second.taint.key in summary[2]

    def test_observe_mode_event_is_report_only(self, recorded: FakeRecorder, events: Reporter, golden: Golden) -> None:
        own(events, "Observe").deadline_set(limit(due=0), None)
        events.drain()
        golden(recorded.take()[1][2])

    def test_imminent_deadline_has_only_a_deletion_event(self, recorded: FakeRecorder, events: Reporter) -> None:
        events.deadline_set(limit(due=1), None)
        events.due_pod_outcome(ended(limit(due=1)))
        events.drain()
        assert recorded.whom() == [(POD, "TaintManagerEviction")]

    def test_old_deadline_is_not_reported_after_restart(self, recorded: FakeRecorder, events: Reporter) -> None:
        events.deadline_set(limit(since=-61), None)
        events.drain()
        assert recorded.take() == []

    def test_cancelled_deadline_has_upstream_event(self, recorded: FakeRecorder, events: Reporter) -> None:
        events.deadline_set(limit(), None)
        events.drain()
        recorded.take()
        events.deadline_cancelled(limit(), pod_kept=True)
        events.drain()
        note = "Cancelling deletion of Pod shop/web: no NoExecute taint of node n1 sets a deadline any more"
        assert recorded.take() == [(POD, "DeadlineCancelled", note)]

    @pytest.mark.parametrize("stays", [True, False])
    def test_unreported_deadline_needs_no_cancellation(
        self, recorded: FakeRecorder, events: Reporter, stays: bool
    ) -> None:
        events.deadline_set(limit(), None)
        events.deadline_cancelled(limit(), pod_kept=stays)
        events.drain()
        assert recorded.take() == []

    def test_deleted_pod_has_no_cancellation_event(self, recorded: FakeRecorder, events: Reporter) -> None:
        events.deadline_set(limit(), None)
        events.drain()
        recorded.take()
        events.deadline_cancelled(limit(), pod_kept=False)
        events.drain()
        assert recorded.take() == []

    def test_queued_deadline_event_is_replaced(self, recorded: FakeRecorder, events: Reporter) -> None:
        events.deadline_set(limit(due=300), None)
        events.deadline_set(limit(due=60), limit(due=300))
        events.drain()
        notes = [note for _, _, note in recorded.take()]
        assert [("08:01:00Z" in note, "was due" in note) for note in notes] == [(True, False), (True, False)]


class TestPodsThatGo:
    def test_deletion_has_upstream_event(self, recorded: FakeRecorder, events: Reporter, golden: Golden) -> None:
        events.due_pod_outcome(ended(limit(), at=300.26))
        events.drain()
        [(about, reason, note)] = recorded.take()
        assert (about, reason) == (POD, "TaintManagerEviction")
        golden(note)

    def test_eviction_event_has_rate_limit_delay(
        self, recorded: FakeRecorder, events: Reporter, golden: Golden
    ) -> None:
        events.due_pod_outcome(ended(limit(), DuePodResult.EVICTED, at=310, held=9.5))
        events.drain()
        [event] = recorded.events
        assert event["action"] == "Evict"
        golden(event["note"])

    def test_refusal_event_has_refuser_and_attempts(
        self, recorded: FakeRecorder, events: Reporter, golden: Golden
    ) -> None:
        report = ended(
            limit(),
            DuePodResult.REFUSED,
            reason="DeletionRefused",
            message="denied",
            refuser="guard.example",
            attempts=4,
        )
        events.due_pod_outcome(report)
        events.drain()
        assert recorded.events[0]["type"] == "Warning"
        [(regarding, reason, note)] = recorded.take()
        assert (regarding, reason) == (POD, "DeletionRefused")
        golden(note)

    @pytest.mark.parametrize(
        ("reason", "action"),
        [
            ("DisruptionBudget", "Evict"),
            ("EvictionInBackground", "Evict"),
            ("DeletionRefused", "Delete"),
        ],
    )
    def test_refusal_event_has_action(self, recorded: FakeRecorder, events: Reporter, reason: str, action: str) -> None:
        events.due_pod_outcome(ended(limit(), DuePodResult.REFUSED, reason=reason))
        events.drain()
        assert recorded.events[0]["action"] == action

    def test_maximum_wait_event_has_reason(self, recorded: FakeRecorder, events: Reporter, golden: Golden) -> None:
        events.due_pod_outcome(ended(limit(), reason="MaximumWaitOver", message="not evicted for 600s, and so deleted"))
        events.drain()
        golden(recorded.take()[0][2])

    @pytest.mark.parametrize("result", [DuePodResult.GONE, DuePodResult.NOT_DUE, DuePodResult.FAILED])
    def test_unchanged_outcomes_have_no_event(
        self, recorded: FakeRecorder, events: Reporter, result: DuePodResult
    ) -> None:
        events.due_pod_outcome(ended(limit(), result))
        events.drain()
        assert recorded.take() == []

    def test_deletion_event_follows_cancelled_deadline(self, recorded: FakeRecorder, events: Reporter) -> None:
        events.due_pod_outcome(ended(limit()))
        events.deadline_cancelled(limit(), pod_kept=False)
        events.drain()
        assert recorded.whom() == [(POD, "TaintManagerEviction")]

    def test_deleted_pod_has_no_new_deadline_event(self, recorded: FakeRecorder, events: Reporter) -> None:
        events.due_pod_outcome(ended(limit()))
        events.deadline_set(limit(due=900), limit())
        events.drain()
        assert recorded.whom() == [(POD, "TaintManagerEviction")]

    def test_resolved_refusal_has_no_event(self, recorded: FakeRecorder, events: Reporter) -> None:
        events.due_pod_outcome(ended(limit(), DuePodResult.REFUSED))
        events.due_pod_outcome(ended(limit()))
        events.drain()
        assert recorded.whom() == [(POD, "TaintManagerEviction")]

    def test_new_pod_with_same_name_has_its_own_events(self, recorded: FakeRecorder, events: Reporter) -> None:
        events.due_pod_outcome(ended(limit("db-0", uid="first")))
        events.deadline_set(limit("db-0", uid="second"), None)
        events.drain()
        pods = [event for event in recorded.events if event["regarding"].kind == "Pod"]
        assert [(each["regarding"].uid, each["reason"]) for each in pods] == [
            ("first", "TaintManagerEviction"),
            ("second", "DeadlineSet"),
        ]


class TestNodes:
    @pytest.mark.parametrize(
        ("told_of", "reason", "action", "kind"),
        [
            pytest.param(change(), "NodeUnreachable", "Taint", "Warning", id="a failed node is tainted"),
            pytest.param(change(effect="NoSchedule"), "NodeUnreachable", "Taint", "Normal", id="no pod goes for it"),
            pytest.param(
                change(add=False, reason="NodeRecovered"), "NodeRecovered", "Untaint", "Normal", id="it is back"
            ),
        ],
    )
    def test_taint_changes_have_events(
        self,
        recorded: FakeRecorder,
        events: Reporter,
        told_of: TaintChange,
        reason: str,
        action: str,
        kind: str,
        golden: Golden,
    ) -> None:
        events.taint_changed(told_of, "u")
        events.drain()
        [event] = recorded.events
        assert (event["reason"], event["action"], event["type"]) == (reason, action, kind)
        assert (event["related"].kind, event["related"].uid) == ("TaintManager", "uid-of-manager")
        golden(event["note"])

    def test_node_summary_event_is_sent_once_a_minute(
        self, recorded: FakeRecorder, events: Reporter, clock: SetClock, golden: Golden
    ) -> None:
        for number in range(3):
            events.deadline_set(limit(f"web-{number}", due=300 + number), None)
        events.drain()
        golden(recorded.take()[0][2])
        clock.time += 30
        events.deadline_set(limit("web-4", due=360, since=30), None)
        events.drain()
        assert recorded.whom() == [("Pod/shop/web-4", "DeadlineSet")]
        clock.time += 30
        events.drain()
        golden(recorded.take()[0][2], "a minute later")

    def test_node_summary_omits_cancelled_deadlines(
        self, recorded: FakeRecorder, events: Reporter, clock: SetClock
    ) -> None:
        events.deadline_set(limit("a"), None)
        events.drain()
        recorded.take()
        events.deadline_set(limit("b"), None)
        events.deadline_cancelled(limit("b"), pod_kept=True)
        clock.time += 60
        events.drain()
        assert recorded.take() == []


class TestStuckNodes:
    def test_stuck_node_has_events_for_begin_and_end(
        self, recorded: FakeRecorder, events: Reporter, golden: Golden
    ) -> None:
        both = TaintManagerStatus(stuck_nodes=(stuck("n1"), stuck("n2")))
        for status in (both, TaintManagerStatus(stuck_nodes=(stuck("n1", 9), stuck("n2"))), TaintManagerStatus()):
            events.observe(status)
        events.drain()
        assert [(str(each["regarding"]), each["type"]) for each in recorded.events] == [
            ("Node/n1", "Warning"),
            ("Node/n2", "Warning"),
            ("Node/n1", "Normal"),
            ("Node/n2", "Normal"),
        ]
        golden("\n".join(each["note"] for each in recorded.events))
        assert {each["reason"] for each in recorded.events} == {"PodsStuck", "PodsNoLongerStuck"}
        assert recorded.events[0]["regarding"].uid == "uid-of-n1"

    def test_omitted_stuck_node_has_no_end_event(self, recorded: FakeRecorder, events: Reporter) -> None:
        events.observe(TaintManagerStatus(stuck_nodes=(stuck("n9"),)))
        events.observe(TaintManagerStatus(stuck_nodes=(stuck("n1"),), stuck_nodes_omitted=1))
        events.drain()
        assert recorded.whom() == [("Node/n9", "PodsStuck"), ("Node/n1", "PodsStuck")]


class TestFloods:
    def test_7200_events_are_rate_limited_nodes_first(
        self, recorded: FakeRecorder, events: Reporter, clock: SetClock
    ) -> None:
        for number in range(7200):
            events.deadline_set(limit(f"web-{number}", node=f"n{number % 100}"), None)
        events.drain()
        first = recorded.whom()
        assert len(first) == BURST
        assert {about.partition("/")[0] for about, _ in first} == {"Node"}
        clock.time += 10
        events.drain()
        assert len(recorded.take()) == min(BURST, 10 * RATE)

    def test_refusals_are_sent_first(self, recorded: FakeRecorder, events: Reporter) -> None:
        for number in range(200):
            events.taint_changed(change(f"n{number}"), "u")
        events.due_pod_outcome(ended(limit(), DuePodResult.REFUSED))
        events.drain()
        assert recorded.take()[0][0] == POD

    def test_dropped_events_are_counted(self, events: Reporter) -> None:
        for number in range(PODS + 5):
            events.due_pod_outcome(ended(limit(f"web-{number}")))
        for number in range(REFUSALS + 4):
            events.due_pod_outcome(ended(limit(f"web-{number}"), DuePodResult.REFUSED))
        for number in range(NODES + 3):
            events.taint_changed(change(f"n{number}"), "u")
        assert events.omitted == 12
        assert (len(events._pods), len(events._refusals), len(events._nodes)) == (PODS, REFUSALS, NODES)

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["set", "moved", "stays", "gone", "deleted", "refused", "drain"]),
                st.integers(min_value=0, max_value=3),
            ),
            max_size=40,
        )
    )
    def test_each_pod_has_one_final_event(self, steps: list[tuple[str, int]]) -> None:
        recorded, clock = FakeRecorder(), SetClock(START)
        events = a_reporter(recorded, clock)
        deleted: set[int] = set()
        for step, number in steps:
            found = limit(f"web-{number}", due=300 + len(deleted))
            if step == "drain":
                events.drain()
            elif number in deleted:
                continue
            elif step in ("set", "moved"):
                events.deadline_set(found, limit(f"web-{number}", due=900) if step == "moved" else None)
            elif step in ("stays", "gone"):
                events.deadline_cancelled(found, pod_kept=step == "stays")
            else:
                events.due_pod_outcome(
                    ended(found, DuePodResult.DELETED if step == "deleted" else DuePodResult.REFUSED)
                )
                if step == "deleted":
                    deleted.add(number)
                    events.deadline_cancelled(found, pod_kept=False)
        clock.time += 120
        events.drain()
        reported = [(about, reason) for about, reason in recorded.whom() if about.startswith("Pod")]
        for number in range(4):
            own_events = [reason for about, reason in reported if about == f"Pod/shop/web-{number}"]
            assert own_events.count("TaintManagerEviction") == (number in deleted)
            assert "TaintManagerEviction" not in own_events[:-1]


class Breaking:
    """A recorder that fails."""

    def event(self, *_: object, **__: object) -> None:
        raise RuntimeError("no")


def test_failing_report_does_not_stop_the_caller(clock: SetClock, caplog: pytest.LogCaptureFixture) -> None:
    reporter = a_reporter(Breaking(), clock)
    reporter.deadline_set(limit())
    reporter.due_pod_outcome(ended(limit()))
    assert not caplog.text
    reporter.drain()
    assert "Failed to report events" in caplog.text


@pytest.mark.looptime(start=0)
async def test_7200_events_do_not_delay_other_controllers() -> None:
    """The recorder is the real one, which all controllers share."""
    api, clock = FakeApi(), LoopClock()
    async with EventRecorder(api, instance="trimtab-0", clock=clock) as recorder:
        reporter = a_reporter(recorder, clock)
        posting = asyncio.create_task(reporter.run())
        for number in range(7200):
            pod = limit(f"web-{number}", node=f"n{number % 100}", due=5)
            reporter.deadline_set(pod)
        await asyncio.sleep(5)
        for number in range(7200):
            reporter.due_pod_outcome(ended(limit(f"web-{number}", node=f"n{number % 100}", due=5)))
        await asyncio.sleep(1)
        before = len(api.calls)
        recorder.event(ObjectReference(kind="Node", name="other"), reason="ScaleDown", action="RemoveNode", note="goes")
        await asyncio.sleep(1)
        assert "ScaleDown" in {call.body["reason"] for call in api.calls[before:]}
        await asyncio.sleep(7200 / RATE)
        posting.cancel()
        await asyncio.gather(posting, return_exceptions=True)
        assert recorder.statistics().dropped == {}
    reasons = Counter(call.body["reason"] for call in api.calls)
    assert reasons["TaintManagerEviction"] == 7200
    nodes = {call.body["regarding"]["name"] for call in api.calls if call.body["regarding"]["kind"] == "Node"}
    assert len(nodes) == 101
