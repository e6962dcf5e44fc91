"""What a run of the executor works with, and what it has to keep to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from trimtab.api.plan import Evict
from trimtab.api.reasons import CYCLE_DEADLINE
from trimtab.disruption.outcome import Outcome
from trimtab.disruption.pace import Pace
from trimtab.disruption.refusal import Refusal
from trimtab.disruption.settings import ExecutorSettings
from trimtab.disruption.settlement import OwnerBook
from trimtab.disruption.view import ClusterView
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.reference import ObjectReference

Recheck = Callable[[Evict], Refusal | None]

Blind = Callable[[], str | None]
"""What keeps the live picture from being judged by, ``None`` where nothing does."""

LATE: Final = Refusal(CYCLE_DEADLINE, "the cycle's time was up before the pod's turn came")
"""What is said of pods whose turn has not come by the deadline, where the caller gives no other cause for it."""


class Means(Struct, frozen=True, kw_only=True):
    """What every run works with; see :class:`~trimtab.disruption.executor.Executor`."""

    api: Api
    recorder: Recorder
    clock: Clock
    view: ClusterView
    observe: Callable[[Outcome], None] | None
    settings: ExecutorSettings
    book: OwnerBook


class Terms(Struct, frozen=True, kw_only=True):
    """What one run has to keep to; see :meth:`~trimtab.disruption.executor.Executor.execute`."""

    policy: ObjectReference
    pace: Pace
    per_minute: int
    deadline: float
    recheck: Recheck | None
    stop: asyncio.Event
    blind: Blind
    observe: Callable[[Outcome], None] | None = None
    grace_period: int | None = None
    late: Refusal = LATE
