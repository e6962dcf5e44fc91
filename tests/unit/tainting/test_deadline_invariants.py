"""What holds of deadlines whatever the taints and tolerations, and that columns and book say what the rule says."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.tainting.deadlines import ALL, FIRST, START, node, pod
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Node, Pod, Taint, Toleration
from trimtab.tainting.deadlines import (
    Change,
    Deadline,
    DeadlineBook,
    NodeTaints,
    Tolerating,
    columns,
    deadline,
    deadlines,
    observe,
)

KEYS = ["a", "b", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
RULES = [ALL, FIRST, Tolerating(not_ready=20, unreachable=0)]
NOW = START + 1000

taints = st.lists(
    st.builds(
        Taint,
        key=st.sampled_from(KEYS),
        effect=st.sampled_from(["NoExecute", "NoExecute", "NoSchedule"]),
        value=st.sampled_from(["", "v", "w"]),
        time_added=st.none() | st.sampled_from([START, START + 400, START + 999, START + 5000]),
    ),
    max_size=4,
    unique_by=lambda taint: (taint.key, taint.effect),
).map(tuple)
tolerations = st.lists(
    st.builds(
        Toleration,
        key=st.sampled_from(["", *KEYS]),
        operator=st.sampled_from(["Exists", "Exists", "Equal", ""]),
        value=st.sampled_from(["", "v"]),
        effect=st.sampled_from(["", "NoExecute", "NoExecute", "NoSchedule"]),
        seconds=st.none() | st.sampled_from([-1, 0, 1, 30, 300, 3600]),
    ),
    max_size=4,
).map(tuple)
starts = st.sampled_from([None, -100.0, 500.0, 2000.0])
rules = st.sampled_from(RULES)


def of(carried: tuple[Toleration, ...], there: tuple[Taint, ...], start: float | None, rule: Tolerating) -> float:
    known = observe(node(*there), None, now=NOW)
    found = deadline(pod(*carried, started=start), known.standing, rule, now=NOW)
    return float("inf") if found is None else found.due


@given(carried=tolerations, there=taints, start=starts, seed=st.randoms(use_true_random=False))
def test_a_deadline_does_not_depend_on_the_order_of_taints_or_tolerations(
    carried: tuple[Toleration, ...], there: tuple[Taint, ...], start: float | None, seed: random.Random
) -> None:
    def whole(said: tuple[Toleration, ...], on: tuple[Taint, ...]) -> Deadline | None:
        known = observe(node(*on), None, now=NOW)
        return deadline(pod(*said, started=start), known.standing, ALL, now=NOW)

    shuffled = tuple(seed.sample(carried, len(carried))), tuple(seed.sample(there, len(there)))
    assert whole(*shuffled) == whole(carried, there)


@given(carried=tolerations, there=taints, start=starts, rule=rules, seed=st.randoms(use_true_random=False))
def test_by_every_rule_the_order_of_taints_does_not_matter(
    carried: tuple[Toleration, ...],
    there: tuple[Taint, ...],
    start: float | None,
    rule: Tolerating,
    seed: random.Random,
) -> None:
    assert of(carried, tuple(seed.sample(there, len(there))), start, rule) == of(carried, there, start, rule)


@given(carried=tolerations, there=taints, start=starts, rule=rules, place=st.integers(0, 3), more=st.integers(0, 999))
def test_more_toleration_seconds_never_make_a_pod_go_earlier(
    carried: tuple[Toleration, ...],
    there: tuple[Taint, ...],
    start: float | None,
    rule: Tolerating,
    place: int,
    more: int,
) -> None:
    if place >= len(carried) or carried[place].seconds is None:
        return
    longer = replace(carried[place], seconds=(carried[place].seconds or 0) + more)
    endless = replace(carried[place], seconds=None)
    before = of(carried, there, start, rule)

    for instead in (longer, endless):
        assert of((*carried[:place], instead, *carried[place + 1 :]), there, start, rule) >= before


@given(carried=tolerations, there=taints, start=starts, rule=rules, place=st.integers(0, 3))
def test_removing_a_taint_never_makes_a_pod_go_earlier(
    carried: tuple[Toleration, ...], there: tuple[Taint, ...], start: float | None, rule: Tolerating, place: int
) -> None:
    """Also where the other one of an outage stays: the book has seen both."""
    known = observe(node(*there), None, now=NOW)
    fewer = observe(node(*there[:place], *there[place + 1 :]), known, now=NOW + 5)
    web = pod(*carried, started=start)

    before = deadline(web, known.standing, rule, now=NOW + 5)
    after = deadline(web, fewer.standing, rule, now=NOW + 5)
    assert after is None or (before is not None and after.due >= before.due)


@given(carried=tolerations, there=taints, start=starts, more=tolerations)
def test_by_our_rule_a_pod_that_bears_a_taint_for_ever_by_one_toleration_more_goes_no_earlier(
    carried: tuple[Toleration, ...], there: tuple[Taint, ...], start: float | None, more: tuple[Toleration, ...]
) -> None:
    endless = tuple(replace(each, seconds=None) for each in more)

    assert of((*carried, *endless), there, start, ALL) >= of(carried, there, start, ALL)


@given(carried=tolerations, there=taints, start=starts, rule=rules)
def test_no_pod_goes_before_it_was_on_its_node_or_the_taint_was_seen_to_stand(
    carried: tuple[Toleration, ...], there: tuple[Taint, ...], start: float | None, rule: Tolerating
) -> None:
    known = observe(node(*there), None, now=NOW)
    found = deadline(pod(*carried, started=start), known.standing, rule, now=NOW)

    if found is not None:
        assert found.due >= found.since
        assert found.since <= NOW


pods = st.builds(
    lambda number, carried, on, start, phase, deleted: replace(
        pod(*carried, name=f"p{number}", on=on, started=start), phase=phase, deleted=START if deleted else None
    ),
    number=st.integers(0, 30),
    carried=tolerations,
    on=st.sampled_from(["n1", "n2", "n3", ""]),
    start=starts,
    phase=st.sampled_from(["Running", "Running", "Running", "Pending", "Failed"]),
    deleted=st.sampled_from([False, False, False, True]),
)


@given(
    several=st.lists(pods, max_size=20, unique_by=lambda each: each.key),
    there=st.lists(taints, min_size=3, max_size=3),
    rule=rules,
)
def test_columns_say_what_the_rule_says_of_each_pod(
    several: list[Pod], there: list[tuple[Taint, ...]], rule: Tolerating
) -> None:
    known = {f"n{number + 1}": observe(node(*each), None, now=NOW) for number, each in enumerate(there)}
    known = {name: each for name, each in known.items() if each.standing}
    one_by_one = {
        each.key: found
        for each in several
        if each.node in known and (found := deadline(each, known[each.node].standing, rule, now=NOW)) is not None
    }

    items = [(each.key, each) for each in several]
    there = [each for each in several if each.node in known and columns.concerned(each)]
    keys = [each.key for each in there]
    assert columns._Table(keys, there, known, rule, now=NOW).deadlines() == one_by_one
    assert deadlines(items, known, rule, now=NOW) == one_by_one
    assert deadlines(reversed(items), known, rule, now=NOW) == one_by_one


def test_many_pods_are_computed_as_columns_and_the_same() -> None:
    many = [pod(Toleration("a", "Exists", "", "NoExecute", number % 7), name=f"p{number}") for number in range(100)]
    known = {"n1": observe(node(Taint("a", "NoExecute", "", START)), None, now=NOW)}

    found = deadlines(((each.key, each) for each in many), known, ALL, now=NOW)
    assert {key: each.due - START for key, each in found.items()} == {f"shop/p{n}": n % 7 for n in range(100)}


steps = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.sampled_from(["n1", "n2"]), taints),
        st.tuples(st.just("gone"), st.sampled_from(["n1", "n2"]), st.just(())),
        st.tuples(st.just("pod"), pods, st.just(())),
        st.tuples(st.just("delete"), st.sampled_from([f"shop/p{number}" for number in range(31)]), st.just(())),
    ),
    max_size=25,
)


class World:
    """A snapshot, and the book beside it that is told of each change."""

    def __init__(self, rule: Tolerating) -> None:
        self.snapshot = Snapshot()
        self.book = DeadlineBook(self.snapshot.items_on, rule)
        self.now = NOW
        self.known: dict[str, NodeTaints] = {}

    def apply(self, what: str, who: object, there: tuple[Taint, ...]) -> list[Change]:
        self.now += 7
        if what in ("node", "gone"):
            assert isinstance(who, str)
            old, new = self.snapshot.nodes.get(who), node(*there, name=who) if what == "node" else None
            self._put(old, new)
            if new is None:
                self.known.pop(who, None)
            else:
                self.known[who] = observe(new, self.known.get(who), now=self.now)
            return self.book.node_changed(old, new, now=self.now)
        new_pod = who if isinstance(who, Pod) else None
        old_pod = self.snapshot.pods.get(who.key if isinstance(who, Pod) else str(who))
        if new_pod is not None and old_pod is not None and old_pod.node != new_pod.node:
            new_pod = replace(new_pod, uid="another")
        self._put(old_pod, new_pod)
        return self.book.pod_changed(old_pod, new_pod, now=self.now)

    def _put(self, old: Node | Pod | None, new: Node | Pod | None) -> None:
        if new is not None:
            self.snapshot.put(new)
        elif old is not None:
            self.snapshot.remove(old)

    def fresh(self) -> dict[str, Deadline]:
        known = {name: each for name, each in self.known.items() if each.standing}
        return deadlines(self.snapshot.pods.items(), known, self.book.rule, now=self.now)


@settings(max_examples=200)
@given(story=steps, rule=rules)
def test_after_any_changes_the_book_holds_what_a_look_at_everything_gives(
    story: list[tuple[str, object, tuple[Taint, ...]]], rule: Tolerating
) -> None:
    """But for what is still to come when it is first looked at, which depends on when that is."""
    world = World(rule)
    told: dict[str, Deadline] = {}
    for what, who, there in story:
        there = tuple(replace(each, time_added=START + 400) for each in there)
        if isinstance(who, Pod) and (who.started is None or who.started > NOW):
            who = replace(who, started=START)
        for change in world.apply(what, who, there):
            assert told.get(change.key) == change.before
            assert change.before != change.after
            if change.after is None:
                del told[change.key]
            else:
                told[change.key] = change.after

        assert world.book.deadlines == told == world.fresh()


@given(story=steps, rule=rules, other=rules)
def test_reading_by_another_rule_and_a_look_at_everything_leave_nothing_behind(
    story: list[tuple[str, object, tuple[Taint, ...]]], rule: Tolerating, other: Tolerating
) -> None:
    world = World(rule)
    for step in story:
        world.apply(*step)
    world.now += 10_000  # all that was still to come has come

    nodes = [each for each in world.snapshot.nodes.at if each is not None]
    world.known = {
        each.name: observe(each, world.known.get(each.name), now=world.now, followed=False) for each in nodes
    }
    world.book.everything(nodes, world.snapshot.pods.items(), now=world.now)
    assert world.book.deadlines == world.fresh()
    world.book.read_by(other, now=world.now)
    assert world.book.deadlines == world.fresh()
    world.book.everything((), (), now=world.now)
    assert not world.book.deadlines
