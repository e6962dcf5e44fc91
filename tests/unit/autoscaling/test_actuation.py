"""Node removals on an in-memory cluster with a virtual clock: the order of steps, and the result of each failure."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from tests.builders import node, pod
from tests.fakes.api import Call
from tests.fakes.fleet import BUDGETS, MACHINES, NODES, PODS, SETS, TO_BE_DELETED, Fleet
from tests.fixtures.garbage import unreachable_objects, without_collections
from tests.fixtures.golden import Golden
from tests.unit.autoscaling.removal_operator import Operator, running, spec_of
from trimtab.api import reasons
from trimtab.autoscaling.actuation import Phase, RemovalResult, RemovalSettings, removal_review
from trimtab.autoscaling.actuation.drain import pods_to_evict
from trimtab.disruption.evictor import Permit
from trimtab.disruption.evictor.requests import DESCHEDULER, EvictionRequest, Requester
from trimtab.disruption.limits import EvictionLimits
from trimtab.disruption.outcome import EVICTED, AttemptResult
from trimtab.kube.api import Forbidden, ServerError, Unreachable

pytestmark = [pytest.mark.looptime(start=0), pytest.mark.usefixtures("no_threads")]
N1 = f"{NODES}/n1"
AT_ONCE = RemovalSettings(record_after=0.0, mark_delay=0.0)
"""Without a mark delay, as if the caches of the machine controller did not lag."""


def drained() -> Fleet:
    """A node whose pod fits on another node, which its own pods keep."""
    fleet = Fleet()
    fleet.group("a", "n1")
    fleet.group("b", "n2", unneeded=False)
    fleet.web("w1", "n1")
    fleet.web("w2", "n2", cpu="3")
    return fleet


def admitted_for_policy(fleet: Fleet, operator: Operator, name: str) -> Permit:
    """The permit of a DeschedulerPolicy to evict a pod."""
    pod = fleet.caches.lister.pod(f"shop/{name}")
    assert pod is not None
    requester = Requester(DESCHEDULER, "spread")
    permit = operator.evictor.admit(EvictionRequest(namespace="shop", pod=name, uid=pod.uid, requester=requester), pod)
    assert isinstance(permit, Permit)
    return permit


def sent(fleet: Fleet) -> list[str]:
    """The requests in order, by the last segment of their paths."""
    return [call.path.rpartition("/")[2] for call in fleet.calls]


class TestSteps:
    async def test_removing_an_empty_node_takes_three_requests(self) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")
        operator = Operator(fleet)

        async with running(operator):
            await operator.until(lambda: not fleet.nodes() and bool(operator.outcomes))

        [outcome] = operator.outcomes
        assert (outcome.result, outcome.reason, outcome.evicted) == (RemovalResult.REMOVED, "Empty", {})
        requests = [(call.method, call.path.rpartition("/")[2]) for call in fleet.calls]
        assert requests == [
            ("PATCH", "n1"),
            ("PATCH", "m-n1"),
            ("PATCH", "a"),
            ("GET", "m-n1"),
            ("PATCH", "scale"),
            ("PATCH", "a"),
        ]
        assert outcome.calls == 5
        assert fleet.replicas("a") == 0

    async def test_ended_removal_is_freed_without_a_garbage_collection(self) -> None:
        fleet = drained()
        operator = Operator(fleet)

        with without_collections():
            async with running(operator):
                await operator.until(lambda: bool(operator.outcomes))
            found = [type(each).__name__ for each in unreachable_objects()]

        assert "NodeRemoval" not in found

    async def test_size_is_lowered_in_growing_steps(self) -> None:
        fleet = Fleet()
        fleet.group("a", *"123456789")
        operator = Operator(fleet)

        async with running(operator):
            await operator.until(lambda: not fleet.nodes() and len(operator.outcomes) == 9)

        sizes = [call.body[-1]["value"] for call in fleet.sent("PATCH", "scale")]
        assert sizes == [8, 6, 0]
        rereads = 9 + 8 + 6
        records = 3
        assert len(fleet.calls) == 2 * 9 + rereads + 3 + records + 1
        assert sum(outcome.calls for outcome in operator.outcomes) == pytest.approx(2 * 9 + rereads + 3 + records)

    async def test_node_is_tainted_and_cordoned_in_one_request_before_evictions(self) -> None:
        fleet = drained()
        operator = Operator(fleet)

        async with running(operator):
            await operator.until(lambda: bool(fleet.sent(path="eviction")))
            spec, annotations = fleet.spec("n1"), fleet.objects[N1]["metadata"]["annotations"]
            assert spec["unschedulable"] is True
            assert [taint["key"] for taint in spec["taints"]] == [TO_BE_DELETED]
            assert annotations["trimtab.dev/removing"] == spec["taints"][0]["value"]
            assert annotations["trimtab.dev/cordoned-by"] == "cluster-autoscaler"
            assert annotations["kept"] == "yes"
            assert sent(fleet) == ["n1", "eviction"]
            assert fleet.clock.monotonic() >= 5
            await operator.until(lambda: bool(operator.outcomes))

        [outcome] = operator.outcomes
        assert (outcome.result, outcome.reason) == (RemovalResult.REMOVED, "Underutilized")
        assert outcome.evicted == {"shop/w1": "pod-shop-w1"}
        assert [each["spec"]["nodeName"] for each in fleet.app("web")] == ["n2", "n2"]
        assert operator.cordons() == [("Cordon", "n1", "Underutilized")]

    async def test_node_is_not_cordoned_if_disabled(self) -> None:
        fleet = drained()
        operator = Operator(
            fleet, scaleDown={"enabled": True, "unneededTime": "1m", "cordonNodeBeforeTerminating": "Disabled"}
        )

        async with running(operator):
            await operator.until(lambda: bool(fleet.sent(path="eviction")))
            assert "unschedulable" not in fleet.spec("n1")
            assert "trimtab.dev/cordoned-by" not in fleet.objects[N1]["metadata"]["annotations"]

            assert operator.cordons() == []

    @pytest.mark.parametrize(
        ("own", "most", "expected"), [(30, 600, None), (900, 600, 600), (None, 10, 10), (5, 10, None)], ids=str
    )
    async def test_grace_period_is_limited_by_max_pod_grace_period(
        self, own: int | None, most: int, expected: int | None
    ) -> None:
        fleet = drained()
        fleet.edit(f"{PODS}/w1", spec={"terminationGracePeriodSeconds": own})
        operator = Operator(fleet, maxPodGracePeriod=most)

        async with running(operator):
            await operator.until(lambda: bool(fleet.sent(path="eviction")))

        [call] = fleet.sent(path="eviction")
        assert call.body["deleteOptions"]["preconditions"] == {"uid": "pod-shop-w1"}
        assert call.body["deleteOptions"].get("gracePeriodSeconds") == expected

    async def test_pod_that_an_unready_node_never_started_is_not_evicted(self) -> None:
        """Its controller would replace it on the same node again and again."""
        named = pod("named").on("n1").phase("Pending").build()
        scheduled = pod("scheduled").on("n1").phase("Pending").condition("PodScheduled", "True").build()
        started = pod("started").on("n1").build()
        fields = [{"fieldsV1": {"f:spec": {"f:nodeName": {}}}}]
        created = pod("created").on("n1").phase("Pending").condition("PodScheduled", "True")
        created.merge(metadata={"managedFields": fields})
        accepted = msgspec.structs.replace(created.build(), name="accepted", started=1.0)
        pods = [named, created.build(), accepted, scheduled, started]

        assert pods_to_evict(pods, node("n1").not_ready().build()) == [accepted, scheduled, started]
        assert pods_to_evict(pods, node("n1").build()) == pods

    async def test_daemon_set_pods_are_evicted_last_and_static_pods_never(self) -> None:
        fleet = drained()
        fleet.add(
            pod("agent").on("n1").labels(app="agent").owned_by("DaemonSet", "agent").ready(),
            pod("quiet")
            .on("n1")
            .labels(app="quiet")
            .owned_by("DaemonSet", "quiet")
            .annotations({"cluster-autoscaler.kubernetes.io/enable-ds-eviction": "false"}),
            pod("static").on("n1").labels(app="static").mirror(),
        )
        operator = Operator(fleet)

        async with running(operator):
            await operator.until(lambda: bool(operator.outcomes))

        assert fleet.evictions == ["w1", "agent"]
        assert operator.outcomes[0].done

    @pytest.mark.parametrize(("expected", "evicted"), [("", []), ("true", ["agent"])])
    async def test_empty_node_evicts_only_daemon_set_pods_with_the_annotation(
        self, expected: str, evicted: list[str]
    ) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")
        agent = pod("agent").on("n1").labels(app="agent").owned_by("DaemonSet", "agent")
        fleet.add(agent.annotations({"cluster-autoscaler.kubernetes.io/enable-ds-eviction": expected}))
        operator = Operator(fleet)

        async with running(operator):
            await operator.until(lambda: bool(operator.outcomes))

        assert (fleet.evictions, operator.outcomes[0].reason) == (evicted, "Empty")

    async def test_refused_eviction_of_a_daemon_set_pod_does_not_block_the_removal(self) -> None:
        fleet = drained()
        fleet.add(pod("agent").on("n1").labels(app="agent").owned_by("DaemonSet", "agent").ready())
        fleet.guard("agent", 1)
        operator = Operator(fleet)

        async with running(operator):
            await operator.until(lambda: bool(operator.outcomes))

        assert operator.outcomes[0].done
        assert fleet.evictions == ["w1"]

    @pytest.mark.parametrize(("there_for", "at"), [(20, 20), (1000, 120)], ids=["removed", "not removed"])
    async def test_delay_deletion_annotation_delays_the_removal(self, there_for: int, at: int) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")
        key = "delay-deletion.cluster-autoscaler.kubernetes.io/backup"
        fleet.edit(N1, metadata={"annotations": {key: "1"}})
        operator = Operator(fleet, settings=AT_ONCE)

        async with running(operator):
            asyncio.get_running_loop().call_later(
                there_for, lambda: fleet.edit(N1, metadata={"annotations": {key: None}})
            )
            await operator.until(lambda: operator.removals.active.get("n1") is not None)
            await operator.until(lambda: operator.removals.active["n1"].phase is Phase.DELAYED)
            await operator.until(lambda: bool(operator.outcomes))
            assert at <= fleet.clock.monotonic() < at + 20

        assert operator.outcomes[0].done

    async def test_concurrent_removals_are_limited(self) -> None:
        fleet = Fleet()
        fleet.group("empty", *(f"e{number}" for number in range(8)))
        fleet.group("light", *(f"l{number}" for number in range(6)))
        fleet.group("rest", "r1", "r2", unneeded=False)
        for number in range(6):
            fleet.web(f"w{number}", f"l{number}", cpu="100m")
        fleet.web("big1", "r1", cpu="3")
        fleet.web("big2", "r2", cpu="3")
        fleet.deletes = False
        most = {"empty": 0, "light": 0}
        operator = Operator(fleet, settings=RemovalSettings(max_empty=3, max_drains=2))

        async def look(_: Call) -> None:
            for name in most:
                on = [each for each in operator.removals.active.values() if each.group.endswith(name)]
                going = [each for each in on if each.phase is not Phase.VERIFYING]
                most[name] = max(most[name], len(going))

        fleet.before = look
        async with running(operator):
            await asyncio.sleep(10)
            fleet.deletes = True
            await operator.until(lambda: fleet.nodes() == ["r1", "r2"])

        assert most == {"empty": 3, "light": 2}


class TestTaints:
    async def test_taint_added_concurrently_is_kept(self) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")
        done = False

        async def edit(call: Call) -> None:
            nonlocal done
            if call.method == "PATCH" and not done:
                done = True
                fleet.edit(N1, spec={"taints": [{"key": "mine", "value": "x", "effect": "NoSchedule"}]})

        fleet.before = edit
        fleet.deletes = False
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: len(fleet.spec("n1").get("taints", ())) == 2)
            assert sent(fleet)[:3] == ["n1", "n1", "n1"]
            assert [call.method for call in fleet.calls[:3]] == ["PATCH", "GET", "PATCH"]

    async def test_node_without_annotations_is_read_from_the_api_server_first(self) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")
        operator = Operator(fleet)
        del fleet.objects[N1]["metadata"]["annotations"]  # the cache still has it
        async with running(operator):
            await operator.until(lambda: bool(operator.outcomes))
        assert operator.outcomes[0].done

    async def test_rollback_keeps_a_cordon_of_an_administrator(self) -> None:
        fleet = drained()
        fleet.edit(N1, spec={"unschedulable": True})
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: bool(fleet.sent(path="eviction")))
            assert "trimtab.dev/cordoned-by" not in fleet.objects[N1]["metadata"]["annotations"]
            operator.spec = spec_of({"scaleDown": {"enabled": False}})
            await operator.until(lambda: bool(operator.outcomes))
        assert fleet.traces() == {"n1": ["cordoned"]}
        assert operator.cordons() == []

    @pytest.mark.parametrize(
        ("lost", "expected"),
        [
            pytest.param(0, ["Cordon", "Uncordon"], id="all responses arrive"),
            # The removal ends, because it is unknown whether the node is cordoned. The next one records both again.
            pytest.param(1, ["Uncordon", "Cordon", "Uncordon"], id="response to the cordon lost"),
            pytest.param(2, ["Cordon", "Uncordon"], id="response to the uncordon lost"),
        ],
    )
    async def test_each_change_is_recorded_once_if_a_response_is_lost(self, lost: int, expected: list[str]) -> None:
        fleet = drained()
        patches = 0

        async def lose(call: Call) -> None:
            nonlocal patches
            patches += call.path.endswith("/nodes/n1") and call.method == "PATCH"
            if patches == lost:
                patches += 100
                raise Unreachable("cut")

        operator = Operator(fleet)
        fleet.after = lose
        async with running(operator):
            await operator.until(lambda: bool(fleet.sent(path="eviction")))
            operator.spec = spec_of({"scaleDown": {"enabled": False}})
            await operator.until(lambda: bool(operator.outcomes) and fleet.traces() == {})
            await asyncio.sleep(60)
        assert [action for action, _, _ in operator.cordons()] == expected

    async def test_uncordon_after_a_kill_is_recorded_by_the_next_process(self) -> None:
        fleet = drained()
        first, second = Operator(fleet), Operator(fleet)
        async with running(first):
            await first.until(lambda: bool(fleet.sent(path="eviction")))
        second.spec = spec_of({"scaleDown": {"enabled": False}})
        async with running(second):
            await second.until(lambda: fleet.traces() == {})
        assert first.cordons() == [("Cordon", "n1", "Underutilized")]
        assert second.cordons() == [("Uncordon", "n1", "ClusterAutoscalerCleanup")]

    async def test_taint_of_another_autoscaler_is_kept_and_reported(self) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")
        fleet.edit(N1, spec={"taints": [{"key": TO_BE_DELETED, "value": "1800000000", "effect": "NoSchedule"}]})
        operator = Operator(fleet)
        async with running(operator):
            await asyncio.sleep(60)
            assert operator.removals.foreign == {"n1": "1800000000"}
        assert fleet.calls == []

    async def test_node_tainted_by_another_autoscaler_first_is_not_removed(self) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")

        async def edit(call: Call) -> None:
            fleet.before = None
            fleet.edit(N1, spec={"taints": [{"key": TO_BE_DELETED, "value": "1", "effect": "NoSchedule"}]})

        fleet.before = edit
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: bool(operator.outcomes))
        assert operator.ended() == {"n1": "NodeUpdateFailed"}
        assert fleet.traces() == {"n1": [TO_BE_DELETED]}


class TestRollback:
    async def test_pending_pod_that_needs_the_node_stops_the_removal(self) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: bool(fleet.traces()))
            fleet.web("w1", cpu="3")
            await operator.until(lambda: bool(operator.outcomes))
            [outcome] = operator.outcomes
            assert (outcome.result, outcome.reason) == (RemovalResult.ABORTED, "NeededForOtherPods")
            assert fleet.traces() == {}
            await asyncio.sleep(1)
        assert [each["spec"].get("nodeName") for each in fleet.app("web")] == ["n1"]

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (lambda fleet: fleet.edit(N1, spec={"taints": None}), "TaintRemoved"),
            (
                lambda fleet: fleet.edit(
                    N1, metadata={"annotations": {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}}
                ),
                "ScaleDownDisabledAnnotation",
            ),
            (
                lambda fleet: fleet.edit(f"{SETS}/a", metadata={"annotations": {"cluster.x-k8s.io/paused": "true"}}),
                "GroupPaused",
            ),
            (
                lambda fleet: fleet.edit(
                    f"{SETS}/a",
                    metadata={"annotations": {"machine.openshift.io/cluster-api-autoscaler-node-group-min-size": "1"}},
                ),
                "NodeGroupMinSizeReached",
            ),
            (lambda fleet: fleet.drop(f"{SETS}/a"), "ScaleTargetGone"),
            (
                lambda fleet: fleet.edit(
                    f"{PODS}/w1", metadata={"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}
                ),
                "NotSafeToEvictAnnotation",
            ),
        ],
        ids=[
            "the taint is taken off",
            "the node is to stay",
            "the group is paused",
            "the minimum rises",
            "no group",
            "the pod is to stay",
        ],
    )
    async def test_changes_during_refused_evictions_stop_the_removal(self, change: Any, reason: str) -> None:
        fleet = drained()
        fleet.guard("web", 2)
        fleet.edit(f"{BUDGETS}/web", status={"disruptionsAllowed": 1})
        fleet.frozen = True
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: len(fleet.sent(path="eviction")) > 3)
            await asyncio.sleep(25)
            operator.plans = False
            change(fleet)
            await operator.until(lambda: bool(operator.outcomes))
            await operator.until(lambda: not fleet.traces())
        assert operator.ended() == {"n1": reason}
        assert operator.outcomes[0].result is RemovalResult.ABORTED
        assert fleet.evictions == []

    @pytest.mark.parametrize(
        ("spec", "reason"),
        [
            ({"scaleDown": {"enabled": False}}, "ScaleDownDisabled"),
            ({"mode": "Simulate"}, "Simulated"),
            (None, "AutoscalerGone"),
        ],
        ids=["disabled", "simulated", "deleted"],
    )
    async def test_changed_spec_stops_the_removal(self, spec: dict[str, Any] | None, reason: str) -> None:
        fleet = Fleet()
        fleet.group("a", *"12345")
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: len(fleet.traces()) == 5)
            operator.spec = None if spec is None else spec_of(spec)
            await operator.until(lambda: len(operator.outcomes) == 5)
        assert set(operator.ended().values()) == {reason}
        assert fleet.traces() == {}
        assert fleet.replicas("a") == 5

    async def test_pdb_that_refuses_too_long_fails_the_removal(self) -> None:
        fleet = drained()
        fleet.guard("web", 2)
        fleet.edit(f"{BUDGETS}/web", status={"disruptionsAllowed": 1})
        fleet.frozen = True
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: bool(operator.outcomes))
        [outcome] = operator.outcomes
        assert (outcome.result, outcome.reason) == (RemovalResult.FAILED, "NotEnoughPdb")
        assert (outcome.refused, outcome.refused_uid) == ("shop/w1", "pod-shop-w1")
        assert 120 <= outcome.finished - outcome.started < 150
        assert len(fleet.sent(path="eviction")) < 30
        assert fleet.traces() == {}

    async def test_eviction_is_retried_until_the_pdb_allows_it(self) -> None:
        fleet = drained()
        fleet.guard("web", 1)
        fleet.frozen = True
        fleet.refuses = True
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: len(fleet.sent(path="eviction")) > 3)
            fleet.refuses = False
            await operator.until(lambda: bool(operator.outcomes))
        assert operator.outcomes[0].done
        assert fleet.lowest["web"] >= 1

    @pytest.mark.parametrize(
        ("held_for", "reason"),
        [
            pytest.param(300.0, "Underutilized", id="in time", marks=pytest.mark.live),
            pytest.param(2000.0, "WaitingForEvictionLimit", id="too long"),
        ],
    )
    async def test_waiting_for_eviction_limits_extends_the_eviction_timeout(self, held_for: float, reason: str) -> None:
        fleet = drained()
        operator = Operator(fleet, limits=EvictionLimits(max_concurrent=1))
        async with running(operator):
            permit = admitted_for_policy(fleet, operator, "w2")
            asyncio.get_running_loop().call_later(held_for, operator.evictor.cancel, permit)
            await operator.until(lambda: bool(operator.outcomes), seconds=1000)
        [outcome] = operator.outcomes
        assert outcome.reason == reason
        assert min(held_for, 600) - 10 <= outcome.finished - outcome.started < min(held_for, 600) + 60

    async def test_pod_that_another_controller_evicted_is_not_evicted_once_the_watch_shows_it(self) -> None:
        fleet = drained()
        operator = Operator(fleet)
        async with running(operator):
            permit = admitted_for_policy(fleet, operator, "w1")
            operator.evictor.conclude(permit, AttemptResult(EVICTED, reasons.EVICTED, ""))
            await asyncio.sleep(30)
            assert {state.phase for state in operator.removals.active.values()} == {Phase.EVICTING}
            fleet.drop(f"{PODS}/w1")
            await operator.until(lambda: bool(operator.outcomes))
        assert operator.outcomes[0].done
        assert fleet.sent(path="eviction") == []

    async def test_waiting_pods_are_reviewed_together_every_five_seconds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fleet = drained()
        for name in ("w3", "w4", "w5", "w6"):
            fleet.web(name, "n1", cpu="100m")
        operator = Operator(fleet, limits=EvictionLimits(max_concurrent=1))
        shared, short = fleet.caches.shared, []
        borrow = shared.borrow

        def counted(**how: Any) -> Any:
            if how.get("short"):
                short.append(fleet.clock.monotonic())
            return borrow(**how)

        monkeypatch.setattr(shared, "borrow", counted)
        ledgers = []
        made = removal_review.BudgetLedger
        monkeypatch.setattr(removal_review, "BudgetLedger", lambda snapshot: ledgers.append(snapshot) or made(snapshot))
        async with running(operator):
            permit = admitted_for_policy(fleet, operator, "w2")
            await asyncio.sleep(70)
            assert {state.phase for state in operator.removals.active.values()} == {Phase.EVICTING}
            assert 60 / 6 <= len(short) <= 70 / 5, short
            assert len(ledgers) == len(short)
            assert all(later - sooner >= 5 for sooner, later in pairwise(short))
            operator.evictor.cancel(permit)
            await operator.until(lambda: bool(operator.outcomes))
        assert operator.outcomes[0].done

    async def test_unexpected_error_of_one_eviction_stops_the_others(self) -> None:
        fleet = drained()
        for name in ("w3", "w4"):
            fleet.web(name, "n1", cpu="100m")
        operator = Operator(fleet, settings=RemovalSettings(record_after=0.0, max_in_flight=1))

        async def fail_once(call: Call) -> None:
            if call.path.endswith("eviction"):
                fleet.before = None
                raise RuntimeError("a defect")

        fleet.before = fail_once
        async with running(operator):
            await operator.until(lambda: bool(operator.outcomes))
            operator.plans = False
            await asyncio.sleep(5)
        [outcome] = operator.outcomes
        assert (outcome.result, outcome.reason) == (RemovalResult.FAILED, "RemovalFailed")
        assert "a defect" in outcome.message
        assert fleet.evictions == []
        assert fleet.traces() == {}

    async def test_pod_that_does_not_terminate_fails_the_removal(self) -> None:
        fleet = drained()
        fleet.ends_after = 10_000
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: bool(operator.outcomes))
        [outcome] = operator.outcomes
        assert (outcome.reason, outcome.refused) == ("PodNotTerminated", "shop/w1")
        assert outcome.finished - outcome.started == pytest.approx(36, abs=5)
        assert outcome.evicted == {"shop/w1": "pod-shop-w1"}
        assert fleet.traces() == {}

    async def test_evicted_pods_that_fit_on_no_node_stop_the_removal(self) -> None:
        fleet = drained()
        operator = Operator(fleet)

        async def fill(call: Call) -> None:
            if call.path.endswith("eviction"):
                fleet.web("other", "n2", cpu="1", app="other")

        fleet.before = fill
        async with running(operator):
            await operator.until(lambda: bool(operator.outcomes))
            operator.plans = False
            await asyncio.sleep(1)
        assert operator.ended() == {"n1": "NeededForOtherPods"}
        assert fleet.traces() == {}
        assert [each["spec"].get("nodeName") for each in fleet.app("web")] == ["n1", "n2"]

    @pytest.mark.parametrize(
        "error",
        [Forbidden("no rights", status=403), ServerError("broken", status=500), Unreachable("cut")],
        ids=lambda error: type(error).__name__,
    )
    async def test_failed_node_update_fails_the_removal(self, error: Exception) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")
        fleet.fail(error, times=1, method="PATCH", path=N1)
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: bool(operator.outcomes))
        assert (operator.outcomes[0].result, operator.outcomes[0].reason) == (RemovalResult.FAILED, "NodeUpdateFailed")
        assert fleet.traces() == {}

    async def test_failed_rollback_is_retried_by_the_next_reconcile(self, golden: Golden) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: bool(fleet.traces()))
            operator.spec = spec_of({"scaleDown": {"enabled": False}})
            fleet.fail(Forbidden("no rights", status=403), times=2, method="PATCH", path=N1)
            await operator.until(lambda: bool(operator.outcomes))
            golden(operator.outcomes[0].left)
            await operator.until(lambda: not fleet.traces())
            await operator.until(lambda: bool(operator.cleaned))
        assert operator.cleaned == {"n1": "node--n1"}

    async def test_node_deleted_by_another_client_ends_the_removal(self) -> None:
        fleet = drained()
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: bool(fleet.traces()))
            fleet.drop(N1)
            await operator.until(lambda: bool(operator.outcomes))
        assert operator.ended() == {"n1": "AlreadyGone"}


class TestNodeGroups:
    async def test_size_changed_by_another_client_is_taken_into_account(self) -> None:
        fleet = Fleet()
        fleet.group("a", "n1", "n2", "n3")
        fleet.web("big", "n2", cpu="3")
        fleet.web("big2", "n3", cpu="3")
        operator = Operator(fleet)
        edited = False

        async def edit(call: Call) -> None:
            nonlocal edited
            if call.path.endswith("scale") and not edited:
                edited = True
                fleet.scale("a", 4)
                fleet.add(node("n4"))
                made = {**fleet.objects[f"{MACHINES}/m-n3"]}
                made["metadata"] = {**made["metadata"], "name": "m-n4", "uid": "m4"}
                made["status"] = {"phase": "Running", "nodeRef": {"kind": "Node", "name": "n4", "uid": "node--n4"}}
                fleet.put(f"{MACHINES}/m-n4", made)

        fleet.before = edit
        async with running(operator):
            await operator.until(lambda: bool(operator.outcomes))
        assert operator.outcomes[0].done
        assert fleet.replicas("a") == 3
        assert "n1" not in fleet.nodes()

    async def test_node_is_rolled_back_if_a_wrong_machine_is_deleted(self, golden: Golden) -> None:
        fleet = Fleet()
        fleet.group("a", "n1", "n2")
        fleet.web("big", "n2", cpu="3")
        fleet.deletes = False
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: fleet.replicas("a") == 1)
            operator.plans = False
            fleet.drop(f"{MACHINES}/m-n2")
            await operator.until(lambda: bool(operator.outcomes))
            await operator.until(lambda: not fleet.traces())
        [outcome] = operator.outcomes
        assert (outcome.result, outcome.reason) == (RemovalResult.FAILED, "WrongMachineRemoved")
        golden(outcome.message)

    async def test_minimum_size_holds_for_concurrent_drains(self) -> None:
        fleet = Fleet()
        fleet.group("a", *"12345")
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: len(fleet.traces()) == 5)
            key = "machine.openshift.io/cluster-api-autoscaler-node-group-min-size"
            fleet.edit(f"{SETS}/a", metadata={"annotations": {key: "3"}})
            await operator.until(lambda: len(operator.outcomes) == 5)
        assert fleet.replicas("a") == 3
        assert sorted(each.reason for each in operator.outcomes) == ["Empty"] * 2 + ["NodeGroupMinSizeReached"] * 3

    async def test_unresponsive_group_does_not_delay_other_groups(self) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")
        fleet.group("b", "n2")

        async def hang(call: Call) -> None:
            if "m-n1" in call.path or "machinesets/a" in call.path:
                await asyncio.sleep(3600)

        fleet.before = hang
        operator = Operator(fleet, settings=AT_ONCE)
        async with running(operator):
            await operator.until(lambda: "n2" in operator.ended())
            assert fleet.clock.monotonic() < 12
            await operator.until(lambda: "n1" in operator.ended())
        assert operator.ended() == {"n1": "ScaleTimedOut", "n2": "Empty"}

    async def test_lost_answer_is_resolved_from_the_cluster_state(self) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")
        operator = Operator(fleet)

        async def cut(call: Call) -> None:
            if call.path.endswith("scale") and call.method == "PATCH":
                fleet.down = True
                asyncio.get_running_loop().call_later(3, setattr, fleet, "down", False)
                raise Unreachable("cut")

        fleet.after = cut
        async with running(operator):
            await operator.until(lambda: bool(operator.outcomes))
        assert operator.outcomes[0].done
        assert fleet.replicas("a") == 0

    async def test_machine_marked_by_another_program_prevents_the_drain(self) -> None:
        fleet = Fleet()
        fleet.group("a", "n1", "n2")
        fleet.group("b", "n3", unneeded=False)
        fleet.web("big", "n2", cpu="3")
        fleet.edit(f"{MACHINES}/m-n2", metadata={"annotations": {"machine.openshift.io/delete-machine": "by hand"}})
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: bool(operator.outcomes))
            await asyncio.sleep(60)
        assert operator.ended() == {"n1": "ScaleRefused"}
        assert [each.result for each in operator.outcomes] == [RemovalResult.ABORTED]
        assert [call for call in fleet.calls if call.method != "GET"] == []
        assert len(fleet.calls) == 1


class TestLeadership:
    async def test_follower_does_nothing(self) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")
        operator = Operator(fleet)
        operator.leading = False
        async with running(operator):
            await asyncio.sleep(60)
        assert fleet.calls == []

    @pytest.mark.parametrize("request_number", range(1, 8))
    async def test_new_leader_resumes_after_the_lease_is_lost(self, request_number: int) -> None:
        fleet = drained()
        first, second = Operator(fleet), Operator(fleet)
        second.leading = False
        count = 0

        async def hand_over(_: Call) -> None:
            nonlocal count
            count += 1
            if count == request_number:
                first.leading, second.leading = False, True

        fleet.after = hand_over
        async with running(first, second):
            await second.until(lambda: "n1" not in fleet.nodes() and not fleet.traces())
        ended = [*first.outcomes, *first.removals.take_outcomes()]
        assert {each.reason for each in ended} <= {"LeaseLost", "Underutilized"}
        assert fleet.evictions == ["w1"]

    async def test_stale_cache_prevents_writes(self) -> None:
        fleet = drained()
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: bool(fleet.traces()))
            operator.stale = "no word from the API server on pods"
            await asyncio.sleep(30)
            assert sent(fleet) == ["n1"]
            operator.stale = None
            await operator.until(lambda: bool(operator.outcomes))
        assert operator.outcomes[0].done

    async def test_stale_cache_for_too_long_rolls_the_node_back(self) -> None:
        fleet = drained()
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: bool(fleet.traces()))
            operator.stale = "no word from the API server on pods"
            await operator.until(lambda: not fleet.traces())
        assert fleet.evictions == []


class TestShutdown:
    async def test_removals_that_can_be_cancelled_are_rolled_back(self) -> None:
        fleet = drained()
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: bool(fleet.traces()))
            await operator.removals.finish()
            assert fleet.traces() == {}
            assert operator.removals.active == {}
            [outcome] = operator.removals.take_outcomes()
            assert (outcome.result, outcome.reason) == (RemovalResult.ABORTED, "ShuttingDown")

    async def test_size_changes_in_flight_are_left_to_the_next_process(self) -> None:
        fleet = drained()
        fleet.deletes = False
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: fleet.replicas("a") == 0)
            operator.plans = False
            await operator.removals.finish()
            assert set(fleet.traces()) == {"a", "n1", "m-n1"}
            fleet.deletes = True
            await operator.until(lambda: fleet.nodes() == ["n2"])

    async def test_shutdown_has_a_timeout(self) -> None:
        fleet = drained()
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: bool(fleet.traces()))
            fleet.down = True
            began = fleet.clock.monotonic()
            await operator.removals.finish(10)
            assert fleet.clock.monotonic() - began < 15
