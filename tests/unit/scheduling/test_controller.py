"""The controllers of SchedulerPolicies: which profile schedules which pods, and what the status says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.builders import pod
from tests.fakes.api import FakeApi
from tests.fakes.daemon import Stopped
from tests.fakes.scheduler import SchedulerWorld
from trimtab.api import reasons
from trimtab.kube.resources import SCHEDULER_POLICIES
from trimtab.scheduling import controller as module
from trimtab.scheduling.controller import SchedulerNames, SchedulerPolicyController

pytestmark = pytest.mark.looptime(start=0)


class Policies:
    """Controllers of policies on one scheduler; their statuses are in the fake API server."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.world = SchedulerWorld()
        self.names = SchedulerNames()
        self._running: dict[str, tuple[SchedulerPolicyController, Stopped, asyncio.Task[None]]] = {}

    async def put(self, name: str, *, created: int = 0, generation: int = 1, **spec: Any) -> None:
        metadata = {
            "name": name,
            "uid": name,
            "generation": generation,
            "creationTimestamp": f"2026-11-22T20:00:{created:02}Z",
        }
        body = {
            "apiVersion": SCHEDULER_POLICIES.api_version,
            "kind": SCHEDULER_POLICIES.kind,
            "metadata": metadata,
            "spec": {"schedulerName": "ours", **spec},
        }
        path = SCHEDULER_POLICIES.path(name)
        body["status"] = self.api.objects.get(path, {}).get("status") or {}
        self.api.put(path, body)
        if name not in self._running:
            dependencies = self.world.dependencies
            controller = SchedulerPolicyController(name, dependencies(self.api), self.world.scheduler, self.names)
            stopped = Stopped()
            controller.observe(body)
            self._running[name] = (controller, stopped, asyncio.create_task(controller.run(stopped)))
        else:
            self._running[name][0].observe(body)
        await asyncio.sleep(1)

    async def delete(self, name: str) -> None:
        controller, _, task = self._running.pop(name)
        controller.end()
        await task
        await asyncio.sleep(1)

    @property
    def served(self) -> dict[str, Any]:
        return self.world.scheduler._profiles

    def ready(self, name: str) -> tuple[str, str]:
        status = self.api.objects[SCHEDULER_POLICIES.path(name)]["status"]
        [found] = [each for each in status["conditions"] if each["type"] == "Ready"]
        return found["status"], found["reason"]

    async def stop(self) -> None:
        for _, stopped, task in self._running.values():
            stopped.set()
            await task


@asynccontextmanager
async def running() -> AsyncIterator[Policies]:
    policies = Policies()
    try:
        yield policies
    finally:
        await policies.stop()


async def test_valid_policy_serves_its_scheduler_name_until_it_is_deleted() -> None:
    async with running() as policies:
        await policies.put("a")
        assert set(policies.served) == {"ours"}
        assert policies.ready("a") == ("True", reasons.SCHEDULING)
        await policies.delete("a")
        assert policies.served == {}


async def test_changed_policy_replaces_its_profile_and_its_name() -> None:
    async with running() as policies:
        await policies.put("a")
        before = policies.served["ours"]
        await policies.put("a", generation=2, provider="ClusterAutoscalerProvider")
        assert policies.served["ours"] is not before
        await policies.put("a", generation=3, schedulerName="other")
        assert set(policies.served) == {"other"}


async def test_invalid_policy_stops_scheduling_until_it_is_valid_again() -> None:
    async with running() as policies:
        await policies.put("a")
        await policies.put("a", generation=2, provider="NoSuchProvider")
        assert policies.served == {}
        assert policies.ready("a") == ("False", reasons.INVALID_POLICY)
        await policies.put("a", generation=3)
        assert set(policies.served) == {"ours"}
        assert policies.ready("a") == ("True", reasons.SCHEDULING)


@pytest.mark.parametrize("first", ["old", "young"])
async def test_oldest_policy_of_a_scheduler_name_is_used(first: str) -> None:
    created = {"old": 1, "young": 2}
    async with running() as policies:
        await policies.put(first, created=created[first])
        other = "young" if first == "old" else "old"
        await policies.put(other, created=created[other])
        assert policies.ready("old") == ("True", reasons.SCHEDULING)
        assert policies.ready("young") == ("False", reasons.SCHEDULER_NAME_CONFLICT)
        assert set(policies.served) == {"ours"}
        await policies.delete("old")
        assert policies.ready("young") == ("True", reasons.SCHEDULING)
        assert set(policies.served) == {"ours"}


async def test_younger_policy_takes_over_from_one_that_became_invalid() -> None:
    async with running() as policies:
        await policies.put("old", created=1)
        await policies.put("young", created=2)
        await policies.put("old", created=1, generation=2, provider="NoSuchProvider")
        assert policies.ready("young") == ("True", reasons.SCHEDULING)
        assert set(policies.served) == {"ours"}


async def test_stale_watches_are_reported_after_a_reconnect_would_be_over() -> None:
    async with running() as policies:
        await policies.put("a")
        policies.world.stale = "disconnected"
        await asyncio.sleep(4)
        assert policies.ready("a") == ("True", reasons.SCHEDULING)
        await asyncio.sleep(10)
        assert policies.ready("a") == ("False", reasons.CLUSTER_UNREACHABLE)


async def test_extenders_of_the_policy_are_used_and_closed_with_it() -> None:
    async with running() as policies:
        await policies.put("a", extenders=[{"urlPrefix": "http://localhost:1", "filterVerb": "filter"}])
        candidate = pod("p").merge(spec={"schedulerName": "ours"}).build()
        assert policies.world.scheduler._extenders.must_ask(candidate)
        await policies.put("a", generation=2)
        assert not policies.world.scheduler._extenders.must_ask(candidate)


async def test_failed_reconcile_is_reported_and_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    make, errors = module.profile_of, iter([ZeroDivisionError("bug")])

    def fail_once(spec: Any) -> Any:
        for error in errors:
            raise error
        return make(spec)

    monkeypatch.setattr(module, "profile_of", fail_once)
    async with running() as policies:
        await policies.put("a")
        status = policies.api.objects[SCHEDULER_POLICIES.path("a")]["status"]
        [degraded] = [each for each in status["conditions"] if each["type"] == "Degraded"]
        assert (degraded["status"], degraded["reason"]) == ("True", reasons.ITERATION_FAILED)
        assert "ZeroDivisionError: bug" in degraded["message"]
        assert policies.served == {}
        await asyncio.sleep(60)
        assert set(policies.served) == {"ours"}
        assert policies.ready("a") == ("True", reasons.SCHEDULING)
