"""Two operators that act with the same controllers notice each other, elected or not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.fakes.api import Call, FakeApi
from tests.fakes.clock import LoopClock
from tests.fakes.recorder import FakeRecorder
from trimtab.api import reasons
from trimtab.kube.api import Forbidden, Unreachable
from trimtab.kube.resources import LEASES
from trimtab.runtime.leader_election.duplicate_operators import (
    ACTIVE_FOR,
    CHECK_PERIOD,
    LABEL,
    LIST_RETRY_PERIOD,
    MAX_LIST_BYTES,
    MAX_OTHERS,
    DuplicateOperatorDetector,
)

pytestmark = pytest.mark.looptime

ALL = ("descheduler", "autoscaler", "tainting")


class Leases(FakeApi):
    """Lists Leases by label; ``narrow`` forbids that. ``read`` counts the bytes that were read of lists."""

    narrow = False
    read = 0

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str] | None = None, **_: Any
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self.calls.append(Call("GET", path, dict(params or {}), None, ""))
        if self.down:
            raise Unreachable("the fake is down")
        if self.narrow:
            raise Forbidden("no", status=403)
        namespace = path.removesuffix("/leases").rpartition("/namespaces/")[2] if "/namespaces/" in path else ""
        items = [
            each
            for each in self.objects.values()
            if LABEL in each["metadata"].get("labels", {}) and namespace in ("", each["metadata"]["namespace"])
        ]

        async def chunks() -> AsyncIterator[bytes]:
            body = json.dumps({"items": items, "metadata": {"resourceVersion": "1"}}).encode()
            for begin in range(0, len(body), 2**16):
                self.read += len(body[begin : begin + 2**16])
                yield body[begin : begin + 2**16]

        yield chunks()


class Process:
    """One operator that acts."""

    def __init__(
        self, api: FakeApi, identity: str, *, namespace: str, lease: str, controllers: tuple[str, ...]
    ) -> None:
        self.events = FakeRecorder()
        self.counts: list[int] = []
        self.descriptions: list[str] = []
        self.acting = DuplicateOperatorDetector(
            api,
            namespace=namespace,
            lease_name=lease,
            identity=identity,
            controllers=controllers,
            recorder=self.events,
            observe=self.counts.append,
            describe=self.descriptions.append,
            clock=LoopClock(),
        )
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = asyncio.create_task(self.acting.run())

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    @property
    def noticed(self) -> list[str]:
        return sorted(self.acting.others)

    @property
    def reasons(self) -> list[str]:
        return [each["reason"] for each in self.events.events]


@asynccontextmanager
async def operator(
    api: FakeApi,
    identity: str,
    *,
    namespace: str = "ns",
    lease: str = "trimtab",
    controllers: tuple[str, ...] = ALL,
) -> AsyncIterator[Process]:
    process = Process(api, identity, namespace=namespace, lease=lease, controllers=controllers)
    process.start()
    yield process
    await process.stop()


def stored(api: FakeApi, namespace: str = "ns") -> Mapping[str, Any]:
    return api.objects[LEASES.path("trimtab-acting", namespace=namespace)]["spec"]


async def test_single_operator_keeps_a_lease_and_reports_nothing(caplog: pytest.LogCaptureFixture) -> None:
    api = Leases()
    async with operator(api, "a") as a:
        await asyncio.sleep(10 * CHECK_PERIOD)
        assert stored(api)["holderIdentity"] == "a"
        assert a.noticed == a.reasons == []
        assert set(a.counts) == {0}
        assert set(a.descriptions) == {""}
    assert stored(api)["holderIdentity"] == ""
    assert not caplog.records


@pytest.mark.parametrize("narrow", [False, True], ids=["all namespaces", "own Lease only"])
async def test_two_that_share_the_lease_of_actors_notice_each_other(
    *, narrow: bool, caplog: pytest.LogCaptureFixture
) -> None:
    api = Leases()
    api.narrow = narrow
    async with operator(api, "a") as a:
        await asyncio.sleep(3)
        async with operator(api, "b") as b:
            await asyncio.sleep(10 * CHECK_PERIOD)
            assert (a.noticed, b.noticed) == (["b"], ["a"])
            assert a.reasons == b.reasons == [reasons.ANOTHER_OPERATOR_ACTIVE], "once"
            assert a.events.events[0]["type"] == "Warning"
            assert len(caplog.records) == 2
            assert a.counts[-1] == b.counts[-1] == 1
            assert a.descriptions[-1] == b.descriptions[-1] != ""
            assert set(b.descriptions) == {b.descriptions[-1]}, "the first checks do not report that it is alone"
            lists = len([call for call in api.calls if call.path == LEASES.path()])
            assert (lists == 2) is narrow, "each of them once, where RBAC refuses it"
        await asyncio.sleep(ACTIVE_FOR + CHECK_PERIOD)
        assert a.noticed == []
        assert a.counts[-1] == 0
        assert a.descriptions[-1] == ""


@pytest.mark.parametrize(
    "other",
    [{"namespace": "elsewhere"}, {"lease": "another"}, {"namespace": "elsewhere", "lease": "another"}],
    ids=["namespace", "lease", "both"],
)
async def test_two_with_leases_of_their_own_notice_each_other_in_three_periods(other: dict[str, str]) -> None:
    api = Leases()
    async with operator(api, "a") as a, operator(api, "b", **other) as b:
        await asyncio.sleep(3 * CHECK_PERIOD)
        assert (a.noticed, b.noticed) == (["b"], ["a"])


async def test_operators_of_different_controllers_do_not_mind_each_other() -> None:
    api = Leases()
    async with (
        operator(api, "a", lease="x", controllers=("descheduler",)) as a,
        operator(api, "b", lease="y", controllers=("autoscaler", "tainting")) as b,
        operator(api, "c", lease="z", controllers=("tainting",)) as c,
    ):
        await asyncio.sleep(5 * CHECK_PERIOD)
        assert (a.noticed, b.noticed, c.noticed) == ([], ["c"], ["b"])


async def test_the_next_leader_raises_no_alarm_after_an_orderly_end_or_a_kill() -> None:
    api = Leases()
    async with operator(api, "a"):
        await asyncio.sleep(3 * CHECK_PERIOD)
    async with operator(api, "b") as b:
        await asyncio.sleep(3 * CHECK_PERIOD)
        assert b.counts
        assert set(b.counts) == {0}
        assert b.task is not None
        killed = stored(api)
        b.acting._ours = None  # a kill releases nothing
    assert killed["holderIdentity"] == stored(api)["holderIdentity"] == "b"
    async with operator(api, "c") as c:
        await asyncio.sleep(5 * CHECK_PERIOD)
        assert c.noticed == c.reasons == []


async def test_unreachable_api_server_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = Leases()
    async with operator(api, "a") as a:
        api.down = True
        api.fail(Forbidden("no", status=403), times=100, method="PUT")
        await asyncio.sleep(5 * CHECK_PERIOD)
        api.down = False
        await asyncio.sleep(5 * CHECK_PERIOD)
        assert len(caplog.records) == 2, "once for each cause"
        assert not a.noticed


async def test_invented_leases_are_reported_once_and_remembered_within_bounds() -> None:
    api = Leases()
    async with operator(api, "a") as a:
        for turn in range(5):
            for number in range(4 * MAX_OTHERS):
                metadata = {"name": f"x{number}", "namespace": "tenant", "labels": {LABEL: "true"}}
                metadata["annotations"] = {"trimtab.dev/controllers": ",".join(ALL)}  # type: ignore[assignment]
                spec = {"holderIdentity": f"h{turn}-{number}"}
                path = LEASES.path(f"x{number}", namespace="tenant")
                api.objects.pop(path, None)
                api.put(path, {"metadata": metadata, "spec": spec})
            await asyncio.sleep(CHECK_PERIOD)
        assert len(a.acting._holders) <= MAX_OTHERS
        assert len(a.reasons) <= 1
        async with operator(api, "b"):
            await asyncio.sleep(3 * CHECK_PERIOD)
            assert "b" in a.noticed


async def test_large_leases_of_a_tenant_are_not_read_and_hide_none_of_the_own_namespace() -> None:
    api = Leases()
    for number in range(40):
        metadata = {"name": f"x{number}", "namespace": "tenant", "labels": {LABEL: "true"}}
        metadata["annotations"] = {"large": "x" * 200_000}  # type: ignore[assignment]
        api.put(LEASES.path(f"x{number}", namespace="tenant"), {"metadata": metadata, "spec": {}})
    async with operator(api, "a") as a, operator(api, "b", lease="another") as b:
        await asyncio.sleep(LIST_RETRY_PERIOD - CHECK_PERIOD)
        assert (a.noticed, b.noticed) == (["b"], ["a"])
        assert len([call for call in api.calls if call.path == LEASES.path()]) == 2, "once each"
        assert api.read < 3 * MAX_LIST_BYTES


async def test_invalid_lease_does_not_end_the_task() -> None:
    api = Leases()
    async with operator(api, "a") as a:
        await asyncio.sleep(CHECK_PERIOD)
        metadata = {"name": "x", "namespace": "tenant", "labels": {LABEL: "true"}, "annotations": [1]}
        path = LEASES.path("x", namespace="tenant")
        api.put(path, {"metadata": metadata, "spec": {}})
        await asyncio.sleep(3 * CHECK_PERIOD)
        del api.objects[path]
        async with operator(api, "b"):
            await asyncio.sleep(3 * CHECK_PERIOD)
            assert a.noticed == ["b"]
