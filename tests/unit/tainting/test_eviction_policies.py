"""How pods whose time is over go by the TaintManager's policies: evictions, maximum waits, rates. Time is virtual."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tests.fixtures.golden import Golden
from tests.unit.tainting.deadlines import bears, taint
from tests.unit.tainting.eviction_world import TAINT_AND_EVICT, Cluster, Manager
from trimtab.api import reasons
from trimtab.api.taint_manager import KeyPolicy, TaintManagerSpec, UserTaintRates
from trimtab.cluster.workloads.owners import owner_key
from trimtab.disruption.evictor import PendingEviction, Permit
from trimtab.disruption.evictor.requests import AUTOSCALER, DESCHEDULER, EvictionRequest, Requester
from trimtab.disruption.limits import EvictionLimits
from trimtab.kube.objects import LabelSelector, OwnerReference, PodDisruptionBudget
from trimtab.tainting.due_pods import DuePodResult
from trimtab.tainting.eviction_queue import REQUESTER

pytestmark = pytest.mark.looptime(start=0)

EVICT = TaintManagerSpec(mode="TaintAndEvict", taints=(KeyPolicy(key="a", policy="Evict", maximum_wait="60s"),))
WEBHOOK = 'admission webhook "guard.example.com" denied the request: not now'


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


# --- evictions -------------------------------------------------------------------------------------------------------


async def test_policy_evict_evicts_the_pod(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web", bears("a", 10))
    manager = Manager(cluster, EVICT)
    async with manager.running():
        await asyncio.sleep(12)

    [sent] = cluster.sent
    assert (sent.what, sent.uid) == ("POST eviction", "shop-web-0")
    assert (manager.dependencies.counts.evicted, manager.dependencies.counts.deleted) == (1, 0)
    assert manager.recorded(DuePodResult.EVICTED) == ["web"]


async def test_budget_delays_eviction(cluster: Cluster, golden: Golden) -> None:
    cluster.taint("n1", taint())
    for number in range(3):
        cluster.pod(f"p{number}")
    cluster.budgets["shop"] = 1
    manager = Manager(cluster, EVICT)
    async with manager.running():
        await asyncio.sleep(20)
        assert len(cluster.gone) == 1
        assert len(manager.refused) == 2
        for each in manager.refused:
            golden(each.message)
        cluster.budgets["shop"] = 2
        await asyncio.sleep(16)

    assert len(cluster.gone) == 3
    assert (manager.dependencies.counts.evicted, manager.dependencies.counts.deleted) == (3, 0)
    refusals = [each for each in manager.reporter.outcomes if each.result is DuePodResult.REFUSED]
    assert {(each.outcome.reason, each.outcome.refuser) for each in refusals} == {
        (reasons.DISRUPTION_BUDGET, "PodDisruptionBudget")
    }


async def test_eviction_with_lost_response_counts_as_eviction(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.loses = 1
    manager = Manager(cluster, EVICT)
    async with manager.running():
        await asyncio.sleep(5)

    assert (manager.dependencies.counts.evicted, manager.dependencies.counts.deleted) == (1, 0)


async def test_pod_is_deleted_after_maximum_wait(cluster: Cluster, golden: Golden) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.budgets["shop"] = 0
    manager = Manager(cluster, EVICT)
    async with manager.running():
        await asyncio.sleep(70)

    [at] = cluster.gone.values()
    assert 60 <= at < 60.1
    [ended] = [each for each in manager.reporter.outcomes if each.result is DuePodResult.DELETED]
    assert ended.outcome.reason == reasons.MAXIMUM_WAIT_OVER
    golden(ended.outcome.message)


async def test_restart_does_not_reset_maximum_wait(cluster: Cluster) -> None:
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
async def test_overdue_pod_is_evicted_before_it_is_deleted(cluster: Cluster, allowed: int) -> None:
    """As after a night without an operator, or a switch from Observe: no request has been refused yet."""
    cluster.taint("n1", taint(added=-10_000))
    for number in range(3):
        cluster.pod(f"web-{number}")
    cluster.budgets["shop"] = allowed
    manager = Manager(cluster, EVICT)
    async with manager.running():
        await asyncio.sleep(5)

    assert len(cluster.gone) == 3
    assert manager.dependencies.counts.evicted == allowed
    assert [len(cluster.requests("POST eviction", f"web-{number}")) for number in range(3)] == [1, 1, 1]


async def test_rate_limited_pod_is_evicted_before_it_is_deleted(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(10):
        cluster.pod(f"web-{number}")
    manager = Manager(cluster, replace(EVICT, user_taint_rates=UserTaintRates(total=0.1)))
    async with manager.running():
        await asyncio.sleep(120)

    assert (manager.dependencies.counts.evicted, manager.dependencies.counts.deleted) == (10, 0)


@pytest.mark.parametrize(("seconds", "at"), [(None, 5), (2, 7), (20, 25)], ids=["at once", "soon", "later"])
async def test_waiting_pod_is_deleted_when_its_node_fails(cluster: Cluster, seconds: int | None, at: float) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web", *([] if seconds is None else [bears("b", seconds)]))
    cluster.budgets["shop"] = 0
    manager = Manager(cluster, EVICT)
    async with manager.running():
        await asyncio.sleep(5)
        cluster.taint("n1", taint(), taint("b", added=5))
        await asyncio.sleep(40)

    assert list(cluster.gone.values()) == [pytest.approx(at, abs=0.1)]
    assert manager.dependencies.counts.deleted == 1


async def test_node_failure_during_refusal_is_processed(cluster: Cluster) -> None:
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


async def test_removed_taint_keeps_a_waiting_pod(cluster: Cluster) -> None:
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


async def test_changed_policy_applies_at_once(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    cluster.budgets["shop"] = 0
    manager = Manager(cluster, EVICT)
    async with manager.running():
        await asyncio.sleep(31)
        manager.ending.configure(TAINT_AND_EVICT)
        await asyncio.sleep(0.1)

    assert len(cluster.gone) == 1


# --- rates -----------------------------------------------------------------------------------------------------------


async def test_user_taint_rate_limits_user_taints_only(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.taint("n2", taint("node.kubernetes.io/unreachable"))
    for number in range(10):
        cluster.pod(f"user{number}")
        cluster.pod(f"dead{number}", on="n2")
    manager = Manager(cluster, TaintManagerSpec(mode="TaintAndEvict", user_taint_rates=UserTaintRates(total=2)))
    async with manager.running():
        await asyncio.sleep(0.2)
        assert sum(uid.startswith("shop-dead") for uid in cluster.gone) == 10
        assert manager.ending.held == 9
        await asyncio.sleep(2.4)
        assert sum(uid.startswith("shop-user") for uid in cluster.gone) == 6
        await asyncio.sleep(5)

    assert len(cluster.gone) == 20
    assert max(each.held for each in manager.reporter.outcomes) == pytest.approx(4.5, abs=0.2)


async def test_rate_limit_ends_when_the_node_fails(cluster: Cluster) -> None:
    stopped = "node.kubernetes.io/unreachable"
    cluster.taint("n1", taint())
    cluster.taint("n2", taint())
    for number in range(3):
        cluster.pod(f"p{number}", bears(stopped, 10))
        cluster.pod(f"q{number}", on="n2")
    manager = Manager(cluster, TaintManagerSpec(mode="TaintAndEvict", user_taint_rates=UserTaintRates(total=0.001)))
    async with manager.running():
        await asyncio.sleep(5)
        cluster.taint("n1", taint(), taint(stopped, added=5))
        await asyncio.sleep(9)
        assert len(cluster.gone) == 1
        await asyncio.sleep(2)
        assert {uid for uid in cluster.gone if "p" in uid.removeprefix("shop-")} == {f"shop-p{n}-0" for n in range(3)}
        assert manager.ending.held == 3

    assert len(cluster.gone) == 3


async def test_refused_pod_returns_its_rate_limit_token(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(10):
        cluster.pod(f"p{number}")
    cluster.refuses = lambda what, key: WEBHOOK if what == "DELETE" and key < "shop/p5" else None
    manager = Manager(cluster, TaintManagerSpec(mode="TaintAndEvict", user_taint_rates=UserTaintRates(total=1)))
    async with manager.running():
        await asyncio.sleep(6)

    assert len(cluster.gone) == 5


async def test_removed_rate_limit_releases_waiting_pods(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(10):
        cluster.pod(f"p{number}")
    manager = Manager(
        cluster, TaintManagerSpec(mode="TaintAndEvict", user_taint_rates=UserTaintRates(per_namespace=0.001))
    )
    async with manager.running():
        await asyncio.sleep(100)
        assert len(cluster.gone) == 1
        manager.ending.configure(TAINT_AND_EVICT)
        await asyncio.sleep(1)

    assert len(cluster.gone) == 10


async def test_rate_limited_pod_is_dropped_when_not_due(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(3):
        cluster.pod(f"p{number}")
    manager = Manager(cluster, TaintManagerSpec(mode="TaintAndEvict", user_taint_rates=UserTaintRates(total=0.1)))
    async with manager.running():
        await asyncio.sleep(1)
        cluster.tolerate("shop/p1", bears("a"))
        await asyncio.sleep(1)
        assert manager.ending.held == 1
        await asyncio.sleep(15)

    assert list(cluster.gone) == ["shop-p0-0", "shop-p2-0"]


# --- limits of the whole operator ------------------------------------------------------------------------------------


async def test_operator_rate_limit_does_not_delay_due_pods(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(20):
        cluster.pod(f"p{number}")
    manager = Manager(cluster, limits=EvictionLimits(per_minute=1, per_minute_per_namespace=1))
    async with manager.running():
        await asyncio.sleep(1)

    assert len(cluster.gone) == 20


async def test_operator_concurrency_limit_applies_to_due_pods(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    for number in range(20):
        cluster.pod(f"p{number}", namespace="ab"[number % 2])
    cluster.latency, cluster.grace = 0.1, 1000.0
    manager = Manager(cluster, limits=EvictionLimits(max_concurrent=3, max_concurrent_per_namespace=2))
    async with manager.running():
        await asyncio.sleep(10)
        assert manager.dependencies.counts.deleted == 20, "pods that end slowly take no place"

    assert cluster.busiest <= 3


async def test_pod_that_waits_for_a_permit_is_not_marked(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web")
    manager = Manager(cluster, limits=EvictionLimits(max_concurrent=1))
    cluster.pod("other", bears("a", None))
    evictor, other = manager.dependencies.evictor, cluster.pods["shop/other"]
    request = EvictionRequest(namespace="shop", pod="other", uid=other.uid, requester=Requester(DESCHEDULER, "p"))
    permit = evictor.admit(request, other)
    assert isinstance(permit, Permit)
    evictor.begin(permit)
    async with manager.running():
        await asyncio.sleep(10)
        assert not cluster.sent
        evictor.cancel(permit)
        await asyncio.sleep(10)
        assert [each.what for each in cluster.sent] == ["PATCH status", "DELETE"]


async def test_overdue_eviction_ignores_outstanding_disruptions(cluster: Cluster) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web", phase="Running")
    cluster.pod("other", on="n2", phase="Running")
    cluster.budgets["shop"] = 0
    manager = Manager(cluster, EVICT)
    budgets, other = manager.dependencies.evictor.budgets, cluster.pods["shop/other"]
    budgets.budget_changed(None, PodDisruptionBudget("shop", "all", selector=LabelSelector(), disruptions_allowed=1))
    budgets.hold(other, Requester(AUTOSCALER, "removal of node n2"))
    async with manager.running():
        await asyncio.sleep(70)

    [requested] = cluster.requests("POST eviction", "web")
    [deleted] = cluster.requests("DELETE", "web")
    assert 60 <= requested < deleted < 65


async def test_eviction_waits_for_outstanding_disruption_of_a_drain(
    cluster: Cluster,
) -> None:
    cluster.taint("n1", taint())
    cluster.pod("web", phase="Running")
    cluster.pod("other", on="n2", phase="Running")
    manager = Manager(cluster, EVICT)
    budgets, other = manager.dependencies.evictor.budgets, cluster.pods["shop/other"]
    budgets.budget_changed(None, PodDisruptionBudget("shop", "all", selector=LabelSelector(), disruptions_allowed=1))
    drain = Requester(AUTOSCALER, "removal of node n2")
    budgets.hold(other, drain)
    async with manager.running():
        await asyncio.sleep(5)
        assert cluster.requests("POST eviction", "web") == []
        [waiting] = [each for each in manager.dependencies.evictor.waiting() if each.request.pod == "web"]
        assert (waiting.reason, waiting.waits_for) == (reasons.WAITING_FOR_BUDGET, drain)
        budgets.release(other)
        await asyncio.sleep(1)

    assert len(cluster.requests("POST eviction", "web")) == 1


async def test_policy_waits_until_the_owner_has_replaced_a_pod_of_a_tainted_node(cluster: Cluster) -> None:
    owners = (OwnerReference(kind="ReplicaSet", name="web", uid="rs", api_version="apps/v1", controller=True),)
    cluster.taint("n1", taint())
    for name, on in (("web-1", "n1"), ("web-2", "n2")):
        cluster.pod(name, on=on, phase="Running", owners=owners)
    manager = Manager(cluster, EVICT)
    async with manager.running():
        await asyncio.sleep(2)

        left, evictor = cluster.pods["shop/web-2"], manager.dependencies.evictor
        policy = EvictionRequest(
            namespace="shop",
            pod=left.name,
            uid=left.uid,
            requester=Requester(DESCHEDULER, "spread"),
            owner=owner_key(left),
            settle=True,
        )
        waiting = evictor.admit(policy, left)
        assert isinstance(waiting, PendingEviction)
        assert (waiting.reason, waiting.waits_for) == (reasons.WAITING_FOR_OWNER, REQUESTER)

        cluster.pod("web-3", on="n2", phase="Running", owners=owners)
        await asyncio.sleep(1)
        found = evictor.admit(policy, left)
        assert isinstance(found, Permit), found
