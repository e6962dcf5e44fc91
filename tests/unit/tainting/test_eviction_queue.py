"""Pods whose time is over are ended, whatever is in the way, and none too early. Time is virtual."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import looptime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.fakes.clock import START
from tests.fixtures.golden import Golden
from tests.unit.tainting.deadlines import bears, taint
from tests.unit.tainting.eviction_world import Cluster, Manager
from trimtab.api import reasons
from trimtab.api.taint_manager import TaintManagerSpec, UserTaintRates
from trimtab.kube.api import LeaderOnlyApi
from trimtab.tainting.due_pods import DuePodResult
from trimtab.tainting.report.status import stuck_nodes

pytestmark = pytest.mark.looptime(start=0)

WEBHOOK = 'admission webhook "guard.example.com" denied the request: not now'


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


async def test_due_pod_is_marked_and_deleted_by_uid(cluster: Cluster, golden: Golden) -> None:
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
    golden("\n".join(f"{key}: {text}" for key, text in condition.items()))
    assert "gracePeriodSeconds" not in delete.body
    [ended] = manager.reporter.outcomes
    assert (ended.result, ended.outcome.reason, ended.attempts) == (DuePodResult.DELETED, reasons.NO_EXECUTE_TAINT, 1)
    assert ended.lateness < 0.05
    assert (manager.dependencies.counts.deleted, manager.ending.waiting, manager.refused) == (1, 0, ())


async def test_webhook_refusing_for_30_seconds_delays_pods(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(300):
        cluster.pod(f"p{number}")
    cluster.refuses = lambda what, _key: WEBHOOK if what == "DELETE" and cluster.time < 30 else None
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(29)
        assert manager.ending.waiting == 300
        assert len(manager.refused) == 300
        first = manager.refused[0]
        assert (first.pod, first.node, first.message) == ("p0", "n1", WEBHOOK)
        await asyncio.sleep(11)

    assert len(cluster.gone) == 300
    assert min(cluster.gone.values()) >= 30
    assert max(cluster.gone.values()) <= 39, "once one was let go the others are tried at once"
    assert manager.dependencies.counts.deleted == 300
    assert not manager.refused
    refusals = [each for each in manager.reporter.outcomes if each.result is DuePodResult.REFUSED]
    assert {(each.outcome.reason, each.outcome.refuser) for each in refusals} == {
        (reasons.DELETION_REFUSED, "guard.example.com")
    }
    assert len(cluster.requests("DELETE")) < 300 * 30, "tried ever more rarely"
    assert len(cluster.requests("PATCH status")) <= 300, "a mark that is there is not written again"


async def test_refused_pod_does_not_block_others(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(20):
        cluster.pod(f"p{number}")
    cluster.refuses = lambda what, key: WEBHOOK if what == "DELETE" and key == "shop/p0" else None
    manager = Manager(cluster, workers=1)
    async with manager.running():
        await asyncio.sleep(2)

    assert len(cluster.gone) == 19
    assert [each.pod for each in manager.refused] == ["p0"]


@pytest.mark.live
@pytest.mark.parametrize("down", [0.5, 20, 300])
async def test_unreachable_api_server_delays_pods(cluster: Cluster, down: float) -> None:
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
    assert manager.dependencies.counts.deleted == 100


async def test_lost_response_counts_one_deletion(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.loses = 1
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(5)

    assert manager.dependencies.counts.deleted == 1
    assert manager.recorded(DuePodResult.DELETED) == ["web"]
    assert not manager.recorded(DuePodResult.GONE)
    assert manager.ending.waiting == 0


async def test_request_that_never_arrived_is_retried(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.swallows = 3
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(5)

    assert list(cluster.gone) == ["shop-web-0"]
    assert manager.dependencies.counts.deleted == 1


async def test_recreated_pod_has_its_own_deadline(cluster: Cluster) -> None:
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


async def test_new_pod_with_same_name_is_not_deleted(cluster: Cluster) -> None:
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
        assert manager.recorded(DuePodResult.GONE) == ["db"]
        cluster.catch_up()
        await asyncio.sleep(20)

    assert cluster.gone["shop-db-1"] >= 39.9
    assert manager.dependencies.counts.deleted == 1


@pytest.mark.parametrize("seconds", [None, 100], ids=["for ever", "longer"])
async def test_toleration_changed_a_second_before_deadline_counts(cluster: Cluster, seconds: int | None) -> None:
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


async def test_change_between_mark_and_deletion_counts(cluster: Cluster) -> None:
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
    assert manager.recorded(DuePodResult.NOT_DUE) == ["web"]
    assert manager.ending.waiting == 0


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda cluster: cluster.taint("n1"), id="the taint is taken off"),
        pytest.param(lambda cluster: cluster.tolerate("shop/web", bears("a")), id="a toleration comes"),
        pytest.param(lambda cluster: cluster.remove("shop/web"), id="the pod goes"),
    ],
)
async def test_refused_pod_is_dropped_when_not_due(cluster: Cluster, change: Any) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.refuses = lambda _what, _key: WEBHOOK
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(10)
        change(cluster)
        await asyncio.sleep(0.1)
        before = len(cluster.sent)
        assert (manager.ending.waiting, manager.refused) == (0, ())
        await asyncio.sleep(60)

    assert len(cluster.sent) == before


async def test_refused_pod_is_deleted_at_its_new_deadline(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web", bears("a", 5))
    cluster.refuses = lambda _what, _key: WEBHOOK if cluster.time < 20 else None
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(10)
        cluster.tolerate("shop/web", bears("a", 60))
        await asyncio.sleep(1)
        assert (manager.ending.waiting, manager.refused) == (0, ())
        assert manager.recorded(DuePodResult.NOT_DUE) == ["web"]
        await asyncio.sleep(55)

    [at] = cluster.gone.values()
    assert 60 <= at < 60.1


async def test_pod_queued_twice_is_deleted_once(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    manager = Manager(cluster)
    cluster.latency = 1
    deadline = manager.book.deadlines["shop/web"]
    async with manager.running():
        for _ in range(5):
            manager.ending.enqueue(deadline)
            await asyncio.sleep(0.7)

    assert (len(cluster.requests("DELETE")), manager.dependencies.counts.deleted) == (1, 1)


async def test_pod_due_by_another_taint_uses_its_policy(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("held0")
    cluster.pod("held1")
    cluster.pod("web")
    manager = Manager(cluster, TaintManagerSpec(mode="TaintAndEvict", user_taint_rates=UserTaintRates(total=0.01)))
    async with manager.running():
        await asyncio.sleep(5)
        assert (len(cluster.gone), manager.ending.held) == (1, 2)
        cluster.taint("n1", taint("node.kubernetes.io/unreachable"))
        await asyncio.sleep(1)

    assert len(cluster.gone) == 3


async def test_pod_recreated_during_deletion(cluster: Cluster) -> None:
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

    assert manager.recorded(DuePodResult.GONE) == ["db"]
    assert cluster.gone["shop-db-1"] > 14
    assert manager.dependencies.counts.deleted == 1


@pytest.mark.parametrize(
    ("lost", "result"), [(0, DuePodResult.DELETED), (1, DuePodResult.FAILED)], ids=["answered", "lost"]
)
async def test_response_after_mode_change_is_reported(cluster: Cluster, lost: int, result: DuePodResult) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.latency, cluster.loses = 1, lost
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(1.5)
        manager.ending.configure(TaintManagerSpec())
        await asyncio.sleep(5)

    assert manager.recorded(result) == ["web"]
    assert manager.ending.waiting == 0


async def test_watch_faster_than_response_leaves_no_entry(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.watch, cluster.late = 0.001, 0.5
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(5)

    assert (manager.dependencies.counts.deleted, manager.ending.waiting) == (1, 0)
    assert not manager.ending._pods


async def test_pod_deleted_while_caches_are_stale_is_dropped(cluster: Cluster) -> None:
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


async def test_no_request_while_caches_are_stale(cluster: Cluster) -> None:
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


async def test_caches_becoming_stale_stop_an_attempt(cluster: Cluster) -> None:
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


async def test_terminal_pods_are_kept(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("job", phase="Succeeded")
    cluster.pod("web", bears("a", 5))
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(4.9)
        cluster.put(replace(cluster.pods["shop/web"], phase="Failed"))
        await asyncio.sleep(10)

    assert not cluster.sent


async def test_concurrency_is_limited_by_workers(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(100):
        cluster.pod(f"p{number}", namespace=f"n{number % 5}")
    manager = Manager(cluster, workers=6)
    async with manager.running():
        await asyncio.sleep(5)

    assert cluster.busiest == 6
    assert len(cluster.gone) == 100


@pytest.mark.parametrize("after", [0.0, 0.0005, 0.01, 0.0305, 0.1])
async def test_restarted_queue_continues_its_entries(cluster: Cluster, after: float) -> None:
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


async def test_hanging_webhook_of_one_namespace_does_not_block_others(cluster: Cluster) -> None:
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


async def test_lost_mark_response_does_not_count_as_deletion(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.swallows = 1
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(0.1)
        cluster.remove("shop/web")
        await asyncio.sleep(5)

    assert manager.dependencies.counts.deleted == 0
    assert manager.recorded(DuePodResult.GONE) == ["web"]


async def test_pods_are_deleted_in_order_of_deadlines(cluster: Cluster) -> None:
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


async def test_process_without_leadership_deletes_nothing(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    leading = False
    manager = Manager(cluster, api=LeaderOnlyApi(cluster, lambda: leading))
    async with manager.running():
        await asyncio.sleep(60)
        assert not cluster.sent
        leading = True
        await asyncio.sleep(10)

    assert manager.dependencies.counts.deleted == 1


async def test_pod_still_shown_by_watch_is_retried(cluster: Cluster) -> None:
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


async def test_clock_set_back_delays_pods(cluster: Cluster) -> None:
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


async def test_exception_for_one_pod_is_retried_and_stops_no_other(cluster: Cluster) -> None:
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


async def test_stop_waits_for_in_flight_requests(cluster: Cluster) -> None:
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


async def test_stop_has_a_timeout(cluster: Cluster, caplog: pytest.LogCaptureFixture, golden: Golden) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.latency = 1000
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(1)
        await manager.ending.stop(5)

    assert cluster.time == pytest.approx(6, abs=0.1)
    golden("\n".join(each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING))


async def test_failing_cache_delays_pods(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.taint("n1", taint())
    for number in range(5):
        cluster.pod(f"p{number}")
    manager = Manager(cluster, TaintManagerSpec(mode="TaintAndEvict", user_taint_rates=UserTaintRates(total=1)))
    limits = manager.ending
    next_at_any_flow = limits.next_at_any_flow

    def fails() -> float:
        if cluster.time < 20:
            raise ZeroDivisionError("a defect")
        return next_at_any_flow()

    monkeypatch.setattr(limits, "next_at_any_flow", fails)
    async with manager.running():
        await asyncio.sleep(19)
        assert not cluster.gone
        await asyncio.sleep(35)  # the queue is restarted with backoff

    assert len(cluster.gone) == 5


async def test_thousands_of_due_pods_do_not_block_the_event_loop(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(2000):
        cluster.pod(f"p{number}", namespace=f"n{number % 7}")
    manager = Manager(
        cluster, TaintManagerSpec(mode="TaintAndEvict", user_taint_rates=UserTaintRates(per_namespace=1000))
    )
    manager.blind = "not yet"
    async with manager.running():
        await asyncio.sleep(1)
        manager.blind = None
        await asyncio.sleep(10)

    assert len(cluster.gone) == 2000


async def test_stuck_nodes_are_found(cluster: Cluster) -> None:
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


async def test_refused_mark_does_not_keep_a_pod(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.refuses = lambda what, _key: WEBHOOK if what == "PATCH status" else None
    manager = Manager(cluster)
    async with manager.running():
        await asyncio.sleep(1)

    assert list(cluster.gone) == ["shop-web-0"]


async def test_mark_of_earlier_process_is_not_repeated(cluster: Cluster) -> None:
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
def test_kills_lose_no_pod_and_delete_none_early(
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
    found = stuck_nodes(manager.dependencies.lister, now=manager.dependencies.clock.now())
    return [(each.name, each.terminating) for each in found]


def _virtually(work: Coroutine[Any, Any, None]) -> None:
    loop = looptime.new_event_loop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()
