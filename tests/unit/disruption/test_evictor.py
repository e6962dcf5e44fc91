"""The evictor that all controllers share: limits, budgets, owners, and who waits for whom. On virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from tests.fakes.history import FakeHistory
from tests.fixtures.golden import Golden
from tests.unit.disruption.world import World, budget_refusal
from trimtab.api import reasons
from trimtab.api.scalars import to_time
from trimtab.cluster.workloads.owners import owner_key
from trimtab.disruption.evictor import Evictor, PendingEviction, Permit
from trimtab.disruption.evictor.disruption_marks import MARK_LIFETIME
from trimtab.disruption.evictor.evictions_in_progress import DELETION_WAIT, RESPONSE_WAIT, WATCH_LAG
from trimtab.disruption.evictor.history import history_entry
from trimtab.disruption.evictor.metrics import EvictorMetrics
from trimtab.disruption.evictor.other_requests import COUNTED, MAX_PODS, OtherRequests
from trimtab.disruption.evictor.requests import (
    AUTOSCALER,
    DESCHEDULER,
    EVICTION_CONDITION,
    PRESSURE,
    SCHEDULING,
    TAINTING,
    EvictionRequest,
    Requester,
    ResponseCode,
)
from trimtab.disruption.evictor.retries import ADMISSION_RETRY, RETRIES_PER_SECOND, EvictionRetries
from trimtab.disruption.evictor.waiting_requests import REFUSAL_EXPIRY
from trimtab.disruption.limits import EvictionLimits
from trimtab.disruption.outcome import EVICTED, FAILED, REFUSED, SKIPPED, STARTED, AttemptResult
from trimtab.kube.api import ApiError, Conflict, Forbidden, ServerError, Unreachable
from trimtab.kube.objects import LabelSelector, Pod, PodCondition, PodDisruptionBudget, PodEvictionRequest
from trimtab.kube.resources import PODS

pytestmark = pytest.mark.looptime

POLICY = Requester(DESCHEDULER, "spread", "RemoveDuplicates")
DRAIN = Requester(AUTOSCALER, "removal of node n1")
TAINTS = Requester(TAINTING, "cluster")
SCHEDULER = Requester(SCHEDULING, "default-scheduler")
NODE = Requester(PRESSURE, "default", "NodePressure")
OTHER_SCHEDULER = Requester(SCHEDULING, "gpu-scheduler")
TAKEN = AttemptResult(EVICTED, reasons.EVICTED, "")


def request(pod: Pod, requester: Requester = DRAIN, **more: Any) -> EvictionRequest:
    return EvictionRequest(
        namespace=pod.namespace, pod=pod.name, uid=pod.uid, requester=requester, owner=owner_key(pod), **more
    )


def budget(allowed: int, *disrupted: str, name: str = "web") -> PodDisruptionBudget:
    return PodDisruptionBudget(
        namespace="shop",
        name=name,
        selector=LabelSelector(),
        disruptions_allowed=allowed,
        disrupted_pods=disrupted,
    )


def admitted(world: World, pod: Pod, requester: Requester = DRAIN, **more: Any) -> Permit:
    found = world.evictor.admit(request(pod, requester, **more), pod)
    assert isinstance(found, Permit)
    return found


def waits(world: World, pod: Pod, requester: Requester = DRAIN, **more: Any) -> PendingEviction:
    found = world.evictor.admit(request(pod, requester, **more), pod)
    assert isinstance(found, PendingEviction)
    return found


async def drained(world: World, pod: Pod, requester: Requester = DRAIN) -> AttemptResult:
    """As a drain does it: ask until it is admitted, then until it is not to be tried again."""
    while True:
        found = world.evictor.admit(request(pod, requester), pod)
        if isinstance(found, Permit):
            response = await world.evictor.evict(found, world.api, timeout=10.0)
            if not response.retry:
                return response
        await world.clock.sleep(0.5)


# --- the same pod ----------------------------------------------------------------------------------------------------


async def test_two_requesters_of_one_pod_send_one_eviction():
    world = World(latency=1.0)
    pod = world.add("web-1")
    draining = asyncio.create_task(drained(world, pod))
    await asyncio.sleep(0.1)
    [outcome] = await world.execute(world.plan(pod))
    assert (await draining).result == EVICTED
    assert [name for name, _ in world.asked] == ["web-1"]
    assert outcome.result == "Gone"


async def test_second_requester_of_a_pod_reports_the_first():
    world = World()
    pod = world.add("web-1")
    permit = admitted(world, pod)
    waiting = waits(world, pod, POLICY)
    assert (waiting.reason, waiting.waits_for) == (reasons.WAITING_FOR_EVICTION, DRAIN)
    world.evictor.conclude(permit, TAKEN)
    assert waits(world, pod, POLICY).waits_for == DRAIN, "the watch does not show yet that the pod is leaving"
    assert waits(world, pod).waits_for == DRAIN, "a second request of the same requester evicts nothing either"
    await asyncio.sleep(WATCH_LAG)
    admitted(world, pod)


async def test_request_with_deadline_does_not_repeat_a_granted_eviction_before_the_watch_shows_it():
    world = World()
    pod = world.add("web-1")
    world.evictor.conclude(admitted(world, pod), TAKEN)
    await asyncio.sleep(WATCH_LAG - 1)
    waiting = waits(world, pod, TAINTS, deadline=0.0, how="Delete")
    assert (waiting.reason, waiting.waits_for) == (reasons.WAITING_FOR_EVICTION, DRAIN)
    world.evictor.cancel(admitted(world, pod, TAINTS, deadline=0.0, how="Delete", grace_period=0))
    own = world.add("web-2")
    world.evictor.conclude(admitted(world, own, TAINTS, deadline=0.0), TAKEN)
    world.evictor.cancel(admitted(world, own, TAINTS, deadline=0.0, how="Delete"))
    await asyncio.sleep(2)
    admitted(world, pod, TAINTS, deadline=0.0, how="Delete")


async def test_victim_of_two_preemptors_is_evicted_once():
    world = World()
    pod = world.add("web-1")
    first = admitted(world, pod, SCHEDULER, deadline=0.0)
    assert waits(world, pod, SCHEDULER, deadline=1.0).reason == reasons.WAITING_FOR_EVICTION
    world.evictor.conclude(first, AttemptResult(FAILED, reasons.EVICTION_FAILED, "", retry=True))
    second = admitted(world, pod, SCHEDULER, deadline=1.0)
    world.evictor.conclude(second, TAKEN)
    assert waits(world, pod, SCHEDULER, deadline=2.0, how="Delete").reason == reasons.WAITING_FOR_EVICTION
    assert waits(world, pod, OTHER_SCHEDULER, deadline=2.0).reason == reasons.WAITING_FOR_EVICTION
    admitted(world, pod, TAINTS, deadline=0.0, how="Delete", grace_period=0)


async def test_preemption_waits_for_a_request_that_was_sent():
    world = World()
    pod = world.add("web-1")
    permit = admitted(world, pod, POLICY)
    world.evictor.cancel(admitted(world, pod, SCHEDULER, deadline=0.0))  # not sent: it may wait for minutes
    world.evictor.begin(permit)
    waiting = waits(world, pod, SCHEDULER, deadline=0.0)
    assert (waiting.reason, waiting.waits_for) == (reasons.WAITING_FOR_EVICTION, POLICY)
    world.evictor.cancel(admitted(world, pod, TAINTS, deadline=0.0, how="Delete"))
    world.evictor.response_received(permit)
    admitted(world, pod, SCHEDULER, deadline=0.0)


async def test_eviction_with_a_deadline_waits_briefly_for_one_that_was_sent_and_ends_the_pod_as_soon():
    world = World()
    pod = with_grace_period(world, 5)
    permit = admitted(world, pod, SCHEDULER, deadline=0.0)
    await asyncio.sleep(RESPONSE_WAIT)
    world.evictor.cancel(admitted(world, pod, NODE, deadline=0.0, grace_period=5))  # the other one was not sent
    world.evictor.begin(permit)
    assert waits(world, pod, NODE, deadline=0.0, grace_period=5).waits_for == SCHEDULER
    assert waits(world, pod, NODE, deadline=0.0).waits_for == SCHEDULER
    for sooner in ({"grace_period": 4}, {"how": "Delete"}):
        world.evictor.cancel(admitted(world, pod, NODE, deadline=0.0, **sooner))
    await asyncio.sleep(RESPONSE_WAIT)
    admitted(world, pod, NODE, deadline=0.0, grace_period=5)


async def test_granted_eviction_is_only_repeated_to_end_the_pod_sooner():
    world = World()
    pod = with_grace_period(world, 5)
    world.evictor.conclude(admitted(world, pod, SCHEDULER, deadline=0.0), TAKEN)
    assert waits(world, pod, NODE, deadline=0.0, grace_period=5).waits_for == SCHEDULER
    shortened = admitted(world, pod, NODE, deadline=0.0, grace_period=4)
    world.evictor.conclude(shortened, TAKEN)
    assert waits(world, pod, TAINTS, deadline=0.0, grace_period=4, how="Delete").waits_for == NODE
    late = admitted(world, pod, TAINTS, deadline=0.0, grace_period=3)
    world.evictor.conclude(late, TAKEN)
    await asyncio.sleep(DELETION_WAIT)
    admitted(world, pod, NODE, deadline=0.0, grace_period=3)


async def test_grace_period_of_a_granted_eviction_is_the_shortest_one():
    world = World()
    pod = with_grace_period(world, 5)
    permit = admitted(world, pod, POLICY)
    world.evictor.conclude(admitted(world, pod, NODE, deadline=0.0, grace_period=1), TAKEN)
    world.evictor.conclude(permit, TAKEN)
    assert waits(world, pod, TAINTS, deadline=0.0, grace_period=2).waits_for == POLICY


async def test_rollout_that_has_not_replaced_the_pod_does_not_delay_an_eviction():
    world = World()
    pod = with_grace_period(world, 5)
    permit = admitted(world, pod, POLICY, how="Surge")
    world.evictor.begin(permit)
    world.evictor.cancel(admitted(world, pod, NODE, deadline=0.0, grace_period=5))
    world.evictor.conclude(permit, AttemptResult(STARTED, reasons.EVICTION_IN_BACKGROUND, ""))
    admitted(world, pod, NODE, deadline=0.0, grace_period=5)


def with_grace_period(world: World, seconds: int) -> Pod:
    pod = world.add("web-1")
    pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, termination_grace_period=seconds))
    world.snapshot.put(pod)
    return pod


async def test_victim_of_two_schedulers_is_evicted_once():
    world = World()
    pod = world.add("web-1")
    admitted(world, pod, SCHEDULER, deadline=0.0)
    assert waits(world, pod, OTHER_SCHEDULER, deadline=1.0).waits_for == SCHEDULER


@pytest.mark.parametrize(("desired", "admits"), [(None, False), (3, False), (2, True)])
async def test_scaled_down_owner_needs_only_its_desired_pods(desired: int | None, admits: bool):
    world = World(restart=None)
    one, two, _ = (world.add(f"web-{number}") for number in range(3))
    assert (await drained(world, one)).result == EVICTED
    await asyncio.sleep(1)
    if desired is not None:
        world.desired["web"] = desired
    found = world.evictor.admit(request(two, POLICY, settle=True), two)
    assert isinstance(found, Permit) is admits


async def test_request_with_deadline_ignores_other_requesters_of_the_pod():
    world = World()
    pod = world.add("web-1")
    admitted(world, pod)
    admitted(world, pod, TAINTS, deadline=0.0, how="Delete")


# --- retries ---------------------------------------------------------------------------------------------------------


def test_retries_back_off_and_never_stop():
    retries = EvictionRetries()
    waits = [retries.delay("uid", DRAIN, by_budget=False) for _ in range(1000)]
    assert 0.2 <= waits[0] <= 0.3
    assert 0.8 <= waits[2] <= 1.2
    assert all(5 <= each <= 7.5 for each in waits[19:])
    assert retries.delay("uid", POLICY, by_budget=True) >= 1, "each requester counts its own attempts"
    retries.forget("uid", DRAIN)
    assert retries.delay("uid", DRAIN, by_budget=False) <= 0.3


def test_many_refused_pods_are_retried_at_a_limited_rate():
    retries = EvictionRetries()
    for number in range(20 * RETRIES_PER_SECOND):
        retries.delay(f"uid-{number}", TAINTS, by_budget=False)
    assert retries.delay("uid", TAINTS, by_budget=False) == 20


def test_retry_after_extends_the_delay():
    assert EvictionRetries().delay("uid", DRAIN, by_budget=True, retry_after=42.0) == 42


# --- EvictionRequests of other components -----------------------------------------------------------------------------

DRAINER = Requester("EvictionRequest", "example.com/drainer")


def eviction_request(world: World, pod: Pod, **fields: Any) -> PodEvictionRequest:
    """Add the EvictionRequest of another component for a pod."""
    made = PodEvictionRequest(
        namespace=pod.namespace,
        name=f"drain-{pod.name}",
        created=world.clock.now(),
        pod=pod.name,
        pod_uid=pod.uid,
        requester="example.com/drainer",
        active=True,
    )
    made = msgspec.structs.replace(made, **fields)
    world.evictor.others.changed(None, made)
    return made


@pytest.mark.parametrize("end", ["withdrawn", "removed", "expired"])
async def test_eviction_waits_for_an_eviction_request_for_the_same_pod(end: str):
    world = World()
    pod = world.add("web-1")
    made = eviction_request(world, pod)
    waiting = waits(world, pod, POLICY)
    assert (waiting.reason, waiting.waits_for) == (reasons.WAITING_FOR_EVICTION, DRAINER)
    world.evictor.cancel(admitted(world, pod, TAINTS, deadline=0.0))
    if end == "expired":
        await asyncio.sleep(COUNTED)
    else:
        inactive = msgspec.structs.replace(made, active=False)
        world.evictor.others.changed(made, inactive if end == "withdrawn" else None)
    admitted(world, pod, POLICY)


async def test_eviction_requests_of_trimtab_and_of_former_pods_are_ignored():
    world = World()
    pod = world.add("web-1")
    eviction_request(world, pod, requester="trimtab.dev/descheduler/spread")
    eviction_request(world, pod, name="former", pod_uid="uid-former")
    admitted(world, pod, POLICY)


async def test_eviction_waits_for_an_eviction_request_for_another_pod_of_its_owner():
    world = World()
    one, two = world.add("web-1"), world.add("web-2")
    eviction_request(world, one)
    waiting = waits(world, two, POLICY, settle=True)
    assert (waiting.reason, waiting.waits_for) == (reasons.WAITING_FOR_OWNER, DRAINER)
    world.evictor.cancel(admitted(world, two, POLICY))
    world.put(msgspec.structs.replace(one, deleted=1.0))
    admitted(world, two, POLICY, settle=True)


async def test_eviction_request_has_its_share_of_the_budget():
    world = World()
    one, two = world.add("web-1"), world.add("web-2")
    world.evictor.budgets.budget_changed(None, budget(1))
    eviction_request(world, one)
    waiting = waits(world, two, POLICY)
    assert (waiting.reason, waiting.waits_for) == (reasons.WAITING_FOR_BUDGET, DRAINER)
    world.evictor.cancel(admitted(world, two, TAINTS, deadline=0.0))
    world.evictor.budgets.budget_changed(budget(1), budget(2))
    world.evictor.cancel(admitted(world, two, POLICY))
    world.evictor.budgets.budget_changed(budget(2), budget(1, "web-1"))
    admitted(world, two, POLICY)


def test_many_eviction_requests_cost_a_limited_time():
    requests, made = OtherRequests(), []
    for number in range(2 * MAX_PODS):
        fields = {"name": f"request-{number}", "pod_uid": f"uid-{number}", "created": 0.0, "active": True}
        made.append(PodEvictionRequest(namespace="shop", **fields))
        requests.changed(None, made[-1])
    assert len(list(requests.of_namespace("shop", now=1.0))) == MAX_PODS
    assert requests.of_pod("shop", f"uid-{2 * MAX_PODS - 1}", now=1.0) is made[-1], "that of a pod is always found"
    for each in made:
        requests.changed(each, None)
    assert list(requests.of_namespace("shop", now=1.0)) == []


async def test_withdrawn_request_loses_its_place_at_once():
    world = World(limits=EvictionLimits(max_concurrent=1))
    pods = [world.add(f"web-{number}") for number in range(3)]
    permit = admitted(world, pods[0], TAINTS)
    waits(world, pods[1], DRAIN)
    world.evictor.cancel(permit)
    waits(world, pods[2], POLICY)
    world.evictor.withdraw(pods[1].uid, DRAIN)
    admitted(world, pods[2], POLICY)
    assert world.evictor.waiting() == ()


async def test_actions_that_a_plan_gives_up_are_withdrawn():
    world = World(limits=EvictionLimits(per_minute=1))
    pods = [world.add(f"web-{number}", owner=f"web-{number}") for number in range(3)]
    outcomes = await world.execute(world.plan(*pods), seconds=3.0)
    assert [each.result for each in outcomes] == [EVICTED, SKIPPED, SKIPPED]
    assert world.evictor.waiting() == ()


# --- the same owner --------------------------------------------------------------------------------------------------


async def test_policy_waits_for_owner_after_a_drain():
    world = World(restart=5.0)
    one, two = world.add("web-1"), world.add("web-2", node="n2")
    assert (await drained(world, one)).result == EVICTED
    executing = asyncio.create_task(world.execute(world.plan(two)))
    await asyncio.sleep(1.0)
    [waiting] = world.evictor.waiting()
    assert (waiting.reason, waiting.waits_for, waiting.request.pod) == (reasons.WAITING_FOR_OWNER, DRAIN, "web-2")
    assert str(DRAIN) in waiting.message
    [outcome] = await executing
    assert outcome.result == EVICTED
    assert world.times["web-2"] - world.times["web-1"] >= 5.0
    assert world.evictor.waiting() == ()


async def test_owner_recovers_when_all_evicted_pods_are_replaced():
    world = World(restart=5.0)
    first, second, third = (world.add(f"web-{number}") for number in (1, 2, 3))
    await drained(world, first)
    await asyncio.sleep(3.0)
    await drained(world, second)
    await asyncio.sleep(3.0)  # the first is back, the second is not
    assert waits(world, third, POLICY, settle=True).reason == reasons.WAITING_FOR_OWNER
    await asyncio.sleep(3.0)
    admitted(world, third, POLICY, settle=True)


async def test_drain_evicts_several_pods_of_one_owner():
    world = World(restart=None)
    pods = [world.add(f"web-{number}") for number in (1, 2, 3)]
    responses = await asyncio.gather(*(drained(world, pod) for pod in pods))
    assert [response.result for response in responses] == [EVICTED] * 3


# --- the same budget -------------------------------------------------------------------------------------------------


class Guarded(World):
    """Its API server keeps a budget for all pods, and shows its status to the watch after a second."""

    def __init__(self, allowed: int, **more: Any) -> None:
        super().__init__(**more)
        self.left = allowed
        self.overspent = 0
        self.disrupted: list[str] = []
        self.evictor.budgets.budget_changed(None, budget(allowed))
        self.server_before, self.api.before = self.api.before, self._guard

    async def _guard(self, call: Any) -> None:
        if self.server_before is not None:
            await self.server_before(call)
        if not call.path.endswith("/eviction"):
            return
        if self.left < 1:
            self.overspent += 1
            raise budget_refusal()
        self.left -= 1
        self.disrupted.append(call.body["metadata"]["name"])
        shown = budget(self.left, *self.disrupted)
        asyncio.get_running_loop().call_later(1.0, self.evictor.budgets.budget_changed, None, shown)


async def test_two_controllers_never_exceed_a_budget():
    world = Guarded(1, restart=None, latency=0.1)
    one, two = world.add("web-1"), world.add("db-1", owner="db")
    draining = asyncio.create_task(drained(world, one))
    await asyncio.sleep(0.05)
    executing = asyncio.create_task(world.execute(world.plan(two), seconds=3.0))
    await asyncio.sleep(0.5)
    [waiting] = world.evictor.waiting()
    assert (waiting.reason, waiting.waits_for, waiting.request.pod) == (reasons.WAITING_FOR_BUDGET, DRAIN, "db-1")
    assert world.overspent == 0
    [outcome] = await executing
    await draining
    assert outcome.result == REFUSED, "once the status shows the eviction, the API server is the judge"
    assert world.times.keys() == {"web-1"}


async def test_concurrent_requesters_spend_a_budget_once():
    world = Guarded(3, restart=None, latency=0.1)
    pods = [world.add(f"web-{number}", owner=f"o{number}") for number in range(8)]
    tasks = [
        asyncio.create_task(drained(world, pod, Requester(AUTOSCALER, f"removal of node n{number}")))
        for number, pod in enumerate(pods)
    ]
    await asyncio.sleep(0.9)
    assert (len(world.times), world.overspent) == (3, 0)
    assert {each.reason for each in world.evictor.waiting()} == {reasons.WAITING_FOR_BUDGET}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_outstanding_disruption_ends_with_status_or_timeout():
    world = World()
    one, two = world.add("web-1"), world.add("web-2")
    budgets = world.evictor.budgets
    budgets.budget_changed(None, budget(1))
    budgets.hold(one, DRAIN)
    assert budgets.exhausted(two, now=0.0) is not None
    assert budgets.exhausted(one, now=0.0) is None, "its own"
    budgets.granted(one, now=0.0)
    assert budgets.exhausted(two, now=9.0) is not None
    assert budgets.exhausted(two, now=11.0) is None
    budgets.hold(one, DRAIN)
    budgets.budget_changed(budget(1), budget(0, "web-1"))
    assert budgets.exhausted(two, now=12.0) is None, "the status shows it; the API server decides"
    budgets.budget_changed(budget(0, "web-1"), budget(1))
    budgets.hold(one, DRAIN)
    budgets.release(one)
    assert budgets.exhausted(two, now=13.0) is None
    budgets.budget_changed(budget(1), None)
    assert budgets.exhausted(two, now=13.0) is None


async def test_pods_without_budget_cost_do_not_wait():
    world = World()
    pending = world.add("web-1", phase="Pending")
    world.evictor.budgets.budget_changed(None, budget(0))
    other = world.add("web-2")
    world.evictor.budgets.hold(pending, DRAIN)
    assert world.evictor.budgets.exhausted(other, now=0.0) is None


# --- limits of the whole operator ------------------------------------------------------------------------------------


async def test_concurrency_limit_spans_all_requesters():
    world = World(restart=None, limits=EvictionLimits(max_concurrent=2))
    pods = [world.add(f"web-{number}", owner=f"o{number}") for number in range(4)]
    first = admitted(world, pods[0])
    admitted(world, pods[1], POLICY)
    waiting = waits(world, pods[2], POLICY)
    assert waiting.reason == reasons.WAITING_FOR_EVICTION_LIMIT
    assert "maxConcurrentEvictions is 2" in waiting.message
    world.evictor.conclude(first, TAKEN)
    waits(world, pods[2], POLICY), "the pod is still there"
    world.drop(pods[0])
    admitted(world, pods[2], POLICY)


async def test_stuck_pod_frees_its_slot_after_grace_period():
    world = World(limits=EvictionLimits(max_concurrent=1))
    one, two = world.add("web-1"), world.add("web-2", owner="db")
    world.evictor.conclude(admitted(world, one), TAKEN)
    await asyncio.sleep(59.0)
    waits(world, two)
    await asyncio.sleep(2.0)
    admitted(world, two)


async def test_namespace_limit_is_separate():
    world = World(limits=EvictionLimits(max_concurrent_per_namespace=1, per_minute_per_namespace=6))
    one, two = world.add("web-1"), world.add("web-2", owner="db")
    other = msgspec.structs.replace(world.add("x-1", owner="x"), namespace="bank")
    permit = admitted(world, one)
    assert "for namespace shop" in waits(world, two).message
    admitted(world, other)
    world.evictor.conclude(permit, TAKEN)
    world.drop(one)
    waits(world, two), "one of six a minute at once"
    await asyncio.sleep(10.0)
    admitted(world, two)


@pytest.mark.parametrize(
    ("limits", "scope"),
    [
        (EvictionLimits(max_concurrent_per_node=1), "node n1"),
        (EvictionLimits(max_concurrent_per_owner=1), "ReplicaSet shop/web"),
        (EvictionLimits(per_minute_per_node=1), "node n1"),
        (EvictionLimits(per_minute_per_owner=1), "ReplicaSet shop/web"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_node_and_owner_limits_are_separate(limits: EvictionLimits, scope: str) -> None:
    world = World(limits=limits)
    one, two = world.add("web-1"), world.add("web-2")
    other = world.add("db-1", owner="db", node="n2")
    permit = admitted(world, one, node="n1")
    waiting = waits(world, two, POLICY, node="n1")
    assert waiting.reason == reasons.WAITING_FOR_EVICTION_LIMIT
    assert f"for {scope}" in waiting.message
    admitted(world, other, POLICY, node="n2")
    admitted(world, two, TAINTS, deadline=0.0, node="n1", how="Delete")
    world.evictor.conclude(permit, TAKEN)
    world.drop(one)
    await asyncio.sleep(61.0)
    world.evictor.cancel(next(iter(world.evictor._in_progress.permits)))
    admitted(world, world.add("web-3", owner="web3", node="n3"), node="n3")


async def test_drain_precedes_a_policy_that_has_waited_less_than_a_minute_longer():
    world = World(limits=EvictionLimits(max_concurrent=1))
    pods = [world.add(f"web-{number}", owner=f"o{number}") for number in range(3)]
    permit = admitted(world, pods[0], TAINTS)
    waits(world, pods[1], POLICY)
    for _ in range(4):
        await asyncio.sleep(4.0)
        waits(world, pods[1], POLICY)
    waits(world, pods[2], DRAIN)
    world.evictor.cancel(permit)
    waits(world, pods[1], POLICY), "the drain comes first, although it waits for a shorter time"
    world.evictor.cancel(admitted(world, pods[2], DRAIN))
    permit = admitted(world, pods[1], POLICY)
    waits(world, pods[2], POLICY)
    for _ in range(20):
        await asyncio.sleep(4.0)
        waits(world, pods[2], POLICY)
    waits(world, pods[0], DRAIN)
    world.evictor.cancel(permit)
    waits(world, pods[0], DRAIN), "the policy has waited for more than a minute longer"
    admitted(world, pods[2], POLICY)


async def test_refused_eviction_with_a_deadline_keeps_its_place_at_the_budget():
    world = World()
    one, two = world.add("web-1"), world.add("web-2")
    world.evictor.budgets.budget_changed(None, budget(0))
    world.api.fail(budget_refusal(), path="/eviction")
    permit = admitted(world, one, TAINTS, deadline=0.0)
    assert (await world.evictor.evict(permit, world.api, timeout=10.0)).result == REFUSED
    world.evictor.budgets.budget_changed(budget(0), budget(1))
    waiting = waits(world, two, POLICY)
    assert (waiting.reason, waiting.waits_for) == (reasons.WAITING_FOR_BUDGET, TAINTS)
    world.evictor.budgets.budget_changed(budget(1), budget(2))
    world.evictor.cancel(admitted(world, two, POLICY))
    world.evictor.budgets.budget_changed(budget(2), budget(1))
    world.evictor.cancel(admitted(world, one, TAINTS, deadline=0.0))
    admitted(world, two, POLICY)


async def test_refused_eviction_that_is_not_repeated_loses_its_place_at_the_budget():
    world = World()
    one, two = world.add("web-1"), world.add("web-2")
    world.evictor.budgets.budget_changed(None, budget(1))
    world.api.fail(budget_refusal(), path="/eviction")
    await world.evictor.evict(admitted(world, one, TAINTS, deadline=0.0), world.api, timeout=10.0)
    waits(world, two, POLICY)
    await asyncio.sleep(REFUSAL_EXPIRY + 1)
    admitted(world, two, POLICY)


async def test_limits_count_the_evictions_before_a_restart():
    limits = EvictionLimits(max_concurrent=2, per_minute=60, per_minute_per_owner=2)
    world = World(restart=None, limits=limits)
    now = world.clock.now()
    done = [world.add(f"old-{number}", owner="db") for number in range(2)]
    old = history_entry(request(done[0], POLICY), TAKEN, done[0], now=now - 61.0)
    assert old is not None
    entries = [
        old,
        msgspec.structs.replace(old, uid="uid-1", time=to_time(now - 10.0)),
        msgspec.structs.replace(old, uid="uid-2", time=to_time(now - 50.0)),
        msgspec.structs.replace(old, uid="uid-3", time=to_time(now - 1.0), result="Refused"),
    ]
    kind, reason = EVICTION_CONDITION
    condition = PodCondition(kind, "True", reason, "", now - 1.0)
    leaving = world.add("leaving", owner="api", deleted=now + 30.0, conditions=(condition,))
    assert world.evictor.restore(entries, [*done, leaving]) == 3
    assert "evictionsPerMinutePerOwner is 2" in waits(world, done[0], POLICY).message
    one, two = (world.add(f"web-{number}", owner=f"o{number}") for number in (1, 2))
    permit = admitted(world, one)
    assert "maxConcurrentEvictions is 2, and 2 evictions" in waits(world, two).message
    world.evictor.cancel(permit)
    await asyncio.sleep(21.0)
    admitted(world, done[0], POLICY)


@pytest.mark.parametrize("recorded", [False, True], ids=["condition", "history"])
async def test_restored_eviction_counts_from_the_end_of_its_second(recorded: bool):
    world = World(restart=None, limits=EvictionLimits(per_minute=1))
    at = world.clock.now() - 30.0
    condition = PodCondition(EVICTION_CONDITION[0], "True", EVICTION_CONDITION[1], "", at)
    leaving = world.add("leaving", owner="api", deleted=world.clock.now(), conditions=(condition,))
    entry = history_entry(request(leaving, POLICY), TAKEN, leaving, now=at)
    assert entry is not None
    assert world.evictor.restore([entry] if recorded else [], [] if recorded else [leaving]) == 1
    web = world.add("web-1", owner="web")
    await asyncio.sleep(30.5)
    assert "evictionsPerMinute is 1" in waits(world, web).message
    await asyncio.sleep(0.5)
    admitted(world, web)


async def test_rate_limit_spans_all_controllers():
    world = World(restart=1.0, limits=EvictionLimits(per_minute=6))
    drains = [world.add(f"a-{number}", owner=f"a{number}") for number in range(6)]
    planned = [world.add(f"b-{number}", owner=f"b{number}") for number in range(6)]
    tasks = [asyncio.create_task(drained(world, pod)) for pod in drains]
    outcomes = await world.execute(world.plan(*planned), seconds=600.0)
    await asyncio.gather(*tasks)
    assert [outcome.result for outcome in outcomes] == [EVICTED] * 6
    times = sorted(world.times.values())
    assert len(times) == 12
    assert all(later - sooner >= 60.0 - 1e-6 for sooner, later in zip(times, times[6:], strict=False))


async def test_waiters_are_admitted_in_order():
    world = World(limits=EvictionLimits(per_minute=6))
    one, two, three = (world.add(f"web-{number}", owner=f"o{number}") for number in (1, 2, 3))
    admitted(world, one)
    waits(world, two, DRAIN)
    await asyncio.sleep(1.0)
    for _ in range(10):
        waits(world, two, DRAIN)
        waits(world, three, POLICY)
        await asyncio.sleep(0.95)
    waits(world, three, POLICY), "the drain came first, and asks every second"
    admitted(world, two, DRAIN)


async def test_many_waiting_requests_are_repeated_less_often_and_keep_their_places():
    world, number = World(limits=EvictionLimits(max_concurrent=1)), 2_000
    first, *pods = [world.add(f"web-{index}") for index in range(number + 1)]
    admitted(world, first).in_flight = True
    found = [world.evictor.admit(request(each, TAINTS, deadline=1.0), each) for each in pods]
    assert isinstance(found[0], PendingEviction)
    assert isinstance(found[-1], PendingEviction)
    assert found[0].retry_after == ADMISSION_RETRY
    assert found[-1].retry_after == pytest.approx(number / RETRIES_PER_SECOND, rel=0.01)
    await asyncio.sleep(found[-1].retry_after)
    assert found[-1].request in [each.request for each in world.evictor.waiting()], "it keeps its place"

    other = world.evictor.admit(request(pods[0], DRAIN), pods[0])
    assert isinstance(other, PendingEviction)
    assert other.retry_after == ADMISSION_RETRY, "the requests of others do not count"


async def test_strategies_of_one_policy_do_not_wait_for_each_other():
    world = World(limits=EvictionLimits(max_concurrent=2))
    one, two, three = (world.add(f"web-{number}", owner=f"o{number}") for number in (1, 2, 3))
    first, _ = admitted(world, one), admitted(world, two)
    waits(world, three, POLICY)
    world.evictor.cancel(first)
    await asyncio.sleep(1.0)
    admitted(world, world.add("web-4", owner="o4"), Requester(DESCHEDULER, "spread", "LowNodeUtilization"))


async def test_expired_waiter_is_skipped():
    world = World(limits=EvictionLimits(per_minute=6))
    one, two, three = (world.add(f"web-{number}", owner=f"o{number}") for number in (1, 2, 3))
    admitted(world, one)
    waits(world, two, DRAIN)
    await asyncio.sleep(11.0)
    assert world.evictor.waiting() == ()
    admitted(world, three, POLICY)


async def test_request_with_deadline_ignores_rate_limit_but_counts():
    world = World(limits=EvictionLimits(per_minute=6, max_concurrent=2))
    pods = [world.add(f"web-{number}", owner=f"o{number}") for number in range(9)]
    for pod in pods[:6]:
        world.evictor.conclude(admitted(world, pod, TAINTS, deadline=0.0, how="Delete"), TAKEN)
    assert "evictionsPerMinute" in waits(world, pods[6]).message
    for pod in pods[6:8]:
        world.evictor.begin(admitted(world, pod, TAINTS, deadline=0.0, how="Delete"))
    assert waits(world, pods[8], TAINTS, deadline=0.0, how="Delete").reason == reasons.WAITING_FOR_EVICTION_LIMIT


async def test_request_with_deadline_ignores_slowly_terminating_pods():
    world = World(limits=EvictionLimits(max_concurrent=1))
    slow, due = world.add("web-1"), world.add("web-2", owner="db")
    world.evictor.conclude(admitted(world, slow), TAKEN)
    admitted(world, due, TAINTS, deadline=0.0, how="Delete")


async def test_request_with_deadline_ignores_rechecks_and_rollouts():
    world = World(limits=EvictionLimits(max_concurrent=1))
    moved, due, later = world.add("web-1"), world.add("web-2", owner="db"), world.add("web-3", owner="db")
    permit = admitted(world, moved, POLICY, how="Surge")
    world.evictor.cancel(admitted(world, due, TAINTS, deadline=0.0, how="Delete"))
    world.evictor.begin(permit)
    waits(world, due, TAINTS, deadline=0.0, how="Delete")
    world.evictor.response_received(permit)
    waits(world, later)
    admitted(world, due, TAINTS, deadline=0.0, how="Delete")


async def test_skipped_action_reports_its_wait_reason():
    world = World(limits=EvictionLimits(max_concurrent=1))
    admitted(world, world.add("a-1", owner="a"))
    outcomes = await world.execute(world.plan(world.add("web-1"), world.add("db-1", owner="db")), seconds=5.0)
    assert (outcomes[0].result, outcomes[0].reason) == (SKIPPED, reasons.WAITING_FOR_EVICTION_LIMIT)
    assert not world.asked


# --- what is left behind ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("latency", [0.0, 5.0], ids=["while it waits", "in the middle of a request"])
async def test_cancelled_execution_releases_reservations(latency: float):
    world = World(latency=latency, restart=None, limits=EvictionLimits(max_concurrent=1, per_minute=60))
    one, two = world.add("web-1"), world.add("db-1", owner="db")
    blocker = None if latency else admitted(world, world.add("a-1", owner="a"))
    executing = asyncio.create_task(world.execute(world.plan(one)))
    await asyncio.sleep(1.0)
    executing.cancel()
    await asyncio.gather(executing, return_exceptions=True)
    if blocker is not None:
        world.evictor.cancel(blocker)
    await asyncio.sleep(6.0)
    assert world.evictor.waiting() == ()
    admitted(world, two, settle=True)


async def test_twice_cancelled_execution_releases_reservations():
    world = World(limits=EvictionLimits(max_concurrent=1))

    async def slow_to_end(_):
        try:
            await asyncio.sleep(100.0)
        finally:
            await asyncio.sleep(1.0)

    executing = asyncio.create_task(world.execute(world.plan(world.add("web-1")), recheck=slow_to_end))
    await asyncio.sleep(1.0)
    executing.cancel()
    await asyncio.sleep(0.1)
    executing.cancel()
    await asyncio.gather(executing, return_exceptions=True)
    await asyncio.sleep(2.0)
    admitted(world, world.add("db-1", owner="db"))


async def test_cancelled_drain_releases_reservations():
    world = World(latency=5.0, limits=EvictionLimits(max_concurrent=1))
    one, two = world.add("web-1"), world.add("web-2")
    draining = asyncio.create_task(drained(world, one))
    await asyncio.sleep(1.0)
    waits(world, two)
    draining.cancel()
    await asyncio.gather(draining, return_exceptions=True)
    admitted(world, two, settle=True)


async def test_eviction_with_lost_response_counts_once():
    world = World(limits=EvictionLimits(per_minute=60, max_concurrent=5))
    world.api.lose = 1
    pod = world.add("web-1")
    assert (await drained(world, pod)).result == EVICTED
    [(sent, result)] = world.metrics.finished
    assert (sent.pod, result, sent.requester) == ("web-1", EVICTED, DRAIN)
    assert len(world.asked) == 1


async def test_eviction_that_arrives_late_counts_toward_the_rate_limit_from_then_on():
    world = World(latency=5.0, limits=EvictionLimits(per_minute=1))
    assert (await drained(world, world.add("web-1"))).result == EVICTED
    assert world.clock.monotonic() >= 5.0
    other = world.add("db-1", owner="db")
    await asyncio.sleep(58.0)
    waits(world, other)
    await asyncio.sleep(2.1)
    admitted(world, other)


async def test_eviction_in_the_background_counts_toward_the_rate_limit_from_its_response_and_not_from_its_end():
    world = World(limits=EvictionLimits(per_minute=1))
    permit = admitted(world, world.add("vm-1"))
    world.evictor.begin(permit)
    await asyncio.sleep(5.0)
    world.evictor.response_received(permit)
    other = world.add("web-1", owner="web")
    await asyncio.sleep(58.0)
    waits(world, other)
    await asyncio.sleep(2.1)
    world.evictor.conclude(permit, AttemptResult(EVICTED, reasons.EVICTED, "it was migrated"))
    admitted(world, other)


@pytest.mark.parametrize(
    ("lost_as", "code"),
    [
        (Unreachable("the connection was reset"), ResponseCode.IN_DOUBT),
        (Conflict("the object has been modified", status=409), ResponseCode.CONFLICT),
    ],
    ids=["no response", "conflict"],
)
@pytest.mark.parametrize(("grace", "asked"), [(None, 1), (5, 2)])
async def test_requester_that_repeats_a_lost_eviction_reads_the_pod_first(
    lost_as: ApiError | Unreachable, code: ResponseCode, grace: int | None, asked: int
):
    world = World()
    world.api.lose, world.api.lost_as = 1, lost_as
    pod = world.add("web-1")
    path = PODS.path("web-1", namespace="shop")
    first = admitted(world, pod, TAINTS, deadline=0.0)
    assert (await world.evictor.send(first, world.api, timeout=10.0)).code is code
    condition = {"type": EVICTION_CONDITION[0], "reason": EVICTION_CONDITION[1], "status": "True"}
    metadata = {"name": "web-1", "namespace": "shop", "uid": pod.uid, "deletionTimestamp": "2026-11-20T12:00:00Z"}
    world.api.put(path, {"metadata": metadata, "status": {"conditions": [condition]}})
    world.snapshot.put(pod)  # the watch does not show it yet
    again = admitted(world, pod, TAINTS, deadline=0.0, grace_period=grace)
    assert (await world.evictor.send(again, world.api, timeout=10.0)).granted
    assert len(world.asked) == asked
    assert len(world.metrics.finished) == 1


async def test_lost_eviction_is_repeated_if_the_pod_is_running():
    world = World()
    pod = world.add("web-1")
    world.api.fail(Unreachable("cut"))
    first = admitted(world, pod, TAINTS, deadline=0.0)
    assert (await world.evictor.send(first, world.api, timeout=10.0)).code is ResponseCode.IN_DOUBT
    assert (await world.evictor.send(admitted(world, pod, TAINTS, deadline=0.0), world.api, timeout=10.0)).granted
    assert [name for name, _ in world.asked] == ["web-1", "web-1"]


async def test_lost_eviction_is_not_repeated_while_the_pod_cannot_be_read():
    world = World()
    pod = world.add("web-1")
    world.api.fail(Unreachable("cut"), times=3)
    for _ in range(3):
        permit = admitted(world, pod, TAINTS, deadline=0.0)
        assert (await world.evictor.send(permit, world.api, timeout=10.0)).code is ResponseCode.IN_DOUBT
    assert [name for name, _ in world.asked] == ["web-1"]


async def test_lost_request_that_shortens_the_grace_period_is_repeated():
    world = World()
    pod = world.add("web-1", deleted=1.0)
    world.api.fail(Unreachable("cut"))
    for expected in (ResponseCode.IN_DOUBT, ResponseCode.GRANTED):
        permit = admitted(world, pod, TAINTS, deadline=0.0, grace_period=0)
        assert (await world.evictor.send(permit, world.api, timeout=10.0)).code is expected
    assert len(world.asked) == 2


async def test_cancelled_eviction_counts_as_lost():
    world = World(latency=5.0)
    pod = world.add("web-1")
    sending = asyncio.create_task(
        world.evictor.send(admitted(world, pod, TAINTS, deadline=0.0), world.api, timeout=10.0)
    )
    await asyncio.sleep(1.0)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    world.drop(pod)
    again = await world.evictor.send(admitted(world, pod, TAINTS, deadline=0.0), world.api, timeout=10.0)
    assert again.granted
    assert len(world.asked) == 1


async def marked(world: World, pod: Pod, *, reason: str = "A") -> bool:
    """Mark a pod; whether a request was sent."""
    permit, sent = admitted(world, pod, TAINTS, deadline=0.0, how="Delete"), len(world.api.calls)
    assert await world.evictor.mark_disruption_target(permit, world.api, reason=reason, message="m", timeout=10) is None
    assert permit.in_flight
    world.evictor.cancel(permit)
    return len(world.api.calls) > sent


async def test_condition_is_written_once_a_minute():
    world = World()
    pod = world.add("web-1")
    assert await marked(world, pod)
    await asyncio.sleep(MARK_LIFETIME - 1.0)
    assert not await marked(world, pod)
    await asyncio.sleep(2.0)
    assert await marked(world, pod)


async def test_condition_is_written_again_after_another_reason_replaced_it():
    world = World()
    pod = world.add("web-1", conditions=(PodCondition("DisruptionTarget", "True", "A"),))
    assert [await marked(world, pod, reason=reason) for reason in "ABBAA"] == [False, True, False, True, False]


async def test_condition_is_written_after_a_granted_eviction():
    world = World()
    pod = world.add("web-1", conditions=(PodCondition("DisruptionTarget", "True", "A"),))
    permit = admitted(world, pod, TAINTS, deadline=0.0)
    assert (await world.evictor.send(permit, world.api, timeout=10)).granted
    await world.evictor.mark_disruption_target(permit, world.api, reason="A", message="m", timeout=10)
    assert [call.method for call in world.api.calls] == ["POST", "PATCH"]


async def test_condition_is_written_again_after_a_failed_eviction():
    world = World()
    pod = world.add("web-1")
    assert await marked(world, pod)
    world.api.fail(ServerError("busy", status=500))
    permit = admitted(world, pod, TAINTS, deadline=0.0)
    assert not (await world.evictor.send(permit, world.api, timeout=10)).granted
    assert await marked(world, pod)


@pytest.mark.parametrize(
    ("status", "reason", "sent"), [("True", "A", False), ("True", "B", True), ("False", "A", True)]
)
async def test_condition_of_the_same_reason_is_not_written_again(status: str, reason: str, sent: bool):
    world = World()
    pod = world.add("web-1", conditions=(PodCondition("DisruptionTarget", status, reason),))
    assert await marked(world, pod) is sent


async def test_cancelled_write_of_the_condition_cancels_the_permit():
    world = World(latency=5.0)
    pod = world.add("web-1")
    permit = admitted(world, pod, TAINTS, deadline=0.0, how="Delete")
    marking = world.evictor.mark_disruption_target(permit, world.api, reason="A", message="m", timeout=10)
    writing = asyncio.create_task(marking)
    await asyncio.sleep(1.0)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    assert not world.evictor._in_progress.permits


async def test_uncertain_disruption_stays_outstanding():
    world = World()
    one, two = world.add("web-1"), world.add("db-1", owner="db")
    world.evictor.budgets.budget_changed(None, budget(1))
    world.api.fail(Unreachable("cut"), times=2)
    permit = admitted(world, one)
    response = await world.evictor.evict(permit, world.api, timeout=10.0)
    assert (response.uncertain, response.retry) == (True, True)
    assert waits(world, two).reason == reasons.WAITING_FOR_BUDGET
    admitted(world, one), "the same pod may be tried again"


async def test_cancelled_execution_keeps_uncertain_disruption_outstanding():
    world = World()
    one, two = world.add("web-1"), world.add("db-1", owner="db")
    world.evictor.budgets.budget_changed(None, budget(1))
    world.api.fail(Unreachable("cut"), times=2)
    executing = asyncio.create_task(world.execute(world.plan(one)))
    await asyncio.sleep(0.2)  # the executor waits for the next attempt to resolve the lost response
    executing.cancel()
    await asyncio.gather(executing, return_exceptions=True)
    assert waits(world, two).reason == reasons.WAITING_FOR_BUDGET


async def test_webhook_refusal_is_recorded_and_releases_reservations():
    history = FakeHistory()
    world = World(limits=EvictionLimits(max_concurrent=1), history=history)
    one, two = world.add("web-1"), world.add("db-1", owner="db")
    world.evictor.budgets.budget_changed(None, budget(1))
    message = 'admission webhook "guard.example.com" denied the request: no'
    world.api.fail(Forbidden(message, status=403), path="web-1/eviction")
    response = await drained(world, one)
    assert (response.result, response.reason) == (REFUSED, reasons.EVICTION_REFUSED)
    assert world.metrics.results == [REFUSED]
    [record] = history.entries
    assert "guard.example.com" in record.result_message
    assert (await drained(world, two)).result == EVICTED


async def test_repeated_background_eviction_counts_once():
    world = World(limits=EvictionLimits(per_minute=6))
    pod, other = world.add("vm-1"), world.add("web-1", owner="web")
    world.evictor.budgets.budget_changed(None, budget(1))
    started = AttemptResult(STARTED, reasons.EVICTION_IN_BACKGROUND, "it is migrated")
    world.evictor.conclude(admitted(world, pod, TAINTS, deadline=0.0), started)
    for _ in range(3):
        await asyncio.sleep(20.0)
        world.evictor.conclude(admitted(world, pod, TAINTS, deadline=0.0), started)
    assert world.metrics.results == [STARTED]
    admitted(world, other)


async def test_overdue_request_skips_the_budget_check():
    world = World()
    one, two = world.add("web-1"), world.add("web-2")
    world.evictor.budgets.budget_changed(None, budget(1))
    admitted(world, one)
    assert waits(world, two, TAINTS, deadline=0.0).reason == reasons.WAITING_FOR_BUDGET
    admitted(world, two, TAINTS, deadline=0.0, overdue=True)


async def test_webhook_refusal_does_not_stop_other_actions():
    world = World()
    message = 'admission webhook "guard.example.com" denied the request: no'
    world.api.fail(Forbidden(message, status=403), path="web-1/eviction")
    outcomes = await world.execute(world.plan(world.add("web-1"), world.add("db-1", owner="db")))
    assert [(each.result, each.reason) for each in outcomes] == [
        (REFUSED, reasons.EVICTION_REFUSED),
        (EVICTED, reasons.EVICTED),
    ]


async def test_metrics_count_waiting_and_finished_evictions():
    registry = CollectorRegistry()
    world = World()
    world.evictor = Evictor(clock=world.clock, view=world, metrics=EvictorMetrics(registry))
    pod = world.add("web-1")
    permit = admitted(world, pod)
    waits(world, pod, POLICY)
    labels = {"controller": DESCHEDULER, "reason": reasons.WAITING_FOR_EVICTION}
    assert registry.get_sample_value("trimtab_evictions_waiting", labels) == 1
    assert registry.get_sample_value("trimtab_evictions_in_flight") == 1
    world.evictor.conclude(permit, TAKEN)
    ended = {"controller": AUTOSCALER, "how": "Evict", "result": EVICTED}
    assert registry.get_sample_value("trimtab_evictions_total", ended) == 1


# --- what statuses report of it --------------------------------------------------------------------------------------


async def test_status_groups_pending_evictions_by_reason_and_requester(golden: Golden):
    world = World(limits=EvictionLimits(max_concurrent_per_namespace=1))
    held, *others = (world.add(f"web-{number}", owner=f"o{number}") for number in range(3))
    admitted(world, held, DRAIN)
    waits(world, held, POLICY)
    started = world.clock.now()
    await asyncio.sleep(2.0)
    for pod in others:
        waits(world, pod, POLICY)
    waits(world, others[0], Requester(DESCHEDULER, "another"))
    waits(world, others[1], TAINTS)
    same, limit = world.evictor.waiting_status(DESCHEDULER, name="spread")
    assert (same.reason, same.waits_for, same.count) == (reasons.WAITING_FOR_EVICTION, str(DRAIN), 1)
    assert same.since.timestamp() == pytest.approx(started, abs=1.0)
    assert (limit.reason, limit.waits_for, limit.count) == (reasons.WAITING_FOR_EVICTION_LIMIT, str(DRAIN), 2)
    golden(limit.message)
    assert [each.count for each in world.evictor.waiting_status(DESCHEDULER)] == [1, 3]
    assert world.evictor.waiting_status(AUTOSCALER) == ()


async def test_countdown_does_not_change_the_status():
    world = World(limits=EvictionLimits(per_minute=6))
    one, two, three = (world.add(f"web-{number}", owner=f"o{number}") for number in range(3))
    admitted(world, one)
    before = waits(world, two)
    first = world.evictor.waiting_status(AUTOSCALER)
    await asyncio.sleep(3.0)
    assert waits(world, two).message != before.message
    assert world.evictor.waiting_status(AUTOSCALER, previous=first) == first
    waits(world, three)
    [entry] = world.evictor.waiting_status(AUTOSCALER, previous=first)
    assert (entry.count, entry.since, entry.message) == (2, first[0].since, first[0].message)


async def test_status_reports_longest_waiting_evictions_within_limit():
    world = World()
    for number in range(12):
        pod = world.add(f"web-{number}", owner=f"o{number}")
        admitted(world, pod, Requester(AUTOSCALER, f"n{number:02}" + "x" * 1000))
        waits(world, pod, POLICY)
        await asyncio.sleep(0.3)
    found = world.evictor.waiting_status(DESCHEDULER)
    assert [each.waits_for[:14] for each in found] == [f"{AUTOSCALER} n{number:02}" for number in range(10)]
    assert all(len(each.waits_for) <= 512 and len(each.message) <= 512 for each in found)
