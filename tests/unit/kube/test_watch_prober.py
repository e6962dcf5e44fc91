"""Whether a silent watch is known to work: it is asked after, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.fakes.clock import START, LoopClock
from tests.fixtures.golden import Golden
from trimtab.controller.loop import TaskSupervisor
from trimtab.kube.api import Unreachable
from trimtab.kube.resources import LEASES, NODES, PODS
from trimtab.kube.watching.informer import Informer, InformerState
from trimtab.kube.watching.prober import CHECK_PERIOD, PROBE_AFTER, WatchProber
from trimtab.kube.watching.store import Store

pytestmark = pytest.mark.looptime(start=0)


class Server:
    """Answers a second watch: with chunks, and then an end after a second; or not at all."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.chunks: list[bytes] = []
        self.error: Exception | None = None
        self.hangs = False

    async def request(self, *_args: Any, **_options: Any) -> Any:
        raise AssertionError("a proof only streams")

    @asynccontextmanager
    async def stream(self, path: str, *, params: Any = None, **_options: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        self.asked.append((path, dict(params)))
        if self.error is not None:
            raise self.error

        async def chunks() -> AsyncIterator[bytes]:
            for chunk in self.chunks:
                yield chunk
            await asyncio.sleep(10**6 if self.hangs else 1)

        yield chunks()


class Watched:
    """Two watches that have listed everything, and say nothing any more."""

    def __init__(self) -> None:
        self.clock, self.server = LoopClock(), Server()
        self.informers = [
            Informer(self.server, NODES, Store(clock=self.clock), clock=self.clock),  # type: ignore[arg-type]
            Informer(
                self.server,  # type: ignore[arg-type]
                LEASES,
                Store(clock=self.clock),
                namespace="kube-node-lease",
                clock=self.clock,
            ),
        ]
        for each in self.informers:
            each._updater.end("7")
            each.state = InformerState(phase="Watching", error="", since=START)
        self.proof = WatchProber(self.server, self.informers, self.clock)  # type: ignore[arg-type]

    @property
    def age(self) -> float:
        verified_at = self.proof.verified_at((NODES, LEASES))
        assert verified_at is not None
        return self.clock.now() - verified_at

    async def for_(self, seconds: float) -> None:
        async with self.probing():
            await asyncio.sleep(seconds)

    @asynccontextmanager
    async def probing(self) -> AsyncIterator[None]:
        tasks = TaskSupervisor("taint manager", self.clock)
        tasks.start_periodic("watch verification", self.proof.probe, CHECK_PERIOD)
        yield
        await tasks.cancel()


async def test_silent_watches_are_verified_by_probes() -> None:
    watched = Watched()
    await watched.for_(600)
    assert watched.age < 2 * PROBE_AFTER
    assert watched.proof.stalled_reason((NODES, LEASES)) is None
    assert {path for path, _ in watched.server.asked} == {each.path for each in watched.informers}
    assert watched.server.asked[0][1] == {"watch": "true", "resourceVersion": "7", "timeoutSeconds": "1"}


async def test_active_watches_are_not_probed() -> None:
    watched = Watched()

    async def talk() -> None:
        while True:
            for each in watched.informers:
                each.store.record_activity()
            await asyncio.sleep(PROBE_AFTER - 1)

    talking = asyncio.create_task(talk())
    await watched.for_(100)
    talking.cancel()
    assert watched.server.asked == []


@pytest.mark.parametrize("wrong", ["behind", "refused", "hanging", "listing", "nothing listed yet"])
async def test_nothing_is_proved_by(wrong: str, golden: Golden) -> None:
    watched = Watched()
    if wrong == "behind":
        watched.server.chunks = [b'{"type":"MODIFIED"}']
    elif wrong == "refused":
        watched.server.error = Unreachable("refused")
    elif wrong == "hanging":
        watched.server.hangs = True
    elif wrong == "listing":
        watched.informers[0].state = InformerState(phase="Listing", error="", since=START)
    else:
        watched.informers[0]._updater.version = ""
    await watched.for_(100)
    assert watched.age >= 99
    silent = watched.proof.stalled_reason((NODES, LEASES))
    assert silent is not None
    golden(silent)
    assert watched.proof.stalled_reason((PODS,)) is None, "it is not asked after"


async def test_watch_that_lags_behind_a_second_one_is_distrusted_until_it_delivers(
    golden: Golden,
) -> None:
    watched = Watched()
    nodes = watched.informers[0]
    watched.server.chunks = [b'{"type":"MODIFIED"}']
    await watched.for_(PROBE_AFTER + 1)
    golden(watched.proof.stalled_reason((NODES,)))
    nodes._updater.end("8")
    assert watched.proof.stalled_reason((NODES,)) is None


async def test_refused_second_watch_does_not_affect_the_first() -> None:
    watched = Watched()
    watched.server.chunks = [b'{"type":"ERROR","object":{"kind":"Status","code":410}}']
    await watched.for_(PROBE_AFTER + 1)
    assert watched.proof.stalled_reason((NODES, LEASES)) is None
    assert watched.age > PROBE_AFTER


async def test_verified_time_is_the_earlier_of_two_watches() -> None:
    watched = Watched()
    await asyncio.sleep(10)
    watched.informers[0].store.record_activity()
    assert watched.age == 10
    watched.informers[1].store.last_event = None
    assert watched.proof.verified_at((NODES, LEASES)) is None
    assert watched.proof.verified_at((NODES,)) is not None


@pytest.mark.parametrize("skew", [0, -3600, 3600], ids=["", "the clock was set back", "the clock was set on"])
async def test_reconnected_watch_is_trusted_after_it_delivers_missed_events(skew: int, golden: Golden) -> None:
    """It is open again before it has said a word: what is known is as old as the outage."""
    watched = Watched()
    nodes = watched.informers[0]
    nodes.state, nodes.unconfirmed = InformerState(phase="Watching", error="", since=watched.clock.now() + 5), True
    await asyncio.sleep(5)
    golden(watched.proof.stalled_reason((NODES, LEASES)))
    watched.clock.skew = skew
    for each in watched.informers:
        await each._chunk(each._codec(), each._codec().splitter(), b"")
    assert watched.proof.stalled_reason((NODES, LEASES)) is None


@pytest.mark.parametrize(("chunks", "soon"), [([], True), ([b"{}"], False)], ids=["nothing happened", "something did"])
async def test_reconnected_watch_without_events_is_probed_soon(chunks: list[bytes], soon: bool) -> None:
    watched = Watched()
    watched.server.chunks = chunks
    async with watched.probing():
        await asyncio.sleep(3)
        nodes = watched.informers[0]
        nodes.state, nodes.unconfirmed = InformerState(phase="Watching", error="", since=watched.clock.now()), True
        await asyncio.sleep(1.6)
        assert (watched.proof.stalled_reason((NODES,)) is None) == soon
        nodes.state = InformerState(phase="Watching", error="", since=watched.clock.now())
        assert watched.proof.stalled_reason((NODES,)) is not None, "cut once more"


async def test_list_verifies_a_watch() -> None:
    watched = Watched()
    await asyncio.sleep(10)
    for each in watched.informers:
        each._updater.end("9")
        each.state = InformerState(phase="Watching", error="", since=watched.clock.now() + 5)
    assert watched.proof.stalled_reason((NODES, LEASES)) is None


async def test_time_before_the_clock_was_set_back_verifies_nothing() -> None:
    watched = Watched()
    watched.clock.skew = -3600
    assert watched.proof.verified_at((NODES, LEASES)) is None
    await watched.for_(60)
    assert watched.proof.stalled_reason((NODES, LEASES)) is None
    assert len(watched.server.asked) < 2 * 60 / (PROBE_AFTER - 1) + 2
