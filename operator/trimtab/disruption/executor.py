"""The executor: carries a plan's evictions out, owners side by side, an owner's pods one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from trimtab.api.plan import Evict
from trimtab.disruption.execution import Execution
from trimtab.disruption.outcome import Outcome
from trimtab.disruption.pace import Pace
from trimtab.disruption.refusal import Refusal
from trimtab.disruption.settings import ExecutorSettings
from trimtab.disruption.settlement import OwnerBook
from trimtab.disruption.terms import LATE, Blind, Means, Recheck, Terms
from trimtab.disruption.view import ClusterView
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.reference import ObjectReference


class Executor:
    """Evicts what plans say. One for the whole process: it remembers each policy's pace and what owners miss.

    Only the Eviction API is used, with the planned pod's UID as precondition: so budgets are kept, and a successor of
    the same name is never hit. Single replicas that surge are not evicted; their Deployment is restarted. What has
    become untrue since the plan was made is not carried out.
    """

    def __init__(
        self,
        *,
        api: Api,
        recorder: Recorder,
        clock: Clock,
        view: ClusterView,
        observe: Callable[[Outcome], None] | None = None,
        settings: ExecutorSettings | None = None,
    ) -> None:
        """Prepare; nothing runs before :meth:`execute`.

        Args:
            api: the API server.
            recorder: where events go.
            clock: where the time comes from.
            view: the live picture.
            observe: called with every outcome as it is known, for metrics.
            settings: how to wait and try.
        """
        self._means = Means(
            api=api,
            recorder=recorder,
            clock=clock,
            view=view,
            observe=observe,
            settings=settings or ExecutorSettings(),
            book=OwnerBook(),
        )
        self._paces: dict[str, Pace] = {}

    async def execute(
        self,
        actions: Sequence[Evict],
        *,
        policy: ObjectReference,
        per_minute: int,
        deadline: float,
        recheck: Recheck | None = None,
        stop: asyncio.Event | None = None,
        blind: Blind = lambda: None,
        observe: Callable[[Outcome], None] | None = None,
        grace_period: int | None = None,
        late: Refusal = LATE,
    ) -> list[Outcome]:
        """Carry out a plan's evictions, as far as the time allows.

        An action fails by itself: whatever happens to one pod ends as its outcome, never as an exception. Cancelling
        leaves requests unanswered that may have been granted; to end in order, set ``stop`` and wait.

        Args:
            actions: in the order of the plan; an earlier one goes first where both could.
            policy: what the events are posted to beside the pods.
            per_minute: most evictions in any minute, counted over all calls for this policy.
            deadline: on ``clock.monotonic()``: no request is sent from then on. Those in flight are waited for, which
                takes up to twice ``settings.timeout``.
            recheck: asked right before each eviction whether it still makes sense; a refusal ends the action.
            stop: once set, nothing new is started and what is in flight is finished, as at the deadline.
            blind: what keeps the live picture from being judged by; nothing is started until it says ``None``.
            observe: called with every outcome of this call as it is known.
            grace_period: seconds that pods have to end; ``None`` for each pod's own.
            late: what is said of those whose turn has not come by the deadline.

        Returns:
            An outcome for every action, in the order of ``actions``.
        """
        terms = Terms(
            policy=policy,
            pace=self._paces.setdefault(policy.name, Pace()),
            per_minute=per_minute,
            deadline=deadline,
            recheck=recheck,
            stop=stop or asyncio.Event(),
            blind=blind,
            observe=observe,
            grace_period=grace_period,
            late=late,
        )
        return await Execution(actions, self._means, terms).run()
