"""When so much is not ready that it is left as it is, and what nodes count as."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.builders import NodeBuilder, node
from tests.unit.autoscaling.remembering import T0, A, Seen, groups_of, options
from trimtab.autoscaling.groups import GroupOptions, Groups
from trimtab.autoscaling.memory import GroupRecord, HealthSettings, Readiness, State, Trouble, health, readiness
from trimtab.autoscaling.memory.readiness import standing

READY, UNREADY, STARTING, GOING = Readiness.READY, Readiness.UNREADY, Readiness.STARTING, Readiness.GOING
B = "MachineSet/m/b"


def mixed(ready: int, unready: int, *, name: str = "a", start: int = 0) -> Seen:
    words = [f"{name}r{each}=ready@-9999" for each in range(ready)]
    words += [f"{name}u{each}=new@-9999" for each in range(unready)]
    words += [f"{name}s{each}=new@-10" for each in range(start)]
    return Seen(len(words), " ".join(words), name=name)


def judged(*seen: Seen, state: State | None = None, settings: HealthSettings | None = None) -> tuple[bool, set[str]]:
    groups, nodes = groups_of(*seen)
    standing = readiness(nodes, groups, now=T0)
    found = health(groups, standing, state or State(), now=T0, settings=settings or HealthSettings())
    return bool(found.cluster), set(found.groups)


@pytest.mark.parametrize(
    ("ready", "unready", "unwell"),
    [(0, 3, False), (0, 4, True), (4, 4, True), (5, 4, False), (5, 5, True), (55, 45, False), (54, 46, True)],
    ids=lambda each: str(each),
)
def test_more_than_three_and_more_than_45_percent_must_be_unready(ready: int, unready: int, unwell: bool) -> None:
    assert judged(mixed(ready, unready)) == (unwell, {A} if unwell else set())


def test_nodes_that_start_are_not_unready() -> None:
    assert judged(mixed(0, 3, start=50)) == (False, set())
    assert judged(mixed(0, 4, start=4)) == (True, {A})
    assert judged(mixed(0, 4, start=5)) == (False, set())


def test_a_group_that_is_unwell_halts_itself_and_not_the_cluster() -> None:
    assert judged(mixed(1, 5), mixed(20, 0, name="b")) == (False, {A})


def test_the_words_have_the_numbers() -> None:
    groups, nodes = groups_of(mixed(1, 5))
    found = health(groups, readiness(nodes, groups, now=T0), State(), now=T0)

    assert found.cluster == "5 of the 6 nodes of the cluster are not ready; 3, or 45%, may be"
    assert found.groups[A] == "5 of the 6 nodes of the group are not ready; 3, or 45%, may be"


def test_how_many_may_be_unready_is_a_setting() -> None:
    assert judged(mixed(9, 1), settings=HealthSettings(0, 5.0)) == (True, {A})
    assert judged(mixed(0, 9), settings=HealthSettings(9, 0.0)) == (False, set())


def test_a_group_whose_provider_does_not_answer_is_left_alone_until_it_is_asked_again() -> None:
    silent = State(groups={A: GroupRecord(1, T0 + 60, Trouble(T0, "ScaleTimedOut", "no answer within 30 s"))})
    refused = State(groups={A: GroupRecord(1, T0 + 60, Trouble(T0, "ScaleRefused", "no"))})
    past = State(groups={A: GroupRecord(1, T0, Trouble(T0, "ScaleTimedOut"))})

    assert judged(mixed(3, 0), mixed(3, 0, name="b"), state=silent) == (False, {A})
    assert judged(mixed(3, 0), state=refused) == (False, set())
    assert judged(mixed(3, 0), state=past) == (False, set())


def test_an_empty_cluster_is_well() -> None:
    assert judged() == (False, set())


@pytest.mark.parametrize(
    ("builder", "age", "expected"),
    [
        (node(), 5, READY),
        (node(), 9999, READY),
        (node().cordoned(), 9999, READY),
        (node().not_ready(), 5, STARTING),
        (node().not_ready(), 899, STARTING),
        (node().not_ready(), 900, UNREADY),
        (node().taint("startup-taint.cluster-autoscaler.kubernetes.io/gpu"), 5, STARTING),
        (node().taint("example.com/starting"), 5, STARTING),
        (node().taint("example.com/starting"), 900, UNREADY),
        (node().taint("example.com/other"), 5, READY),
        (node().taint("ToBeDeletedByClusterAutoscaler", "1"), 9999, GOING),
        (node().not_ready().taint("ToBeDeletedByClusterAutoscaler", "1"), 5, GOING),
    ],
)
def test_what_a_node_counts_as(builder: NodeBuilder, age: float, expected: Readiness) -> None:
    made = replace(builder.build(), created=T0)

    found = standing(made, GroupOptions(), now=T0 + age, startup=("example.com/starting",))

    assert found is expected


def test_a_group_may_give_its_nodes_another_time_to_start() -> None:
    seen = Seen(1, "x=new@0", options=options(startup_seconds=60))
    groups, nodes = groups_of(seen)

    assert readiness(nodes, groups, now=T0 + 89) == {"n-x": STARTING}
    assert readiness(nodes, groups, now=T0 + 91) == {"n-x": UNREADY}
    assert readiness(nodes, Groups(), now=T0 + 91) == {"n-x": STARTING}
