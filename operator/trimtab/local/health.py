"""Is a component well, and if not, what does its log say?"""

from __future__ import annotations

import ssl
import time
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from trimtab.local.components import Layout, health
from trimtab.local.errors import LocalError
from trimtab.local.processes import alive
from trimtab.local.record import Started
from trimtab.local.versions import APISERVER

PATIENCE: Final = 120.0
"""Seconds for a component to become healthy; on an idle machine it takes 1 to 12."""


class PortTaken(LocalError):
    """Somebody took a port between our choice and the server's start.

    Attributes:
        component: whose port.
    """

    def __init__(self, component: str, port: int) -> None:
        super().__init__(f"{component}: port {port} is in use by another process")
        self.component = component


def healthy(component: str, layout: Layout) -> bool:
    """Whether the component answers that it is well, within five seconds."""
    url = health(component, layout)
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if url.startswith("https:"):
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=str(layout.keys.ca))))
    headers = {"Authorization": f"Bearer {layout.keys.token('admin')}"} if component == APISERVER else {}
    opener = urllib.request.build_opener(*handlers)
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=5):
            return True
    except OSError:  # refused, timed out, or an answer other than 2xx
        return False


def becomes_healthy(component: str, layout: Layout, *, seconds: float) -> bool:
    """Whether the component is healthy now or within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not healthy(component, layout):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def await_healthy(components: Iterable[str], started: Mapping[str, Started], layout: Layout) -> None:
    """Wait until each of the components that were started is healthy.

    Raises:
        PortTaken: it ended because its port is in use.
        LocalError: it ended, or is not healthy after :data:`PATIENCE` seconds.
    """
    for component in components:
        if component in started:
            _await(component, started[component], layout)


def _await(component: str, entry: Started, layout: Layout) -> None:
    deadline = time.monotonic() + PATIENCE
    while not healthy(component, layout):
        if not alive(entry.process):
            end = log_end(Path(entry.log))
            if "address already in use" in end:
                raise PortTaken(component, layout.ports[component])
            raise LocalError(f"{component} ended while it started; the end of {entry.log}:\n{end}")
        if time.monotonic() > deadline:
            end = log_end(Path(entry.log))
            raise LocalError(f"{component} is not healthy after {PATIENCE:.0f} s; the end of {entry.log}:\n{end}")
        time.sleep(0.1)


def log_end(path: Path, *, lines: int = 8) -> str:
    """The last lines of a log, each cut to what fits a terminal."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 16_384))
            content = file.read().decode("utf-8", errors="replace")
    except OSError:
        return "(no log)"
    return "\n".join(f"  {line[:300]}" for line in content.splitlines()[-lines:])
