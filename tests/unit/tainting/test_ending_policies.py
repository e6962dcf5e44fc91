"""How pods whose time is over go by the TaintManager's policies: evictions, maximum waits, rates. Time is virtual."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tests.unit.tainting.deadlines import bears, taint
from tests.unit.tainting.ending_world import OWN, Cluster, Manager
from trimtab.api import reasons
from trimtab.api.taint_manager import KeyPolicy, TaintManagerSpec, UserTaintRates
from trimtab.tainting.ending import What

pytestmark = pytest.mark.looptime(start=0)

EVICT = TaintManagerSpec(mode="Own", taints=(KeyPolicy(key="a", policy="Evict", maximum_wait="60s"),))
WEBHOOK = 'admission webhook "guard.example.com" denied the request: not now'


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


# --- evictions -------------------------------------------------------------------------------------------------------


async def test_a_pod_is_evicted_where_the_taints_policy_says_so(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web", bears("a", 10))
    manager = Manager(cluster, EVICT)
    async with manager.running():
        await asyncio.sleep(12)

    [sent] = cluster.sent
    assert (sent.what, sent.uid) == ("POST eviction", "shop-web-0")
    assert (manager.ending.evicted, manager.ending.deleted) == (1, 0)
    assert manager.told(What.EVICTED) == ["web"]


async def test_a_budget_holds_an_eviction_until_it_allows_it(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(3):
        cluster.pod(f"p{number}")
    cluster.budgets["shop"] = 1
    manager = Manager(cluster, EVICT)
    async with manager.running():
        await asyncio.sleep(20)
        assert len(cluster.gone) == 1
        assert [each.message for each in manager.ending.refused] == [
            "Cannot evict pod The disruption budget pdb needs 2 healthy pods"
        ] * 2
        cluster.budgets["shop"] = 2
        await asyncio.sleep(16)

    assert len(cluster.gone) == 3
    assert (manager.ending.evicted, manager.ending.deleted) == (3, 0)
    refusals = [each for each in manager.teller.outcomes if each.what is What.REFUSED]
    assert {(each.reason, each.refuser) for each in refusals} == {(reasons.DISRUPTION_BUDGET, "PodDisruptionBudget")}


async def test_an_eviction_whose_answer_is_lost_is_an_eviction(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.loses = 1
    manager = Manager(cluster, EVICT)
    async with manager.running():
        await asyncio.sleep(5)

    assert (manager.ending.evicted, manager.ending.deleted) == (1, 0)


async def test_after_the_maximum_wait_a_pod_is_deleted(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.budgets["shop"] = 0
    manager = Manager(cluster, EVICT)
    async with manager.running():
        await asyncio.sleep(70)

    [at] = cluster.gone.values()
    assert 60 <= at < 60.1
    [ended] = [each for each in manager.teller.outcomes if each.what is What.DELETED]
    assert (ended.reason, ended.message) == (
        reasons.MAXIMUM_WAIT_OVER,
        "the pod was not evicted for 60s, and so it is deleted",
    )


async def test_a_restart_does_not_begin_the_maximum_wait_anew(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.budgets["shop"] = 0
    for _ in range(5):
        async with Manager(cluster, EVICT).running():
            await asyncio.sleep(11)
    async with Manager(cluster, EVICT).running():
        await asyncio.sleep(6)

    [at] = cluster.gone.values()
    assert 60 <= at < 60.1


@pytest.mark.parametrize("allowed", [0, 1, 3], ids=["none", "one", "all"])
async def test_no_pod_is_deleted_before_its_budget_was_asked_even_long_after_its_time(
    cluster: Cluster, allowed: int
) -> None:
    """As after a night without an operator, or a switch from Observe: nobody has refused anything yet."""
    cluster.taint("n1", taint(added=-10_000))
    for number in range(3):
        cluster.pod(f"web-{number}")
    cluster.budgets["shop"] = allowed
    manager = Manager(cluster, EVICT)
    async with manager.running():
        await asyncio.sleep(5)

    assert len(cluster.gone) == 3
    assert manager.ending.evicted == allowed
    assert [len(cluster.requests("POST eviction", f"web-{number}")) for number in range(3)] == [1, 1, 1]


async def test_a_rate_that_holds_pods_beyond_their_maximum_wait_takes_no_budget_from_them(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(10):
        cluster.pod(f"web-{number}")
    manager = Manager(cluster, replace(EVICT, user_taint_rates=UserTaintRates(total=0.1)))
    async with manager.running():
        await asyncio.sleep(120)

    assert (manager.ending.evicted, manager.ending.deleted) == (10, 0)


@pytest.mark.parametrize(("seconds", "at"), [(None, 5), (2, 7), (20, 25)], ids=["at once", "soon", "later"])
async def test_a_pod_that_waits_for_its_eviction_goes_with_its_dying_node(
    cluster: Cluster, seconds: int | None, at: float
) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web", *([] if seconds is None else [bears("b", seconds)]))
    cluster.budgets["shop"] = 0
    manager = Manager(cluster, EVICT)
    async with manager.running():
        await asyncio.sleep(5)
        cluster.taint("n1", taint(), taint("b", added=5))
        await asyncio.sleep(40)

    assert list(cluster.gone.values()) == [pytest.approx(at, abs=0.1)]
    assert manager.ending.deleted == 1


async def test_a_node_that_dies_while_an_eviction_is_being_refused_is_not_overlooked(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.budgets["shop"] = 0
    cluster.slow["shop"] = 3.0
    async with Manager(cluster, EVICT).running():
        await asyncio.sleep(1)
        cluster.taint("n1", taint(), taint("b", added=1))
        await asyncio.sleep(20)

    assert cluster.requests("PATCH status") == [pytest.approx(3, abs=0.1)]
    assert cluster.requests("DELETE") == [pytest.approx(6, abs=0.1)]


async def test_a_taint_that_is_gone_again_ends_no_pod_that_waits_for_its_eviction(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web", bears("b", 10))
    cluster.budgets["shop"] = 0
    async with Manager(cluster, EVICT).running():
        await asyncio.sleep(5)
        cluster.taint("n1", taint(), taint("b", added=5))
        await asyncio.sleep(5)
        cluster.taint("n1", taint())
        await asyncio.sleep(40)
        assert not cluster.gone
        await asyncio.sleep(11)

    assert list(cluster.gone.values()) == [pytest.approx(60, abs=0.1)]


async def test_another_policy_takes_effect_at_once(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.budgets["shop"] = 0
    manager = Manager(cluster, EVICT)
    async with manager.running():
        await asyncio.sleep(31)
        manager.ending.configure(OWN)
        await asyncio.sleep(0.1)

    assert len(cluster.gone) == 1


# --- rates -----------------------------------------------------------------------------------------------------------


async def test_a_rate_holds_pods_of_user_taints_back_and_no_others(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.taint("n2", taint("node.kubernetes.io/unreachable"))
    for number in range(10):
        cluster.pod(f"user{number}")
        cluster.pod(f"dead{number}", on="n2")
    manager = Manager(cluster, TaintManagerSpec(mode="Own", user_taint_rates=UserTaintRates(total=2)))
    async with manager.running():
        await asyncio.sleep(0.2)
        assert sum(uid.startswith("shop-dead") for uid in cluster.gone) == 10
        assert manager.ending.held == 9
        await asyncio.sleep(2.4)
        assert sum(uid.startswith("shop-user") for uid in cluster.gone) == 6
        await asyncio.sleep(5)

    assert len(cluster.gone) == 20
    assert max(each.held for each in manager.teller.outcomes) == pytest.approx(4.5, abs=0.2)


async def test_a_rate_holds_nobody_longer_than_its_node_lives(cluster: Cluster) -> None:
    dead = "node.kubernetes.io/unreachable"
    cluster.taint("n1", taint())
    cluster.taint("n2", taint())
    for number in range(3):
        cluster.pod(f"p{number}", bears(dead, 10))
        cluster.pod(f"q{number}", on="n2")
    manager = Manager(cluster, TaintManagerSpec(mode="Own", user_taint_rates=UserTaintRates(total=0.001)))
    async with manager.running():
        await asyncio.sleep(5)
        cluster.taint("n1", taint(), taint(dead, added=5))
        await asyncio.sleep(9)
        assert len(cluster.gone) == 1
        await asyncio.sleep(2)
        assert {uid for uid in cluster.gone if "p" in uid.removeprefix("shop-")} == {f"shop-p{n}-0" for n in range(3)}
        assert manager.ending.held == 3

    assert len(cluster.gone) == 3


async def test_a_refused_pod_takes_nobodys_turn(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(10):
        cluster.pod(f"p{number}")
    cluster.refuses = lambda what, key: WEBHOOK if what == "DELETE" and key < "shop/p5" else None
    manager = Manager(cluster, TaintManagerSpec(mode="Own", user_taint_rates=UserTaintRates(total=1)))
    async with manager.running():
        await asyncio.sleep(6)

    assert len(cluster.gone) == 5


async def test_a_rate_that_is_taken_away_frees_who_waits(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(10):
        cluster.pod(f"p{number}")
    manager = Manager(cluster, TaintManagerSpec(mode="Own", user_taint_rates=UserTaintRates(per_namespace=0.001)))
    async with manager.running():
        await asyncio.sleep(100)
        assert len(cluster.gone) == 1
        manager.ending.configure(OWN)
        await asyncio.sleep(1)

    assert len(cluster.gone) == 10


async def test_a_pod_that_a_rate_holds_is_dropped_once_its_time_is_not_over(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(3):
        cluster.pod(f"p{number}")
    manager = Manager(cluster, TaintManagerSpec(mode="Own", user_taint_rates=UserTaintRates(total=0.1)))
    async with manager.running():
        await asyncio.sleep(1)
        cluster.tolerate("shop/p1", bears("a"))
        await asyncio.sleep(1)
        assert manager.ending.held == 1
        await asyncio.sleep(15)

    assert list(cluster.gone) == ["shop-p0-0", "shop-p2-0"]
