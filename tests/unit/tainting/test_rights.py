"""What a mode needs, and that it is said at once where it is missing."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from tests.fakes.api import FakeApi
from tests.fakes.clock import LoopClock
from tests.unit.tainting.running import a_cell, running
from trimtab.api.taint_manager import KeyPolicy, TaintManagerSpec
from trimtab.kube.api import Forbidden, Unreachable
from trimtab.tainting.rights import LOOK_AGAIN, Rights, needed

ENDING = ["delete pods", "patch pods/status", "patch nodes"]
NODES = [
    "get nodes",
    "patch nodes/status",
    "get leases.coordination.k8s.io in kube-node-lease",
    "create configmaps in here",
    "get configmaps trimtab-taint-manager in here",
    "patch configmaps trimtab-taint-manager in here",
]
EVICTING = (KeyPolicy(key="a", policy="Evict"),)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (TaintManagerSpec(), []),
        (TaintManagerSpec(taints=EVICTING), []),
        (TaintManagerSpec(mode="EarlierOnly"), ENDING),
        (TaintManagerSpec(mode="EarlierOnly", taints=EVICTING), [ENDING[0], "create pods/eviction", *ENDING[1:]]),
        (TaintManagerSpec(mode="Own"), [*ENDING, *NODES]),
    ],
    ids=["nothing to observe", "nor with evictions", "to end pods", "to evict them", "to see to nodes"],
)
def test_what_a_mode_needs(spec, words):
    assert [right.words for right in needed(spec, namespace="here")] == words


class Services:
    """As much of the services as is needed."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.clock = LoopClock()
        self.namespace = "here"


async def run_for(rights: Rights, seconds: float) -> asyncio.Task[None]:
    task = asyncio.create_task(rights.run())
    await asyncio.sleep(seconds)
    return task


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.looptime
async def test_where_all_rights_are_there_they_are_asked_for_once():
    api = FakeApi()
    rights = Rights(Services(api), TaintManagerSpec(mode="Own"))
    task = await run_for(rights, 10 * LOOK_AGAIN)

    assert rights.missing == ()
    assert len(api.calls) == len(needed(TaintManagerSpec(mode="Own"), namespace="here"))
    await end(task)


@pytest.mark.looptime
async def test_what_is_missing_is_asked_for_until_it_is_there():
    api = FakeApi(may=lambda attributes: attributes.get("subresource") != "status")
    rights = Rights(Services(api), TaintManagerSpec(mode="Own"))
    task = await run_for(rights, 1.0)
    assert rights.missing == ("patch pods/status", "patch nodes/status")

    api.may = None
    await asyncio.sleep(LOOK_AGAIN)
    assert rights.missing == ()
    await end(task)


@pytest.mark.looptime
async def test_another_spec_is_asked_for_at_once():
    api = FakeApi(may=lambda attributes: attributes["resource"] != "nodes")
    rights = Rights(Services(api), TaintManagerSpec(mode="EarlierOnly"))
    task = await run_for(rights, 1.0)
    assert rights.missing == ("patch nodes",)

    rights.configure(TaintManagerSpec(mode="Own"))
    await asyncio.sleep(1.0)
    assert rights.missing == ("patch nodes", "get nodes", "patch nodes/status")
    await end(task)


@pytest.mark.looptime
@pytest.mark.parametrize("error", [Unreachable("gone"), Forbidden("no", status=403)], ids=["no answer", "not allowed"])
async def test_what_is_not_known_is_not_called_missing(error):
    api = FakeApi()
    api.fail(error, times=1)
    rights = Rights(Services(api), TaintManagerSpec(mode="EarlierOnly"))
    task = await run_for(rights, 1.0)
    assert rights.missing == ()
    assert len(api.calls) == 1

    await asyncio.sleep(LOOK_AGAIN)
    assert len(api.calls) == 1 + len(needed(TaintManagerSpec(mode="EarlierOnly"), namespace="here"))
    await end(task)


@pytest.mark.looptime(start=0)
@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("EarlierOnly", "mode EarlierOnly needs rights that trimtab does not have: patch nodes"),
        ("Own", "mode Own needs rights that trimtab does not have: patch nodes, get nodes, patch nodes/status"),
    ],
)
async def test_the_conditions_say_what_a_mode_lacks_until_it_is_there(mode, words):
    cell = a_cell()
    cell.may = lambda attributes: attributes["resource"] != "nodes"
    async with running(cell, mode=mode) as process:
        await asyncio.sleep(5)
        assert process.condition("Ready") == ("False", "RightsMissing")
        assert process.condition("Degraded") == ("True", "RightsMissing")
        [message] = {each["message"] for each in process.status["conditions"] if each["reason"] == "RightsMissing"}
        assert message == words

        cell.may = None
        await asyncio.sleep(LOOK_AGAIN + 5)
        assert process.condition("Ready") == ("True", "ManagingTaints")
        assert process.condition("Degraded")[0] == "False"


@pytest.mark.looptime(start=0)
async def test_who_observes_lacks_nothing():
    cell = a_cell()
    cell.may = lambda attributes: False
    async with running(cell) as process:
        await asyncio.sleep(5)
        assert process.condition("Ready") == ("True", "Observing")
    assert cell.sent("POST", "selfsubjectaccessreviews") == []
