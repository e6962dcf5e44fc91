"""Iterations with providers that fail, hang or do nothing, and with priorities from a ConfigMap."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.builders import machine_set
from tests.unit.autoscaling.running_autoscaler import MACHINES, SETS, SHORT, Desk
from tests.unit.descheduling.planning import policy, utilization
from trimtab.api.plan import Evict, rfc3339
from trimtab.autoscaling.groups import GroupMachine, NodeGroup
from trimtab.autoscaling.providers import MachineRemoval, ScaleFailure, ScaleResult

pytestmark = [pytest.mark.looptime(start=0), pytest.mark.usefixtures("no_threads")]
PRIORITIES = "/api/v1/namespaces/trimtab-system/configmaps/cluster-autoscaler-priority-expander"


class Provider:
    """A provider that, by group name, hangs, fails, raises, or succeeds without doing anything."""

    def __init__(self, **says: str) -> None:
        self.says = says
        self.asked: list[str] = []

    async def increase(self, group: NodeGroup, to: int) -> ScaleResult:
        self.asked.append(group.name)
        match self.says.get(group.name, "yes"):
            case "hangs":
                await asyncio.sleep(3600)
            case "fails":
                return ScaleResult(group.id, group.target, to, ScaleFailure.REFUSED, "quota exceeded", calls=1)
            case "raises":
                raise RuntimeError("a defect")
        return ScaleResult(group.id, group.target, to, calls=1)

    async def lower(self, group: NodeGroup, to: int) -> ScaleResult:
        return ScaleResult(group.id, group.target, to, calls=1)

    async def remove(self, group: NodeGroup, machines: Sequence[GroupMachine], *, now: float) -> MachineRemoval:
        raise AssertionError("nothing is to be removed")

    async def unmark(self, group: NodeGroup, machines: Sequence[str], *, mark: str = "") -> tuple[str, ...]:
        return ()


def desk_of(provider: Provider, *groups: str) -> Desk:
    desk = Desk(provider=provider)
    for name in groups:
        desk.fleet.group(name, f"{name}1", unneeded=False)
    desk.write()
    return desk


@pytest.mark.parametrize("trouble", ["fails", "raises"])
async def test_failed_group_backs_off_and_another_group_scales_up(trouble: str) -> None:
    provider = Provider(a=trouble, b="yes")
    desk = desk_of(provider, "a", "b")
    desk.fleet.binds = False
    async with desk.running():
        desk.wants(10)
        await desk.until(lambda: "b" in provider.asked, seconds=60)
        await asyncio.sleep(20)
    assert provider.asked.count("a") == 1, "it is left alone for five minutes"
    assert "FailedToScaleUpGroup" in desk.recorder.reasons()
    assert desk.condition("Degraded")[0] == "True"
    assert "MachineSet/openshift-machine-api/a" in str(desk.status["nodeGroups"])


async def test_try_again_scales_up_a_group_in_backoff_at_once() -> None:
    provider = Provider(a="fails")
    desk = desk_of(provider, "a")
    desk.fleet.binds = False
    async with desk.running():
        desk.wants(10)
        await desk.until(lambda: provider.asked == ["a"], seconds=60)
        await asyncio.sleep(20)
        assert provider.asked == ["a"]

        desk.try_again("1")
        await desk.until(lambda: provider.asked == ["a", "a"], seconds=2)
        desk.try_again("1")
        await asyncio.sleep(30)
        assert provider.asked == ["a", "a"], "the value has been processed"
        assert desk.status["tryAgain"] == "1"
        assert desk.status["nodeGroups"][0]["failures"] == 1


async def test_hanging_provider_delays_no_iteration() -> None:
    provider = Provider(a="hangs")
    desk = desk_of(provider, "a")
    desk.fleet.binds = False
    async with desk.running():
        desk.wants(10)
        await desk.until(lambda: provider.asked == ["a"], seconds=5)
        passes = desk.status.get("lastIteration", {}).get("time")
        await asyncio.sleep(30)
        assert provider.asked == ["a"]
        assert desk.status["lastIteration"]["time"] != passes
        await desk.until(lambda: desk.condition("Degraded")[0] == "True", seconds=60)


async def test_ineffective_provider_is_noticed() -> None:
    provider = Provider(a="yes")
    desk = desk_of(provider, "a")
    desk.fleet.binds = False
    async with desk.running():
        desk.wants(10)
        await desk.until(lambda: desk.condition("Degraded") == ("True", "NodeGroupsFailing"), seconds=90)
    assert provider.asked == ["a"]


async def put_priorities(desk: Desk, text: str) -> None:
    desk.fleet.put(PRIORITIES, {"kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"priorities": text}})


async def test_priorities_are_read_only_if_pods_are_pending() -> None:
    desk = Desk()
    for name in ("a", "b"):
        desk.fleet.group(name, f"{name}1", unneeded=False)
    await put_priorities(desk, '20: [".*/b$"]\n10: [".*"]')
    desk.write(expanders=["Priority"])
    async with desk.running():
        await asyncio.sleep(30)
        assert not desk.fleet.sent("GET", "priority-expander")
        desk.wants(12)
        await desk.until(lambda: desk.fleet.replicas("b") == 2, seconds=5)
    assert desk.fleet.replicas("a") == 1


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(None, "there is no such ConfigMap", id="missing"),
        pytest.param("10: nothing", "list of regular expressions", id="no list"),
    ],
)
async def test_unreadable_priorities_are_reported_and_the_next_expander_decides(
    data: str | None, expected: str
) -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", unneeded=False)
    if data is not None:
        await put_priorities(desk, data)
    desk.write(expanders=["Priority", "LeastWaste"])
    async with desk.running():
        desk.wants(12)
        await desk.until(lambda: desk.fleet.replicas("a") == 3, seconds=5)
        await desk.until(lambda: "Priority" in str(desk.status["conditions"]), seconds=5)
    degraded: Any = next(each for each in desk.status["conditions"] if each["type"] == "Degraded")
    assert degraded["status"] == "True"
    assert expected in degraded["message"]


async def test_failed_machine_triggers_a_scale_up_of_another_group() -> None:
    desk = Desk()
    desk.makes = False
    for name in ("a", "b"):
        desk.fleet.group(name, f"{name}1", unneeded=False)
    desk.write()
    async with desk.running():
        desk.wants(12)
        await desk.until(lambda: desk.fleet.replicas("a") + desk.fleet.replicas("b") == 3, seconds=5)
        first, second = ("a", "b") if desk.fleet.replicas("a") == 2 else ("b", "a")
        failed = machine_set(first).machine("m-failed")
        desk.fleet.add(failed)
        desk.fleet.edit(
            f"{MACHINES}/m-failed",
            status={"phase": "Failed", "errorReason": "InsufficientResources", "errorMessage": "no capacity"},
        )
        desk.trigger.wake()
        await desk.until(lambda: desk.fleet.replicas(second) == 2, seconds=5)


async def test_pod_triggers_a_scale_up_after_two_minutes_of_planned_moves() -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", "a2", unneeded=False)
    for name, on, cpu in (("moves", "a1", "1"), ("stays", "a1", "1"), ("leaves", "a1", "1"), ("other", "a2", "3")):
        desk.fleet.web(name, on, cpu=cpu)
    desk.fleet.binds = False
    desk.write(scaleDown={"enabled": False})
    first, second = (
        Evict("default", "S", "shop", name, "a1", "a2", "R", "m", uid=desk.pod(name).uid)
        for name in ("moves", "leaves")
    )
    plans = desk.dependencies.shared_plans
    async with desk.running():
        desk.wants(1, cpu="2")
        with plans.carrying_out([first], now=desk.clock.now()):
            await asyncio.sleep(90)
        with plans.carrying_out([second], now=desk.clock.now()):
            await asyncio.sleep(20)
            assert desk.fleet.replicas("a") == 2
            await asyncio.sleep(25)
            assert desk.fleet.replicas("a") == 3


async def test_failed_machine_is_kept_while_its_group_backs_off() -> None:
    desk = Desk()
    desk.makes = False
    desk.fleet.group("a", "a1", "a2", unneeded=False)
    until = rfc3339(desk.clock.now() + 60)
    record = {"message": "m-b was deleted without a mark", "until": until, "markDelaySeconds": 30.0, "wrongMachines": 1}
    annotations = {"trimtab.dev/removal-backoff": json.dumps(record)}
    desk.fleet.edit(f"{SETS}/a", metadata={"annotations": annotations})
    desk.fleet.add(machine_set("a").machine("m-failed"))
    desk.fleet.edit(f"{MACHINES}/m-failed", status={"phase": "Failed"})
    desk.fleet.scale("a", 3)
    desk.write(scaleDown={"enabled": False})

    def marked() -> bool:
        return "m-failed" in desk.fleet.traces()

    async with desk.running():
        await asyncio.sleep(58)
        assert not marked()
        await desk.until(marked, seconds=20)
        await asyncio.sleep(29)
        assert desk.fleet.replicas("a") == 3
        await desk.until(lambda: desk.fleet.replicas("a") == 2, seconds=3)
        await asyncio.sleep(1)
    assert desk.fleet.nodes() == ["a1", "a2"]


async def test_planned_moves_delay_scale_ups_for_two_minutes() -> None:
    """The pending pod fits on a1 after the planned move of another pod, which is never carried out."""
    desk = Desk()
    desk.fleet.group("a", "a1", "a2", unneeded=False)
    for name, on, cpu in (("moves", "a1", "2"), ("stays", "a1", "1"), ("other", "a2", "2")):
        desk.fleet.web(name, on, cpu=cpu)
    desk.fleet.binds = False
    desk.write(scaleDown={"enabled": False})
    pod = desk.pod("moves")
    evict = Evict("default", "S", "shop", "moves", "a1", "a2", "R", "m", uid=pod.uid)
    async with desk.running():
        with desk.dependencies.shared_plans.carrying_out([evict], now=desk.clock.now()):
            desk.wants(1, cpu="3")
            await asyncio.sleep(110)
            assert desk.fleet.replicas("a") == 2
            assert desk.status["pending"][0]["reason"] == "FitsAfterMoves"
            await asyncio.sleep(25)
            assert desk.fleet.replicas("a") == 3


async def test_unneeded_nodes_are_published_in_mode_act_only() -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", "a2", unneeded=False)
    desk.write(scaleDown={**SHORT, "unneededTime": "1h"})
    async with desk.running():
        await asyncio.sleep(2)
        assert set(desk.dependencies.shared_plans.unneeded) == {"a1", "a2"}
        desk.write(generation=2, mode="Simulate")
        await asyncio.sleep(12)
        assert desk.dependencies.shared_plans.unneeded == {}


async def test_invalid_autoscaler_publishes_no_unneeded_nodes() -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", "a2", unneeded=False)
    desk.write(scaleDown={**SHORT, "unneededTime": "1h"})
    async with desk.running():
        await asyncio.sleep(2)
        assert set(desk.dependencies.shared_plans.unneeded) == {"a1", "a2"}
        desk.write(generation=2, scaleDown={"enabled": "no"})
        await desk.until(lambda: desk.condition("Degraded") == ("True", "InvalidAutoscaler"), seconds=15)
        await asyncio.sleep(1)
        assert desk.dependencies.shared_plans.unneeded == {}


async def test_conflicting_policy_settings_set_a_condition() -> None:
    desk = desk_of(Provider(), "a")
    settings = desk.dependencies.shared_plans.settings
    async with desk.running():
        await desk.until(lambda: desk.condition("Ready") == ("True", "IterationCompleted"))
        assert desk.condition("Conflicting") == ("", "")
        settings.set_policies([policy(utilization({"cpu": 20}, {"cpu": 50}), "levelling")])
        await desk.until(lambda: desk.condition("Conflicting") == ("True", "SettingsConflict"), seconds=3)
        messages = [each["message"] for each in desk.status["conditions"] if each["type"] == "Conflicting"]
        assert messages[0].startswith("DeschedulerPolicy levelling: ")
        settings.set_policies([])
        await desk.until(lambda: desk.condition("Conflicting") == ("False", "NoConflict"), seconds=3)
