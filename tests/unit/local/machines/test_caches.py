from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.api import FakeApi
from tests.fakes.clock import SetClock
from tests.unit.local.machines.objects import machine, owner
from trimtab.kube.resources import MACHINE_SETS, MACHINES
from trimtab_local.machines.caches import UNSEEN_FOR, LaggingField, ObjectCache, marks_of, size_of
from trimtab_local.machines.controller import Controller
from trimtab_local.machines.machine import LiveObject
from trimtab_local.machines.orders import MARK_LAG, SIZE_LAG
from trimtab_local.machines.sets import DELETE_MACHINE


def version(live: LiveObject, number: int) -> LiveObject:
    return LiveObject(live.manifest | {"metadata": live.metadata | {"resourceVersion": str(number)}})


def test_created_object_is_visible_before_the_watch_delivers_it() -> None:
    snapshot = ObjectCache(SetClock())
    made = version(machine("a"), 20)

    snapshot.wrote(made)
    assert list(snapshot.controlled_by(owner().uid)) == [made]

    snapshot.store.apply(version(machine("a"), 21))
    snapshot.store.remove(made.key)
    assert list(snapshot.controlled_by(owner().uid)) == []


def test_older_watch_event_does_not_hide_a_write() -> None:
    snapshot = ObjectCache(SetClock())
    snapshot.wrote(version(machine("a", phase="Running"), 20))

    snapshot.store.apply(version(machine("a"), 19))
    found = snapshot.get("openshift-machine-api/a")
    assert found is not None
    assert found.status == {"phase": "Running"}


def test_object_that_the_watch_never_delivers_is_dropped() -> None:
    clock = SetClock()
    snapshot = ObjectCache(clock)
    snapshot.wrote(machine("a"))

    clock.time += UNSEEN_FOR + 1
    assert snapshot.get("openshift-machine-api/a") is None


def test_machine_with_requested_deletion_counts_as_terminating() -> None:
    snapshot = ObjectCache(SetClock())
    live = machine("a")
    snapshot.store.apply(live)

    snapshot.deleted(live)
    assert [each.deleting for each in snapshot.controlled_by(owner().uid)] == [True]


NAMES = ("workers-a", "workers-b", "workers-c")
NAMESPACE = "openshift-machine-api"


def test_a_new_value_becomes_visible_after_the_lag() -> None:
    clock = SetClock()
    marks = LaggingField(clock, marks_of)
    plain, marked = machine(), machine(mark=DELETE_MACHINE)
    marks.observe(None, plain)
    clock.time += 100
    marks.observe(plain, marked)

    clock.time += 4
    assert marks.visible(marked, 10.0) == ({}, 6.0)
    assert marks.visible(marked, 0.0) == (marks_of(marked), None)
    clock.time += 6
    assert marks.visible(marked, 10.0) == (marks_of(marked), None)


def test_removed_mark_is_visible_for_the_lag() -> None:
    clock = SetClock()
    marks = LaggingField(clock, marks_of)
    plain, marked = machine(), machine(mark=DELETE_MACHINE)
    marks.observe(None, marked)
    clock.time += 100
    marks.observe(marked, plain)

    assert marks.visible(plain, 10.0) == (marks_of(marked), 10.0)


def test_first_list_is_visible_without_lag() -> None:
    sizes = LaggingField(SetClock(), size_of)
    live = owner(3)
    sizes.observe(None, live)

    assert sizes.visible(live, 10.0) == ((3, 3), None)


class World:
    """A set of three machines whose controller reconciles when it is called."""

    def __init__(self, **annotations: str) -> None:
        self.api, self.clock = FakeApi(), SetClock()
        self.controller = Controller(self.api, clock=self.clock)
        self.set = self._stored(owner(3, annotations=annotations))
        self.machines = {name: self._stored(machine(name)) for name in NAMES}

    def _stored(self, live: LiveObject) -> LiveObject:
        is_set = live.name == "workers"
        resource = MACHINE_SETS if is_set else MACHINES
        stored = LiveObject(self.api.put(resource.path(live.name, namespace=NAMESPACE), live.manifest))
        (self.controller._sets if is_set else self.controller._machines).store.apply(stored)
        return stored

    def mark(self, name: str) -> None:
        self._stored(machine(name, mark=DELETE_MACHINE))

    def resize(self, replicas: int) -> None:
        self.set = self._stored(owner(replicas, annotations=dict(self.set.annotations)))

    async def reconcile(self) -> tuple[float | None, set[str]]:
        """When the set is reconciled again, and the machines deleted so far."""
        again = await self.controller._reconcile_set(self.set.key)
        return again, {call.path.rpartition("/")[2] for call in self.api.sent("DELETE")}


@pytest.mark.parametrize(("age", "deleted"), [(0.0, {"workers-a"}), (9.0, {"workers-a"}), (10.0, {"workers-c"})])
async def test_wrong_machine_is_deleted_while_the_mark_is_not_visible(age: float, deleted: set[str]) -> None:
    world = World(**{MARK_LAG: "10s"})
    world.mark("workers-c")
    world.clock.time += age
    world.resize(2)

    assert (await world.reconcile())[1] == deleted


async def test_size_is_visible_after_its_lag() -> None:
    world = World(**{SIZE_LAG: "5s"})
    world.resize(2)

    assert await world.reconcile() == (5.0, set())
    world.clock.time += 5
    assert (await world.reconcile())[1] == {"workers-a"}


async def test_both_lags_together_take_the_marked_machine() -> None:
    world = World(**{MARK_LAG: "10s", SIZE_LAG: "10s"})
    world.mark("workers-c")
    world.resize(2)

    assert await world.reconcile() == (10.0, set())
    world.clock.time += 10
    assert (await world.reconcile())[1] == {"workers-c"}


async def test_status_has_the_visible_generation() -> None:
    world = World(**{SIZE_LAG: "5s"})
    before: dict[str, Any] = world.set.metadata
    manifest = owner(2, annotations=dict(world.set.annotations)).manifest
    world._stored(LiveObject(manifest | {"metadata": manifest["metadata"] | {"generation": before["generation"] + 1}}))

    await world.reconcile()
    path = MACHINE_SETS.path("workers", namespace=NAMESPACE)
    assert world.api.objects[path]["status"]["observedGeneration"] == before["generation"]
