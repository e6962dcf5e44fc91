"""The profile of the scheduling benchmark: which part of the scheduler uses the CPU."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from benchmarks.profiled_operator import (
    BINDING,
    CONNECTIONS,
    EVENTS,
    OTHER,
    PACKAGE,
    PARTS,
    PLANNING,
    QUEUE,
    UNATTRIBUTED,
    WATCHES,
    Sampler,
)


@pytest.mark.parametrize(
    ("stack", "part"),
    [
        (["runtime/controller_thread.py"], CONNECTIONS),
        (["runtime/controller_thread.py", "kube/connection/transport.py"], CONNECTIONS),
        (["scheduling/cycle.py", "scheduling/planner.py", "cluster/snapshot.py"], PLANNING),
        (["runtime/controller_thread.py", "scheduling/binder.py", "kube/verbs.py", "kube/connection/x.py"], BINDING),
        (["controller/work_queue.py", "scheduling/report.py", "kube/verbs.py"], EVENTS),
        (["kube/watching/informer.py", "kube/wire/decode.py"], WATCHES),
        (["kube/watching/informer.py", "scheduling/pending_pods.py"], QUEUE),
        (["runtime/controller_thread.py", "controller/metrics.py"], OTHER),
        ([], OTHER),
    ],
)
def test_cpu_time_counts_for_the_innermost_part_of_the_stack(stack: list[str], part: str) -> None:
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            sum(range(1000))

    call = work
    for module in reversed(stack):
        names = {"inner": call}
        exec(compile("def call():\n    inner()", f"{PACKAGE}{module}", "exec"), names)
        call = names["call"]
    sampler = Sampler()
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    try:
        until = time.monotonic() + 10.0
        while not sampler.seconds[part] and time.monotonic() < until:
            time.sleep(0.002)
            sampler.sample()
    finally:
        ended.set()
        thread.join()
    assert sampler.seconds[part] > 0.0
    assert sampler.seconds.most_common(1)[0][0] == part


def test_waiting_threads_use_nothing() -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait, daemon=True)
    thread.start()
    sampler = Sampler()
    for _ in range(5):
        time.sleep(0.002)
        sampler.sample()
    ended.set()
    thread.join()
    assert sampler.seconds.total() < 0.005


def test_modules_of_the_parts_exist() -> None:
    assert [each for each in (*PARTS, *UNATTRIBUTED) if not Path(PACKAGE, each).exists()] == []
