"""A policy's loop and its memory: written with the status, read back, and gone on from."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tests.fixtures.golden import Golden
from tests.unit.descheduling.test_controller import PATH, Desk
from tests.unit.descheduling.test_controller import plan_on_the_loop as plan_on_the_loop
from trimtab.descheduling.controller import PolicyController

pytestmark = pytest.mark.looptime(start=0)
COOLDOWN = {"initial": "10m"}


class Scheduler(Desk):
    """A desk on which every evicted pod comes back to its node at once."""

    def __init__(self) -> None:
        super().__init__()
        self.known: list[Any] = []
        granted = self.executor.execute

        async def execute(actions: Any, **arguments: Any) -> Any:
            self.known.append(self.status.get("memory"))
            outcomes = await granted(actions, **arguments)
            for action in actions:
                self.put_back(action.key)
            return outcomes

        self.executor.execute = execute  # type: ignore[method-assign]

    def put_back(self, key: str) -> None:
        old = self.caches.lister.pod(key)
        assert old is not None
        self.caches.apply(old, None)
        name = f"web-{self.clock.now():.0f}"
        new = msgspec.structs.replace(old, name=name, uid=name, created=float(int(self.clock.now()) + 1))
        self.caches.apply(None, new)

    @property
    def evicted(self) -> int:
        return int(self.status.get("evicted", 0))

    def effective(self) -> str:
        return next(c["message"] for c in self.status["conditions"] if c["type"] == "Effective")

    def annotate(self, value: str) -> None:
        body = self.api.objects[PATH]
        body["metadata"]["annotations"] = {"trimtab.dev/try-again": value}
        self.controller.observe(body)

    def restart(self) -> None:
        """Another process: it knows what is written."""
        self.controller = PolicyController("default", self.services)
        self.stopped = type(self.stopped)()
        self.controller.observe(self.api.objects[PATH])


async def test_returning_pods_get_longer_cooldowns_then_give_up(golden: Golden) -> None:
    desk = Scheduler()
    desk.write(mode="Act", interval="1m", cooldown=COOLDOWN)
    async with desk.running():
        await asyncio.sleep(130)
        assert desk.evicted == 1
        assert desk.condition("Effective") == ("True", "CoolingDown")
        assert "until 2027-01-15T08:1" in desk.effective()
        await asyncio.sleep(3600)
        assert desk.evicted == 3
        assert desk.condition("Effective") == ("False", "GaveUp")
        golden(desk.effective())
        assert desk.condition("Degraded") == ("False", "AllWell"), "nothing is wrong with trimtab"
        labels = {"policy": "default", "strategy": "RemoveDuplicates", "reason": "GaveUp"}
        assert desk.registry.get_sample_value("trimtab_descheduler_owners_left_alone", labels) == 1
        recorded = [event for event in desk.recorder.events if event["reason"] == "GaveUp"]
        assert [(event["type"], event["action"]) for event in recorded] == [("Warning", "GiveUp")]


async def test_memory_survives_restarts() -> None:
    desk = Scheduler()
    desk.write(mode="Act", interval="1m", cooldown=COOLDOWN)
    for _ in range(12):
        async with desk.running():
            await asyncio.sleep(300)
        desk.restart()
    assert desk.evicted == 3
    assert desk.condition("Effective") == ("False", "GaveUp")
    assert len([event for event in desk.recorder.events if event["reason"] == "GaveUp"]) == 1


async def test_evictions_are_persisted_before_execution() -> None:
    desk = Scheduler()
    desk.write(mode="Act", interval="1h", cooldown=COOLDOWN)
    async with desk.running():
        await asyncio.sleep(1)
    [known] = desk.known
    assert [(each["name"], each["node"], each["target"]) for each in known["watched"]] == [("web", "n1", "n2")]


async def test_new_spec_resets_setbacks() -> None:
    desk = Scheduler()
    desk.write(mode="Act", interval="1m", cooldown=COOLDOWN)
    async with desk.running():
        await asyncio.sleep(3600)
        assert desk.evicted == 3
        desk.write(mode="Act", interval="1m", cooldown=COOLDOWN, generation=2)
        await asyncio.sleep(90)
        assert desk.evicted == 4


async def test_try_again_annotation_resets_setbacks_once() -> None:
    desk = Scheduler()
    desk.write(mode="Act", interval="1m", cooldown=COOLDOWN)
    async with desk.running():
        await asyncio.sleep(3600)
        desk.annotate("1")
        await asyncio.sleep(90)
        assert desk.evicted == 4
        await asyncio.sleep(3600)
        assert desk.evicted == 6, "and gave up again"
        assert desk.status["memory"]["tryAgain"] == "1"
    desk.restart()
    async with desk.running():
        await asyncio.sleep(600)
        assert desk.evicted == 6
