"""Invariants of the planner under random events on a node.

Hypothesis draws what happens on a node: values rise and fall, readings fail or repeat, evictions are granted, refused
or ignored, pods leave after their grace periods or never, others are added, the kubelet evicts, the operator restarts.
"""

from __future__ import annotations

import random
from typing import Any, Final, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from tests.unit.pressure.nodes import MEMORY, NODEFS, START, NodeRun, by_key, node, pod
from trimtab.api import reasons
from trimtab.api.node_pressure_policy import NodePressurePolicySpec
from trimtab.kube.objects import OwnerReference, Pod
from trimtab.kube.objects.pod import PodCondition
from trimtab.kube.rules.quantity import amount
from trimtab.pressure.measurement import PodUsage
from trimtab.pressure.planner import POD_CLEANUP_TIMEOUT, NodePlan, NodePlanner, NodeView, protection_of

TRANSITION: Final = 60.0
GRACE: Final = 25.0
LIMITS: Final = {"hard/memory.available": "1Gi", "soft/memory.available": "2Gi", "soft/nodefs.available": "2Gi"}
RECLAIM: Final = amount("300Mi")
SPEC: Final = NodePressurePolicySpec(
    mode="Act",
    eviction_hard={MEMORY: "1Gi"},
    eviction_soft={MEMORY: "2Gi", NODEFS: "2Gi"},
    eviction_soft_grace_period={MEMORY: "25s", NODEFS: "25s"},
    eviction_minimum_reclaim={MEMORY: "300Mi"},
    eviction_max_pod_grace_period=40,
    eviction_pressure_transition_period="1m",
    delete_after="1m",
)

Answer = Literal["granted", "refused", "ignored"]


class Event(Struct, frozen=True):
    """What happens until the next plan, and what becomes of a planned eviction.

    Attributes:
        after: seconds.
        memory: what is available; ``None`` if the reading fails.
        disk: what is available; ``None`` if the measurement does not contain it.
        again: whether the kubelet has not measured again.
        answer: the response to an eviction.
        kubelet: whether the kubelet shows MemoryPressure.
        killed: whether the kubelet evicts a pod.
        restart: whether the operator restarts before the plan.
        leaves: whether pods leave the node at the end of their grace periods.
    """

    after: float
    memory: str | None
    disk: str | None
    again: bool
    answer: Answer
    kubelet: bool
    killed: bool
    restart: bool
    leaves: bool


RARELY = st.sampled_from([False] * 7 + [True])
EVENTS = st.lists(
    st.builds(
        Event,
        after=st.sampled_from([1.0, 5.0, 10.0, 10.25, 30.0]),
        memory=st.sampled_from([None, "500Mi", "900Mi", "1500Mi", "1500Mi", "2200Mi", "5Gi"]),
        disk=st.sampled_from([None, "1Gi", "5Gi", "5Gi"]),
        again=RARELY,
        answer=st.sampled_from(["granted", "granted", "refused", "ignored"]),
        kubelet=RARELY,
        killed=RARELY,
        restart=RARELY,
        leaves=st.sampled_from([True, True, False]),
    ),
    max_size=40,
)

OWNER = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="logs", uid="logs", controller=True)
PROTECTED = {"agent": {"owners": (OWNER,)}, "critical": {"priority": 2_000_000_000}}


@st.composite
def initial_pods(draw: st.DrawFn) -> list[tuple[Pod, PodUsage]]:
    found = []
    for name in draw(st.lists(st.sampled_from(["a", "b", "c", "d", "agent", "critical"]), unique=True)):
        fields: dict[str, Any] = {"priority": draw(st.integers(-1, 1))} | PROTECTED.get(name, {})
        spec = {"termination_grace_period": draw(st.sampled_from([None, 0, 5, 30, 120]))}
        made = pod(name, requests={"memory": draw(st.sampled_from(["0", "1Gi"]))}, spec=spec, **fields)
        usage = PodUsage(made.uid, memory=draw(st.integers(0, 4)) << 29, root=draw(st.integers(0, 4)) << 29)
        found.append((made, usage))
    return found


