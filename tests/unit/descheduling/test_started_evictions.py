"""What is begun and not ended with the cycle, in status, runs, approvals and the loop."""

from __future__ import annotations

import asyncio

import pytest

from tests.builders import node, pod
from tests.fixtures.golden import Golden
from tests.unit.cluster.test_rollouts import deployment, settled
from tests.unit.descheduling.runs.runs import NOW, made, move, policy, run
from tests.unit.descheduling.test_controller import Desk, plan_on_the_loop
from trimtab.api import reasons
from trimtab.api.descheduler_status import DeschedulerStatus
from trimtab.descheduling.report.status import CycleResult, conditions_after, status_after
from trimtab.descheduling.runs import lifecycle
from trimtab.descheduling.runs.record import covers, fingerprint, recheck_approved, run_plan, to_evictions
from trimtab.disruption.outcome import EVICTED, STARTED, Outcome
from trimtab.kube.api import Forbidden

__all__ = ["plan_on_the_loop"]

SURGING = move("a", how="Surge", owner="ReplicaSet/web-1a2b")
DEPLOYMENT = "/apis/apps/v1/namespaces/shop/deployments/web"


def started(action=SURGING) -> Outcome:
    return Outcome(action, STARTED, reasons.ROLLOUT_IN_PROGRESS, "goes on by itself", NOW)


def test_status_reports_started_evictions(golden: Golden):
    outcomes = [started(), Outcome(move("b"), EVICTED, reasons.EVICTED, "", NOW)]
    plan = made(SURGING, move("b"))
    cycle = CycleResult(mode="Act", plan=plan, outcomes=outcomes, started=NOW, finished=NOW, nodes=2, pods=9)
    status = status_after(DeschedulerStatus(), cycle, next_run=NOW, generation=1)
    assert status.last_run is not None
    assert (status.last_run.evicted, status.last_run.started, status.last_run.refused) == (1, 1, 0)
    assert status.evicted == 1
    assert [each.pod for each in status.last_evictions] == ["b", "a"]  # so that the pace holds over a restart
    assert {(each.outcome, each.count) for each in status.counts} == {("Evicted", 1), ("Started", 1)}
    assert status.kept == ()
    ready, _, degraded, _ = conditions_after(cycle)
    golden(ready.message)
    assert degraded.status is False


def test_run_reports_started_evictions_as_finished(golden: Golden):
    acting = run(SURGING, mode="Act")
    status = lifecycle.add_outcomes(acting.status, [started()], shown={SURGING.uid})
    assert (status.evicted, status.started, status.skipped) == (0, 1, 0)
    assert [each.result for each in status.outcomes] == ["Started"]
    golden(lifecycle.mark_completed(status, now=NOW).conditions[0].message)


def test_run_records_eviction_method():
    plan = run_plan(policy(), made(SURGING, move("b")), nodes=2, pods=9)
    assert to_evictions(plan) == (SURGING, move("b"))
    other = run_plan(policy(), made(move("a", owner=SURGING.owner), move("b")), nodes=2, pods=9)
    assert fingerprint(plan) != fingerprint(other)
    assert not covers(plan, other)


@pytest.mark.parametrize(("approved", "now"), [("Surge", "Evict"), ("Evict", "Surge")])
def test_approval_covers_only_the_approved_method(approved, now):
    judged = recheck_approved([move("a", how=approved)], made(move("a", how=now)), present=frozenset({"uid-a"}))
    assert judged.execute == ()
    [dropped] = judged.dropped
    assert (dropped.result, dropped.reason) == ("Skipped", reasons.PLAN_OUTDATED)


class SingleDesk(Desk):
    """The only pod of Deployment ``web``, on a node that it should leave."""

    def __init__(self) -> None:
        super().__init__()
        for i in (1, 2):
            old = self.caches.lister.pod(f"shop/web-{i}")
            self.caches.apply(old, None)
        single = pod("web-1", "shop").labels({"app": "web", "pod-template-hash": "1a2b"}).on("n1").ready()
        tainted = node("n1").taint("x").allocatable(cpu="4", memory="8Gi", pods=110)
        for each in (single.owned_by("ReplicaSet", "web-1a2b"), tainted):
            self.caches.apply(None, each.build())
        self.api.put(DEPLOYMENT, settled(deployment()))

    def write(self, **spec):  # type: ignore[no-untyped-def]
        super().write(strategies={"RemovePodsViolatingNodeTaints": {"enabled": True}}, **spec)


@pytest.mark.looptime
async def test_deployments_are_read_only_with_surge():
    desk = SingleDesk()
    desk.write(mode="Act")
    async with desk.running():
        await asyncio.sleep(1)
    assert [action.how for action in desk.executor.calls[0]["actions"]] == ["Evict"]
    assert not desk.api.sent(path="deployments")


@pytest.mark.looptime
async def test_surge_policy_plans_and_rechecks_rollouts():
    desk = SingleDesk()
    desk.write(mode="Act", singleReplica="Surge")
    async with desk.running():
        await asyncio.sleep(1)
    [call] = desk.executor.calls
    [action] = call["actions"]
    assert action.how == "Surge"
    assert await call["recheck"](action) is None


@pytest.mark.looptime
async def test_missing_permission_on_deployments_keeps_single_replicas(golden: Golden):
    desk = SingleDesk()
    desk.api.fail(Forbidden("deployments.apps is forbidden", status=403), path="/apis/apps/v1/deployments", times=9)
    desk.write(singleReplica="Surge")
    async with desk.running():
        await asyncio.sleep(1)
    [kept] = desk.status["kept"]
    assert kept["reason"] == "CannotSurge"
    golden(kept["message"])
