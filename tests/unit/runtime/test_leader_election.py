"""All under looptime: the loop's time is virtual, so minutes of election take milliseconds and are exact."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import looptime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.api import Call, FakeApi
from tests.fakes.clock import LoopClock
from tests.fixtures.golden import Golden
from tests.strategies import examples
from trimtab.kube.api import Conflict, Forbidden, IdleTimeout, NotFound, ServerError, Unreachable
from trimtab.runtime.leader_election.elector import ElectionTimings, LeaderElector

pytestmark = pytest.mark.looptime

LEASE = "/apis/coordination.k8s.io/v1/namespaces/trimtab/leases/trimtab"


HUNG = math.inf
"""The lag of a watch that delivers nothing."""


class Server(FakeApi):
    """Streams a chunk to the watches for each write of the Lease."""

    watches: tuple[asyncio.Queue[float], ...] = ()

    def _store(self, path: str, obj: dict[str, Any]) -> dict[str, Any]:
        for each in self.watches:
            each.put_nowait(now())
        return super()._store(path, obj)

    @asynccontextmanager
    async def stream(self, path, *, params=None, idle_timeout=60.0, lag=0.0, **_options):
        params = dict(params or {})
        self.calls.append(Call("WATCH", path, params, None, ""))
        assert params["fieldSelector"] == "metadata.name=trimtab"
        for fault in self.faults:
            if fault.hits("WATCH", path):
                fault.times -= 1
                raise fault.error
        written: asyncio.Queue[float] = asyncio.Queue()
        if params.get("resourceVersion") != self.objects.get(LEASE, {}).get("metadata", {}).get("resourceVersion"):
            written.put_nowait(now())
        self.watches = (*self.watches, written)

        async def chunks() -> AsyncIterator[bytes]:
            while True:
                try:
                    async with asyncio.timeout(idle_timeout):
                        at = await written.get()
                        await asyncio.sleep(at + lag - now())
                except TimeoutError:
                    raise IdleTimeout("silent") from None
                yield b"{}"

        try:
            yield chunks()
        finally:
            self.watches = tuple(each for each in self.watches if each is not written)


class Link:
    """One candidate's connection to the shared fake server: it can be cut or hang while the others' work."""

    def __init__(self, api: Server, *, watch_lag: float = 0.0) -> None:
        self.api = api
        self.down = False
        self.hangs = False
        self.latency = 0.0
        self.loses_answers = 0
        self.watch_lag = watch_lag

    async def request(self, method, path, **options):
        await asyncio.sleep(self.latency)
        if self.hangs:
            await asyncio.sleep(options["timeout"])
            raise Unreachable("timed out")
        if self.down:
            raise Unreachable("cut")
        response = await self.api.request(method, path, **options)
        if self.loses_answers and method != "GET":
            self.loses_answers -= 1
            raise Unreachable("the answer was lost")
        return response

    @asynccontextmanager
    async def stream(self, path, **options):
        if self.down:
            raise Unreachable("cut")
        lag = HUNG if self.hangs else self.watch_lag
        async with self.api.stream(path, lag=lag, **options) as chunks:
            yield chunks


@pytest.fixture
def api() -> Server:
    return Server()


def candidate(link, identity: str, *, clock: LoopClock | None = None) -> LeaderElector:
    return LeaderElector(link, namespace="trimtab", name="trimtab", identity=identity, clock=clock or LoopClock())


def now() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def acquiring(elector: LeaderElector) -> AsyncIterator[asyncio.Task[None]]:
    """A candidate in the background, which ends without releasing: as kill -9 does."""
    task = asyncio.create_task(elector.acquire())
    try:
        yield task
    finally:
        for each in (task, elector._renewing):
            if each is not None:
                each.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def leading(elector: LeaderElector) -> AsyncIterator[None]:
    """As `acquiring`, for the one that gets it at once."""
    async with acquiring(elector) as task:
        await task
        yield


async def test_the_first_candidate_makes_the_lease_and_leads_at_once(api):
    async with candidate(api, "a") as a:
        await a.acquire()
        assert a.leading
        assert a.holder == "a"
        assert api.objects[LEASE]["spec"] == {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "acquireTime": "2027-01-15T08:00:00.000000Z",
            "renewTime": "2027-01-15T08:00:00.000000Z",
            "leaseTransitions": 0,
        }


async def test_the_leader_renews_every_retry_period_with_one_request(api):
    async with candidate(api, "a") as a:
        await a.acquire()
        api.calls.clear()
        await asyncio.sleep(61)
        assert [call.method for call in api.calls] == ["PUT"] * 30
        assert api.objects[LEASE]["spec"]["acquireTime"] == "2027-01-15T08:00:00.000000Z"
        assert api.objects[LEASE]["spec"]["renewTime"] == "2027-01-15T08:01:00.000000Z"
        assert a.leading


async def test_a_second_candidate_waits_as_long_as_the_first_renews(api):
    async with candidate(api, "a") as a, candidate(api, "b") as b:
        await a.acquire()
        async with acquiring(b) as waiting:
            await asyncio.sleep(600)
            assert not waiting.done()
            assert not b.leading
            assert b.holder == "a"


@pytest.mark.parametrize("phase", [0.0, 0.1, 0.5, 0.9])
async def test_a_killed_leader_is_followed_after_the_lease_duration(api, phase: float):
    assert await takeover(api, Link(api), phase=phase) == pytest.approx(15)


@pytest.mark.parametrize("phase", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("watch", ["forbidden", "rejected", "hangs", "ends", "2 s late", "5 s late", "14 s late"])
async def test_faulty_watch_delays_a_takeover_by_at_most_the_period_of_the_reads(api, watch: str, phase: float):
    link = Link(api)
    match watch:
        case "forbidden":
            api.fail(Forbidden("cannot watch", status=403), times=1000, method="WATCH")
        case "rejected":
            api.fail(ServerError("etcd", status=500), times=1000, method="WATCH")
        case "ends":
            link.stream = ended
        case _:
            link.watch_lag = HUNG if watch == "hangs" else float(watch.split()[0])
    assert 15 <= await takeover(api, link, phase=phase) <= 16


async def takeover(api: Server, link: Link, *, phase: float) -> float:
    """Kill a leader one second after its last renewal, and return the seconds from that until the takeover."""
    a, b = candidate(api, "a"), candidate(link, "b")
    async with leading(a):
        killed = asyncio.create_task(asyncio.sleep(11))
        await asyncio.sleep(phase)
        async with acquiring(b) as waiting:
            await killed
            assert a._renewing is not None
            a._renewing.cancel()
            await waiting
        assert api.objects[LEASE]["spec"]["leaseTransitions"] == 1
        return now() - 10


@asynccontextmanager
async def ended(_path, **_options):
    """A watch that the server ends at once with an error event: its resource version is too old."""

    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"type":"ERROR"}'

    yield chunks()


async def test_one_of_two_candidates_follows_a_killed_leader_after_the_lease_duration(api):
    a, b, c = (candidate(api, name) for name in "abc")
    async with leading(a):
        await asyncio.sleep(0.3)
        async with acquiring(b) as first, acquiring(c) as second:
            await asyncio.sleep(10.7)
            assert a._renewing is not None
            a._renewing.cancel()
            await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
            assert now() == pytest.approx(10 + 15)
            await asyncio.sleep(60)
            assert [b.leading, c.leading].count(True) == 1
            assert api.objects[LEASE]["spec"]["leaseTransitions"] == 1


async def test_candidate_that_was_cut_off_does_not_take_over_a_renewed_lease(api):
    """Its last observation has expired, so its next request is a write, which the API server rejects."""
    link = Link(api)
    a, b = candidate(api, "a"), candidate(link, "b")
    async with leading(a), acquiring(b) as waiting:
        await asyncio.sleep(5)
        link.down = True
        await asyncio.sleep(20)
        api.calls.clear()
        link.down = False
        await asyncio.sleep(1.5)
        assert "b" in [call.body["spec"]["holderIdentity"] for call in api.sent("PUT")]
        await asyncio.sleep(60)
        assert a.leading
        assert not waiting.done()
        assert api.objects[LEASE]["spec"]["leaseTransitions"] == 0


async def test_candidate_reads_the_lease_once_a_second_and_at_each_renewal(api):
    a, b = candidate(api, "a"), candidate(api, "b")
    async with leading(a):
        await asyncio.sleep(0.3)
        async with acquiring(b):
            await asyncio.sleep(9.8)
            api.calls.clear()
            await asyncio.sleep(60)
    assert 60 <= len(api.sent("GET")) <= 60 + 30
    assert not api.sent("WATCH"), "the first one continues"


@pytest.mark.parametrize(
    ("watch", "expected"),
    [("hangs", 60 / 10), ("ends", 60), ("rejected", 60), ("forbidden", 1)],
)
async def test_faulty_watch_is_replaced_at_most_once_a_second(api, watch: str, expected: float):
    link = Link(api, watch_lag=HUNG if watch == "hangs" else 0.0)
    opened = 0
    working = ended if watch == "ends" else link.stream

    def stream(path, **options):
        nonlocal opened
        opened += 1
        return working(path, **options)

    link.stream = stream
    errors = {"forbidden": Forbidden("cannot watch", status=403), "rejected": ServerError("etcd", status=500)}
    if watch in errors:
        api.fail(errors[watch], times=1000, method="WATCH")
    a, b = candidate(api, "a"), candidate(link, "b")
    async with leading(a), acquiring(b):
        await asyncio.sleep(100)
        opened = 0
        await asyncio.sleep(60)
        assert opened == expected
        assert b.holder == "a"


async def test_watch_ends_with_the_takeover(api):
    a, b = candidate(api, "a"), candidate(api, "b")
    async with leading(a), acquiring(b) as waiting:
        await asyncio.sleep(5)
        assert len(api.watches) == 1
        await a.release()
        await waiting
        await asyncio.sleep(0)
        assert api.watches == ()


async def test_candidate_attempts_when_the_observed_lease_expires(api):
    a, b = candidate(api, "a"), candidate(api, "b")
    async with leading(a):
        assert a._renewing is not None
        a._renewing.cancel()
        await asyncio.sleep(0.3)
        async with acquiring(b) as waiting:
            await waiting
        assert now() == pytest.approx(15.3), "15 s after the first read"


@pytest.mark.parametrize(("watch_lag", "longest"), [(0.0, 0.0), (HUNG, 1.0)])
async def test_released_lease_is_acquired_at_once(api, watch_lag: float, longest: float):
    b = candidate(Link(api, watch_lag=watch_lag), "b")
    async with candidate(api, "a") as a:
        await a.acquire()
        await asyncio.sleep(0.3)
        async with acquiring(b) as waiting:
            await asyncio.sleep(6.9)
            released_at = now()
            await a.release()
            assert api.objects[LEASE]["spec"]["leaseDurationSeconds"] == 1
            assert not a.leading
            assert not a.lost.is_set()
            await waiting
            assert now() - released_at <= longest
            assert api.objects[LEASE]["spec"]["holderIdentity"] == "b"


async def test_disconnected_leader_stops_before_the_lease_expires(api, golden: Golden):
    link = Link(api)
    a, b = candidate(link, "a"), candidate(api, "b")
    async with leading(a), acquiring(b) as waiting:
        await asyncio.sleep(5)
        assert a.leading
        link.down = True
        await a.lost.wait()
        lost_at = now()
        assert not a.leading
        assert lost_at == pytest.approx(4 + 10)  # the last renewal was sent at 4
        golden(a.lost_reason)
        await waiting
        assert now() >= lost_at + 5


async def test_leader_with_hung_requests_gives_up_before_the_lease_expires(api):
    link = Link(api)
    a = candidate(link, "a")
    async with leading(a):
        await asyncio.sleep(5)
        link.hangs = True
        await a.lost.wait()
        assert now() == pytest.approx(14)


async def test_a_short_outage_is_ridden_out(api):
    link = Link(api)
    a, b = candidate(link, "a"), candidate(api, "b")
    async with leading(a), acquiring(b) as waiting:
        await asyncio.sleep(5)
        link.down = True
        await asyncio.sleep(6)
        link.down = False
        await asyncio.sleep(60)
        assert a.leading
        assert not waiting.done()


async def test_paused_process_stops_leading_when_the_lease_expires(api):
    clock = LoopClock()
    a = candidate(api, "a", clock=clock)
    async with leading(a):
        await asyncio.sleep(1)
        assert a.leading
        clock.monotonic = lambda: now() + 20  # the process slept; no task of it has run yet
        assert not a.leading
        assert not a.lost.is_set()


async def test_renewal_with_a_lost_response_succeeds(api):
    link = Link(api)
    a = candidate(link, "a")
    async with leading(a):
        await asyncio.sleep(1)
        link.loses_answers = 2
        await asyncio.sleep(30)
        assert a.leading


async def test_lease_acquired_by_another_holder_is_lost_immediately(api):
    a = candidate(api, "a")
    async with leading(a):
        await asyncio.sleep(1)
        taken = {"holderIdentity": "thief", "leaseDurationSeconds": 15}
        api.put(LEASE, {"metadata": {"name": "trimtab"}, "spec": taken})
        await asyncio.sleep(2)
        assert a.lost.is_set()
        assert not a.leading
        assert "thief" in a.lost_reason
        await a.release()
        assert api.objects[LEASE]["spec"] == taken  # what is another's is not released


async def test_concurrent_write_by_the_same_holder_does_not_lose_the_lease(api):
    a = candidate(api, "a")
    async with leading(a):
        await asyncio.sleep(1)
        api.put(LEASE, api.objects[LEASE] | {"metadata": {"labels": {"x": "y"}}})
        await asyncio.sleep(60)
        assert a.leading


async def test_deleted_lease_is_recreated(api):
    a = candidate(api, "a")
    async with leading(a):
        await asyncio.sleep(1)
        api.objects.clear()
        await asyncio.sleep(60)
        assert a.leading
        assert api.objects[LEASE]["spec"]["holderIdentity"] == "a"


async def test_of_two_that_take_an_expired_lease_at_once_one_gets_it(api):
    spec = {"holderIdentity": "gone", "leaseDurationSeconds": 15, "leaseTransitions": 7}
    api.put(LEASE, {"metadata": {"name": "trimtab"}, "spec": spec})
    links = [Link(api), Link(api)]
    for link in links:
        link.latency = 0.01
    a, b = (candidate(link, name) for link, name in zip(links, "ab", strict=True))
    async with acquiring(a), acquiring(b):
        await asyncio.sleep(60)
        assert [a.leading, b.leading].count(True) == 1
        assert api.objects[LEASE]["spec"]["leaseTransitions"] == 8


async def test_the_holders_wall_clock_is_never_trusted(api):
    a = candidate(api, "a", clock=LoopClock(skew=-3600))
    b = candidate(api, "b", clock=LoopClock(skew=+3600))
    async with leading(a), acquiring(b) as waiting:
        await asyncio.sleep(120)
        assert a.leading
        assert not waiting.done()


async def test_the_holders_own_duration_is_waited_for(api):
    spec = {"holderIdentity": "slow", "leaseDurationSeconds": 60}
    api.put(LEASE, {"metadata": {"name": "trimtab"}, "spec": spec})
    async with candidate(api, "a") as a:
        await a.acquire()
        assert 60 <= now() <= 62


@pytest.mark.parametrize(
    "error",
    [
        Forbidden("leases is forbidden", status=403),
        NotFound("namespaces trimtab not found", status=404),
        ServerError("etcd", status=500),
        Unreachable("refused"),
        Conflict("exists", status=409, reason="AlreadyExists"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_candidate_retries_until_the_server_allows_it(api, error, caplog):
    api.fail(error, times=20, method="POST")
    async with candidate(api, "a") as a:
        await a.acquire()
        assert now() == pytest.approx(20)
    recorded = [record for record in caplog.records if "Failed to acquire" in record.message]
    assert len(recorded) == (0 if isinstance(error, Conflict) else 1)


async def test_a_release_that_fails_is_no_error(api, caplog):
    caplog.set_level(logging.WARNING)
    async with candidate(api, "a") as a:
        await a.acquire()
        api.down = True
    assert "Failed to release" in caplog.text


async def test_renewal_that_fails_with_a_defect_loses_the_lease(api):
    a = candidate(api, "a")
    async with leading(a):
        await asyncio.sleep(1)
        api.fail(TypeError("bug"))
        await a.lost.wait()
        assert "bug" in a.lost_reason


@pytest.mark.parametrize("how", ["cancelled", "hangs"])
async def test_lease_is_lost_without_the_task_that_renews_it(api, how: str):
    a = candidate(api, "a")
    async with leading(a):
        await asyncio.sleep(5)
        if how == "cancelled":
            next(each for each in asyncio.all_tasks() if each.get_name() == "leader-election").cancel()
        else:
            a._clock.sleep = lambda _: asyncio.Event().wait()
        await a.until_lost()
        assert now() == pytest.approx((4 if how == "cancelled" else 6) + 10.5)
        assert a.lost.is_set()
        assert a.lost_reason


async def test_release_is_no_loss(api):
    a = candidate(api, "a")
    async with leading(a):
        waiting = asyncio.create_task(a.until_lost())
        await asyncio.sleep(5)
        await a.release()
        await asyncio.sleep(60)
        assert not waiting.done()
        assert not a.lost.is_set()
        waiting.cancel()


async def test_a_lease_is_released_although_a_renewal_was_in_flight(api):
    a, sent = candidate(Link(api), "a"), asyncio.Event()

    async def answer_late(call: Call) -> None:
        if call.method == "PUT" and call.body["spec"]["holderIdentity"]:
            sent.set()
            await asyncio.sleep(1)

    async with leading(a):
        api.after = answer_late
        await sent.wait()  # stored, and not answered yet
        await a.release()
        assert api.objects[LEASE]["spec"]["holderIdentity"] == ""


async def test_candidate_that_never_led_does_not_release_the_lease(api):
    async with candidate(api, "a") as a, candidate(api, "b") as b:
        await a.acquire()
        async with acquiring(b):
            await asyncio.sleep(1)
        api.calls.clear()
        await b.release()
        assert api.calls == []


def test_identities_differ_even_on_one_host(api):
    assert LeaderElector(api, namespace="n", name="n").identity != LeaderElector(api, namespace="n", name="n").identity


@pytest.mark.parametrize(
    "wrong",
    [
        {"lease_duration": 10},
        {"renew_deadline": 1.0},
        {"retry_period": 0.0},
        {"retry_period": 20.0},
        {"read_period": 0.0},
        {"read_period": 15.0},
    ],
)
def test_timings_that_cannot_work_are_refused(wrong):
    with pytest.raises(ValueError, match="must be less than"):
        ElectionTimings(**wrong)


@settings(max_examples=examples(40), deadline=None)
@given(
    cuts=st.lists(st.tuples(st.floats(0, 120), st.floats(0, 40), st.sampled_from(["down", "hangs"])), max_size=6),
    links=st.lists(st.integers(0, 2), min_size=6, max_size=6),
    latencies=st.lists(st.floats(0, 3), min_size=3, max_size=3),
    lags=st.lists(st.sampled_from([0.0, 0.5, 7.0, 14.9, HUNG]), min_size=3, max_size=3),
)
def test_two_candidates_never_lead_at_the_same_time_under_faults(cuts, links, latencies, lags):
    async def scenario() -> None:
        api = Server()
        connections = [Link(api, watch_lag=lag) for lag in lags]
        for connection, latency in zip(connections, latencies, strict=True):
            connection.latency = latency
        electors = [candidate(link, f"c{index}") for index, link in enumerate(connections)]

        async def cut(index: int, begin: float, length: float, how: str) -> None:
            await asyncio.sleep(begin)
            setattr(connections[index], how, True)
            await asyncio.sleep(length)
            setattr(connections[index], how, False)

        async def watch(_call: Call) -> None:
            assert sum(elector.leading for elector in electors) <= 1

        api.after = watch
        tasks = [asyncio.create_task(cut(index, *each)) for index, each in zip(links, cuts, strict=False)]
        tasks += [asyncio.create_task(elector.acquire()) for elector in electors]
        for _ in range(180 * 2):
            await asyncio.sleep(0.5)
            assert sum(elector.leading for elector in electors) <= 1
        tasks += [elector._renewing for elector in electors if elector._renewing is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    loop = looptime.new_event_loop()
    try:
        loop.run_until_complete(scenario())
    finally:
        loop.close()
