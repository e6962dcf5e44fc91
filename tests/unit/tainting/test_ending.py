"""Pods whose time is over are ended, whatever is in the way, and none too early. Time is virtual."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import looptime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.fakes.clock import START
from tests.unit.tainting.deadlines import bears, taint
from tests.unit.tainting.ending_world import OWN, Cluster, Manager
from trimtab.api import reasons
from trimtab.api.taint_manager import TaintManagerSpec, UserTaintRates
from trimtab.kube.guarded import Guarded
from trimtab.tainting.ending import What

pytestmark = pytest.mark.looptime(start=0)

WEBHOOK = 'admission webhook "guard.example.com" denied the request: not now'


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


async def test_a_pod_is_marked_and_deleted_by_its_uid_at_its_time(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web", bears("a", 30))
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(29.9)
        assert not cluster.sent
        await asyncio.sleep(1)

    mark, delete = cluster.sent
    assert (mark.what, delete.what) == ("PATCH status", "DELETE")
    assert mark.uid == delete.uid == "shop-web-0"
    assert 30 <= mark.at < delete.at < 30.05
    [condition] = mark.body["status"]["conditions"]
    assert condition == {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint",
        "lastTransitionTime": "2027-01-15T08:00:30Z",
    }
    assert "gracePeriodSeconds" not in delete.body
    [ended] = manager.teller.outcomes
    assert (ended.what, ended.reason, ended.attempts) == (What.DELETED, reasons.NO_EXECUTE_TAINT, 1)
    assert ended.lateness < 0.05
    assert (manager.ending.deleted, manager.ending.waiting, manager.ending.refused) == (1, 0, ())


async def test_a_webhook_that_refuses_for_30_seconds_delays_pods_and_loses_none(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(300):
        cluster.pod(f"p{number}")
    cluster.refuses = lambda what, _key: WEBHOOK if what == "DELETE" and cluster.time < 30 else None
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(29)
        assert manager.ending.waiting == 300
        assert len(manager.ending.refused) == 300
        first = manager.ending.refused[0]
        assert (first.pod, first.node, first.message) == ("p0", "n1", WEBHOOK)
        await asyncio.sleep(11)

    assert len(cluster.gone) == 300
    assert min(cluster.gone.values()) >= 30
    assert max(cluster.gone.values()) <= 39, "once one was let go the others are tried at once"
    assert manager.ending.deleted == 300
    assert not manager.ending.refused
    refusals = [each for each in manager.teller.outcomes if each.what is What.REFUSED]
    assert {(each.reason, each.refuser) for each in refusals} == {(reasons.DELETION_REFUSED, "guard.example.com")}
    assert len(cluster.requests("DELETE")) < 300 * 30, "tried ever more rarely"
    assert len(cluster.requests("PATCH status")) <= 300, "a mark that is there is not written again"


async def test_one_refused_pod_holds_nobody_else_up(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(20):
        cluster.pod(f"p{number}")
    cluster.refuses = lambda what, key: WEBHOOK if what == "DELETE" and key == "shop/p0" else None
    manager = Manager(cluster, workers=1)
    async with manager.running():
        await asyncio.sleep(2)

    assert len(cluster.gone) == 19
    assert [each.pod for each in manager.ending.refused] == ["p0"]


@pytest.mark.parametrize("down", [0.5, 20, 300])
async def test_an_api_server_that_is_away_delays_pods_and_loses_none(cluster: Cluster, down: float) -> None:
    cluster.taint("n1", taint())
    for number in range(100):
        cluster.pod(f"p{number}")
    manager = Manager(cluster)
    cluster.down = True
    async with manager.running():
        await asyncio.sleep(down)
        cluster.down = False
        await asyncio.sleep(10)

    assert len(cluster.gone) == 100
    assert manager.ending.deleted == 100


async def test_a_lost_answer_is_no_second_deletion(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.loses = 1
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(5)

    assert manager.ending.deleted == 1
    assert manager.told(What.DELETED) == ["web"]
    assert not manager.told(What.GONE)
    assert manager.ending.waiting == 0


async def test_a_request_that_never_arrived_is_sent_again(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.swallows = 3
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(5)

    assert list(cluster.gone) == ["shop-web-0"]
    assert manager.ending.deleted == 1


async def test_a_pod_that_takes_a_name_again_has_a_time_of_its_own(cluster: Cluster) -> None:
    cluster.taint("n1", taint(added=-1000))
    cluster.pod("db", bears("a", 20), started=START)
    cluster.renews = True
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(70)

    assert list(cluster.gone) == ["shop-db-0", "shop-db-1", "shop-db-2"]
    first, second, third = cluster.gone.values()
    assert first >= 20
    assert second >= first + cluster.grace + 20
    assert third >= second + cluster.grace + 20
    assert all(at < 20 * (number + 1) + 2 for number, at in enumerate((first, second, third)))


async def test_a_successor_is_not_hit_by_what_was_meant_for_its_predecessor(cluster: Cluster) -> None:
    cluster.taint("n1", taint(added=-1000))
    cluster.pod("db", bears("a", 20), started=START)
    cluster.renews = True
    manager = Manager(cluster)
    cluster.watch = None
    async with manager.running():
        await asyncio.sleep(19.9)
        cluster.remove("shop/db")  # by somebody else, and the watch does not tell
        await asyncio.sleep(5)
        assert list(cluster.gone) == ["shop-db-0"]
        assert cluster.pods["shop/db"].uid == "shop-db-1"
        assert manager.told(What.GONE) == ["db"]
        cluster.catch_up()
        await asyncio.sleep(20)

    assert cluster.gone["shop-db-1"] >= 39.9
    assert manager.ending.deleted == 1


@pytest.mark.parametrize("seconds", [None, 100], ids=["for ever", "longer"])
async def test_a_toleration_that_changes_a_second_before_the_end_counts(cluster: Cluster, seconds: int | None) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web", bears("a", 30))
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(29)
        cluster.tolerate("shop/web", bears("a", seconds))
        await asyncio.sleep(70)
        assert not cluster.sent
        await asyncio.sleep(10)

    assert [at >= 100 for at in cluster.gone.values()] == ([] if seconds is None else [True])


async def test_what_changes_between_mark_and_deletion_still_counts(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.latency = 1
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(0.5)
        assert cluster.requests("PATCH status")
        cluster.taint("n1")
        await asyncio.sleep(5)

    assert not cluster.requests("DELETE")
    assert manager.told(What.NOT_DUE) == ["web"]
    assert manager.ending.waiting == 0


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda cluster: cluster.taint("n1"), id="the taint is taken off"),
        pytest.param(lambda cluster: cluster.tolerate("shop/web", bears("a")), id="a toleration comes"),
        pytest.param(lambda cluster: cluster.remove("shop/web"), id="the pod goes"),
    ],
)
async def test_a_refused_pod_is_left_alone_once_its_time_is_not_over_any_more(cluster: Cluster, change: Any) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.refuses = lambda _what, _key: WEBHOOK
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(10)
        change(cluster)
        await asyncio.sleep(0.1)
        before = len(cluster.sent)
        assert (manager.ending.waiting, manager.ending.refused) == (0, ())
        await asyncio.sleep(60)

    assert len(cluster.sent) == before


async def test_a_refused_pod_that_is_given_more_time_goes_at_that(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web", bears("a", 5))
    cluster.refuses = lambda _what, _key: WEBHOOK if cluster.time < 20 else None
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(10)
        cluster.tolerate("shop/web", bears("a", 60))
        await asyncio.sleep(1)
        assert (manager.ending.waiting, manager.ending.refused) == (0, ())
        assert manager.told(What.NOT_DUE) == ["web"]
        await asyncio.sleep(55)

    [at] = cluster.gone.values()
    assert 60 <= at < 60.1


async def test_what_is_told_twice_is_done_once(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    manager = Manager(cluster)
    cluster.latency = 1
    deadline = manager.book.deadlines["shop/web"]
    async with manager.running():
        for _ in range(5):
            manager.ending.due(deadline)
            await asyncio.sleep(0.7)

    assert (len(cluster.requests("DELETE")), manager.ending.deleted) == (1, 1)


async def test_a_pod_that_is_due_by_another_taint_counts_by_that(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("held0")
    cluster.pod("held1")
    cluster.pod("web")
    manager = Manager(cluster, TaintManagerSpec(mode="Own", user_taint_rates=UserTaintRates(total=0.01)))
    async with manager.running():
        await asyncio.sleep(5)
        assert (len(cluster.gone), manager.ending.held) == (1, 2)
        cluster.taint("n1", taint("node.kubernetes.io/unreachable"))
        await asyncio.sleep(1)

    assert len(cluster.gone) == 3


async def test_a_name_that_is_taken_again_while_its_first_pod_is_being_ended(cluster: Cluster) -> None:
    cluster.taint("n1", taint(added=-1000))
    cluster.pod("db", bears("a", 10), started=START)
    cluster.latency = 3
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(14)  # marked, and the deletion is on its way
        cluster.remove("shop/db")
        cluster.pod("db", uid="shop-db-1", started=START - 900)
        await asyncio.sleep(1)
        assert manager.ending.waiting == 1
        await asyncio.sleep(20)

    assert manager.told(What.GONE) == ["db"]
    assert cluster.gone["shop-db-1"] > 14
    assert manager.ending.deleted == 1


@pytest.mark.parametrize(("lost", "what"), [(0, What.DELETED), (1, What.FAILED)], ids=["answered", "lost"])
async def test_an_answer_that_comes_after_the_mode_changed_is_told(cluster: Cluster, lost: int, what: What) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.latency, cluster.loses = 1, lost
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(1.5)
        manager.ending.configure(TaintManagerSpec())
        await asyncio.sleep(5)

    assert manager.told(what) == ["web"]
    assert manager.ending.waiting == 0


async def test_a_watch_that_is_faster_than_the_answer_leaves_nothing_behind(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.watch, cluster.late = 0.001, 0.5
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(5)

    assert (manager.ending.deleted, manager.ending.waiting) == (1, 0)
    assert not manager.ending._tries.jobs


async def test_who_waits_for_a_fresh_picture_and_goes_meanwhile_is_dropped(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    manager = Manager(cluster)
    manager.blind = "no"
    async with manager.running():
        await asyncio.sleep(1)
        assert manager.ending.waiting == 1
        cluster.remove("shop/web")
        await asyncio.sleep(1)

    assert manager.ending.waiting == 0
    assert not cluster.sent


async def test_nothing_is_done_while_the_picture_is_old(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(50):
        cluster.pod(f"p{number}", bears("a", 10))
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(5)
        manager.blind = "pods have not been heard of for 40s"
        await asyncio.sleep(100)
        assert not cluster.sent
        assert manager.ending.waiting == 50
        manager.blind = None
        await asyncio.sleep(1)

    assert len(cluster.gone) == 50


async def test_a_watch_that_grows_old_midway_stops_what_has_begun(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(200):
        cluster.pod(f"p{number}")
    cluster.latency = 0.1
    manager = Manager(cluster, workers=4)
    async with manager.running():
        await asyncio.sleep(1.05)
        manager.blind = "no"
        await asyncio.sleep(0.2)
        before = len(cluster.sent)
        assert 0 < before < 100
        await asyncio.sleep(10)
        assert len(cluster.sent) == before
        manager.blind = None
        await asyncio.sleep(20)

    assert len(cluster.gone) == 200


async def test_pods_that_have_ended_are_left_where_they_are(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("job", phase="Succeeded")
    cluster.pod("web", bears("a", 5))
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(4.9)
        cluster.put(replace(cluster.pods["shop/web"], phase="Failed"))
        await asyncio.sleep(10)

    assert not cluster.sent


async def test_no_more_pods_are_ended_at_once_than_there_are_workers(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(100):
        cluster.pod(f"p{number}", namespace=f"n{number % 5}")
    manager = Manager(cluster, workers=6)
    async with manager.running():
        await asyncio.sleep(5)

    assert cluster.busiest == 6
    assert len(cluster.gone) == 100


@pytest.mark.parametrize("after", [0.0, 0.0005, 0.01, 0.0305, 0.1])
async def test_a_run_that_ended_and_begins_anew_takes_up_what_the_first_had(cluster: Cluster, after: float) -> None:
    cluster.taint("n1", taint())
    for number in range(100):
        cluster.pod(f"p{number}")
    manager = Manager(cluster, workers=4)
    for _ in range(5):
        async with manager.running():
            await asyncio.sleep(after)
    async with manager.running():
        await asyncio.sleep(5)

    assert len(cluster.gone) == 100
    assert manager.ending.waiting == 0


async def test_a_webhook_that_hangs_for_one_namespace_holds_up_no_other(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(300):
        cluster.pod(f"p{number}", namespace="slow")
    for number in range(50):
        cluster.pod(f"p{number}", bears("a", 30))
    cluster.slow["slow"] = 10
    manager = Manager(cluster, workers=8)
    async with manager.running():
        await asyncio.sleep(41)

    assert sum(uid.startswith("shop") for uid in cluster.gone) == 50


async def test_a_lost_mark_makes_no_deletion_ours(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.swallows = 1
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(0.1)
        cluster.remove("shop/web")
        await asyncio.sleep(5)

    assert manager.ending.deleted == 0
    assert manager.told(What.GONE) == ["web"]


async def test_pods_go_in_the_order_in_which_they_were_due(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(50):
        cluster.pod(f"p{number:02}", bears("a", 50 - number))
    manager = Manager(cluster, workers=1)
    manager.blind = "not yet"
    async with manager.running():
        await asyncio.sleep(60)
        manager.blind = None
        await asyncio.sleep(1)

    assert list(cluster.gone) == [f"shop-p{number:02}-0" for number in reversed(range(50))]


async def test_nothing_is_done_in_mode_observe_and_all_after_it(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.refuses = lambda what, _key: WEBHOOK if what == "DELETE" else None
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(1)
        manager.ending.configure(TaintManagerSpec())
        assert manager.ending.waiting == 0
        cluster.refuses = lambda _what, _key: None
        await asyncio.sleep(60)
        manager.ending.due(manager.book.deadlines["shop/web"])
        await asyncio.sleep(1)
        assert not cluster.gone
        manager.ending.configure(OWN)
        manager.ending.due(manager.book.deadlines["shop/web"])
        await asyncio.sleep(1)

    assert list(cluster.gone) == ["shop-web-0"]


async def test_who_may_not_act_any_more_sends_nothing(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    leading = False
    manager = Manager(cluster, api=Guarded(cluster, lambda: leading))
    async with manager.running():
        await asyncio.sleep(60)
        assert not cluster.sent
        leading = True
        await asyncio.sleep(10)

    assert manager.ending.deleted == 1


async def test_a_pod_that_the_watch_still_shows_is_asked_for_again(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.watch = None
    cluster.grace = 500
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(20)
        assert (len(cluster.requests("DELETE")), manager.ending.waiting) == (1, 0)
        await asyncio.sleep(20)
        assert len(cluster.requests("DELETE")) == 2
        cluster.catch_up()
        await asyncio.sleep(60)

    assert len(cluster.requests("DELETE")) == 2
    assert manager.ending.waiting == 0


async def test_a_clock_that_is_set_back_delays_and_loses_nothing(cluster: Cluster) -> None:
    cluster.taint("n1", taint(added=-100))
    cluster.pod("web", bears("a", 110), started=START - 200)
    cluster.refuses = lambda what, _key: WEBHOOK if cluster.time < 20 else None
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(15)
        cluster.clock.skew = -100
        await asyncio.sleep(90)
        assert not cluster.gone
        await asyncio.sleep(80)

    assert list(cluster.gone) == ["shop-web-0"]


async def test_a_defect_with_one_pod_stops_no_other_and_not_itself(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(20):
        cluster.pod(f"p{number:02}")

    def fails(what: str, key: str) -> str | None:
        if key == "shop/p07" and cluster.time < 5:
            raise ZeroDivisionError("a defect")
        return None

    cluster.refuses = fails
    manager = Manager(cluster, workers=2)
    async with manager.running():
        await asyncio.sleep(3)
        assert len(cluster.gone) == 19
        await asyncio.sleep(10)

    assert len(cluster.gone) == 20


async def test_stopping_waits_for_what_is_in_flight_and_begins_nothing(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(20):
        cluster.pod(f"p{number:02}")
    cluster.latency = 1
    manager = Manager(cluster, workers=4)
    async with manager.running():
        await asyncio.sleep(1.5)
        await manager.ending.stop()
        assert cluster.time == pytest.approx(2, abs=0.1)
        assert len(cluster.sent) == 6
        await asyncio.sleep(10)
        assert len(cluster.sent) == 6


async def test_stopping_does_not_wait_for_ever(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.latency = 1000
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(1)
        await manager.ending.stop(5)

    assert cluster.time == pytest.approx(6, abs=0.1)
    assert "1 pods were being ended" in caplog.text


async def test_a_picture_that_cannot_be_asked_for_a_while_holds_pods_up_and_loses_none(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.taint("n1", taint())
    for number in range(5):
        cluster.pod(f"p{number}")
    manager = Manager(cluster, TaintManagerSpec(mode="Own", user_taint_rates=UserTaintRates(total=1)))
    turn = manager.ending._room.turn

    def fails(now: float, *, blind: bool) -> float | None:
        if cluster.time < 20:
            raise ZeroDivisionError("a defect")
        return turn(now, blind=blind)

    monkeypatch.setattr(manager.ending._room, "turn", fails)
    async with manager.running():
        await asyncio.sleep(19)
        assert not cluster.gone
        await asyncio.sleep(15)

    assert len(cluster.gone) == 5


async def test_thousands_that_are_due_at_once_leave_others_their_turn(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(2000):
        cluster.pod(f"p{number}", namespace=f"n{number % 7}")
    manager = Manager(cluster, TaintManagerSpec(mode="Own", user_taint_rates=UserTaintRates(per_namespace=1000)))
    manager.blind = "not yet"
    async with manager.running():
        await asyncio.sleep(1)
        manager.blind = None
        await asyncio.sleep(10)

    assert len(cluster.gone) == 2000


async def test_dead_nodes_with_pods_that_cannot_end_are_found(cluster: Cluster) -> None:
    cluster.taint("n1", taint("node.kubernetes.io/unreachable"))
    cluster.pod("web")
    cluster.grace = 10_000
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(10)
        assert not _stuck(manager)
        cluster.put(replace(cluster.pods["shop/web"], deleted=START + 5))
        await asyncio.sleep(5)
        assert not _stuck(manager)
        await asyncio.sleep(30)
        assert _stuck(manager) == [("n1", 1)]


# --- marking ---------------------------------------------------------------------------------------------------------


async def test_a_mark_that_nobody_lets_us_write_keeps_no_pod(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.refuses = lambda what, _key: WEBHOOK if what == "PATCH status" else None
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(1)

    assert list(cluster.gone) == ["shop-web-0"]


async def test_a_mark_of_an_earlier_process_is_not_written_again(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.refuses = lambda what, _key: WEBHOOK if what == "DELETE" else None
    async with Manager(cluster).running():
        await asyncio.sleep(1)
    cluster.refuses = lambda _what, _key: None
    async with Manager(cluster).running():
        await asyncio.sleep(1)

    assert len(cluster.requests("PATCH status")) == 1
    assert list(cluster.gone) == ["shop-web-0"]


# --- kills -----------------------------------------------------------------------------------------------------------


@given(
    kills=st.lists(st.floats(0.0, 8.0), max_size=10).map(sorted),
    seconds=st.lists(st.integers(0, 8), min_size=1, max_size=12),
    loses=st.integers(0, 5),
    swallows=st.integers(0, 5),
    latency=st.floats(0.0005, 0.5),
)
def test_kills_lose_nothing_and_let_nobody_go_early(
    kills: list[float], seconds: list[int], loses: int, swallows: int, latency: float
) -> None:
    cluster = Cluster()
    cluster.loses, cluster.swallows, cluster.latency = loses, swallows, latency

    async def live() -> None:
        cluster.taint("n1", taint())
        for number, each in enumerate(seconds):
            cluster.pod(f"p{number}", bears("a", each))
        before = 0.0
        for kill in kills:
            async with Manager(cluster).running():
                await asyncio.sleep(kill - before)
            before = kill
        async with Manager(cluster).running():
            await asyncio.sleep(60)

    _virtually(live())
    assert len(cluster.gone) == len(seconds)
    for number, each in enumerate(seconds):
        assert each <= cluster.gone[f"shop-p{number}-0"] <= max(each, kills[-1] if kills else 0) + 16


def _stuck(manager: Manager) -> list[tuple[str, int]]:
    return [(each.name, each.terminating) for each in manager.ending.stuck]


def _virtually(work: Coroutine[Any, Any, None]) -> None:
    loop = looptime.new_event_loop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()
