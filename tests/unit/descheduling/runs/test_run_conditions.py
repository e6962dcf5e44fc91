"""Conditions of runs carry the generation that they describe, so that ``kubectl wait`` does not ignore them."""

from __future__ import annotations

import copy

import pytest

from tests.fakes.api import FakeApi
from tests.fakes.clock import LoopClock
from tests.unit.descheduling.runs.runs import made, move, policy
from trimtab.descheduling.runs.lifecycle import Run, read_run
from trimtab.descheduling.runs.manager import RunManager
from trimtab.descheduling.runs.record import run_plan
from trimtab.kube.verbs import METADATA

pytestmark = pytest.mark.looptime(start=0)


class Server(FakeApi):
    """The fake, which gives new objects their first generation."""

    def set_generation(self, generation: int) -> dict[str, object]:
        [(path, body)] = self.objects.items()
        return self.put(path, {**body, "metadata": {**body["metadata"], "generation": generation}})


def observed(api: FakeApi) -> list[int]:
    [body] = api.objects.values()
    return [each["observedGeneration"] for each in body["status"]["conditions"]]


async def a_pending_run() -> tuple[Server, RunManager, Run]:
    api = Server()
    manager = RunManager("default", api=api, clock=LoopClock())
    spec = policy("Approve")
    run = await manager.record(spec, run_plan(spec, made(move("web-1")), nodes=1, pods=1))
    assert run is not None
    return api, manager, run


async def test_every_condition_has_the_generation_of_the_approval() -> None:
    api, manager, _ = await a_pending_run()
    manager.observe(api.set_generation(2))
    [run] = manager.runs
    assert run.generation == 2

    await manager.complete(await manager.begin(run))
    assert observed(api) == [2, 2]


async def test_decoded_run_has_the_generation_of_the_object() -> None:
    api, _, _ = await a_pending_run()
    run = read_run(api.set_generation(7))
    assert run is not None
    assert run.generation == 7


async def test_approval_before_a_write_whose_response_has_only_metadata_is_noticed() -> None:
    api, manager, run = await a_pending_run()
    [(path, body)] = api.objects.items()
    approved = copy.deepcopy(api.put(path, {**body, "spec": {**body["spec"], "approved": True}}))
    written = await manager.note(run, run.status)
    assert not written.approved
    assert not manager.observe(approved), "older than the write"

    assert manager.observe(api.objects[path])
    [run] = manager.runs
    assert run.approved


async def test_responses_to_writes_have_only_metadata() -> None:
    api, manager, run = await a_pending_run()
    await manager.note(run, run.status)
    assert [call.accept for call in api.calls] == [METADATA] * 3, "its creation, its status, and this"
