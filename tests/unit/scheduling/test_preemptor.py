"""Carrying out preemptions: nominations, evictions and deletions, budgets, and what stops them. On virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tests.fakes.api import Call, FakeApi
from tests.fakes.caches import Caches
from tests.fakes.clock import LoopClock
from tests.fakes.evictions import FinishedEvictions
from tests.unit.disruption.world import budget_refusal
from trimtab.disruption.evictor import Evictor
from trimtab.disruption.evictor.requests import SCHEDULING
from trimtab.disruption.limits import EvictionLimits
from trimtab.kube.api import Forbidden, NotFound, ServerError, Unreachable
from trimtab.kube.objects import LabelSelector, Pod, PodCondition, PodDisruptionBudget, PodSpec
from trimtab.kube.resources import PODS
from trimtab.kube.verbs import STRATEGIC_PATCH
from trimtab.scheduling.preemption import Preemption
from trimtab.scheduling.preemptor import CONFIRM_TIMEOUT, PreemptionExecutor

pytestmark = pytest.mark.looptime

LOW, HIGH = PodSpec(priority=0), PodSpec(priority=100, scheduler_name="policy")
NO_CPU = "0/3 nodes are available: 3 Insufficient cpu."


class Reported:
    """Records the victims that are reported."""

    def __init__(self) -> None:
        self.victims: list[tuple[str, str]] = []

    def preempted(self, victim: Pod, preemptor: Pod, node: str) -> None:
        self.victims.append((victim.name, preemptor.name))

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"unexpected report: {name}")


class Cluster:
    """Pods at a fake API server and in the caches, which show a deletion `lag` seconds later.

    `latency`: seconds that each request takes. Deleted pods keep terminating.
    """

    def __init__(self, *, lag: float = 0.0, latency: float = 0.0, limits: EvictionLimits | None = None) -> None:
        self.api = FakeApi(before=self._before, after=self._after)
        self.caches = Caches()
        self.clock = LoopClock()
        self.lag, self.latency = lag, latency
        self.metrics = FinishedEvictions()
        self.evictor = Evictor(clock=self.clock, view=self.caches.lister, limits=limits, metrics=self.metrics)
        self.reported = Reported()
        self.stale: str | None = None
        self.binding: set[str] = set()
        self.results: asyncio.Queue[bool] = asyncio.Queue()
        self.executor = PreemptionExecutor(
            api=self.api,
            evictor=self.evictor,
            lister=self.caches.lister,
            clock=self.clock,
            stale=lambda: self.stale,
            reporter=self.reported,
            cancel_binding=lambda pod: pod.name in self.binding,
        )

    def add(self, name: str, *, node: str = "n1", spec: PodSpec = LOW, **fields: Any) -> Pod:
        pod = Pod(namespace="shop", name=name, uid=f"uid-{name}", node=node, spec=spec, phase="Running")
        metadata = {"name": name, "namespace": "shop", "uid": pod.uid}
        stored = self.api.put(PODS.path(name, namespace="shop"), {"metadata": metadata, "spec": {}, "status": {}})
        pod = msgspec.structs.replace(pod, resource_version=stored["metadata"]["resourceVersion"], **fields)
        self.caches.apply(None, pod)
        return pod

    def preemptor(self, name: str = "high", **fields: Any) -> Pod:
        return self.add(name, node="", spec=HIGH, **{"phase": "Pending", **fields})

    def change(self, pod: Pod, **fields: Any) -> None:
        current = self.caches.lister.pod(pod.key) or pod
        version = f"{current.resource_version}.1"
        self.caches.apply(current, msgspec.structs.replace(current, resource_version=version, **fields))

    def start(self, pod: Pod, *victims: Pod, displaced: tuple[Pod, ...] = (), violating: tuple[Pod, ...] = ()) -> None:
        keys = frozenset(each.key for each in violating)
        self.executor.start(Preemption(pod, "n1", 0, victims, keys), NO_CPU, displaced, self.results.put_nowait)

    async def preempted(self, pod: Pod, *victims: Pod, **more: Any) -> bool:
        self.start(pod, *victims, **more)
        return await self.results.get()

    @property
    def sent(self) -> list[tuple[str, str]]:
        """The requests in the order of their arrival: what was done to which pod."""
        return [_summary(call) for call in self.api.calls]

    async def _before(self, call: Call) -> None:
        if self.latency:
            await asyncio.sleep(self.latency)

    async def _after(self, call: Call) -> None:
        if _summary(call)[0] in ("evict", "delete"):
            asyncio.get_running_loop().call_later(self.lag, self._terminate, _summary(call)[1])

    def _terminate(self, name: str) -> None:
        pod = self.caches.lister.pod(f"shop/{name}")
        if pod is not None:
            self.change(pod, deleted=self.clock.now())


def _summary(call: Call) -> tuple[str, str]:
    name = call.path.split("/pods/")[1].split("/")[0]
    if call.method == "GET":
        return "get", name
    if call.path.endswith("/eviction"):
        return "evict", name
    if call.method == "DELETE":
        return "delete", name
    if "nominatedNodeName" in call.body["status"]:
        return ("nominate" if call.body["status"]["nominatedNodeName"] else "clear"), name
    return "mark", name


def conditions(cluster: Cluster, name: str) -> list[tuple[str, str]]:
    """Type and reason of the conditions that were written on a pod."""
    marks = [call.body["status"]["conditions"] for call in cluster.api.calls if _summary(call) == ("mark", name)]
    return [(each["type"], each["reason"]) for [each] in marks]


async def test_preemptor_is_nominated_before_a_victim_is_evicted():
    cluster = Cluster()
    victim, pod = cluster.add("low"), cluster.preemptor()
    assert await cluster.preempted(pod, victim)
    assert cluster.sent == [("nominate", "high"), ("evict", "low"), ("mark", "low")]
    assert cluster.api.calls[0].body["metadata"]["uid"] == pod.uid
    assert cluster.api.calls[1].body["deleteOptions"] == {"preconditions": {"uid": victim.uid}}, "its own grace period"
    assert conditions(cluster, "low") == [("DisruptionTarget", "PreemptionByScheduler")]
    assert cluster.reported.victims == [("low", "high")]


async def test_nomination_and_condition_of_the_preemptor_are_one_request():
    cluster = Cluster()
    victim, pod = cluster.add("low"), cluster.preemptor()
    assert await cluster.preempted(pod, victim)
    call = cluster.api.calls[0]
    assert (call.path, call.content_type) == (
        PODS.path("high", namespace="shop", subresource="status"),
        STRATEGIC_PATCH,
    )
    [condition] = call.body["status"].pop("conditions")
    assert call.body == {
        "metadata": {"uid": pod.uid, "resourceVersion": pod.resource_version},
        "status": {"nominatedNodeName": "n1"},
    }
    written = condition["type"], condition["status"], condition["reason"], condition["message"]
    assert written == ("PodScheduled", "False", "Unschedulable", NO_CPU)
    assert "lastTransitionTime" in condition


async def test_condition_that_the_preemptor_has_already_is_not_written_again():
    cluster = Cluster()
    existing = (PodCondition("PodScheduled", "False", "Unschedulable", NO_CPU, since=1.0),)
    victim, pod = cluster.add("low"), cluster.preemptor(conditions=existing)
    assert await cluster.preempted(pod, victim)
    assert cluster.api.calls[0].body == {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": "n1"}}


async def test_preemptor_that_has_changed_is_nominated_without_the_condition():
    cluster = Cluster()
    victim, pod = cluster.add("low"), cluster.preemptor()
    path = PODS.path("high", namespace="shop")
    cluster.api.put(path, {"metadata": {"uid": pod.uid}, "spec": {}, "status": {}})
    assert await cluster.preempted(pod, victim)
    assert cluster.sent == [("nominate", "high"), ("nominate", "high"), ("evict", "low"), ("mark", "low")]
    assert cluster.api.objects[path]["status"] == {"nominatedNodeName": "n1"}


async def test_pod_that_is_bound_in_the_cache_gets_no_condition():
    cluster = Cluster(latency=1.0, limits=EvictionLimits(max_concurrent=1))
    victim, other, pod = cluster.add("low"), cluster.preemptor("other"), cluster.preemptor()
    cluster.executor.clear_nomination(other)
    cluster.start(pod, victim)
    await asyncio.sleep(0.5)  # the nomination waits for the first request
    cluster.change(pod, node="n2")
    assert not await cluster.results.get()
    assert [call.body["status"] for call in cluster.api.sent("PATCH", "/high/")] == [{"nominatedNodeName": "n1"}]


async def test_victim_that_violates_a_budget_is_deleted_after_its_condition_is_written():
    cluster = Cluster()
    victim, other, pod = cluster.add("guarded"), cluster.add("free"), cluster.preemptor()
    assert await cluster.preempted(pod, victim, other, violating=(victim,))
    assert [each for each in cluster.sent if each[1] == "guarded"] == [("mark", "guarded"), ("delete", "guarded")]
    [deletion] = cluster.api.sent("DELETE")
    assert deletion.body["preconditions"] == {"uid": victim.uid}
    assert "gracePeriodSeconds" not in deletion.body
    assert ("evict", "free") in cluster.sent
    assert conditions(cluster, "guarded") == [("DisruptionTarget", "PreemptionByScheduler")]


async def test_victim_that_another_preemptor_deletes_is_marked_once():
    cluster = Cluster(lag=3.0, latency=2.0)
    victim, pod, other = cluster.add("low"), cluster.preemptor(), cluster.preemptor("higher")
    cluster.start(pod, victim, violating=(victim,))
    cluster.start(other, victim, violating=(victim,))
    assert await cluster.results.get()
    assert await cluster.results.get()
    assert sorted(each for each in cluster.sent if each[1] == "low") == [("delete", "low"), ("mark", "low")]


async def test_requests_of_the_scheduler_are_counted_by_the_evictor():
    cluster = Cluster()
    victim, pod = cluster.add("low"), cluster.preemptor()
    await cluster.preempted(pod, victim)
    [(sent, result)] = cluster.metrics.finished
    assert (sent.requester.controller, sent.requester.name) == (SCHEDULING, "policy")
    assert (result, sent.how) == ("Evicted", "Evict")


async def test_refusal_of_a_budget_returns_the_preemptor_and_the_next_choice_deletes():
    cluster = Cluster()
    victim, pod = cluster.add("low"), cluster.preemptor()
    cluster.api.fail(budget_refusal(), path="/eviction")
    assert not await cluster.preempted(pod, victim)
    assert ("delete", "low") not in cluster.sent
    assert await cluster.preempted(pod, victim)
    assert cluster.sent[-2:] == [("mark", "low"), ("delete", "low")]


async def test_victim_of_several_budgets_is_deleted_because_no_eviction_can_be_granted():
    cluster = Cluster()
    victim, pod = cluster.add("low"), cluster.preemptor()
    cluster.api.fail(ServerError("This pod has more than one PodDisruptionBudget", status=500), path="/eviction")
    assert await cluster.preempted(pod, victim)
    assert cluster.sent[-2:] == [("mark", "low"), ("delete", "low")]


async def test_nomination_of_pods_of_lower_priority_is_cleared():
    cluster = Cluster()
    victim, pod, lower = cluster.add("low"), cluster.preemptor(), cluster.preemptor("lower", nominated_node="n1")
    assert await cluster.preempted(pod, victim, displaced=(lower,))
    [clearing] = [call for call in cluster.api.calls if _summary(call) == ("clear", "lower")]
    assert clearing.body == {"metadata": {"uid": lower.uid}, "status": {"nominatedNodeName": None}}


async def test_failure_to_clear_a_nomination_is_not_critical():
    cluster = Cluster()
    victim, pod, lower = cluster.add("low"), cluster.preemptor(), cluster.preemptor("lower", nominated_node="n1")
    cluster.api.fail(Forbidden("no", status=403), path="/lower/")
    assert await cluster.preempted(pod, victim, displaced=(lower,))


async def test_nomination_is_cleared_in_the_background():
    cluster = Cluster()
    cluster.executor.clear_nomination(cluster.preemptor(nominated_node="n1"))
    await asyncio.sleep(0.1)
    assert cluster.sent == [("clear", "high")]


async def test_preemptor_of_terminating_pods_is_only_nominated():
    cluster = Cluster()
    victim, pod = cluster.add("low", deleted=1.0), cluster.preemptor()
    assert await cluster.preempted(pod, victim)
    assert cluster.sent == [("nominate", "high")]
    assert cluster.reported.victims == []


async def test_nomination_that_is_stored_already_is_not_written_again():
    cluster = Cluster()
    victim, pod = cluster.add("low"), cluster.preemptor(nominated_node="n1")
    assert await cluster.preempted(pod, victim)
    assert cluster.sent[0] == ("evict", "low")


@pytest.mark.parametrize(
    "change",
    [{"node": "n2"}, {"deleted": 1.0}, {"spec": PodSpec(scheduling_gates=("wait",))}, {"uid": "another"}],
    ids=["bound", "deleted", "gated", "replaced"],
)
async def test_preemptor_that_needs_no_node_any_more_stops_the_victims_not_yet_sent(change: dict[str, Any]):
    cluster = Cluster(latency=1.0, limits=EvictionLimits(max_concurrent=1))
    victims, pod = [cluster.add(f"low-{number}") for number in range(3)], cluster.preemptor()
    cluster.start(pod, *victims)
    await asyncio.sleep(1.5)  # the first victim's eviction is in flight
    cluster.change(pod, **change)
    assert not await cluster.results.get()
    assert [what for what, _ in cluster.sent].count("evict") == 1


async def test_pod_that_is_bound_when_it_is_nominated_preempts_nothing():
    cluster = Cluster()
    victim, pod = cluster.add("low"), cluster.preemptor()
    path = PODS.path("high", namespace="shop")
    cluster.api.put(path, {"metadata": {"uid": pod.uid}, "spec": {"nodeName": "n2"}, "status": {}})
    assert not await cluster.preempted(pod, victim)
    assert set(cluster.sent) == {("nominate", "high")}
    assert "conditions" not in cluster.api.objects[path]["status"]


async def test_pod_that_was_deleted_preempts_nothing():
    cluster = Cluster()
    victim, pod = cluster.add("low"), cluster.preemptor()
    cluster.api.fail(NotFound("not found", status=404), path="/high/")
    assert not await cluster.preempted(pod, victim)
    assert cluster.reported.victims == []


async def test_stale_caches_stop_the_victims_not_yet_sent():
    cluster = Cluster(latency=1.0, limits=EvictionLimits(max_concurrent=1))
    victims, pod = [cluster.add(f"low-{number}") for number in range(3)], cluster.preemptor()
    cluster.start(pod, *victims)
    await asyncio.sleep(1.5)
    cluster.stale = "pods have not been watched for 120s"
    assert not await cluster.results.get()
    assert [what for what, _ in cluster.sent].count("evict") == 1


async def test_failed_eviction_returns_the_preemptor_and_stops_the_others():
    cluster = Cluster(latency=0.5, limits=EvictionLimits(max_concurrent=1))
    victims, pod = [cluster.add(f"low-{number}") for number in range(3)], cluster.preemptor()
    cluster.api.fail(Forbidden('pods "low-0" is forbidden', status=403), path="low-0/eviction")
    assert not await cluster.preempted(pod, *victims)
    assert [name for what, name in cluster.sent if what == "evict"] == ["low-0"]


@pytest.mark.parametrize("error", [Unreachable("reset"), ServerError("etcd", status=500)], ids=str)
async def test_transient_failure_is_retried(error: Exception):
    cluster = Cluster()
    victim, pod = cluster.add("low"), cluster.preemptor()
    cluster.api.fail(error, times=2, path="/eviction")
    assert await cluster.preempted(pod, victim)
    assert [what for what, _ in cluster.sent if what in ("evict", "get")] == ["evict", "get", "evict", "get", "evict"]


async def test_lasting_failure_returns_the_preemptor():
    cluster = Cluster()
    victim, pod = cluster.add("low"), cluster.preemptor()
    cluster.api.fail(Unreachable("reset"), times=99, path="/eviction")
    assert not await cluster.preempted(pod, victim)


async def test_binding_of_a_victim_without_node_is_cancelled_instead_of_evicting_it():
    cluster = Cluster()
    waiting, pod = cluster.preemptor("waiting"), cluster.preemptor()
    cluster.binding.add("waiting")
    assumed = msgspec.structs.replace(waiting, node="n1")
    assert await cluster.preempted(pod, assumed)
    assert cluster.sent == [("nominate", "high")]
    assert cluster.reported.victims == [("waiting", "high")]


async def test_victim_whose_binding_was_sent_is_evicted():
    cluster = Cluster()
    waiting, pod = cluster.preemptor("waiting"), cluster.preemptor()
    assert await cluster.preempted(pod, msgspec.structs.replace(waiting, node="n1"))
    assert ("evict", "waiting") in cluster.sent


async def test_victim_that_was_bound_to_another_node_is_not_evicted():
    cluster = Cluster()
    victim, pod = cluster.add("low", node="n2"), cluster.preemptor()
    assert await cluster.preempted(pod, msgspec.structs.replace(victim, node="n1"))
    assert cluster.sent == [("nominate", "high")]


async def test_ends_when_the_watch_shows_that_the_victims_are_terminating():
    cluster = Cluster(lag=3.0)
    victim, pod = cluster.add("low"), cluster.preemptor()
    before = cluster.clock.monotonic()
    assert await cluster.preempted(pod, victim)
    assert 3.0 <= cluster.clock.monotonic() - before < 3.2


async def test_watch_that_shows_no_termination_delays_the_preemptor_for_a_limited_time():
    cluster = Cluster(lag=1000.0)
    victim, pod = cluster.add("low"), cluster.preemptor()
    assert await cluster.preempted(pod, victim)
    assert cluster.clock.monotonic() == pytest.approx(CONFIRM_TIMEOUT, abs=0.2)


# --- limits ----------------------------------------------------------------------------------------------------------


async def test_rate_limits_of_voluntary_evictions_do_not_delay_a_preemption():
    cluster = Cluster(limits=EvictionLimits(per_minute=1))
    victims, pod = [cluster.add(f"low-{number}") for number in range(5)], cluster.preemptor()
    assert await cluster.preempted(pod, *victims)
    assert cluster.clock.monotonic() < 1.0


async def test_limit_of_concurrent_requests_holds_over_all_preemptions():
    cluster = Cluster(latency=1.0, limits=EvictionLimits(max_concurrent=2))
    taken = most = 0

    async def count(call: Call) -> None:
        nonlocal taken, most
        taken += 1
        most = max(most, taken)
        await asyncio.sleep(1.0)
        taken -= 1

    cluster.api.before = count
    victims = [cluster.add(f"low-{number}") for number in range(6)]
    for number in range(3):
        cluster.start(cluster.preemptor(f"high-{number}"), *victims[2 * number : 2 * number + 2])
    assert [await cluster.results.get() for _ in range(3)] == [True] * 3
    assert most == 2


async def test_eviction_waits_for_disruptions_that_the_budget_does_not_show_yet():
    cluster = Cluster()
    budget = PodDisruptionBudget(namespace="shop", name="guard", selector=LabelSelector(), disruptions_allowed=1)
    cluster.evictor.budgets.budget_changed(None, budget)
    first, second = cluster.add("first"), cluster.add("second")
    cluster.start(cluster.preemptor("high-0"), first)
    cluster.start(cluster.preemptor("high-1"), second)
    await asyncio.sleep(2.0)
    assert [what for what, _ in cluster.sent].count("evict") == 1
    assert [await cluster.results.get() for _ in range(2)] == [True] * 2
    assert [what for what, _ in cluster.sent].count("evict") == 2, "then the API server decides"


# --- the end of the process ------------------------------------------------------------------------------------------


async def test_stop_awaits_requests_in_flight_and_sends_no_others():
    cluster = Cluster(latency=1.0, limits=EvictionLimits(max_concurrent=1))
    victims, pod = [cluster.add(f"low-{number}") for number in range(3)], cluster.preemptor()
    cluster.start(pod, *victims)
    await asyncio.sleep(1.5)
    await cluster.executor.stop(10.0)
    assert not await cluster.results.get()
    assert [what for what, _ in cluster.sent].count("evict") == 1


async def test_stop_cancels_requests_that_take_too_long():
    cluster = Cluster(latency=60.0)
    victim, pod = cluster.add("low"), cluster.preemptor()
    cluster.start(pod, victim)
    await asyncio.sleep(1.0)
    await cluster.executor.stop(2.0)
    assert cluster.clock.monotonic() < 4.0
    assert not await cluster.results.get()
