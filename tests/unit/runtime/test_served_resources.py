"""Each controller runs while its definitions are served, whatever the order in which they come and go."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.fakes.clock import LoopClock
from trimtab.api import reasons
from trimtab.kube.api import NotFound, ServerError
from trimtab.kube.resources import (
    DESCHEDULER_POLICIES,
    DESCHEDULING_RUNS,
    MACHINE_AUTOSCALERS,
    TAINT_MANAGERS,
    Resource,
)
from trimtab.runtime.served_resources import CHECK_PERIOD, REMOVAL_DELAY, ServedResources

pytestmark = pytest.mark.looptime
NEEDED = {
    DESCHEDULER_POLICIES: "descheduler",
    DESCHEDULING_RUNS: "descheduler",
    MACHINE_AUTOSCALERS: "autoscaler",
    TAINT_MANAGERS: "tainting",
}
ALL = tuple(NEEDED)
LONG = 2 * (REMOVAL_DELAY + 2 * CHECK_PERIOD)


class Discovery:
    """Serves resources."""

    def __init__(self, *served: Resource) -> None:
        self.served = set(served)
        self.failures = 0

    async def request(self, method: str, path: str, **_: Any) -> Any:
        assert method == "GET"
        if self.failures:
            self.failures -= 1
            raise ServerError("out of order", status=500)
        found = [each for each in self.served if f"/apis/{each.group}/{each.version}" == path]
        if not found:
            raise NotFound("no such group", status=404)
        return {"resources": [{"name": each.plural} for each in found]}


@asynccontextmanager
async def following(discovery: Discovery) -> AsyncIterator[ServedResources]:
    definitions = ServedResources(discovery, NEEDED, clock=LoopClock())  # type: ignore[arg-type]
    task = asyncio.create_task(definitions.run())
    await asyncio.sleep(0)
    try:
        yield definitions
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def returns(waiting: Any, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await waiting
    except TimeoutError:
        return False
    return True


async def test_controllers_with_served_crds_start_immediately() -> None:
    async with following(Discovery(*ALL)) as definitions:
        for each in ALL:
            assert await returns(definitions.wait_until_served(each), 0.1)
        assert definitions.check() is None
        assert set(definitions.resources.values()) == {True}


@pytest.mark.parametrize("missing", ALL, ids=lambda each: each.plural)
async def test_a_missing_definition_makes_only_its_controller_wait(missing: Resource) -> None:
    discovery = Discovery(*(each for each in ALL if each != missing))
    async with following(discovery) as definitions:
        for each in ALL:
            assert await returns(definitions.wait_until_served(each), 0.1) == (each != missing)
        problem = definitions.check() or ""
        assert reasons.RESOURCE_NOT_SERVED in problem
        assert f"{missing.plural}.{missing.group}" in problem
        assert definitions.missing() == {missing: NEEDED[missing]}
        discovery.served.add(missing)
        assert await returns(definitions.wait_until_served(missing), 2 * CHECK_PERIOD)
        assert definitions.check() is None


@pytest.mark.parametrize(
    "order", list(itertools.permutations((DESCHEDULING_RUNS, MACHINE_AUTOSCALERS, TAINT_MANAGERS)))
)
async def test_definitions_that_go_and_return_in_any_order(order: tuple[Resource, ...]) -> None:
    discovery = Discovery(*ALL)
    async with following(discovery) as definitions:
        for number, resource in enumerate(order, 1):
            discovery.served.discard(resource)
            assert await returns(definitions.wait_until_removed(resource), LONG)
            assert len(definitions.missing()) == number
        for number, resource in enumerate(reversed(order), 1):
            discovery.served.add(resource)
            assert await returns(definitions.wait_until_served(resource), LONG)
            assert len(definitions.missing()) == len(order) - number


async def test_a_definition_that_is_absent_for_a_moment_stops_no_controller() -> None:
    discovery = Discovery(*ALL)
    async with following(discovery) as definitions:
        assert await returns(definitions.wait_until_served(TAINT_MANAGERS), 1)
        discovery.served.discard(TAINT_MANAGERS)
        assert not await returns(definitions.wait_until_removed(TAINT_MANAGERS), REMOVAL_DELAY - CHECK_PERIOD)
        discovery.served.add(TAINT_MANAGERS)
        assert not await returns(definitions.wait_until_removed(TAINT_MANAGERS), LONG)


async def test_an_outage_stops_no_controller() -> None:
    discovery = Discovery(*ALL)
    async with following(discovery) as definitions:
        assert await returns(definitions.wait_until_served(TAINT_MANAGERS), 1)
        discovery.failures = 100
        assert not await returns(definitions.wait_until_removed(TAINT_MANAGERS), LONG)
        assert definitions.check() is None


async def test_controllers_wait_for_the_first_discovery() -> None:
    discovery = Discovery(*ALL)
    discovery.failures = 2
    async with following(discovery) as definitions:
        assert definitions.check()
        assert not await returns(definitions.wait_until_served(TAINT_MANAGERS), 0.1)
        assert await returns(definitions.wait_until_served(TAINT_MANAGERS), 4 * CHECK_PERIOD)
