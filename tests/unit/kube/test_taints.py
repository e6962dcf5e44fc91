"""Taints and tolerations, as kube-scheduler matches them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import taints, tolerations
from trimtab.kube.objects import Taint, Toleration
from trimtab.kube.rules.taints import (
    NO_EXECUTE,
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    find_untolerated_taint,
    format_taint,
    tolerates,
)

TAINT = Taint("dedicated", NO_SCHEDULE, "db")


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        pytest.param(Toleration("dedicated", "Equal", "db", NO_SCHEDULE), True, id="equal"),
        pytest.param(Toleration("dedicated", "", "db", NO_SCHEDULE), True, id="no-operator-is-equal"),
        pytest.param(Toleration("dedicated", "Equal", "web", NO_SCHEDULE), False, id="other-value"),
        pytest.param(Toleration("dedicated", "Equal", "", NO_SCHEDULE), False, id="no-value"),
        pytest.param(Toleration("dedicated", "Exists", "", NO_SCHEDULE), True, id="exists"),
        pytest.param(Toleration("dedicated", "Exists"), True, id="no-effect-is-every-effect"),
        pytest.param(Toleration("", "Exists"), True, id="no-key-is-every-key"),
        pytest.param(Toleration("", "Exists", "", NO_EXECUTE), False, id="every-key-but-other-effect"),
        pytest.param(Toleration("other", "Exists"), False, id="other-key"),
        pytest.param(Toleration("dedicated", "Exists", "", NO_EXECUTE), False, id="other-effect"),
        pytest.param(Toleration("dedicated", "exists"), False, id="operators-have-their-case"),
        pytest.param(Toleration("dedicated", "Equal", "db", NO_SCHEDULE, 0), True, id="time-plays-no-part"),
    ],
)
def test_a_toleration_tolerates_a_taint(toleration: Toleration, tolerated: bool) -> None:
    assert tolerates(toleration, TAINT) is tolerated


@pytest.mark.parametrize(
    ("operator", "bound", "value", "tolerated"),
    [
        pytest.param("Gt", "5", "6", True, id="greater"),
        pytest.param("Gt", "5", "5", False, id="not-greater"),
        pytest.param("Lt", "5", "-7", True, id="less"),
        pytest.param("Lt", "5", "5", False, id="not-less"),
        pytest.param("Gt", "05", "6", False, id="leading-zero"),
        pytest.param("Gt", "+5", "6", False, id="plus"),
        pytest.param("Gt", "5", "six", False, id="no-integer"),
        pytest.param("Gt", "5", "", False, id="no-value"),
        pytest.param("Gt", "5", "9223372036854775808", False, id="too-large"),
        pytest.param("Gt", "-0", "6", False, id="minus-zero"),
    ],
)
def test_gt_and_lt_compare_integers(operator: str, bound: str, value: str, tolerated: bool) -> None:
    toleration, taint = Toleration("level", operator, bound), Taint("level", NO_SCHEDULE, value)
    assert tolerates(toleration, taint) is tolerated


def test_the_first_untolerated_taint_is_named() -> None:
    preferred = Taint("a", PREFER_NO_SCHEDULE)
    tolerated = Taint("b", NO_SCHEDULE)
    first, second = Taint("c", NO_EXECUTE), Taint("d", NO_SCHEDULE)
    node = (preferred, tolerated, first, second)
    assert find_untolerated_taint(node, (Toleration("b", "Exists"),)) == first
    assert find_untolerated_taint(node, (Toleration("b", "Exists"),), {NO_SCHEDULE}) == second
    assert find_untolerated_taint(node, (), {PREFER_NO_SCHEDULE}) == preferred
    assert find_untolerated_taint(node, (Toleration(operator="Exists"),)) is None


def test_comparison_reaches_the_tolerations_of_a_pod() -> None:
    node = (Taint("level", NO_SCHEDULE, "9"),)
    assert find_untolerated_taint(node, (Toleration("level", "Gt", "9"),)) == node[0]
    assert find_untolerated_taint(node, (Toleration("level", "Gt", "5"),)) is None


@given(taints(), tolerations())
def test_generated_toleration_tolerates_its_taint(taint: Taint, toleration: Toleration) -> None:
    assert tolerates(Toleration(taint.key, "Equal", taint.value, taint.effect), taint)
    assert tolerates(Toleration(operator="Exists"), taint)
    if tolerates(toleration, taint):
        assert toleration.key in ("", taint.key)
        assert toleration.effect in ("", taint.effect)


@given(st.lists(taints(), max_size=4), st.lists(tolerations(), max_size=3), tolerations())
def test_one_more_toleration_never_hurts(node: list[Taint], pod: list[Toleration], more: Toleration) -> None:
    before, after = find_untolerated_taint(node, pod), find_untolerated_taint(node, [*pod, more])
    if before is None:
        assert after is None
    elif after is not None:
        assert node.index(after) >= node.index(before)


def test_format_taint() -> None:
    assert [format_taint(each) for each in (Taint("a", "NoExecute", "v"), Taint("a", "NoSchedule"))] == [
        "a=v:NoExecute",
        "a:NoSchedule",
    ]
