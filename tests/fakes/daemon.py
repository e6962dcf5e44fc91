"""What Kopf hands to a daemon."""

from __future__ import annotations

import asyncio


class Stopped:
    """Set once the daemon is to end."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def set(self) -> None:
        """Have the daemon end."""
        self.event.set()

    def __bool__(self) -> bool:
        return self.event.is_set()

    async def wait(self, timeout: float | None = None) -> object:
        """Wait until it is set."""
        del timeout
        return await self.event.wait()
