"""One pass against providers that err, hang or lie, and with priorities from a ConfigMap."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.builders import machine_set
from tests.unit.autoscaling.running_autoscaler import MACHINES, Desk
from trimtab.autoscaling.groups import GroupMachine, NodeGroup
from trimtab.autoscaling.providers import Failure, Removal, Scaled

pytestmark = [pytest.mark.looptime(start=0), pytest.mark.usefixtures("no_threads")]
PRIORITIES = "/api/v1/namespaces/trimtab-system/configmaps/cluster-autoscaler-priority-expander"


class Provider:
    """Answers as it is told, by the group's name: hangs, fails, raises, or says yes and does nothing."""

    def __init__(self, **says: str) -> None:
        self.says = says
        self.asked: list[str] = []

    async def increase(self, group: NodeGroup, to: int) -> Scaled:
        self.asked.append(group.name)
        match self.says.get(group.name, "yes"):
            case "hangs":
                await asyncio.sleep(3600)
            case "fails":
                return Scaled(group.id, group.target, to, Failure.REFUSED, "quota exceeded", calls=1)
            case "raises":
                raise RuntimeError("a defect")
        return Scaled(group.id, group.target, to, calls=1)

    async def lower(self, group: NodeGroup, to: int) -> Scaled:
        return Scaled(group.id, group.target, to, calls=1)

    async def remove(self, group: NodeGroup, machines: Sequence[GroupMachine], *, now: float) -> Removal:
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
async def test_a_group_that_fails_backs_off_and_its_pods_are_planned_on_another_one(trouble: str) -> None:
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


async def test_a_provider_that_hangs_holds_up_no_pass_and_is_not_asked_twice() -> None:
    provider = Provider(a="hangs")
    desk = desk_of(provider, "a")
    desk.fleet.binds = False
    async with desk.running():
        desk.wants(10)
        await desk.until(lambda: provider.asked == ["a"], seconds=5)
        passes = desk.status.get("lastPass", {}).get("time")
        await asyncio.sleep(30)
        assert provider.asked == ["a"]
        assert desk.status["lastPass"]["time"] != passes
        await desk.until(lambda: desk.condition("Degraded")[0] == "True", seconds=60)


async def test_a_provider_that_says_yes_and_does_nothing_is_found_out() -> None:
    provider = Provider(a="yes")
    desk = desk_of(provider, "a")
    desk.fleet.binds = False
    async with desk.running():
        desk.wants(10)
        await desk.until(lambda: desk.condition("Degraded") == ("True", "NodeGroupsFailing"), seconds=90)
    assert provider.asked == ["a"]


async def put_priorities(desk: Desk, text: str) -> None:
    desk.fleet.put(PRIORITIES, {"kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"priorities": text}})


async def test_priorities_are_read_when_pods_wait_and_not_before() -> None:
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
    ("data", "told"),
    [
        pytest.param(None, "there is no such ConfigMap", id="missing"),
        pytest.param("10: nothing", "list of regular expressions", id="no list"),
    ],
)
async def test_priorities_that_cannot_be_read_are_told_and_other_expanders_decide(data: str | None, told: str) -> None:
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
    assert told in degraded["message"]


async def test_a_machine_that_fails_lets_another_group_help_at_once() -> None:
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
