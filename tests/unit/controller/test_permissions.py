"""Missing permissions are noticed, reported in every status, and forgotten when they are granted again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tests.fakes.api import Call, FakeApi
from tests.fakes.clock import LoopClock
from trimtab.api import reasons
from trimtab.api.conditions import DEGRADED, PERMISSIONS_MISSING, READY, find_condition, set_condition
from trimtab.api.taint_manager import TaintManagerStatus
from trimtab.controller.permissions import (
    FULL_PERIOD,
    PERIOD,
    PERMISSIONS,
    ObjectKey,
    PermissionChecker,
    PermissionRegistry,
    events,
    requirements,
)
from trimtab.controller.status_writer import StatusWriter
from trimtab.kube.resources import NODE_PRESSURE_POLICIES, NODES, PODS, TAINT_MANAGERS
from trimtab.runtime.leader_election.permissions import lease_permissions

pytestmark = pytest.mark.looptime(start=0)

KEY = ObjectKey(TAINT_MANAGERS, "default")
WANTED = (
    *requirements("create", PODS, subresource="eviction", granted_by="a.enabled"),
    *requirements("get patch", NODES, granted_by="b.enabled"),
    *events("a.enabled"),
)


class Server(FakeApi):
    """Answers access reviews and rules reviews from the set of resources that are refused."""

    refused: frozenset[str] = frozenset()

    def _answer(self, call: Call) -> Any:
        if call.path.endswith("selfsubjectrulesreviews"):
            rules = [{"verbs": ["*"], "resources": [f"all but {each}"]} for each in sorted(self.refused)]
            return {"status": {"resourceRules": rules}}
        return super()._answer(call)

    def _may(self, review: dict[str, Any]) -> bool:
        found = review["spec"]["resourceAttributes"]
        return "/".join(filter(None, (found["resource"], found.get("subresource")))) not in self.refused


@pytest.fixture
def registry() -> Iterator[PermissionRegistry]:
    made = PermissionRegistry()
    token = PERMISSIONS.set(made)
    yield made
    PERMISSIONS.reset(token)


@asynccontextmanager
async def checking(registry: PermissionRegistry, api: FakeApi) -> AsyncIterator[None]:
    task = asyncio.create_task(PermissionChecker(registry, api, LoopClock(), namespace="here").run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def missing(registry: PermissionRegistry) -> list[str]:
    return [each.permission.text for each in registry.missing_for(KEY) or ()]


async def test_removed_and_restored_permission_is_noticed_within_a_period(registry: PermissionRegistry) -> None:
    api = Server()
    registry.require(KEY, WANTED)
    changes: list[float] = []
    clock = LoopClock()
    async with checking(registry, api):
        with registry.listening(lambda: changes.append(clock.monotonic())):
            await asyncio.sleep(1)
            assert missing(registry) == []
            api.refused = frozenset({"pods/eviction"})
            await asyncio.sleep(PERIOD + 1)
            assert missing(registry) == ["create pods/eviction"]
            api.refused = frozenset()
            await asyncio.sleep(PERIOD)
            assert missing(registry) == []
    assert len(changes) == 3


async def test_refused_request_is_checked_at_once(registry: PermissionRegistry) -> None:
    api = Server()
    registry.require(KEY, WANTED)
    async with checking(registry, api):
        await asyncio.sleep(1.5)
        api.refused = frozenset({"nodes"})
        registry.observe_response(403)
        await asyncio.sleep(0.1)
        assert missing(registry) == ["get nodes", "patch nodes"]


async def test_complete_permissions_cost_few_requests(registry: PermissionRegistry) -> None:
    api = Server()
    registry.require(KEY, WANTED)
    async with checking(registry, api):
        await asyncio.sleep(FULL_PERIOD - PERIOD)
    reviews = api.sent("POST", "selfsubjectaccessreviews")
    assert len(reviews) == len(WANTED)
    assert len(api.sent("POST", "selfsubjectrulesreviews")) <= FULL_PERIOD / PERIOD


async def test_failed_check_reports_nothing_as_missing(registry: PermissionRegistry) -> None:
    api = Server(down=True)
    registry.require(KEY, WANTED)
    async with checking(registry, api):
        await asyncio.sleep(PERIOD)
        assert registry.missing_for(KEY) is None
        api.down = False
        await asyncio.sleep(2 * PERIOD)
        assert registry.missing_for(KEY) == ()


def ready_status() -> TaintManagerStatus:
    conditions = set_condition((), READY, True, reason="ManagingTaints", message="", now=0.0, generation=3)
    conditions = set_condition(conditions, DEGRADED, False, reason="AllWell", message="", now=0.0, generation=3)
    return TaintManagerStatus(conditions=conditions, observed_generation=3)


def shown(api: FakeApi) -> dict[str, tuple[str, str]]:
    conditions = api.sent("PATCH")[-1].body["status"]["conditions"]
    assert {each["observedGeneration"] for each in conditions} == {3}
    return {each["type"]: (each["status"], each["reason"]) for each in conditions}


@pytest.mark.parametrize(
    ("refused", "ready"),
    [
        ("pods/eviction", ("False", reasons.PERMISSIONS_MISSING)),
        ("events", ("True", "ManagingTaints")),
    ],
    ids=["an essential permission", "permission for events"],
)
async def test_status_reports_missing_permissions_until_they_return(
    registry: PermissionRegistry, refused: str, ready: tuple[str, str]
) -> None:
    api = Server()
    api.put(TAINT_MANAGERS.path("default"), {"status": {}})
    registry.require(KEY, WANTED)
    writer = StatusWriter(api, LoopClock(), resource=TAINT_MANAGERS, name="default", empty=TaintManagerStatus())
    api.refused = frozenset({refused})
    async with checking(registry, api):
        writer.put(ready_status())
        await asyncio.sleep(1)
        found = shown(api)
        assert found[PERMISSIONS_MISSING] == ("True", reasons.PERMISSIONS_MISSING)
        assert found[READY] == ready
        condition = find_condition(writer.value.conditions, PERMISSIONS_MISSING)
        assert condition is not None
        assert "(chart value a.enabled)" in condition.message

        writes = len(api.sent("PATCH"))
        await asyncio.sleep(30)
        writer.put(ready_status())
        await asyncio.sleep(1)
        assert len(api.sent("PATCH")) == writes, "nothing has changed"
        assert find_condition(writer.status.conditions, READY) == find_condition(ready_status().conditions, READY)

        api.refused = frozenset()
        await asyncio.sleep(PERIOD)
        assert shown(api) == {
            READY: ("True", "ManagingTaints"),
            DEGRADED: ("False", "AllWell"),
            PERMISSIONS_MISSING: ("False", reasons.PERMISSIONS_GRANTED),
        }
    await writer.stop()


async def test_all_objects_report_missing_permissions_of_the_process(registry: PermissionRegistry) -> None:
    api = Server()
    api.refused = frozenset({"leases"})
    other = ObjectKey(NODE_PRESSURE_POLICIES, "other")
    registry.require(KEY, WANTED)
    registry.require(other, ())
    registry.require_for_all(lease_permissions(namespace="here", lease_name="trimtab", leader_elect=True))
    async with checking(registry, api):
        await asyncio.sleep(1)

    named = {verb: f"{verb} leases.coordination.k8s.io trimtab in here" for verb in ("get", "update", "watch")}
    for key in (KEY, other):
        found = registry.missing_for(key) or ()
        assert set(named.values()) <= {each.permission.text for each in found}
        essential = {each.permission.text for each in found if each.essential}
        assert essential == {named["get"], named["update"]}, "without the watch, a standby reads the Lease"
