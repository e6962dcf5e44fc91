"""Evicts pods that are past their deadline, and retries each one until it no longer exists.

:mod:`.queue` is the public entry point and schedules the attempts for each pod. :mod:`.evaluator` decides what to do
with a pod, :mod:`.due_pod` contains the state of a pod and the result of an attempt, :mod:`.due_queue` enforces the
rate limits, and :mod:`.status` reports counts, refusals and stuck nodes. The evictor sends the requests.
"""

from trimtab.tainting.eviction.due_pod import DuePodOutcome, DuePodResult
from trimtab.tainting.eviction.queue import EvictionQueue

__all__ = ["DuePodOutcome", "DuePodResult", "EvictionQueue"]
