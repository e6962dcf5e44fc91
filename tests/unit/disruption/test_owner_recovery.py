"""When an owner has recovered from an eviction."""

from __future__ import annotations

import msgspec
import pytest

from tests.builders import replica_set
from tests.fakes.caches import Caches
from tests.fixtures.golden import Golden
from trimtab.api import reasons
from trimtab.api.plan import Evict
from trimtab.cluster.workloads.owners import OwnerKey
from trimtab.disruption.evictor.owner_recovery import OwnerRecovery
from trimtab.disruption.executor.owner_queue import check_pod
from trimtab.disruption.outcome import EVICTED_RESPONSE_LOST, GONE
from trimtab.kube.objects import Pod

OWNER = OwnerKey("shop", "ReplicaSet", "web")
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
    pytest.param(VICTIM, [NEXT, web("web-3", deleted=WALL)], "has 1 pods", id="a replacement that terminates"),
    pytest.param(VICTIM, [NEXT, web("web-3", phase="Failed", ready=False)], "has 1 pods", id="one that failed"),
    pytest.param(VICTIM, [NEXT, web("web-3")], None, id="as many as before"),
    pytest.param(VICTIM, [NEXT, web("web-3"), web("web-4")], None, id="more than before"),
    pytest.param(ILL, [NEXT], "has 1 pods, 1 of them ready", id="an ill pod is replaced as well"),
    pytest.param(ILL, [NEXT, web("web-3", ready=False)], None, id="by one that is no better"),
]


@pytest.mark.parametrize(("victim", "now_there", "words"), CASES)
def test_owner_recovers_with_as_many_ready_pods_as_before(victim, now_there, words):
    book = OwnerRecovery()
    book.open(OWNER, victim, lambda: [victim, NEXT], now=0.0)
    book.grant(OWNER, victim.uid, now=1.0)
    why = book.unsettled(OWNER, NEXT, now_there, now=2.0, now_epoch=WALL)
    assert (why is None) == (words is None)
    assert words is None or (why is not None and words in why)


@pytest.mark.parametrize(
    ("created", "waits"),
    [
        pytest.param(WALL, True, id="in this very second"),
        pytest.param(WALL - 0.9, True, id="less than a second ago"),
        pytest.param(WALL - 1, False, id="a second ago"),
        pytest.param(WALL + 5, False, id="by a clock that is ahead of ours"),
        pytest.param(None, False, id="unknown time"),
    ],
)
def test_next_pod_waits_while_newest_pod_is_under_a_second_old(created, waits, golden: Golden):
    newest = web("web-3", created=created)
    why = OwnerRecovery().unsettled(OWNER, NEXT, [NEXT, newest], now=1.0, now_epoch=WALL)
    assert (why is not None) is waits
    if why is not None:
        golden(why)


def test_owner_waits_for_in_flight_eviction(golden: Golden):
    book = OwnerRecovery()
    book.open(OWNER, VICTIM, lambda: [VICTIM, NEXT], now=0.0)
    why = book.unsettled(OWNER, NEXT, [VICTIM, NEXT], now=1.0, now_epoch=WALL)
    golden(why)
    book.close(OWNER, VICTIM.uid)
    assert book.unsettled(OWNER, NEXT, [VICTIM, NEXT], now=1.0, now_epoch=WALL) is None


def test_terminating_pod_after_lost_response_counts_as_evicted():
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
        assert check_pod(action, there, response_lost=True) == EVICTED_RESPONSE_LOST
        ended = check_pod(action, there, response_lost=False)
        assert ended is not None
        assert ended.result == GONE
    assert EVICTED_RESPONSE_LOST.reason == reasons.EVICTED


def test_scaled_up_owner_is_compared_with_its_new_size(golden: Golden):
    book = OwnerRecovery()
    book.open(OWNER, VICTIM, lambda: [VICTIM, NEXT], now=0.0)
    book.grant(OWNER, VICTIM.uid, now=1.0)
    scale_up = [NEXT, web("web-3"), web("web-4")]
    book.open(OWNER, NEXT, lambda: scale_up, now=10.0)
    book.grant(OWNER, NEXT.uid, now=10.0)
    why = book.unsettled(OWNER, web("web-3"), scale_up[1:], now=11.0, now_epoch=WALL)
    assert why is not None
    golden(why)


