from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.fakes.clock import SetClock
from tests.unit.local.machines.objects import machine, owner
from trimtab.kube.api import Unreachable
from trimtab.local.machines.live import Live
from trimtab.local.machines.picture import UNSEEN_FOR, Picture
from trimtab.local.machines.queue import Queue


async def worked(reconcile: Callable[[str], Awaitable[float | None]], *keys: str, workers: int = 2) -> None:
    queue = Queue(reconcile, workers=workers, clock=SetClock())
    for key in keys:
        queue.add(key)
    task = asyncio.create_task(queue.run())
    for _ in range(50):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_key_that_is_added_twice_is_looked_at_once() -> None:
    seen = []

    async def reconcile(key: str) -> None:
        seen.append(key)

    await worked(reconcile, "a", "b", "a")
    assert seen == ["a", "b"]


async def test_a_key_that_is_added_while_it_is_looked_at_has_its_turn_after_that() -> None:
    seen: list[str] = []
    busy = 0

    async def reconcile(key: str) -> None:
        nonlocal busy
        assert not busy
        busy += 1
        seen.append(key)
        if len(seen) == 1:
            queue.add(key)
        await asyncio.sleep(0)
        busy -= 1

    queue = Queue(reconcile, workers=3, clock=SetClock())
    queue.add("a")
    task = asyncio.create_task(queue.run())
    for _ in range(50):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert seen == ["a", "a"]


async def test_what_fails_is_tried_again_and_what_asks_for_another_look_gets_it() -> None:
    seen = []

    async def reconcile(key: str) -> float | None:
        seen.append(key)
        if len(seen) == 1:
            raise Unreachable("no")
        return 5.0 if len(seen) == 2 else None

    await worked(reconcile, "a")
    assert seen == ["a", "a", "a"]


def version(live: Live, number: int) -> Live:
    return Live(live.manifest | {"metadata": live.metadata | {"resourceVersion": str(number)}})


def test_what_was_just_made_counts_before_the_watch_shows_it() -> None:
    picture = Picture(SetClock())
    made = version(machine("a"), 20)

    picture.wrote(made)
    assert list(picture.controlled_by(owner().uid)) == [made]

    picture.store.apply(version(machine("a"), 21))
    picture.store.remove(made.key)
    assert list(picture.controlled_by(owner().uid)) == []


def test_an_older_state_of_the_watch_does_not_hide_what_was_written() -> None:
    picture = Picture(SetClock())
    picture.wrote(version(machine("a", phase="Running"), 20))

    picture.store.apply(version(machine("a"), 19))
    found = picture.get("openshift-machine-api/a")
    assert found is not None
    assert found.status == {"phase": "Running"}


def test_what_the_watch_never_shows_is_forgotten() -> None:
    clock = SetClock()
    picture = Picture(clock)
    picture.wrote(machine("a"))

    clock.time += UNSEEN_FOR + 1
    assert picture.get("openshift-machine-api/a") is None


def test_a_machine_whose_deletion_was_asked_for_counts_as_being_deleted() -> None:
    picture = Picture(SetClock())
    live = machine("a")
    picture.store.apply(live)

    picture.deleted(live)
    assert [each.deleting for each in picture.controlled_by(owner().uid)] == [True]
