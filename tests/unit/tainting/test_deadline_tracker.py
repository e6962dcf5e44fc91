"""Deadlines as the cluster changes: upstream's table of events with the outcome promised, and what it gets wrong.

Of tainteviction's own tests (v1.36.3: 12 functions, and 4 of its timers) all that are about events are here;
TestGetMinTolerationTime and TestFilterNoExecuteTaints are in ``test_deadline_rule.py``, TestPodDeletionEvent as well in
``test_report_events.py``, the timers' in ``test_timers.py``.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.unit.tainting.deadlines import ALL, FIRST, START, bears, node, pod, taint
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Node, Pod
from trimtab.tainting.deadlines import TaintDeadlineTracker, since_annotation

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
A = taint("a")


class World:
    """A cluster that changes, and what its book says of pods; times are seconds from the start."""

    def __init__(self, *objects: Node | Pod) -> None:
        self.snapshot = Snapshot()
        self.book = TaintDeadlineTracker(self.snapshot.items_on, ALL)
        for each in objects:
            self.put(each)

    def put(self, new: Node | Pod, *, at: float = 0) -> list[str]:
        """Tell of a new or changed object; the pods whose deadline is another one now."""
        if isinstance(new, Node):
            old_node = self.snapshot.nodes.get(new.name)
            self.snapshot.put(new)
            return [change.key for change in self.book.node_changed(old_node, new, now=START + at)]
        old = self.snapshot.pods.get(new.key)
        self.snapshot.put(new)
        return [change.key for change in self.book.pod_changed(old, new, now=START + at)]

    def drop(self, old: Node | Pod, *, at: float = 0) -> list[str]:
        """Tell that an object is gone."""
        self.snapshot.remove(old)
        changes = (
            self.book.node_changed(old, None, now=START + at)
            if isinstance(old, Node)
            else self.book.pod_changed(old, None, now=START + at)
        )
        return [change.key for change in changes]

    def due(self, name: str = "web") -> float | None:
        """When a pod goes, ``None`` for never."""
        found = self.book.deadlines.get(f"shop/{name}")
        return None if found is None else found.due - START


CREATED_POD = {
    "on no node": (pod(on=""), (), None),
    "on a node without taints": (pod(), (), None),
    "on a tainted node": (pod(), (A,), 0),
    "on a tainted node, tolerating for a while": (pod(bears("a", 100)), (A,), 100),
    "on a tainted node, tolerating for ever": (pod(bears("a")), (A,), None),
    "on a tainted node, tolerating another key": (pod(bears("b", 100)), (A,), 0),
}


@pytest.mark.parametrize("late", [False, True], ids=["the node first", "the pod first"])
@pytest.mark.parametrize(("new", "taints", "expected"), CREATED_POD.values(), ids=CREATED_POD)
def test_added_pod_gets_deadline(new: Pod, taints: tuple, expected: float | None, late: bool) -> None:
    objects = [node(*taints), new]

    assert World(*(reversed(objects) if late else objects)).due() == expected


UPDATED_POD = {
    "is bound to a tainted node": (pod(on=""), pod(), 0),
    "is bound to a tainted node that it tolerates": (pod(on=""), pod(bears("a", 100)), 100),
    "tolerates no more": (pod(bears("a", 100)), pod(), 0),
    "tolerates now": (pod(), pod(bears("a", 100)), 100),
    "tolerates for longer (upstream: as before)": (pod(bears("a", 1)), pod(bears("a", 150)), 150),
    "tolerates for less (upstream: as before)": (pod(bears("a", 150)), pod(bears("a", 1)), 1),
    "tolerates for ever now": (pod(bears("a", 150)), pod(bears("a")), None),
    "tolerates another taint as well": (pod(bears("a", 150)), pod(bears("a", 150), bears("b", 1)), 150),
    "has ended": (pod(), replace(pod(), phase="Succeeded"), None),
    "is going": (pod(), replace(pod(), deleted=START), None),
    "is of another node, under its old name": (pod(), pod(on="n2", uid="another"), None),
    "is made anew, under its old name": (pod(bears("a", 60)), pod(bears("a", 60), started=30, uid="another"), 90),
}


@pytest.mark.parametrize(("before", "after", "expected"), UPDATED_POD.values(), ids=UPDATED_POD)
def test_changed_pod_updates_deadline(before: Pod, after: Pod, expected: float | None) -> None:
    world = World(node(A), node(name="n2"), before)
    world.put(after, at=40)

    assert world.due() == expected


def test_pod_with_same_name_has_its_own_deadline() -> None:
    world = World(node(A), pod(bears("a", 60)))
    changed = world.put(pod(bears("a", 60), uid="another"), at=40)

    assert changed == ["shop/web"]
    assert world.book.deadlines["shop/web"].uid == "another"


UPDATED_NODE = {
    "gets a taint": ((), (A,), pod(), 0),
    "gets a taint that is tolerated": ((), (A,), pod(bears("a")), None),
    "gets two, of which one is tolerated": ((), (A, taint("b")), pod(bears("a", 100)), 0),
    "gets a taint that is tolerated for a while": ((), (A,), pod(bears("a", 100)), 100),
    "gets two that are tolerated for different whiles": (
        (),
        (A, taint("b")),
        pod(bears("a", 1), bears("b", 100)),
        1,
    ),
    "loses its taint": ((A,), (), pod(bears("a", 100)), None),
    "loses its taint before the pod is gone": ((A,), (), pod(), None),
    "loses the shorter of two (upstream: goes by the shorter)": (
        (A, taint("b")),
        (A,),
        pod(bears("a", 3600), bears("b", 10)),
        3600,
    ),
    "loses the longer of two": ((A, taint("b")), (taint("b"),), pod(bears("a", 3600), bears("b", 10)), 10),
    "gets a second one with a shorter tolerance (upstream: 3600)": (
        (A,),
        (A, taint("b", added=40)),
        pod(bears("a", 3600), bears("b", 10)),
        50,
    ),
    "has its taints in another order": ((A, taint("b")), (taint("b"), A), pod(bears("a", 100), bears("b", 200)), 100),
    "gets the taint anew": ((A,), (taint("a", added=40),), pod(bears("a", 100)), 140),
    "is swapped to unreachable": (
        (taint(NOT_READY),),
        (taint(UNREACHABLE, added=40),),
        pod(bears(NOT_READY, 300), bears(UNREACHABLE, 300)),
        300,
    ),
    "is swapped to what the pod bears for less": (
        (taint(NOT_READY),),
        (taint(UNREACHABLE, added=40),),
        pod(bears(NOT_READY, 300), bears(UNREACHABLE, 30)),
        30,
    ),
}


@pytest.mark.parametrize(("before", "after", "one", "expected"), UPDATED_NODE.values(), ids=UPDATED_NODE)
def test_changed_node_updates_deadlines(before: tuple, after: tuple, one: Pod, expected: float | None) -> None:
    world = World(node(*before), one)
    world.put(node(*after), at=40)

    assert world.due() == expected


def test_deadlines_follow_added_and_removed_taints() -> None:
    world = World(node(), pod(bears("a"), bears("b", 200)))
    recorded = []
    for at, taints in enumerate([(A,), (A, taint("b")), (A,), (), (taint("b", added=4),)]):
        world.put(node(*taints), at=at)
        recorded.append(world.due())

    assert recorded == [None, 200, None, None, 204]


def test_pods_of_one_node_have_their_own_deadlines() -> None:
    world = World(
        node(),
        pod(name="at-once"),
        pod(bears("a", 1), name="soon"),
        pod(bears("a"), name="never"),
        pod(name="elsewhere", on="n2"),
    )
    changed = world.put(node(A))

    assert changed == ["shop/at-once", "shop/soon"]
    assert [world.due(name) for name in ("at-once", "soon", "never", "elsewhere")] == [0, 1, None, None]


def test_pods_without_toleration_are_due_at_once() -> None:
    world = World(node(), *(pod(name=f"p{number}") for number in range(50)))

    assert len(world.put(node(A))) == 50
    assert {world.due(f"p{number}") for number in range(50)} == {0}


def test_pod_observed_late_has_the_same_deadline() -> None:
    world = World(node(A))

    assert world.put(pod(bears("a", 100)), at=30) == ["shop/web"]
    assert world.due() == 100


def test_removed_pod_has_no_deadline() -> None:
    world = World(node(A), pod(bears("a", 100)))

    assert world.drop(pod()) == ["shop/web"]
    assert not world.book.deadlines
    assert world.drop(pod()) == []


def test_removed_node_drops_its_taints() -> None:
    world = World(node(A), pod(bears("a", 100)))

    assert world.drop(node()) == ["shop/web"]
    assert not world.book.deadlines
    assert not world.book.taints


def test_readded_node_starts_from_scratch() -> None:
    world = World(node(taint("a", added=None)), pod(bears("a", 100)))
    world.drop(node(), at=10)
    world.put(node(taint("a", added=None), uid="u2"), at=50)

    assert world.due() == 150


def test_unrelated_changes_do_not_change_deadlines() -> None:
    world = World(node(A), pod(bears("a", 100)))

    assert world.put(replace(node(A), unschedulable=True, resource_version="9"), at=50) == []
    assert world.put(replace(pod(bears("a", 100)), ready=True, resource_version="9"), at=50) == []
    assert world.due() == 100


def test_restart_with_annotations_gives_same_deadlines() -> None:
    taints = (taint("a", added=None), taint(UNREACHABLE, added=60))
    pods = [pod(bears("a", 600), bears(UNREACHABLE, 300)), pod(bears(UNREACHABLE), name="late", started=50)]
    world = World(node(taint("a", added=None), taint(NOT_READY)), *pods)
    world.put(node(*taints), at=60)
    noted = since_annotation(world.book.taints["n1"])
    assert noted is not None

    items = [(each.key, each) for each in pods]
    again = TaintDeadlineTracker(lambda _: items, ALL)
    again.resync([node(*taints, since=noted)], items, now=START + 250)
    assert again.deadlines == world.book.deadlines
    assert world.due() == 300


def test_relist_drops_missing_objects() -> None:
    world = World(node(A), node(A, name="n2"), pod(), pod(name="other", on="n2"))

    changes = world.book.resync([node(A)], [("shop/web", pod())], now=START)
    assert [(change.key, change.after) for change in changes] == [("shop/other", None)]
    assert set(world.book.taints) == {"n1"}


def test_unobserved_swap_counts_from_its_own_time() -> None:
    carried = pod(bears(NOT_READY, 300), bears(UNREACHABLE, 300))
    world = World(node(taint(NOT_READY)), carried)

    world.book.resync([node(taint(UNREACHABLE, added=200))], [(carried.key, carried)], now=START + 210)
    assert world.due() == 500


def test_readded_taint_ignores_outdated_annotation() -> None:
    world = World(node(taint("a", added=None)), pod(bears("a", 100)))
    noted = since_annotation(world.book.taints["n1"]) or ""
    world.put(node(since=noted), at=30)
    world.put(node(taint("a", added=None), since=noted), at=50)

    assert world.due() == 150


def test_rule_change_applies_at_once() -> None:
    world = World(node(A), pod(bears("a", 300), bears("a")), pod(bears("a", 5), name="other"))

    assert [change.key for change in world.book.set_rule(FIRST, now=START)] == ["shop/web"]
    assert world.due() == 300
    assert world.book.set_rule(FIRST, now=START) == []


def test_resync_updates_the_taints_that_others_read() -> None:
    world = World(node(), pod())
    taints = world.book.taints  # the annotations of nodes are written from it
    world.book.resync([node(A)], world.snapshot.pods.items(), now=START)
    assert [*taints] == ["n1"]
