"""The evictor records the evictions of all controllers in the history."""

from __future__ import annotations

import logging

import pytest

from tests.fakes.history import FakeHistory
from tests.unit.disruption.test_evictor import DRAIN, POLICY, TAINTS, admitted, budget, drained
from tests.unit.disruption.world import World
from trimtab.api import reasons
from trimtab.disruption.evictor import Evictor
from trimtab.disruption.evictor.requests import PRESSURE, SCHEDULING, Requester
from trimtab.disruption.outcome import DELETED, EVICTED, FAILED, GONE, REFUSED, SKIPPED, STARTED, AttemptResult
from trimtab.kube.api import TooManyRequests

pytestmark = pytest.mark.looptime


def recording() -> tuple[World, FakeHistory]:
    world, history = World(), FakeHistory()
    world.evictor = Evictor(clock=world.clock, view=world, history=history)
    return world, history


@pytest.mark.parametrize(
    ("requester", "how", "reason", "expected"),
    [
        (POLICY, "Evict", "DuplicateOnNode", ("descheduler", "spread", "Evict")),
        (POLICY, "Surge", "DuplicateOnNode", ("descheduler", "spread", "Evict")),
        (DRAIN, "Evict", "Underutilized", ("autoscaler", "", "Evict")),
        (TAINTS, "Delete", "NoExecuteTaint", ("tainting", "", "Delete")),
        (Requester(SCHEDULING, "gold"), "Delete", reasons.PREEMPTED, ("scheduler", "gold", "Preempt")),
        (Requester(PRESSURE, "memory"), "Evict", "HardEviction", ("pressure", "memory", "Evict")),
    ],
)
async def test_requester_and_action_are_recorded_and_logged(requester, how, reason, expected, caplog):
    caplog.set_level(logging.INFO)
    world, history = recording()
    permit = admitted(world, world.add("web-1"), requester, how=how, reason=reason, message="why", target="n4")
    world.evictor.conclude(permit, AttemptResult(DELETED if how == "Delete" else EVICTED, reasons.EVICTED, "granted"))
    [entry] = history.entries
    assert (entry.controller, entry.policy, entry.action) == expected
    assert (entry.namespace, entry.pod, entry.uid, entry.reason) == ("shop", "web-1", permit.pod.uid, reason)
    assert (entry.message, entry.target, entry.owner) == ("why", "n4", "ReplicaSet/web")
    assert (entry.result, entry.result_reason, entry.result_message) == ("Succeeded", None, "")
    [line] = [record for record in caplog.records if record.levelno >= logging.INFO]
    wanted = {"controller": entry.controller, "policy": entry.policy, "namespace": "shop", "pod": "web-1"}
    wanted |= {"uid": entry.uid, "owner": entry.owner, "node": entry.node, "target": "n4", "reason": reason}
    assert wanted.items() <= vars(line).items()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (AttemptResult(STARTED, "EvictionInBackground", "vm"), [("Started", None)]),
        (AttemptResult(REFUSED, "DisruptionBudget", "no"), [("Refused", "DisruptionBudget")]),
        (AttemptResult(REFUSED, "DisruptionBudget", "no", retry=True), [("Refused", "DisruptionBudget")]),
        (AttemptResult(FAILED, "EvictionFailed", "500"), [("Failed", "EvictionFailed")]),
        (AttemptResult(FAILED, "EvictionFailed", "500", retry=True, uncertain=True), []),
        (AttemptResult(GONE, "AlreadyGone", "gone"), []),
        (AttemptResult(SKIPPED, "PlanOutdated", "moved"), []),
    ],
)
async def test_results_are_recorded(answer, expected, caplog):
    """The evictor logs only what was granted, because the requester knows whether it retries a refusal."""
    caplog.set_level(logging.INFO)
    world, history = recording()
    world.evictor.conclude(admitted(world, world.add("web-1")), answer)
    assert [(entry.result, entry.result_reason) for entry in history.entries] == expected
    assert len(caplog.records) == sum(result == "Started" for result, _ in expected)


async def test_refused_and_then_granted_eviction_has_both_entries():
    world, history = recording()
    pod = world.add("web-1")
    world.evictor.budgets.budget_changed(None, budget(1))
    refusal = TooManyRequests("budget", status=429, causes=({"reason": "DisruptionBudget"},))
    world.api.fail(refusal, path="web-1/eviction")
    await drained(world, pod)
    assert [entry.result for entry in history.entries] == ["Refused", "Succeeded"]
