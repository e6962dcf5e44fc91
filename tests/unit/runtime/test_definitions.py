"""An operator that was installed before its definitions waits for them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.fakes.clock import LoopClock
from trimtab.kube.api import NotFound, ServerError
from trimtab.kube.resources import DESCHEDULER_POLICIES
from trimtab.runtime.definitions import Definitions

pytestmark = pytest.mark.looptime
SERVED = {"kind": "APIResourceList", "resources": [{"name": "deschedulerpolicies"}]}


class Discovery:
    """Answers with what it has, or fails as often as it is told to."""

    def __init__(self, served: dict[str, Any] | None, *, failures: int = 0) -> None:
        self.served = served
        self.failures = failures

    async def request(self, method: str, path: str, **_: Any) -> Any:
        assert (method, path) == ("GET", "/apis/trimtab.dev/v1alpha1")
        if self.failures:
            self.failures -= 1
            raise ServerError("out of order", status=500)
        if self.served is None:
            raise NotFound("no such group", status=404)
        return self.served


def waiting_on(discovery: Discovery) -> Definitions:
    return Definitions(discovery, (DESCHEDULER_POLICIES,), clock=LoopClock())  # type: ignore[arg-type]


async def test_it_goes_on_at_once_where_they_are_there() -> None:
    definitions = waiting_on(Discovery(SERVED))
    async with asyncio.timeout(0.1):
        await definitions.served()
    assert definitions.check() is None


async def test_it_waits_for_them_and_says_for_what() -> None:
    discovery = Discovery(None)
    definitions = waiting_on(discovery)
    waiting = asyncio.create_task(definitions.served())
    await asyncio.sleep(10)
    assert "deschedulerpolicies.trimtab.dev is not served" in (definitions.check() or "")
    discovery.served = {"kind": "APIResourceList", "resources": []}
    await asyncio.sleep(10)
    assert not waiting.done()
    discovery.served = SERVED
    await asyncio.sleep(3)
    assert waiting.done()
    assert definitions.check() is None


async def test_a_server_that_cannot_say_is_asked_again() -> None:
    definitions = waiting_on(Discovery(SERVED, failures=2))
    async with asyncio.timeout(5):
        await definitions.served()
