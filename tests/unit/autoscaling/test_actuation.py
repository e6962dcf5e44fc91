"""Removing nodes, on a cluster in memory and a virtual clock: the order of steps, and what each failure leaves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.builders import node, pod
from tests.fakes.api import Call
from tests.fakes.fleet import BUDGETS, MACHINES, NODES, PODS, SETS, TO_BE_DELETED, Fleet
from tests.unit.autoscaling.removing_nodes import Operator, running, spec_of
from trimtab.autoscaling.actuation import Phase, RemovalSettings, Result
from trimtab.kube.api import Forbidden, ServerError, Unreachable

pytestmark = [pytest.mark.looptime(start=0), pytest.mark.usefixtures("no_threads")]
N1 = f"{NODES}/n1"


def drained() -> Fleet:
    """A node with a pod that has room on another one, which stays for the rest of its pods."""
    fleet = Fleet()
    fleet.group("a", "n1")
    fleet.group("b", "n2", unneeded=False)
    fleet.web("w1", "n1")
    fleet.web("w2", "n2", cpu="3")
    return fleet


def sent(fleet: Fleet) -> list[str]:
    """What was asked for, in order: the last word of each path."""
    return [call.path.rpartition("/")[2] for call in fleet.calls]


class TestTheCourse:
    async def test_an_empty_node_goes_for_a_taint_a_mark_and_the_size(self) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")
        operator = Operator(fleet)

        async with running(operator):
            await operator.until(lambda: not fleet.nodes() and bool(operator.outcomes))

        [outcome] = operator.outcomes
        assert (outcome.result, outcome.reason, outcome.evicted) == (Result.REMOVED, "Empty", {})
        assert sent(fleet) == ["n1", "m-n1", "scale"]
        assert outcome.calls == 3
        assert fleet.replicas("a") == 0

    async def test_several_of_a_group_share_one_change_of_its_size(self) -> None:
        fleet = Fleet()
        fleet.group("a", *"123456789")
        operator = Operator(fleet)

        async with running(operator):
            await operator.until(lambda: not fleet.nodes() and len(operator.outcomes) == 9)

        assert len(fleet.calls) == 2 * 9 + 1
        assert sum(outcome.calls for outcome in operator.outcomes) == pytest.approx(19)

    async def test_a_node_is_tainted_and_cordoned_in_one_request_before_its_pods_are_evicted(self) -> None:
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
        assert (outcome.result, outcome.reason) == (Result.REMOVED, "Underutilized")
        assert outcome.evicted == {"shop/w1": "pod-shop-w1"}
        assert [each["spec"]["nodeName"] for each in fleet.app("web")] == ["n2", "n2"]

    async def test_no_node_is_cordoned_where_that_is_disabled(self) -> None:
        fleet = drained()
        operator = Operator(
            fleet, scaleDown={"enabled": True, "unneededTime": "1m", "cordonNodeBeforeTerminating": "Disabled"}
        )

        async with running(operator):
            await operator.until(lambda: bool(fleet.sent(path="eviction")))
            assert "unschedulable" not in fleet.spec("n1")
            assert "trimtab.dev/cordoned-by" not in fleet.objects[N1]["metadata"]["annotations"]

    @pytest.mark.parametrize(
        ("own", "most", "told"), [(30, 600, None), (900, 600, 600), (None, 10, 10), (5, 10, None)], ids=str
    )
    async def test_a_pod_has_its_grace_period_up_to_the_most_that_is_allowed(
        self, own: int | None, most: int, told: int | None
    ) -> None:
        fleet = drained()
        fleet.edit(f"{PODS}/w1", spec={"terminationGracePeriodSeconds": own})
        operator = Operator(fleet, maxPodGracePeriod=most)

        async with running(operator):
            await operator.until(lambda: bool(fleet.sent(path="eviction")))

        [call] = fleet.sent(path="eviction")
        assert call.body["deleteOptions"]["preconditions"] == {"uid": "pod-shop-w1"}
        assert call.body["deleteOptions"].get("gracePeriodSeconds") == told

    async def test_pods_of_daemon_sets_are_evicted_last_and_static_ones_never(self) -> None:
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

    @pytest.mark.parametrize(("told", "evicted"), [("", []), ("true", ["agent"])])
    async def test_of_an_empty_node_only_daemon_sets_pods_are_evicted_that_ask_for_it(
        self, told: str, evicted: list[str]
    ) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")
        agent = pod("agent").on("n1").labels(app="agent").owned_by("DaemonSet", "agent")
        fleet.add(agent.annotations({"cluster-autoscaler.kubernetes.io/enable-ds-eviction": told}))
        operator = Operator(fleet)

        async with running(operator):
            await operator.until(lambda: bool(operator.outcomes))

        assert (fleet.evictions, operator.outcomes[0].reason) == (evicted, "Empty")

    async def test_a_daemon_sets_pod_that_is_not_let_go_does_not_keep_the_node(self) -> None:
        fleet = drained()
        fleet.add(pod("agent").on("n1").labels(app="agent").owned_by("DaemonSet", "agent").ready())
        fleet.guard("agent", 1)
        operator = Operator(fleet)

        async with running(operator):
            await operator.until(lambda: bool(operator.outcomes))

        assert operator.outcomes[0].done
        assert fleet.evictions == ["w1"]

    @pytest.mark.parametrize(("there_for", "at"), [(20, 20), (1000, 120)], ids=["taken away", "forgotten"])
    async def test_a_node_waits_while_an_annotation_asks_for_it(self, there_for: int, at: int) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")
        key = "delay-deletion.cluster-autoscaler.kubernetes.io/backup"
        fleet.edit(N1, metadata={"annotations": {key: "1"}})
        operator = Operator(fleet)

        async with running(operator):
            asyncio.get_running_loop().call_later(
                there_for, lambda: fleet.edit(N1, metadata={"annotations": {key: None}})
            )
            await operator.until(lambda: operator.removals.going.get("n1") is not None)
            await operator.until(lambda: operator.removals.going["n1"].phase is Phase.DELAYED)
            await operator.until(lambda: bool(operator.outcomes))
            assert at <= fleet.clock.monotonic() < at + 20

        assert operator.outcomes[0].done

    async def test_so_many_empty_nodes_and_drains_go_on_at_a_time(self) -> None:
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
        operator = Operator(fleet, settings=RemovalSettings(empty_at_once=3, drains_at_once=2))

        async def look(_: Call) -> None:
            for name in most:
                on = [each for each in operator.removals.going.values() if each.group.endswith(name)]
                going = [each for each in on if each.phase is not Phase.VERIFYING]
                most[name] = max(most[name], len(going))

        fleet.before = look
        async with running(operator):
            await asyncio.sleep(10)
            fleet.deletes = True
            await operator.until(lambda: fleet.nodes() == ["r1", "r2"])

        assert most == {"empty": 3, "light": 2}


class TestTaints:
    async def test_a_taint_that_somebody_adds_in_between_is_not_lost(self) -> None:
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

    async def test_a_node_without_any_annotation_is_read_first(self) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")
        operator = Operator(fleet)
        del fleet.objects[N1]["metadata"]["annotations"]  # the picture has it still
        async with running(operator):
            await operator.until(lambda: bool(operator.outcomes))
        assert operator.outcomes[0].done

    async def test_what_an_admin_has_cordoned_stays_cordoned(self) -> None:
        fleet = drained()
        fleet.edit(N1, spec={"unschedulable": True})
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: bool(fleet.sent(path="eviction")))
            assert "trimtab.dev/cordoned-by" not in fleet.objects[N1]["metadata"]["annotations"]
            operator.spec = spec_of({"scaleDown": {"enabled": False}})
            await operator.until(lambda: bool(operator.outcomes))
        assert fleet.traces() == {"n1": ["cordoned"]}

    async def test_a_taint_of_somebody_elses_is_left_alone_and_told(self) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")
        fleet.edit(N1, spec={"taints": [{"key": TO_BE_DELETED, "value": "1800000000", "effect": "NoSchedule"}]})
        operator = Operator(fleet)
        async with running(operator):
            await asyncio.sleep(60)
            assert operator.removals.foreign == {"n1": "1800000000"}
        assert fleet.calls == []

    async def test_a_node_that_another_autoscaler_taints_first_is_left_to_it(self) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")

        async def edit(call: Call) -> None:
            fleet.before = None
            fleet.edit(N1, spec={"taints": [{"key": TO_BE_DELETED, "value": "1", "effect": "NoSchedule"}]})

        fleet.before = edit
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: bool(operator.outcomes))
        assert operator.ended() == {"n1": "NodeNotWritten"}
        assert fleet.traces() == {"n1": [TO_BE_DELETED]}


class TestWhereTheNodeStays:
    async def test_a_pod_that_waits_needs_it_after_all(self) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: bool(fleet.traces()))
            fleet.web("w1", cpu="3")
            await operator.until(lambda: bool(operator.outcomes))
            [outcome] = operator.outcomes
            assert (outcome.result, outcome.reason) == (Result.ABORTED, "NeededForOtherPods")
            assert fleet.traces() == {}
            await asyncio.sleep(1)
        assert [each["spec"].get("nodeName") for each in fleet.app("web")] == ["n1"]

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (lambda fleet: fleet.edit(N1, spec={"taints": None}), "TaintTakenOff"),
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
    async def test_what_changes_while_its_pods_are_held_back(self, change: Any, reason: str) -> None:
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
        assert operator.outcomes[0].result is Result.ABORTED
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
    async def test_the_autoscaler_is_told_not_to(self, spec: dict[str, Any] | None, reason: str) -> None:
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

    async def test_a_budget_holds_its_pods_back_for_too_long(self) -> None:
        fleet = drained()
        fleet.guard("web", 2)
        fleet.edit(f"{BUDGETS}/web", status={"disruptionsAllowed": 1})
        fleet.frozen = True
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: bool(operator.outcomes))
        [outcome] = operator.outcomes
        assert (outcome.result, outcome.reason) == (Result.FAILED, "NotEnoughPdb")
        assert (outcome.refused, outcome.refused_uid) == ("shop/w1", "pod-shop-w1")
        assert 120 <= outcome.finished - outcome.started < 150
        assert len(fleet.sent(path="eviction")) < 30
        assert fleet.traces() == {}

    async def test_a_budget_that_lets_go_in_time_is_waited_for(self) -> None:
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

    async def test_a_pod_that_does_not_end(self) -> None:
        fleet = drained()
        fleet.ends_after = 10_000
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: bool(operator.outcomes))
        [outcome] = operator.outcomes
        assert (outcome.reason, outcome.refused) == ("PodDidNotEnd", "shop/w1")
        assert outcome.finished - outcome.started == pytest.approx(36, abs=5)
        assert outcome.evicted == {"shop/w1": "pod-shop-w1"}
        assert fleet.traces() == {}

    async def test_what_was_evicted_finds_no_other_place(self) -> None:
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
    async def test_the_node_cannot_be_written(self, error: Exception) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")
        fleet.fail(error, times=1, method="PATCH", path=N1)
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: bool(operator.outcomes))
        assert (operator.outcomes[0].result, operator.outcomes[0].reason) == (Result.FAILED, "NodeNotWritten")
        assert fleet.traces() == {}

    async def test_what_could_not_be_returned_is_by_a_later_pass(self) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: bool(fleet.traces()))
            operator.spec = spec_of({"scaleDown": {"enabled": False}})
            fleet.fail(Forbidden("no rights", status=403), times=2, method="PATCH", path=N1)
            await operator.until(lambda: bool(operator.outcomes))
            assert operator.outcomes[0].left == "taint and cordon: no rights"
            await operator.until(lambda: not fleet.traces())
            await operator.until(lambda: bool(operator.cleaned))
        assert operator.cleaned == {"n1": "node--n1"}

    async def test_a_node_that_goes_by_itself_is_let_go(self) -> None:
        fleet = drained()
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: bool(fleet.traces()))
            fleet.drop(N1)
            await operator.until(lambda: bool(operator.outcomes))
        assert operator.ended() == {"n1": "AlreadyGone"}


class TestTheGroup:
    async def test_an_edit_of_its_size_in_the_middle_is_counted_anew(self) -> None:
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
                made["status"] = {"phase": "Running", "nodeRef": {"kind": "Node", "name": "n4"}}
                fleet.put(f"{MACHINES}/m-n4", made)

        fleet.before = edit
        async with running(operator):
            await operator.until(lambda: bool(operator.outcomes))
        assert operator.outcomes[0].done
        assert fleet.replicas("a") == 3
        assert "n1" not in fleet.nodes()

    async def test_where_the_wrong_machine_goes_the_node_is_returned(self) -> None:
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
        assert (outcome.result, outcome.reason) == (Result.FAILED, "MachineSpared")
        assert outcome.message == "machine m-n1 stays, 1 machines are wanted by now; m-n2 went"

    async def test_the_minimum_holds_where_several_are_drained_at_once(self) -> None:
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

    async def test_one_that_does_not_answer_keeps_no_other_waiting(self) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")
        fleet.group("b", "n2")

        async def hang(call: Call) -> None:
            if "m-n1" in call.path or "machinesets/a" in call.path:
                await asyncio.sleep(3600)

        fleet.before = hang
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: "n2" in operator.ended())
            assert fleet.clock.monotonic() < 12
            await operator.until(lambda: "n1" in operator.ended())
        assert operator.ended() == {"n1": "ScaleTimedOut", "n2": "Empty"}

    async def test_a_lost_answer_is_found_out_about(self) -> None:
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

    async def test_a_machine_that_somebody_else_has_marked_is_known_before_pods_are_evicted_in_vain(self) -> None:
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
        assert [each.result for each in operator.outcomes] == [Result.ABORTED]
        assert [call for call in fleet.calls if call.method != "GET"] == []
        assert len(fleet.calls) == 1


class TestTwoProcesses:
    async def test_one_that_does_not_lead_does_nothing(self) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")
        operator = Operator(fleet)
        operator.leading = False
        async with running(operator):
            await asyncio.sleep(60)
        assert fleet.calls == []

    @pytest.mark.parametrize("request_number", range(1, 6))
    async def test_one_that_loses_the_lease_sends_nothing_more_and_the_other_goes_on(self, request_number: int) -> None:
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

    async def test_nothing_is_written_on_a_picture_that_is_not_current(self) -> None:
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

    async def test_a_picture_that_stays_old_returns_the_node(self) -> None:
        fleet = drained()
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: bool(fleet.traces()))
            operator.stale = "no word from the API server on pods"
            await operator.until(lambda: not fleet.traces())
        assert fleet.evictions == []


class TestTheEndOfAProcess:
    async def test_all_that_can_be_is_returned(self) -> None:
        fleet = drained()
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: bool(fleet.traces()))
            await operator.removals.finish()
            assert fleet.traces() == {}
            assert operator.removals.going == {}
            [outcome] = operator.removals.take_outcomes()
            assert (outcome.result, outcome.reason) == (Result.ABORTED, "ShuttingDown")

    async def test_machines_that_go_are_left_to_go(self) -> None:
        fleet = drained()
        fleet.deletes = False
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: fleet.replicas("a") == 0)
            operator.plans = False
            await operator.removals.finish()
            assert set(fleet.traces()) == {"n1", "m-n1"}
            fleet.deletes = True
            await operator.until(lambda: fleet.nodes() == ["n2"])

    async def test_it_does_not_wait_for_ever(self) -> None:
        fleet = drained()
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(lambda: bool(fleet.traces()))
            fleet.down = True
            began = fleet.clock.monotonic()
            await operator.removals.finish(10)
            assert fleet.clock.monotonic() - began < 15
