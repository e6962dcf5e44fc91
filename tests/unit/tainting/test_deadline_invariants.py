"""What holds of deadlines whatever the taints and tolerations, and that columns and book say what the rule says."""

from __future__ import annotations

import math
import random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.strategies import examples
from tests.unit.tainting.deadlines import ALL, FIRST, START, node, pod
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Node, Pod, Taint, Toleration
from trimtab.tainting.deadlines import (
    Deadline,
    DeadlineChange,
    NodeTaints,
    TaintDeadlineTracker,
    TolerationRule,
    deadline,
    deadlines,
    observe_taints,
    start_on_node,
    subject_to_taints,
    tolerance,
)

KEYS = ["a", "b", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
RULES = [ALL, FIRST, TolerationRule(not_ready=20, unreachable=0)]
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


def of(carried: tuple[Toleration, ...], there: tuple[Taint, ...], start: float | None, rule: TolerationRule) -> float:
    known = observe_taints(node(*there), None, now=NOW)
    found = deadline(pod(*carried, started=start), known.observed, rule, now=NOW)
    return float("inf") if found is None else found.due


@given(carried=tolerations, there=taints, start=starts, seed=st.randoms(use_true_random=False))
def test_a_deadline_does_not_depend_on_the_order_of_taints_or_tolerations(
    carried: tuple[Toleration, ...], there: tuple[Taint, ...], start: float | None, seed: random.Random
) -> None:
    def whole(said: tuple[Toleration, ...], on: tuple[Taint, ...]) -> Deadline | None:
        known = observe_taints(node(*on), None, now=NOW)
        return deadline(pod(*said, started=start), known.observed, ALL, now=NOW)

    shuffled = tuple(seed.sample(carried, len(carried))), tuple(seed.sample(there, len(there)))
    assert whole(*shuffled) == whole(carried, there)


@given(carried=tolerations, there=taints, start=starts, rule=rules, seed=st.randoms(use_true_random=False))
def test_order_of_taints_does_not_matter(
    carried: tuple[Toleration, ...],
    there: tuple[Taint, ...],
    start: float | None,
    rule: TolerationRule,
    seed: random.Random,
) -> None:
    assert of(carried, tuple(seed.sample(there, len(there))), start, rule) == of(carried, there, start, rule)


@given(carried=tolerations, there=taints, start=starts, rule=rules, place=st.integers(0, 3), more=st.integers(0, 999))
def test_longer_toleration_never_gives_earlier_deadline(
    carried: tuple[Toleration, ...],
    there: tuple[Taint, ...],
    start: float | None,
    rule: TolerationRule,
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
def test_removed_taint_never_gives_earlier_deadline(
    carried: tuple[Toleration, ...], there: tuple[Taint, ...], start: float | None, rule: TolerationRule, place: int
) -> None:
    """Also where the other one of an outage stays: the book has seen both."""
    known = observe_taints(node(*there), None, now=NOW)
    fewer = observe_taints(node(*there[:place], *there[place + 1 :]), known, now=NOW + 5)
    web = pod(*carried, started=start)

    before = deadline(web, known.observed, rule, now=NOW + 5)
    after = deadline(web, fewer.observed, rule, now=NOW + 5)
    assert after is None or (before is not None and after.due >= before.due)


@given(carried=tolerations, there=taints, start=starts, more=tolerations)
def test_additional_unlimited_toleration_never_gives_earlier_deadline(
    carried: tuple[Toleration, ...], there: tuple[Taint, ...], start: float | None, more: tuple[Toleration, ...]
) -> None:
    endless = tuple(replace(each, seconds=None) for each in more)

    assert of((*carried, *endless), there, start, ALL) >= of(carried, there, start, ALL)


@given(carried=tolerations, there=taints, start=starts, rule=rules)
def test_deadline_is_never_before_binding_or_taint(
    carried: tuple[Toleration, ...], there: tuple[Taint, ...], start: float | None, rule: TolerationRule
) -> None:
    known = observe_taints(node(*there), None, now=NOW)
    found = deadline(pod(*carried, started=start), known.observed, rule, now=NOW)

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


def deadline_of_one_pod(web: Pod, on: NodeTaints, rule: TolerationRule) -> Deadline | None:
    """The rule of a deadline, taint by taint and without anything that is shared between pods."""
    if not subject_to_taints(web):
        return None
    found: Deadline | None = None
    for each in on.observed:
        how = tolerance(rule.complete(web.spec.tolerations), each.taint, rule)
        since = max(min(each.since, NOW), start_on_node(web, now=NOW))
        if how.seconds < math.inf and (found is None or since + how.seconds < found.due):
            found = Deadline(web.key, web.uid, web.node, since + how.seconds, since, each.taint, how.toleration)
    return found


@given(
    several=st.lists(pods, max_size=20, unique_by=lambda each: each.key),
    there=st.lists(taints, min_size=3, max_size=3),
    rule=rules,
)
def test_pods_together_have_the_deadlines_that_each_has_alone(
    several: list[Pod], there: list[tuple[Taint, ...]], rule: TolerationRule
) -> None:
    known = {f"n{number + 1}": observe_taints(node(*each), None, now=NOW) for number, each in enumerate(there)}
    known = {name: each for name, each in known.items() if each.observed}
    one_by_one = {
        each.key: found
        for each in several
        if each.node in known and (found := deadline_of_one_pod(each, known[each.node], rule)) is not None
    }

    items = [(each.key, each) for each in several]
    assert deadlines(items, known, rule, now=NOW) == one_by_one
    assert deadlines(reversed(items), known, rule, now=NOW) == one_by_one


def test_pods_that_share_a_node_keep_their_own_toleration() -> None:
    many = [pod(Toleration("a", "Exists", "", "NoExecute", number % 7), name=f"p{number}") for number in range(100)]
    known = {"n1": observe_taints(node(Taint("a", "NoExecute", "", START)), None, now=NOW)}

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

    def __init__(self, rule: TolerationRule) -> None:
        self.snapshot = Snapshot()
        self.book = TaintDeadlineTracker(self.snapshot.items_on, rule)
        self.now = NOW
        self.known: dict[str, NodeTaints] = {}

    def apply(self, what: str, who: object, there: tuple[Taint, ...]) -> list[DeadlineChange]:
        self.now += 7
        if what in ("node", "gone"):
            assert isinstance(who, str)
            old, new = self.snapshot.nodes.get(who), node(*there, name=who) if what == "node" else None
            self._put(old, new)
            if new is None:
                self.known.pop(who, None)
            else:
                self.known[who] = observe_taints(new, self.known.get(who), now=self.now)
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
        known = {name: each for name, each in self.known.items() if each.observed}
        return deadlines(self.snapshot.pods.items(), known, self.book.rule, now=self.now)


@settings(max_examples=examples(200))
@given(without_numbers=steps, rule=rules)
def test_incremental_updates_equal_resync(
    without_numbers: list[tuple[str, object, tuple[Taint, ...]]], rule: TolerationRule
) -> None:
    """But for what is still to come when it is first looked at, which depends on when that is."""
    world = World(rule)
    recorded: dict[str, Deadline] = {}
    for what, who, there in without_numbers:
        there = tuple(replace(each, time_added=START + 400) for each in there)
        if isinstance(who, Pod) and (who.started is None or who.started > NOW):
            who = replace(who, started=START)
        for change in world.apply(what, who, there):
            assert recorded.get(change.key) == change.before
            assert change.before != change.after
            if change.after is None:
                del recorded[change.key]
            else:
                recorded[change.key] = change.after

        assert world.book.deadlines == recorded == world.fresh()


@given(without_numbers=steps, rule=rules, other=rules)
def test_rule_change_and_resync_leave_no_stale_deadlines(
    without_numbers: list[tuple[str, object, tuple[Taint, ...]]], rule: TolerationRule, other: TolerationRule
) -> None:
    world = World(rule)
    for step in without_numbers:
        world.apply(*step)
    world.now += 10_000  # all that was still to come has come

    nodes = [each for each in world.snapshot.nodes.at if each is not None]
    world.known = {
        each.name: observe_taints(each, world.known.get(each.name), now=world.now, in_sync=False) for each in nodes
    }
    world.book.resync(nodes, world.snapshot.pods.items(), now=world.now)
    assert world.book.deadlines == world.fresh()
    world.book.set_rule(other, now=world.now)
    assert world.book.deadlines == world.fresh()
    world.book.resync((), (), now=world.now)
    assert not world.book.deadlines