def test_scaled_down_owner_settles_at_its_new_size():
    book = OwnerRecovery()
    book.open(OWNER, VICTIM, lambda: [VICTIM, NEXT, web("web-3")], now=0.0)
    book.grant(OWNER, VICTIM.uid, now=1.0)
    book.open(OWNER, NEXT, lambda: [NEXT, web("web-3")], now=1000.0)
    book.grant(OWNER, NEXT.uid, now=1000.0)
    assert book.unsettled(OWNER, web("web-3"), [web("web-3"), web("web-4")], now=1001.0, now_epoch=WALL) is None


THREE = [VICTIM, NEXT, web("web-3")]


@pytest.mark.parametrize(
    ("desired", "now_there", "settled"),
    [
        pytest.param(None, [NEXT], False, id="unknown number"),
        pytest.param(3, [NEXT, web("web-3")], False, id="not scaled"),
        pytest.param(2, [NEXT, web("web-3")], True, id="scaled down by the evicted pod"),
        pytest.param(2, [NEXT, web("web-3", ready=False)], False, id="too few are ready"),
        pytest.param(1, [NEXT], True, id="scaled down further"),
        pytest.param(0, [], True, id="scaled down to nothing"),
        pytest.param(1, [NEXT, web("web-3")], False, id="its watch is behind the one of the pods"),
        pytest.param(5, [NEXT, web("web-3"), web("web-4")], True, id="scaled up: as many as before are enough"),
    ],
)
def test_scaled_down_owner_is_settled_with_its_desired_number(desired, now_there, settled):
    book = OwnerRecovery()
    book.open(OWNER, VICTIM, lambda: THREE, now=0.0)
    book.grant(OWNER, VICTIM.uid, now=1.0)
    why = book.unsettled(OWNER, NEXT, now_there, desired=desired, now=2.0, now_epoch=WALL)
    assert (why is None) is settled


def test_desired_replicas_are_those_of_the_watched_controller():
    caches, build = Caches(), replica_set("web", "shop").merge(metadata={"uid": "u"}, spec={"replicas": 2}).build
    assert caches.lister.desired_replicas(OWNER) is None
    caches.apply(None, build())
    assert caches.lister.desired_replicas(OWNER) == 2
    assert caches.lister.desired_replicas(OwnerKey("shop", "ReplicaSet", "web", "u")) == 2
    assert caches.lister.desired_replicas(OwnerKey("shop", "ReplicaSet", "web", "of a former one")) is None
    assert caches.lister.desired_replicas(OwnerKey("shop", "ReplicaSet.example.com", "web")) is None


def test_second_victim_is_added_to_unrecovered_owner(golden: Golden):
    book = OwnerRecovery()
    book.open(OWNER, VICTIM, lambda: [VICTIM, NEXT, web("web-5")], now=0.0)
    book.grant(OWNER, VICTIM.uid, now=1.0)
    book.open(OWNER, NEXT, lambda: [NEXT, web("web-5")], now=2.0)
    book.grant(OWNER, NEXT.uid, now=2.0)
    why = book.unsettled(OWNER, web("web-5"), [web("web-5"), web("web-6")], now=3.0, now_epoch=WALL)
    assert why is not None
    golden(why)


def test_old_owner_records_are_removed():
    book = OwnerRecovery()
    for number in range(20_000):
        book.open(OwnerKey("shop", "ReplicaSet", f"web-{number}"), VICTIM, lambda: [VICTIM], now=float(number))
    assert len(book) < 4_000


def test_pods_of_an_owner_are_counted_at_most_once_a_second() -> None:
    book, counts = OwnerRecovery(), []
    pods = [web(f"web-{number}") for number in range(50)]

    def counted() -> list[Pod]:
        counts.append(1)
        return pods

    for number, pod in enumerate(pods[:40]):
        book.open(OWNER, pod, counted, now=number / 10)
        book.grant(OWNER, pod.uid, now=number / 10)

    assert len(counts) == 4
    assert book.unsettled(OWNER, pods[-1], pods, now=4.0, now_epoch=0.0)
