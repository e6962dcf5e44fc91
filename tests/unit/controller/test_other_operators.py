"""The condition Contended is added to every status while another operator is active, and wakes the loops."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.api import FakeApi
from tests.fakes.clock import LoopClock
from trimtab.api import reasons
from trimtab.api.conditions import CONTENDED, READY, Condition, find_condition, set_condition
from trimtab.api.taint_manager import TaintManagerStatus
from trimtab.controller.other_operators import OTHER_OPERATORS, OtherOperators
from trimtab.controller.status_writer import StatusWriter
from trimtab.kube.resources import TAINT_MANAGERS

pytestmark = pytest.mark.looptime(start=0)

PATH = TAINT_MANAGERS.path("default")


@pytest.fixture
def operators() -> Iterator[OtherOperators]:
    made = OtherOperators()
    token = OTHER_OPERATORS.set(made)
    yield made
    OTHER_OPERATORS.reset(token)


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    api.put(PATH, {"status": {}})
    return api


def writer(api: FakeApi) -> StatusWriter[TaintManagerStatus]:
    return StatusWriter(api, LoopClock(), resource=TAINT_MANAGERS, name="default", empty=TaintManagerStatus())


def status(*, ready: bool = True) -> TaintManagerStatus:
    conditions = set_condition((), READY, ready, reason="ManagingTaints", message="", now=0.0, generation=3)
    return TaintManagerStatus(conditions=conditions, observed_generation=3)


def contended(found: StatusWriter[TaintManagerStatus]) -> Condition | None:
    return find_condition(found.status.conditions, CONTENDED)


async def test_condition_is_set_and_cleared_while_the_controller_builds_new_statuses(
    operators: OtherOperators, api: FakeApi
) -> None:
    made = writer(api)
    made.put(status())
    operators.report("")
    made.put(status(ready=False))
    assert contended(made) is None, "no condition before another operator was ever active"

    operators.report("2 operators: a, b")
    made.put(status())
    first = contended(made)
    assert first is not None
    assert (first.status, first.reason, first.message) == ("True", reasons.ANOTHER_OPERATOR_ACTIVE, "2 operators: a, b")
    assert first.observed_generation == 3
    made.put(status(ready=False))
    assert contended(made) == first, "the transition time stays"

    operators.report("")
    made.put(status())
    last = contended(made)
    assert last is not None
    assert (last.status, last.reason) == ("False", reasons.NO_OTHER_OPERATOR)
    await made.stop()
    sent = api.calls[-1].body["status"]["conditions"]
    assert [(each["type"], each["status"]) for each in sent] == [(READY, "True"), (CONTENDED, "False")]


async def test_condition_of_an_earlier_process_stays_until_the_state_is_known(
    operators: OtherOperators, api: FakeApi
) -> None:
    earlier = writer(api)
    operators.report("2 operators: a, b")
    earlier.put(status())
    before = contended(earlier)
    await earlier.stop()

    token = OTHER_OPERATORS.set(OtherOperators())
    restarted = writer(api)
    restarted.resume({key: value for key, value in api.calls[-1].body["status"].items() if value is not None})
    restarted.put(status())
    OTHER_OPERATORS.reset(token)
    assert contended(restarted) == before
    await restarted.stop()


def test_each_change_calls_the_listeners_once() -> None:
    operators, calls = OtherOperators(), list[str]()
    with operators.listening(lambda: calls.append("changed")):
        for message in ("", "", "2 operators", "2 operators", ""):
            operators.report(message)
    operators.report("3 operators")
    assert len(calls) == 3
