"""The controllers' half of the process keeps its own tasks running."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tests.fakes.server import FakeServer, fake_server
from trimtab.kube.connection.config import ServerConfig
from trimtab.runtime import app
from trimtab.runtime.app import App
from trimtab.runtime.metrics.process import RuntimeMetrics
from trimtab.runtime.settings import Settings


def standby(server: FakeServer) -> App:
    """Create the controllers' half of a process that is not the leader."""
    registry = CollectorRegistry()
    return App(
        Settings(),
        ServerConfig(server=server.url),
        identity="me",
        registry=registry,
        metrics=RuntimeMetrics(registry),
        leading=lambda: False,
    )


def test_node_pressure_alone_starts_without_the_other_controllers() -> None:
    code = (
        "import sys, trimtab.cli.run, trimtab.runtime.supervisor, trimtab.runtime.app\n"
        "import trimtab.runtime.controllers.node_pressure\n"
        "names = 'numpy', 'trimtab.autoscaling.controller', 'trimtab.runtime.inspection.service'\n"
        "print([name for name in names if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_failed_task_is_logged_and_restarted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    began, failing = 0, list[bool]()
    again = asyncio.Event()

    class Reclaimer:
        def __init__(self, *_: Any) -> None:
            pass

        async def reclaim_after_removals(self) -> None:
            nonlocal began
            began += 1
            if began == 1:
                raise KeyError("x")
            failing.append(any(component.error for component in made.progress.components))
            again.set()

    monkeypatch.setattr(app, "MemoryReclaimer", Reclaimer)
    async with fake_server() as server:
        made = standby(server)
        running = asyncio.create_task(made.run())
        await asyncio.wait_for(again.wait(), 10)
        assert "reclaim memory failed" in caplog.text
        assert failing == [True]
        made.stop()
        await asyncio.wait_for(running, 10)


async def test_discovery_ends_before_the_transport_closes() -> None:
    async with fake_server() as server:
        made = standby(server)
        running = asyncio.create_task(made.run(), name="app")
        definitions: list[asyncio.Task[Any]] = []
        while not definitions:
            await asyncio.sleep(0)
            definitions = [each for each in asyncio.all_tasks() if each.get_name() == "definitions"]
        made.stop()
        await asyncio.wait_for(running, 10)
        assert definitions[0].cancelled(), "its next request would fail on the closed transport"
