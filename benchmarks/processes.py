"""CPU time and memory of other processes, from procfs."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

IDLE: Final = 0.1
"""CPU share of one core up to which a process counts as idle."""
PATIENCE: Final = 600.0


class Meter:
    """Measures the CPU seconds that processes use from now on, and those of all other processes on the machine."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._began = time.monotonic()
        self._before = self._now()

    def read(self) -> list[float]:
        """Return the CPU seconds of each process, and, as the last item, the cores that all other processes used."""
        *each, all_ = (now - then for then, now in zip(self._before, self._now(), strict=True))
        return [*each, (all_ - sum(each)) / (time.monotonic() - self._began)]

    def _now(self) -> list[float]:
        user, nice, system, _idle, _waiting, *more = map(
            int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        )
        busy = (user + nice + system + sum(more[:3])) / os.sysconf("SC_CLK_TCK")
        return [*(cpu_seconds(pid) for pid in self._pids), busy]


def settle(*pids: int, window: float = 3.0) -> None:
    """Wait until the processes are idle, for example until a controller has read all pods after its start."""
    deadline = time.monotonic() + PATIENCE
    before = [cpu_seconds(pid) for pid in pids]
    while time.monotonic() < deadline:
        time.sleep(window)
        after = [cpu_seconds(pid) for pid in pids]
        if all(now - then <= IDLE * window for then, now in zip(before, after, strict=True)):
            return
        before = after
    raise TimeoutError(f"waited {PATIENCE:.0f} s until processes {pids} are idle")


def memory_mb(pid: int, field: str) -> int:
    """Return ``VmRSS`` or ``VmHWM`` of a process in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith(field))


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that all threads of a process have used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime, proc(5)
