from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.local.machines.objects import NOW, machine
from trimtab.local.machines.ranks import DELETE_MACHINE, OLD_DELETE_MACHINE, POLICIES, first_to_go, rank

DAY = 86_400.0


@pytest.mark.parametrize(
    ("given", "random", "newest", "oldest"),
    [
        ({"deleting": True, "node": "n"}, 100, 100, 100),
        ({"mark": DELETE_MACHINE, "node": "n"}, 50, 100, 100),
        ({"mark": OLD_DELETE_MACHINE, "node": "n"}, 20, 99.99, 100),
        ({"annotations": {DELETE_MACHINE: ""}, "node": "n"}, 20, 99.99, 0.01),
        ({"failed": True, "node": "n"}, 50, 100, 100),
        ({"failed": True}, 50, 100, 100),
        ({}, 40, 99.99, 0.01),
        ({"node": "n"}, 20, 99.99, 0.01),
        ({"node": "n", "age": 10 * DAY}, 20, 36.79, 63.21),
        ({"node": "n", "age": -5.0}, 20, 100, 0),
    ],
    ids=[
        "deleting",
        "marked",
        "marked-as-of-old",
        "mark-empty",
        "failed",
        "failed-early",
        "no-node",
        "fine",
        "old",
        "-",
    ],
)
def test_machines_rank_as_in_the_machine_api(
    given: dict[str, Any], random: float, newest: float, oldest: float
) -> None:
    live = machine(**given)

    ranks = [rank(live, policy=policy, now=NOW) for policy in POLICIES]

    assert ranks == pytest.approx([random, newest, oldest], abs=0.01)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_marked_and_a_failed_machine_are_equals_and_the_first_by_name_goes(policy: str) -> None:
    machines = [machine("b", mark=DELETE_MACHINE, node="b"), machine("a", failed=True), machine("c", node="c")]

    assert [each.name for each in first_to_go(machines, 1, policy=policy, now=NOW)] == ["a"]
    assert [each.name for each in first_to_go(machines, 2, policy=policy, now=NOW)] == ["a", "b"]


def test_marks_have_no_say_where_they_are_ignored() -> None:
    machines = [machine("a", node="a"), machine("b", node="b", mark=DELETE_MACHINE)]

    assert [each.name for each in first_to_go(machines, 1, now=NOW, ignore_marks=True)] == ["a"]
    assert [each.name for each in first_to_go(machines, 1, now=NOW)] == ["b"]


@given(st.permutations("abcdefg"), st.integers(-1, 9), st.sampled_from(POLICIES))
def test_who_goes_does_not_depend_on_the_order(names: list[str], count: int, policy: str) -> None:
    machines = [machine(name, failed=name in "bd", node=name, age=float(ord(name))) for name in names]

    gone = first_to_go(machines, count, policy=policy, now=NOW)

    assert gone == first_to_go(sorted(machines, key=lambda each: each.name), count, policy=policy, now=NOW)
    assert len(gone) == max(0, min(count, 7))
