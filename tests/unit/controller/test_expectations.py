"""Tests of the writes that a watch does not show yet."""

from __future__ import annotations

from msgspec.structs import replace

from tests.fakes.clock import SetClock
from trimtab.controller.expectations import Expectations
from trimtab.kube.objects import Node

NODE = Node(name="n1", uid="u1", resource_version="1")


class World:
    """A cached node, and the write of version 2 to it."""

    def __init__(self) -> None:
        self.node: Node | None = NODE
        self.clock = SetClock()
        self.writes: Expectations[Node, str] = Expectations(lambda _: self.node, self.clock, timeout=30.0)
        self.writes.expect("n1", "u1", "cordoned", shown_by=lambda node: node.resource_version != "1")

    @property
    def pending(self) -> str | None:
        write = self.writes.pending("n1")
        return None if write is None else write.value


def test_write_is_pending_until_the_watch_shows_it() -> None:
    world = World()
    assert world.pending == "cordoned"
    world.node = replace(NODE, resource_version="2")
    assert world.pending is None
    world.node = NODE
    assert world.pending is None


def test_write_is_not_pending_after_its_timeout() -> None:
    world = World()
    world.clock.time += 29.9
    assert world.pending == "cordoned"
    world.clock.time += 0.2
    assert world.pending is None
    assert list(world.writes) == ["n1"]


def test_write_to_deleted_or_replaced_object_is_void() -> None:
    for node in (None, replace(NODE, uid="u2")):
        world = World()
        world.node = node
        assert world.pending is None
        assert not list(world.writes)


def test_forgotten_write_is_not_pending() -> None:
    world = World()
    world.writes.forget("n1")
    assert world.pending is None


def test_prune_drops_only_shown_and_void_writes() -> None:
    for node, kept in ((NODE, ["n1"]), (replace(NODE, resource_version="2"), []), (None, [])):
        world = World()
        world.node = node
        world.writes.prune()
        assert list(world.writes) == kept
