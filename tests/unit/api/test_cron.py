"""The pattern of cron expressions agrees with the parser that computes due times."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import given
from hypothesis import strategies as st

from trimtab.api.cron import CRON_PATTERN, MACROS, check_cron, next_due

VALUES = st.sampled_from(
    [*"0123456789", "12", "23", "24", "31", "32", "59", "60", "007", "MON", "jan", "L", "LW", "5L"]
)
TERMS = st.one_of(
    VALUES,
    st.just("*"),
    st.builds("{}-{}".format, VALUES, VALUES),
    st.builds("{}/{}".format, st.one_of(st.just("*"), VALUES), st.integers(0, 70)),
    st.builds("{}#{}".format, VALUES, st.integers(0, 6)),
)
LISTS = st.lists(TERMS, min_size=1, max_size=3).map(",".join)
EXPRESSIONS = st.tuples(*[LISTS] * 5).map(" ".join)


def parsed(cron: str) -> bool:
    try:
        CronSim(cron, datetime(2028, 1, 1, tzinfo=UTC))
    except CronSimError:
        return False
    return True


@given(EXPRESSIONS)
def test_pattern_accepts_what_the_parser_accepts(cron: str) -> None:
    if re.search("(?i)L", cron) and re.search("LW?/|[0-9]L[,/#]|L.*L", cron, re.IGNORECASE):
        return  # the parser also accepts a step after L, which it ignores
    if parsed(cron):
        assert re.fullmatch(CRON_PATTERN, cron), cron


@given(LISTS)
def test_only_a_descending_range_passes_the_pattern_and_not_the_parser(minutes: str) -> None:
    cron = f"{minutes} * * * *"
    if re.fullmatch(CRON_PATTERN, cron) and not parsed(cron):
        bounds = re.findall("([0-9]+)-([0-9]+)", minutes)
        assert any(int(first) > int(last) for first, last in bounds)


@pytest.mark.parametrize(("macro", "expression"), MACROS.items())
def test_macro_is_rejected_with_its_expression(macro: str, expression: str) -> None:
    with pytest.raises(ValueError, match=re.escape(expression)):
        check_cron(macro)
    assert next_due(expression, "UTC", after=0) > 0


@pytest.mark.parametrize("cron", ["0 17-9 * * *", " 0 0 * * *", "0 0 31 2 *"], ids=["descending", "space", "never"])
def test_expression_without_due_times_is_refused(cron: str) -> None:
    with pytest.raises(ValueError, match=re.escape(cron) if "17" not in cron else "hour"):
        next_due(cron, "UTC", after=0)
