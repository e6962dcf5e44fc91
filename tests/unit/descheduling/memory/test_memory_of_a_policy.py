"""A policy's loop and its memory: written with the status, read back, and gone on from."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

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
        old = self.live.pod(key)
        assert old is not None
        self.live.apply(old, None)
        name = f"web-{self.clock.now():.0f}"
        new = msgspec.structs.replace(old, name=name, uid=name, created=float(int(self.clock.now()) + 1))
        self.live.apply(None, new)

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


async def test_pods_that_come_back_are_left_alone_ever_longer_and_then_for_good() -> None:
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
        assert "gave up on 1: RemoveDuplicates: 3 evictions in a row of ReplicaSet shop/web's pods" in desk.effective()
        assert desk.condition("Degraded") == ("False", "AllWell"), "nothing is wrong with trimtab"
        labels = {"policy": "default", "strategy": "RemoveDuplicates", "reason": "GaveUp"}
        assert desk.registry.get_sample_value("trimtab_descheduler_owners_left_alone", labels) == 1
        told = [event for event in desk.recorder.events if event["reason"] == "GaveUp"]
        assert [(event["type"], event["action"]) for event in told] == [("Warning", "GiveUp")]


async def test_restarts_change_nothing() -> None:
    desk = Scheduler()
    desk.write(mode="Act", interval="1m", cooldown=COOLDOWN)
    for _ in range(12):
        async with desk.running():
            await asyncio.sleep(300)
        desk.restart()
    assert desk.evicted == 3
    assert desk.condition("Effective") == ("False", "GaveUp")
    assert len([event for event in desk.recorder.events if event["reason"] == "GaveUp"]) == 1


async def test_what_is_about_to_be_evicted_is_written_before_it_is() -> None:
    desk = Scheduler()
    desk.write(mode="Act", interval="1h", cooldown=COOLDOWN)
    async with desk.running():
        await asyncio.sleep(1)
    [known] = desk.known
    assert [(each["name"], each["node"], each["target"]) for each in known["watched"]] == [("web", "n1", "n2")]


async def test_another_spec_gives_another_chance() -> None:
    desk = Scheduler()
    desk.write(mode="Act", interval="1m", cooldown=COOLDOWN)
    async with desk.running():
        await asyncio.sleep(3600)
        assert desk.evicted == 3
        desk.write(mode="Act", interval="1m", cooldown=COOLDOWN, generation=2)
        await asyncio.sleep(90)
        assert desk.evicted == 4


async def test_somebody_asks_for_another_try_and_gets_it_once() -> None:
    desk = Scheduler()
    desk.write(mode="Act", interval="1m", cooldown=COOLDOWN)
    async with desk.running():
        await asyncio.sleep(3600)
        desk.annotate("1")
        await asyncio.sleep(90)
        assert desk.evicted == 4
        await asyncio.sleep(3600)
        assert desk.evicted == 6, "and gave up again"
        assert desk.status["memory"]["asked"] == "1"
    desk.restart()
    async with desk.running():
        await asyncio.sleep(600)
        assert desk.evicted == 6