class World:
    """A node to which the events happen. It checks each plan.

    Args:
        pods: the pods on the node with their usage.
        restarts: whether the operator restarts when an event says so.
    """

    def __init__(self, pods: list[tuple[Pod, PodUsage]], *, restarts: bool = True) -> None:
        self.run = NodeRun(SPEC, *(each for each, _ in pods), usage=by_key(*(usage for _, usage in pods)))
        self.restarts = restarts
        self.plans: list[NodePlan] = []
        self.met_since: dict[str, float | None] = dict.fromkeys(LIMITS)
        self.last_met: dict[str, float] = {}
        self.measured_at = START
        self.killed_at = float("-inf")

    def apply(self, event: Event) -> None:
        run = self.run
        if event.restart and self.restarts:
            run.restart()
        now = run.now + event.after
        if event.leaves:
            gone = [each.name for each in run.pods if each.deleted is not None and each.deleted <= now]
            run.remove(*gone)
        if event.killed:
            self.killed_at = now
            target = PodCondition(type="DisruptionTarget", status="True", reason="TerminationByKubelet", since=now)
            name = f"killed-{len(self.plans)}"
            run.pods.append(pod(name, phase="Failed", reason="Evicted", conditions=(target,)))
        run.node = node("Ready", "MemoryPressure") if event.kubelet else node("Ready")
        if event.memory is None:
            plan = run.unread(after=event.after)
        else:
            self.measured_at = self.measured_at if event.again else now - 1.0
            values = {MEMORY: event.memory} | ({} if event.disk is None else {NODEFS: event.disk})
            self._observe(values, now)
            plan = run.read(values, after=event.after, at=self.measured_at)
        self.plans.append(plan)
        self._check(plan, event)
        self._answer(plan, event.answer)

    def _observe(self, values: dict[str, str], now: float) -> None:
        """Compute since when each threshold has been below its value in all readings, or below its reclaim once due."""
        for key, limit in LIMITS.items():
            hardness, _, signal = key.partition("/")
            if signal not in values:
                continue
            since, available = self.met_since[key], amount(values[signal])
            grace = 0.0 if hardness == "hard" else GRACE
            resolved = amount(limit) + (RECLAIM if signal == MEMORY else 0)
            was_due = since is not None and self.last_met.get(key, now) - since >= grace
            if available < amount(limit) or (was_due and available < resolved):
                self.met_since[key] = now if since is None else since
                self.last_met[key] = now
            else:
                self.met_since[key] = None

    def _check(self, plan: NodePlan, event: Event) -> None:
        now = self.run.now
        if plan.evict is None:
            assert plan.reason or not plan.met
            return
        found = plan.evict
        # No eviction without a threshold that is due, nor of a protected pod, nor with a grace period of 0.
        assert event.memory is not None
        since = self.met_since[found.threshold.key]
        assert since is not None
        assert now - since >= (0.0 if found.threshold.hard else GRACE)
        for each in (found, *plan.alternatives):
            assert each.shortens or protection_of(each.pod) is None
            assert not each.pod.terminal
            assert each.pod in self.run.pods
            assert 1 <= each.grace_period <= (1 if found.threshold.hard else 40)
            assert found.threshold.hard or each.how == "Evict"
        # One pod at a time, and none while the kubelet evicts.
        evicted = [each for each in self.run.pods if each.deleted is not None and each.uid in self._evicted]
        if found.shortens:  # the pod that is leaving
            assert (found.threshold.hard, plan.alternatives) == (True, ())
            assert found.pod in evicted
            assert found.pod.deleted is not None
            assert found.pod.deleted > now + found.grace_period + POD_CLEANUP_TIMEOUT
            evicted.remove(found.pod)
        assert all(each.deleted is not None and now >= each.deleted + POD_CLEANUP_TIMEOUT for each in evicted)
        assert now - self.killed_at >= 60.0
        assert not (event.kubelet and found.threshold.signal == MEMORY)
        assert plan.conditions
        assert plan.state.evicting == found.pod.uid

    @property
    def _evicted(self) -> set[str]:
        return {plan.evict.pod.uid for plan in self.plans[:-1] if plan.evict is not None}

    def _answer(self, plan: NodePlan, answer: Answer) -> None:
        if plan.evict is None or answer == "ignored":
            return
        chosen, run = plan.evict, self.run
        if answer == "refused" and chosen.how == "Evict":
            run.state = run.state.refused(chosen.pod.uid, run.now)
            return
        leaving = replace(chosen.pod, deleted=run.now + chosen.grace_period)
        run.pods = [leaving if each.uid == chosen.pod.uid else each for each in run.pods]


