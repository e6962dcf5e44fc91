"""A mechanism that every controller needs exists once: loop, queue, rate limit, status writer and reporter, evictor,
recorder.

A new class with such a name extends the existing one, or is listed here with what it does that the existing one cannot
do.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCES = Path("operator/trimtab")

MECHANISMS = {
    r"\w*Loop": {"controller/loop.py:Loop": "the mechanism"},
    r"\w*Queue": {
        "controller/work_queue.py:WorkQueue": "the mechanism",
        "controller/work_queue.py:_FairQueue": "a part of it",
        "controller/work_queue.py:_RateLimitedQueue": "a part of it",
        "descheduling/planning/destinations.py:_Queue": "a planner's order of candidate nodes: no time, no tasks",
        "descheduling/planning/victim_order.py:VictimQueue": "a planner's order of candidate pods: no time, no tasks",
        "disruption/executor/owner_queue.py:OwnerQueue": "the evictions of one owner, in the order of a plan",
        "disruption/executor/owner_queue.py:ReadyQueue": "the owners of a plan, in the order of the plan",
        "scheduling/queue.py:SchedulingQueue": "kube-scheduler's order and events that make pods schedulable",
        "tainting/eviction_queue.py:EvictionQueue": "what the taint manager does with the keys of a WorkQueue",
    },
    r"\w*(Bucket|RateLimiter|SlidingWindow)": {
        "kube/token_bucket.py:TokenBucket": "the mechanism for rates",
        "kube/token_bucket.py:SlidingWindow": "the mechanism for limits per minute",
    },
    r"\w*StatusWriter": {"controller/status_writer.py:StatusWriter": "the mechanism"},
    r"\w*StatusReporter": {"controller/status_reporter.py:StatusReporter": "the mechanism"},
    r"\w*LatestWriter": {"controller/latest_writer.py:LatestWriter": "the mechanism"},
    r"\w*Evictor": {"disruption/evictor/evictor.py:Evictor": "the mechanism"},
    r"\w*Timers|\w*TimerHeap": {
        "controller/timers.py:Timers": "the mechanism with a task",
        "controller/timers.py:TimerHeap": "the mechanism without a task",
    },
    r"\w*(Event)?Recorder": {
        "kube/events/recorder.py:EventRecorder": "the mechanism",
        "disruption/executor/executor.py:OutcomeRecorder": "the outcomes of one plan",
    },
}


def classes(pattern: str) -> set[str]:
    """The classes whose names match, without protocols and without subclasses of other matching classes."""
    found = {}
    for path in sorted(SOURCES.rglob("*.py")):
        for each in ast.walk(ast.parse(path.read_text())):
            if isinstance(each, ast.ClassDef) and re.fullmatch(pattern, each.name):
                bases = {name.id for base in each.bases for name in ast.walk(base) if isinstance(name, ast.Name)}
                found[f"{path.relative_to(SOURCES)}:{each.name}"] = bases
    names = {key.rpartition(":")[2] for key in found}
    return {key for key, bases in found.items() if "Protocol" not in bases and not bases & names}


@pytest.mark.parametrize("pattern", MECHANISMS)
def test_mechanism_exists_once(pattern: str) -> None:
    assert classes(pattern) == set(MECHANISMS[pattern])


def test_subclasses_of_the_loop_do_not_implement_it_again() -> None:
    again = [
        str(path)
        for path in SOURCES.rglob("*.py")
        if path.name != "loop.py" and "def _iterate_until_closed" in path.read_text()
    ]
    assert again == []
