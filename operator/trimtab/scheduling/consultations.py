"""Sends requests about pods to scheduler extenders in the background, while the cycle plans other pods.

A pod that an extender is interested in is planned in two cycles. The first cycle finds its feasible nodes and sends
them to the extenders; the pod stays in flight until they respond. The second cycle plans the pod with their verdict,
which can only narrow the nodes that are feasible at that time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from trimtab.controller.loop import BackgroundTasks
from trimtab.kube.objects import Pod
from trimtab.scheduling.extender_verdicts import ExtenderError, Verdict
from trimtab.scheduling.extenders import ExtenderChain
from trimtab.scheduling.planner import scheduler_of
from trimtab.scheduling.preemption import Preemption
from trimtab.scheduling.queue import QueuedPod

log = logging.getLogger(__name__)

CONCURRENCY: Final = 16
"""Maximum number of pods for which requests are in flight. The others wait."""

MAX_VERDICTS: Final = 512
"""Maximum number of verdicts that are kept. More pods have verdicts only if their plans fail."""


class Consultations:
    """Sends requests to the extenders of all policies, and keeps their verdicts until the pods are planned.

    Args:
        answered: called with each pod whose verdict has arrived, so that the pod can be planned.
        failed: called with each pod whose extenders failed, and the error.
    """

    def __init__(self, *, answered: Callable[[QueuedPod], None], failed: Callable[[QueuedPod, str], None]) -> None:
        self._answered = answered
        self._failed = failed
        self._chains: dict[str, ExtenderChain] = {}
        self._verdicts: dict[str, Verdict] = {}
        self._limit = asyncio.Semaphore(CONCURRENCY)
        self._tasks = BackgroundTasks()

    @property
    def in_progress(self) -> int:
        """Number of requests to extenders that are waiting or in flight."""
        return len(self._tasks)

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """The verdicts of the pods that can be planned, by UID."""
        return self._verdicts

    def use(self, scheduler: str, chain: ExtenderChain | None) -> None:
        """Use these extenders for the pods of a scheduler name from now on."""
        replaced = self._chains.pop(scheduler, None)
        if chain is not None:
            self._chains[scheduler] = chain
        if replaced is not None:
            self._tasks.start(replaced.close())

    def chain(self, pod: Pod) -> ExtenderChain | None:
        """Return the extenders of the pod's policy, or ``None`` if it has none."""
        return self._chains.get(scheduler_of(pod)) if self._chains else None

    def must_ask(self, pod: Pod) -> bool:
        """Return whether extenders must be asked before the pod is planned."""
        chain = self.chain(pod)
        return chain is not None and pod.uid not in self._verdicts and chain.interested(pod)

    def ask(self, queued: QueuedPod, feasible: Sequence[str]) -> None:
        """Ask the extenders about a pod in the background.

        Args:
            queued: the pod in flight.
            feasible: the names of its feasible nodes. If there are none, the extenders are not asked.
        """
        if feasible:
            self._tasks.start(self._consult(queued, feasible))
        else:
            self._keep(queued, Verdict(frozenset(), frozenset()))

    def forget(self, uid: str) -> None:
        """Forget the verdict on a pod that has been planned or has left the queue."""
        self._verdicts.pop(uid, None)

    def approve(self, preemption: Preemption, decided: Callable[[Preemption | None], None]) -> bool:
        """Ask the extenders in the background whether they accept a preemption.

        Args:
            preemption: the preemption.
            decided: called later with the preemption, reduced to the victims that the extenders accept; ``None`` if
                they reject it.

        Returns:
            Whether an extender is asked. If none is, ``decided`` is not called.
        """
        chain = self.chain(preemption.pod)
        if chain is None or not preemption.victims or not chain.preempts(preemption.pod):
            return False
        self._tasks.start(self._approve(chain, preemption, decided))
        return True

    async def stop(self, seconds: float) -> None:
        """Wait up to ``seconds`` for requests in flight, and close all connections."""
        await self._tasks.stop(seconds)
        for chain in self._chains.values():
            await chain.close()

    async def _consult(self, queued: QueuedPod, feasible: Sequence[str]) -> None:
        chain = self.chain(queued.pod)
        try:
            async with self._limit:
                verdict = None if chain is None else await chain.consult(queued.pod, feasible)
        except ExtenderError as error:
            self._failed(queued, str(error))
        except Exception as error:
            log.exception("Failed to call the scheduler extenders for pod %s: unexpected error", queued.pod.key)
            self._failed(queued, f"{type(error).__name__}: {error}")
        else:
            self._keep(queued, verdict)

    def _keep(self, queued: QueuedPod, verdict: Verdict | None) -> None:
        if len(self._verdicts) >= MAX_VERDICTS:
            self._verdicts.clear()
        if verdict is not None:
            self._verdicts[queued.pod.uid] = verdict
        self._answered(queued)

    async def _approve(
        self, chain: ExtenderChain, preemption: Preemption, decided: Callable[[Preemption | None], None]
    ) -> None:
        accepted = None
        try:
            async with self._limit:
                left = await chain.preempt(preemption.pod, {preemption.node: preemption.victims})
            if left.get(preemption.node):
                accepted = replace(preemption, victims=tuple(left[preemption.node]))
        except ExtenderError as error:
            log.warning(
                "Canceled the preemption for pod %s because a scheduler extender failed: %s", preemption.pod.key, error
            )
        except Exception:
            log.exception("Failed to call the scheduler extenders for the preemption by pod %s", preemption.pod.key)
        decided(accepted)