@given(initial_pods(), EVENTS)
def test_invariants(pods: list[tuple[Pod, PodUsage]], events: list[Event]) -> None:
    world = World(pods)
    for event in events:
        world.apply(event)


@given(initial_pods(), EVENTS)
def test_restarts_change_no_plan(pods: list[tuple[Pod, PodUsage]], events: list[Event]) -> None:
    restarting, lasting = World(pods), World(pods, restarts=False)
    for event in events:
        restarting.apply(event)
        lasting.apply(event)
    assert [_without_trends(plan) for plan in restarting.plans] == [_without_trends(plan) for plan in lasting.plans]


def _without_trends(plan: NodePlan) -> NodePlan:
    """Return the plan without the trends, which need the history of the process. The policy has no forecast."""
    return replace(plan, trends={})


@given(initial_pods(), EVENTS)
def test_conditions_do_not_flap(pods: list[tuple[Pod, PodUsage]], events: list[Event]) -> None:
    """A condition ends at the earliest one transition period after one of its thresholds was last met."""
    world = World(pods)
    shown: frozenset[str] = frozenset()
    last_met = {"MemoryPressure": START, "DiskPressure": START}
    for event in events:
        world.apply(event)
        plan = world.plans[-1]
        for met in plan.met:
            last_met[met.threshold.condition] = world.run.now
            assert met.threshold.condition in plan.conditions
        for ended in shown - plan.conditions:
            assert world.run.now - last_met[ended] >= TRANSITION - 0.002
        shown = frozenset(plan.conditions)


@given(initial_pods(), EVENTS, st.randoms(use_true_random=False))
def test_plan_does_not_depend_on_the_order_of_pods(
    pods: list[tuple[Pod, PodUsage]], events: list[Event], chance: random.Random
) -> None:
    world = World(pods)
    for event in events:
        world.apply(event)
    run = world.run
    if not run.history:
        return
    shuffled, usage = list(run.pods), list(run.usage.items())
    chance.shuffle(shuffled)
    chance.shuffle(usage)
    reading = replace(run.history[-1], read_at=run.now)
    plans = [
        NodePlanner(SPEC).plan(
            NodeView(run.node, each, replace(reading, pods=lambda found=found: dict(found)), state=run.state),
            now=run.now,
        )
        for each, found in ((run.pods, list(run.usage.items())), (shuffled, usage))
    ]
    assert plans[0] == plans[1]


FORECAST: Final = replace(SPEC, eviction_forecast="1m", eviction_soft_grace_period={MEMORY: "10m", NODEFS: "10m"})


@given(st.lists(st.tuples(st.floats(1.0, 30.0), st.integers(1 << 20, 5 << 30)), max_size=30))
def test_forecast_evicts_only_if_the_hard_threshold_is_near(readings: list[tuple[float, int]]) -> None:
    run = NodeRun(FORECAST, pod("web"), usage=by_key(PodUsage("uid-web", memory=1 << 30)))
    for after, available in readings:
        plan = run.read({MEMORY: str(available)}, after=after)
        if plan.evict is None or plan.evict.threshold.hard:
            continue
        since = next(each.since for each in plan.met if not each.threshold.hard)
        if run.now - since >= 600.0:
            assert plan.reason == reasons.SOFT_THRESHOLD_MET
            continue
        trend = plan.trends[MEMORY]
        assert plan.reason == reasons.PRESSURE_FORECAST
        assert trend.per_second < 0.0
        assert trend.seconds_to == pytest.approx((available - amount("1Gi")) / -trend.per_second)
        assert trend.seconds_to <= 60.0
