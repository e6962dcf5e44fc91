"""When an owner has recovered from an eviction."""

from __future__ import annotations

import msgspec
import pytest

from trimtab.api import reasons
from trimtab.api.plan import Evict
from trimtab.disruption.attempt import LOST_ANSWER
from trimtab.disruption.inspection import inspect
from trimtab.disruption.outcome import GONE
from trimtab.disruption.settlement import OwnerBook
from trimtab.kube.objects import Pod

OWNER = ("shop", "ReplicaSet", "web")
LONG_AGO = 1.0
WALL = 1_800_000_000.0


def web(name: str, **fields: object) -> Pod:
    pod = Pod(namespace="shop", name=name, uid=f"uid-{name}", node="n1", phase="Running", ready=True, created=LONG_AGO)
    return msgspec.structs.replace(pod, **fields)


VICTIM, NEXT = web("web-1"), web("web-2")
ILL = web("web-1", ready=False)

CASES = [
    pytest.param(VICTIM, [VICTIM, NEXT], "has 1 pods, 1 of them ready", id="the watch still shows the old pod"),
    pytest.param(VICTIM, [NEXT], "has 1 pods, 1 of them ready", id="no replacement yet"),
    pytest.param(VICTIM, [NEXT, web("web-3", ready=False)], "has 2 pods, 1 of them ready", id="not ready, for long"),
    pytest.param(VICTIM, [NEXT, web("web-3", deleted=WALL)], "has 1 pods", id="a replacement that goes itself"),
    pytest.param(VICTIM, [NEXT, web("web-3", phase="Failed", ready=False)], "has 1 pods", id="one that failed"),
    pytest.param(VICTIM, [NEXT, web("web-3")], None, id="as many as before"),
    pytest.param(VICTIM, [NEXT, web("web-3"), web("web-4")], None, id="more than before"),
    pytest.param(ILL, [NEXT], "has 1 pods, 1 of them ready", id="an ill pod is replaced as well"),
    pytest.param(ILL, [NEXT, web("web-3", ready=False)], None, id="by one that is no better"),
]


@pytest.mark.parametrize(("victim", "now_there", "words"), CASES)
def test_an_owner_has_recovered_when_it_has_as_many_pods_and_ready_ones_as_before(victim, now_there, words):
    book = OwnerBook()
    book.open(OWNER, victim, [victim, NEXT], now=0.0)
    book.grant(OWNER, now=1.0)
    why = book.unsettled(OWNER, NEXT, now_there, now=2.0, wall=WALL)
    assert (why is None) == (words is None)
    assert words is None or (why is not None and words in why)


@pytest.mark.parametrize(
    ("created", "waits"),
    [
        pytest.param(WALL, True, id="in this very second"),
        pytest.param(WALL - 0.9, True, id="less than a second ago"),
        pytest.param(WALL - 1, False, id="a second ago"),
        pytest.param(WALL + 5, False, id="by a clock that is ahead of ours"),
        pytest.param(None, False, id="nobody knows when"),
    ],
)
def test_the_next_pod_waits_until_its_replacement_can_be_told_from_the_newest_pod(created, waits):
    newest = web("web-3", created=created)
    why = OwnerBook().unsettled(OWNER, NEXT, [NEXT, newest], now=1.0, wall=WALL)
    assert why == ("web-3 was created within this second, as the next one's replacement would be" if waits else None)


def test_an_owner_waits_while_a_request_about_it_is_not_answered():
    book = OwnerBook()
    book.open(OWNER, VICTIM, [VICTIM, NEXT], now=0.0)
    why = book.unsettled(OWNER, NEXT, [VICTIM, NEXT], now=1.0, wall=WALL)
    assert why == "the eviction of web-1, of the same ReplicaSet shop/web, has not been answered"
    book.close(OWNER, VICTIM.uid)
    assert book.unsettled(OWNER, NEXT, [VICTIM, NEXT], now=1.0, wall=WALL) is None


def test_a_pod_that_goes_after_a_lost_answer_goes_because_of_us():
    action = Evict(
        policy="p",
        strategy="s",
        namespace="shop",
        pod="web-1",
        node="n1",
        target="n2",
        reason="r",
        message="m",
        uid=VICTIM.uid,
    )
    for there in (None, web("web-1", uid="successor"), web("web-1", deleted=WALL)):
        assert inspect(action, there, asked=True) == LOST_ANSWER
        ended = inspect(action, there, asked=False)
        assert ended is not None
        assert ended.result == GONE
    assert LOST_ANSWER.reason == reasons.EVICTED


def test_owners_that_were_evicted_from_long_ago_are_forgotten():
    book = OwnerBook()
    for number in range(20_000):
        book.open(("shop", "ReplicaSet", f"web-{number}"), VICTIM, [VICTIM], now=float(number))
    assert len(book) < 4_000
