"""The operator as a process that samples its own stacks: ``PROFILE=FILE python benchmarks/profiled_operator.py run …``.

Every second, it writes to FILE as JSON for how many CPU seconds each part of the scheduler has been running since the
start. At each sample, the CPU time that a thread has used since the previous sample counts for the part that its stack
shows now. So waiting costs nothing, and neither does a thread that waits for the interpreter lock.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Final

import trimtab

PACKAGE: Final = f"{Path(trimtab.__file__).parent}/"

PROFILE: Final = "PROFILE"
"""The environment variable with the name of the file."""

PERIOD: Final = 1.0
"""Seconds between two writes of the file."""

PAUSE: Final = 0.002
"""Seconds between two samples. A thread that computes keeps the interpreter lock for up to 5 ms."""

PLANNING: Final = "planning"
BINDING: Final = "binding requests"
PREEMPTION: Final = "preemption requests"
EVENTS: Final = "events and conditions"
QUEUE: Final = "queue"
WATCHES: Final = "watch decoding and caches"
CONNECTIONS: Final = "connections and event loop"
OTHER: Final = "other"

PARTS: Final = {
    "scheduling/binder.py": BINDING,
    "scheduling/volumes.py": BINDING,
    "scheduling/preemptor.py": PREEMPTION,
    "disruption/evictor/": PREEMPTION,
    "scheduling/report.py": EVENTS,
    "kube/events/": EVENTS,
    "scheduling/queue.py": QUEUE,
    "scheduling/queueing_hints.py": QUEUE,
    "scheduling/pending_pods.py": QUEUE,
    "scheduling/": PLANNING,
    "placement/": PLANNING,
    "kube/watching/": WATCHES,
    "kube/wire/": WATCHES,
}
"""The parts by the beginnings of module paths, of which the first that fits applies.

The innermost module of a stack that belongs to a part decides. A request therefore belongs to the part that sends it.
"""

UNATTRIBUTED: Final = ("kube/connection/", "runtime/controller_thread.py")
"""The innermost modules of stacks that read responses, or that are in the event loop itself. Nothing shows for whom."""


class Sampler:
    """Counts CPU seconds by part.

    Attributes:
        seconds: the CPU seconds of each part.
    """

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._used: dict[int, float] = {}
        self._modules: dict[str, str] = {}

    def sample(self) -> None:
        """Count the CPU time that the other threads have used since the last call."""
        frames = sys._current_frames()  # noqa: SLF001 - there is no public function
        for thread in threading.enumerate():
            number = thread.ident
            if number is None or number == threading.get_ident():
                continue
            used = time.clock_gettime(time.pthread_getcpuclockid(number))
            more = used - self._used.get(number, used)
            self._used[number] = used
            if more > 0.0 and number in frames:
                self.seconds[self._part_of(frames[number])] += more

    def _part_of(self, frame: FrameType | None) -> str:
        innermost = ""
        while frame is not None:
            path = frame.f_code.co_filename
            module = self._modules.get(path)
            if module is None:
                module = self._modules[path] = path[len(PACKAGE) :] if path.startswith(PACKAGE) else ""
            if module:
                innermost = innermost or module
                for prefix, part in PARTS.items():
                    if module.startswith(prefix):
                        return part
            frame = frame.f_back
        return CONNECTIONS if innermost.startswith(UNATTRIBUTED) else OTHER


def _follow(file: Path) -> None:
    sampler = Sampler()
    due = time.monotonic()
    while True:
        time.sleep(PAUSE)
        sampler.sample()
        if time.monotonic() >= due:
            due = time.monotonic() + PERIOD
            partial = file.with_suffix(".partial")
            partial.write_text(json.dumps(sampler.seconds))
            partial.rename(file)


if __name__ == "__main__":
    from trimtab.cli.main import main

    threading.Thread(target=_follow, args=(Path(os.environ[PROFILE]),), name="profile", daemon=True).start()
    sys.exit(main())
