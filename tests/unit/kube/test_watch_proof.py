"""Whether a silent watch is known to work: it is asked after, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.fakes.clock import START, LoopClock
from trimtab.kube.api import Unreachable
from trimtab.kube.resources import LEASES, NODES, PODS
from trimtab.kube.watching.informer import Informer
from trimtab.kube.watching.proof import SILENT, WatchProof
from trimtab.kube.watching.state import InformerState
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
            each._intake.end("7")
            each.state = InformerState(phase="Watching", error="", since=START)
        self.proof = WatchProof(self.server, self.informers, self.clock)  # type: ignore[arg-type]

    @property
    def age(self) -> float:
        heard = self.proof.heard((NODES, LEASES))
        assert heard is not None
        return self.clock.now() - heard

    async def for_(self, seconds: float) -> None:
        task = asyncio.create_task(self.proof.run())
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.wait({task})


async def test_watches_that_have_nothing_to_tell_prove_themselves() -> None:
    watched = Watched()
    await watched.for_(600)
    assert watched.age < 2 * SILENT
    assert watched.proof.hung((NODES, LEASES)) is None
    assert {path for path, _ in watched.server.asked} == {each.path for each in watched.informers}
    assert watched.server.asked[0][1] == {"watch": "true", "resourceVersion": "7", "timeoutSeconds": "1"}


async def test_watches_that_talk_are_left_alone() -> None:
    watched = Watched()

    async def talk() -> None:
        while True:
            for each in watched.informers:
                each.store.heard()
            await asyncio.sleep(SILENT - 1)

    talking = asyncio.create_task(talk())
    await watched.for_(100)
    talking.cancel()
    assert watched.server.asked == []


@pytest.mark.parametrize("wrong", ["behind", "refused", "hanging", "listing", "nothing listed yet"])
async def test_nothing_is_proved_by(wrong: str) -> None:
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
        watched.informers[0]._intake.version = ""
    await watched.for_(100)
    assert watched.age >= 99
    silent = watched.proof.hung((NODES, LEASES))
    assert silent is not None
    assert silent.startswith("the watch hangs of nodes for 100 s")
    assert watched.proof.hung((PODS,)) is None, "it is not asked after"


async def test_a_watch_of_which_a_second_one_is_told_more_is_not_believed_until_it_tells_something_itself() -> None:
    watched = Watched()
    nodes = watched.informers[0]
    watched.server.chunks = [b'{"type":"MODIFIED"}']
    await watched.for_(SILENT + 1)
    assert watched.proof.hung((NODES,)) == "a second watch is told more of nodes"
    nodes._intake.end("8")
    assert watched.proof.hung((NODES,)) is None


async def test_a_second_watch_that_is_refused_says_nothing_of_the_first() -> None:
    watched = Watched()
    watched.server.chunks = [b'{"type":"ERROR","object":{"kind":"Status","code":410}}']
    await watched.for_(SILENT + 1)
    assert watched.proof.hung((NODES, LEASES)) is None
    assert watched.age > SILENT


async def test_the_older_of_two_counts_and_none_before_both_have_told() -> None:
    watched = Watched()
    await asyncio.sleep(10)
    watched.informers[0].store.heard()
    assert watched.age == 10
    watched.informers[1].store.last_event = None
    assert watched.proof.heard((NODES, LEASES)) is None
    assert watched.proof.heard((NODES,)) is not None


@pytest.mark.parametrize("skew", [0, -3600, 3600], ids=["", "the clock was set back", "the clock was set on"])
async def test_a_watch_whose_connection_was_cut_is_believed_once_it_has_told_what_happened_meanwhile(skew: int) -> None:
    """It is open again before it has said a word: what is known is as old as the outage."""
    watched = Watched()
    nodes = watched.informers[0]
    nodes.state, nodes.untold = InformerState(phase="Watching", error="", since=watched.clock.now() + 5), True
    await asyncio.sleep(5)
    assert watched.proof.hung((NODES, LEASES)) == "nodes have not been told since their watch was cut 5 s ago"
    watched.clock.skew = skew
    for each in watched.informers:
        await each._chunk(each._codec(), each._codec().splitter(), b"")
    assert watched.proof.hung((NODES, LEASES)) is None


@pytest.mark.parametrize(("chunks", "soon"), [([], True), ([b"{}"], False)], ids=["nothing happened", "something did"])
async def test_a_watch_that_was_cut_and_has_nothing_to_tell_is_asked_after_soon(
    chunks: list[bytes], soon: bool
) -> None:
    watched = Watched()
    watched.server.chunks = chunks
    task = asyncio.create_task(watched.proof.run())
    await asyncio.sleep(3)
    nodes = watched.informers[0]
    nodes.state, nodes.untold = InformerState(phase="Watching", error="", since=watched.clock.now()), True
    await asyncio.sleep(1.6)
    assert (watched.proof.hung((NODES,)) is None) == soon
    nodes.state = InformerState(phase="Watching", error="", since=watched.clock.now())
    assert watched.proof.hung((NODES,)) is not None, "cut once more"
    task.cancel()
    await asyncio.wait({task})


async def test_a_list_is_a_word() -> None:
    watched = Watched()
    await asyncio.sleep(10)
    for each in watched.informers:
        each._intake.end("9")
        each.state = InformerState(phase="Watching", error="", since=watched.clock.now() + 5)
    assert watched.proof.hung((NODES, LEASES)) is None


async def test_a_word_from_before_the_clock_was_set_back_proves_nothing() -> None:
    watched = Watched()
    watched.clock.skew = -3600
    assert watched.proof.heard((NODES, LEASES)) is None
    await watched.for_(60)
    assert watched.proof.hung((NODES, LEASES)) is None
    assert len(watched.server.asked) < 2 * 60 / (SILENT - 1) + 2
