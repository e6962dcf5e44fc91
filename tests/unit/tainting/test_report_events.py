"""What the taint manager tells in events: whom, why, once, and at a pace that leaves room for others."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from tests.fakes.api import FakeApi
from tests.fakes.clock import LoopClock, SetClock
from tests.fakes.recorder import Told
from tests.unit.tainting.deadlines import START
from tests.unit.tainting.telling import change, ended, limit, stuck
from trimtab.api.taint_manager import Mode, TaintManagerSpec
from trimtab.api.taint_manager_status import TaintManagerStatus
from trimtab.kube.events.recorder import EventRecorder
from trimtab.kube.reference import ObjectReference
from trimtab.tainting.conditions import TaintChange
from trimtab.tainting.deadlines import Deadline
from trimtab.tainting.ending.outcome import What
from trimtab.tainting.report import EventTeller, Reporter, Teller, news
from trimtab.tainting.report import events as pace
from trimtab.tainting.report.metrics import TaintManagerMetrics

POD, NODE = "Pod/shop/web", "Node/n1"


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def clock() -> SetClock:
    return SetClock(START)


@pytest.fixture
def teller(told: Told, clock: SetClock) -> EventTeller:
    return own(EventTeller(told, clock, uid_of=lambda name: f"uid-of-{name}"))


def own(teller: EventTeller, mode: Mode = "Own") -> EventTeller:
    teller.configure(TaintManagerSpec(mode=mode), uid="uid-of-manager")
    return teller


class TestDeadlines:
    def test_a_pod_is_told_when_it_goes_and_because_of_which_taint_and_toleration(
        self, told: Told, teller: EventTeller
    ) -> None:
        teller.deadline_set(limit(), None)
        teller.drain()
        node, pod = told.take()
        unreachable = "node.kubernetes.io/unreachable:NoExecute"
        assert pod == (
            POD,
            "DeadlineSet",
            (
                f"due at 2027-01-15T08:05:00Z on n1: taint {unreachable} since 2027-01-15T08:00:00Z, tolerated by "
                f"{unreachable} for 300s"
            ),
        )
        assert node == (
            NODE,
            "DeadlineSet",
            f"1 pod due at 2027-01-15T08:05:00Z because of NoExecute taints, {unreachable} among them",
        )

    def test_events_say_which_pod_and_which_node_by_their_uids(self, told: Told, teller: EventTeller) -> None:
        teller.deadline_set(limit(), None)
        teller.drain()
        node, pod = told.events
        assert (node["regarding"].uid, pod["regarding"].uid, pod["related"].name) == ("uid-of-n1", "uid-web", "n1")

    def test_another_time_is_told_with_the_one_before(self, told: Told, teller: EventTeller) -> None:
        teller.deadline_set(limit(due=60), limit(due=300))
        teller.drain()
        assert "; was due at 2027-01-15T08:05:00Z" in told.take()[1][2]

    @pytest.mark.parametrize(
        "before", [pytest.param(limit(), id="nothing"), pytest.param(limit(due=299.5), id="less than a second")]
    )
    def test_what_changes_nothing_that_is_told_is_not_told(
        self, told: Told, teller: EventTeller, before: Deadline
    ) -> None:
        teller.deadline_set(limit(), before)
        teller.drain()
        assert told.take() == []

    def test_in_mode_observe_it_says_that_nothing_is_done(self, told: Told, teller: EventTeller) -> None:
        own(teller, "Observe").deadline_set(limit(due=0), None)
        teller.drain()
        assert told.take()[1][2].endswith("; in mode Observe trimtab does nothing about it")

    def test_who_goes_at_once_is_told_that_it_went_and_not_that_it_will(self, told: Told, teller: EventTeller) -> None:
        teller.deadline_set(limit(due=1), None)
        teller.ended(ended(limit(due=1)))
        teller.drain()
        assert told.whom() == [(POD, "TaintManagerEviction")]

    def test_a_limit_that_is_old_when_we_first_see_it_was_told_before_a_restart(
        self, told: Told, teller: EventTeller
    ) -> None:
        teller.deadline_set(limit(since=-61), None)
        teller.drain()
        assert told.take() == []

    def test_who_may_stay_after_all_is_told_so_in_upstreams_words(self, told: Told, teller: EventTeller) -> None:
        teller.deadline_set(limit(), None)
        teller.drain()
        told.take()
        teller.dropped(limit(), stays=True)
        teller.drain()
        note = "Cancelling deletion of Pod shop/web: taints of n1 do not limit its time any more"
        assert told.take() == [(POD, "DeadlineCancelled", note)]

    @pytest.mark.parametrize("stays", [True, False])
    def test_what_was_not_told_yet_need_not_be_taken_back(self, told: Told, teller: EventTeller, stays: bool) -> None:
        teller.deadline_set(limit(), None)
        teller.dropped(limit(), stays=stays)
        teller.drain()
        assert told.take() == []

    def test_a_pod_that_is_gone_is_told_nothing(self, told: Told, teller: EventTeller) -> None:
        teller.deadline_set(limit(), None)
        teller.drain()
        told.take()
        teller.dropped(limit(), stays=False)
        teller.drain()
        assert told.take() == []

    def test_of_several_times_before_the_first_is_told_only_the_last_counts(
        self, told: Told, teller: EventTeller
    ) -> None:
        teller.deadline_set(limit(due=300), None)
        teller.deadline_set(limit(due=60), limit(due=300))
        teller.drain()
        notes = [note for _, _, note in told.take()]
        assert [("08:01:00Z" in note, "was due" in note) for note in notes] == [(True, False), (True, False)]


class TestPodsThatGo:
    def test_a_deletion_is_told_in_upstreams_words_with_when_and_why(self, told: Told, teller: EventTeller) -> None:
        teller.ended(ended(limit(), at=300.26))
        teller.drain()
        [(about, reason, note)] = told.take()
        assert (about, reason) == (POD, "TaintManagerEviction")
        assert note.startswith(
            "Marking for deletion Pod shop/web: deleted at 2027-01-15T08:05:00Z, 0.3s after its time; taint "
        )

    def test_an_eviction_says_how_long_a_rate_held_it_back(self, told: Told, teller: EventTeller) -> None:
        teller.ended(ended(limit(), What.EVICTED, at=310, held=9.5))
        teller.drain()
        [event] = told.events
        assert event["action"] == "Evict"
        assert (
            "evicted at 2027-01-15T08:05:10Z, 10.0s after its time, 9.5s of it held back by userTaintRates"
            in event["note"]
        )

    def test_a_refusal_says_who_refused_and_that_it_is_tried_again(self, told: Told, teller: EventTeller) -> None:
        outcome = ended(
            limit(), What.REFUSED, reason="DeletionRefused", message="denied", refuser="guard.example", attempts=4
        )
        teller.ended(outcome)
        teller.drain()
        assert told.events[0]["type"] == "Warning"
        assert told.take() == [
            (
                POD,
                "DeletionRefused",
                (
                    "due at 2027-01-15T08:05:00Z on n1 and still there: denied (guard.example); tried 4 times, "
                    "will be tried again"
                ),
            )
        ]

    @pytest.mark.parametrize(
        ("reason", "action"),
        [
            ("DisruptionBudget", "Evict"),
            ("EvictionInBackground", "Evict"),
            ("DeletionRefused", "Delete"),
        ],
    )
    def test_a_refusal_says_what_was_refused(self, told: Told, teller: EventTeller, reason: str, action: str) -> None:
        teller.ended(ended(limit(), What.REFUSED, reason=reason))
        teller.drain()
        assert told.events[0]["action"] == action

    def test_a_pod_that_was_not_evicted_in_time_is_told_why_it_is_deleted(
        self, told: Told, teller: EventTeller
    ) -> None:
        teller.ended(ended(limit(), reason="MaximumWaitOver", message="not evicted for 600s, and so deleted"))
        teller.drain()
        assert told.take()[0][2].endswith("; not evicted for 600s, and so deleted")

    @pytest.mark.parametrize("what", [What.GONE, What.NOT_DUE, What.FAILED])
    def test_what_is_no_news_is_counted_and_not_told(self, told: Told, teller: EventTeller, what: What) -> None:
        teller.ended(ended(limit(), what))
        teller.drain()
        assert told.take() == []

    def test_the_end_is_told_even_where_the_pod_goes_from_the_book_before(
        self, told: Told, teller: EventTeller
    ) -> None:
        teller.ended(ended(limit()))
        teller.dropped(limit(), stays=False)
        teller.drain()
        assert told.whom() == [(POD, "TaintManagerEviction")]

    def test_who_went_is_not_told_another_time_though_the_watch_shows_it_as_it_was(
        self, told: Told, teller: EventTeller
    ) -> None:
        teller.ended(ended(limit()))
        teller.deadline_set(limit(due=900), limit())
        teller.drain()
        assert told.whom() == [(POD, "TaintManagerEviction")]

    def test_a_refusal_that_is_over_is_not_told_any_more(self, told: Told, teller: EventTeller) -> None:
        teller.ended(ended(limit(), What.REFUSED))
        teller.ended(ended(limit()))
        teller.drain()
        assert told.whom() == [(POD, "TaintManagerEviction")]

    def test_the_successor_of_a_pod_of_the_same_name_has_news_of_its_own(self, told: Told, teller: EventTeller) -> None:
        teller.ended(ended(limit("db-0", uid="first")))
        teller.deadline_set(limit("db-0", uid="second"), None)
        teller.drain()
        pods = [event for event in told.events if event["regarding"].kind == "Pod"]
        assert [(each["regarding"].uid, each["reason"]) for each in pods] == [
            ("first", "TaintManagerEviction"),
            ("second", "DeadlineSet"),
        ]


class TestNodes:
    @pytest.mark.parametrize(
        ("told_of", "reason", "action", "kind", "start"),
        [
            pytest.param(change(), "NodeUnreachable", "Taint", "Warning", "put on", id="a failed node is tainted"),
            pytest.param(
                change(effect="NoSchedule"), "NodeUnreachable", "Taint", "Normal", "put on", id="no pod goes for it"
            ),
            pytest.param(
                change(add=False, reason="NodeRecovered"),
                "NodeRecovered",
                "Untaint",
                "Normal",
                "taken off",
                id="it is back",
            ),
        ],
    )
    def test_taints_that_are_put_on_and_taken_off_are_told(
        self, told: Told, teller: EventTeller, told_of: TaintChange, reason: str, action: str, kind: str, start: str
    ) -> None:
        teller.taint_changed(told_of, "u")
        teller.drain()
        [event] = told.events
        assert (event["reason"], event["action"], event["type"]) == (reason, action, kind)
        assert (event["related"].kind, event["related"].uid) == ("TaintManager", "uid-of-manager")
        effect = told_of.taint.effect
        assert event["note"] == (
            f"taint node.kubernetes.io/unreachable:{effect} {start}: condition Ready is Unknown for 60s"
        )

    def test_a_node_is_told_once_a_minute_how_many_of_its_pods_go(
        self, told: Told, teller: EventTeller, clock: SetClock
    ) -> None:
        for number in range(3):
            teller.deadline_set(limit(f"web-{number}", due=300 + number), None)
        teller.drain()
        assert "3 pods due from 2027-01-15T08:05:00Z to 2027-01-15T08:05:02Z" in told.take()[0][2]
        clock.time += 30
        teller.deadline_set(limit("web-4", due=360, since=30), None)
        teller.drain()
        assert told.whom() == [("Pod/shop/web-4", "DeadlineSet")]
        clock.time += 30
        teller.drain()
        assert told.take()[0][2].startswith("1 pod due at 2027-01-15T08:06:00Z")

    def test_a_node_is_not_told_of_pods_that_may_stay_by_then(
        self, told: Told, teller: EventTeller, clock: SetClock
    ) -> None:
        teller.deadline_set(limit("a"), None)
        teller.drain()
        told.take()
        teller.deadline_set(limit("b"), None)
        teller.dropped(limit("b"), stays=True)
        clock.time += 60
        teller.drain()
        assert told.take() == []


class TestStuckNodes:
    def test_a_dead_node_is_told_once_what_can_be_done_and_when_it_is_over(
        self, told: Told, teller: EventTeller
    ) -> None:
        both = TaintManagerStatus(stuck_nodes=(stuck("n1"), stuck("n2")))
        for status in (both, TaintManagerStatus(stuck_nodes=(stuck("n1", 9), stuck("n2"))), TaintManagerStatus()):
            teller.stuck(status)
        teller.drain()
        assert [(str(each["regarding"]), each["type"], each["note"]) for each in told.events] == [
            ("Node/n1", "Warning", "taint it out-of-service"),
            ("Node/n2", "Warning", "taint it out-of-service"),
            ("Node/n1", "Normal", "no pod that cannot end is on the node any more"),
            ("Node/n2", "Normal", "no pod that cannot end is on the node any more"),
        ]
        assert {each["reason"] for each in told.events} == {"PodsStuck"}
        assert told.events[0]["regarding"].uid == "uid-of-n1"

    def test_a_node_that_the_status_has_no_room_for_is_not_told_that_it_is_over(
        self, told: Told, teller: EventTeller
    ) -> None:
        teller.stuck(TaintManagerStatus(stuck_nodes=(stuck("n9"),)))
        teller.stuck(TaintManagerStatus(stuck_nodes=(stuck("n1"),), stuck_nodes_omitted=1))
        teller.drain()
        assert told.whom() == [("Node/n9", "PodsStuck"), ("Node/n1", "PodsStuck")]


class TestFloods:
    def test_7200_pods_at_once_are_told_at_a_pace_and_their_nodes_first(
        self, told: Told, teller: EventTeller, clock: SetClock
    ) -> None:
        for number in range(7200):
            teller.deadline_set(limit(f"web-{number}", node=f"n{number % 100}"), None)
        teller.drain()
        first = told.whom()
        assert len(first) == pace.BURST
        assert {about.partition("/")[0] for about, _ in first} == {"Node"}
        clock.time += 10
        teller.drain()
        assert len(told.take()) == min(pace.BURST, 10 * pace.RATE)

    def test_refusals_come_before_all_else(self, told: Told, teller: EventTeller) -> None:
        for number in range(200):
            teller.taint_changed(change(f"n{number}"), "u")
        teller.ended(ended(limit(), What.REFUSED))
        teller.drain()
        assert told.take()[0][0] == POD

    def test_what_there_is_no_room_for_is_counted(self, teller: EventTeller) -> None:
        for number in range(news.PODS + 5):
            teller.ended(ended(limit(f"web-{number}")))
        for number in range(news.REFUSALS + 4):
            teller.ended(ended(limit(f"web-{number}"), What.REFUSED))
        for number in range(news.NODES + 3):
            teller.taint_changed(change(f"n{number}"), "u")
        assert teller.backlog.untold == 12
        assert len(teller.backlog) == news.PODS + news.REFUSALS + news.NODES

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["set", "moved", "stays", "gone", "deleted", "refused", "drain"]),
                st.integers(min_value=0, max_value=3),
            ),
            max_size=40,
        )
    )
    def test_whatever_happens_a_pod_is_told_its_end_once_and_nothing_after_it(
        self, steps: list[tuple[str, int]]
    ) -> None:
        told, clock = Told(), SetClock(START)
        teller = own(EventTeller(told, clock, uid_of=lambda _: ""))
        gone: set[int] = set()
        for step, number in steps:
            found = limit(f"web-{number}", due=300 + len(gone))
            if step == "drain":
                teller.drain()
            elif number in gone:
                continue
            elif step in ("set", "moved"):
                teller.deadline_set(found, limit(f"web-{number}", due=900) if step == "moved" else None)
            elif step in ("stays", "gone"):
                teller.dropped(found, stays=step == "stays")
            else:
                teller.ended(ended(found, What.DELETED if step == "deleted" else What.REFUSED))
                if step == "deleted":
                    gone.add(number)
                    teller.dropped(found, stays=False)
        clock.time += 120
        teller.drain()
        told_of = [(about, reason) for about, reason in told.whom() if about.startswith("Pod")]
        for number in range(4):
            own_events = [reason for about, reason in told_of if about == f"Pod/shop/web-{number}"]
            assert own_events.count("TaintManagerEviction") == (number in gone)
            assert "TaintManagerEviction" not in own_events[:-1]


class Breaking:
    """A recorder that fails."""

    def event(self, *_: object, **__: object) -> None:
        raise RuntimeError("no")


def test_a_report_that_fails_never_stops_what_it_is_about(clock: SetClock) -> None:
    events = own(EventTeller(Breaking(), clock, uid_of=lambda _: ""))
    reporter: Teller = Reporter(events, TaintManagerMetrics(CollectorRegistry()), clock)
    reporter.deadline_set(limit())
    reporter.ended(ended(limit()))
    with pytest.raises(RuntimeError):
        events.drain()


@pytest.mark.looptime(start=0)
async def test_beside_7200_pods_others_are_heard_at_once_and_nothing_is_dropped() -> None:
    """The recorder is the real one, which all controllers share."""
    api, clock = FakeApi(), LoopClock()
    async with EventRecorder(api, instance="trimtab-0", clock=clock) as recorder:
        events = own(EventTeller(recorder, clock, uid_of=lambda _: ""))
        reporter = Reporter(events, TaintManagerMetrics(CollectorRegistry()), clock)
        telling = asyncio.create_task(reporter.run())
        for number in range(7200):
            pod = limit(f"web-{number}", node=f"n{number % 100}", due=5)
            reporter.deadline_set(pod)
        await asyncio.sleep(5)
        for number in range(7200):
            reporter.ended(ended(limit(f"web-{number}", node=f"n{number % 100}", due=5)))
        await asyncio.sleep(1)
        before = len(api.calls)
        recorder.event(ObjectReference(kind="Node", name="other"), reason="ScaleDown", action="RemoveNode", note="goes")
        await asyncio.sleep(1)
        assert "ScaleDown" in {call.body["reason"] for call in api.calls[before:]}
        await asyncio.sleep(7200 / pace.RATE)
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
        assert recorder.statistics().dropped == {}
    reasons = Counter(call.body["reason"] for call in api.calls)
    assert reasons["TaintManagerEviction"] == 7200
    nodes = {call.body["regarding"]["name"] for call in api.calls if call.body["regarding"]["kind"] == "Node"}
    assert len(nodes) == 101
