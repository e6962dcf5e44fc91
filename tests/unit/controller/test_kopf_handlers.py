"""The daemon of a kind of which a cluster has one object."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, cast

import kopf
import pytest

from tests.fakes.daemon import Stopped
from trimtab.controller.kopf_handlers import register_singleton
from trimtab.kube.resources import TAINT_MANAGERS

BODY = {"metadata": {"name": "default", "uid": "u1"}}


class Broken:
    """A controller that fails as it takes its object in."""

    cleaned = False

    def observe(self, body: Mapping[str, Any]) -> None:
        raise ValueError("a slip")

    def end(self) -> None:
        raise AssertionError("it does not run")

    async def run(self, stopped: object) -> None:
        raise AssertionError("it does not run")

    async def clean_up(self) -> None:
        self.cleaned = True

    async def stop(self) -> None:
        return


async def test_a_controller_that_cannot_take_its_object_in_does_not_block_its_deletion() -> None:
    made: list[Broken] = []

    def make() -> Broken:
        made.append(Broken())
        return made[-1]

    async def refuse(body: Mapping[str, Any]) -> None:
        raise AssertionError(body)

    registry = kopf.OperatorRegistry()
    register_singleton(registry, TAINT_MANAGERS, "default", make=make, refuse=refuse)
    [daemon] = registry._spawning.get_all_handlers()
    [deletion] = registry._changing.get_all_handlers()
    run, deleted = (cast("Callable[..., Coroutine[Any, Any, None]]", each.fn) for each in (daemon, deletion))
    with pytest.raises(ValueError, match="a slip"):
        await run(body=BODY, name="default", uid="u1", stopped=Stopped())
    await deleted(uid="u1")
    assert made[-1].cleaned
