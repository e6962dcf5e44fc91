"""Draining a node: its pods are evicted and waited for; those of DaemonSets come last."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from trimtab.api import reasons
from trimtab.api.plan import Evict
from trimtab.autoscaling.actuation.ending import Control, Ended, failed
from trimtab.autoscaling.actuation.picture import Picture
from trimtab.autoscaling.actuation.removal import Result
from trimtab.autoscaling.actuation.settings import RemovalSettings
from trimtab.autoscaling.scale_down import STRATEGY
from trimtab.autoscaling.scale_down.drainability.daemon_set import of_daemon_set
from trimtab.autoscaling.scale_down.drainability.long_terminating import GRACE, long_terminating
from trimtab.disruption.attempt import attempt
from trimtab.disruption.outcome import EVICTED, GONE, REFUSED, STARTED
from trimtab.disruption.protections.mirror_pod import ANNOTATION as MIRROR
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock
from trimtab.kube.objects import Pod

ENABLE_DAEMON_SET_EVICTION: Final = "cluster-autoscaler.kubernetes.io/enable-ds-eviction"
"""On pods of DaemonSets: "true" and "false" outweigh the settings."""


def to_evict(pods: Sequence[Pod]) -> list[Pod]:
    """The pods that have to be evicted before a node goes: not static ones, those of DaemonSets, or at their end."""
    return [pod for pod in pods if _lives(pod) and pod.deleted is None and not of_daemon_set(pod)]


def leaving(pods: Sequence[Pod], *, now: float) -> list[Pod]:
    """The pods that somebody is deleting already and that are waited for; not those that should be gone long since."""
    return [
        pod
        for pod in pods
        if _lives(pod) and pod.deleted is not None and not of_daemon_set(pod) and not long_terminating(pod, now=now)
    ]


def daemon_pods(pods: Sequence[Pod], *, unless_told: bool) -> list[Pod]:
    """The pods of DaemonSets that are evicted.

    Args:
        pods: of the node.
        unless_told: whether those are that do not say.
    """
    found = [pod for pod in pods if _lives(pod) and pod.deleted is None and of_daemon_set(pod)]
    words = {True: ("true", ""), False: ("true",)}[unless_told]
    return [pod for pod in found if pod.annotations.get(ENABLE_DAEMON_SET_EVICTION, "") in words]


def grace_of(pod: Pod, most: int) -> int:
    """Seconds that a pod gets to end."""
    own = pod.spec.termination_grace_period
    return min(GRACE if own is None else own, most)


def _lives(pod: Pod) -> bool:
    return not pod.terminal and MIRROR not in pod.annotations


class Drain:
    """Drains one node.

    Args:
        node: its name.
        api: the API server.
        picture: the live picture.
        clock: where the time comes from.
        settings: how to wait and try.
        at_once: requests at a time, for all drains together.
        control: asked before each request.
    """

    def __init__(
        self,
        node: str,
        *,
        api: Api,
        picture: Picture,
        clock: Clock,
        settings: RemovalSettings,
        at_once: asyncio.Semaphore,
        control: Control,
    ) -> None:
        self._node = node
        self._api = api
        self._picture = picture
        self._clock = clock
        self._settings = settings
        self._at_once = at_once
        self._control = control
        self._ended: Ended | None = None
        self.evicted: dict[str, str] = {}
        """Pods that were evicted, ``namespace/name``, with their UIDs."""

    async def evict(self, pods: Sequence[Pod]) -> None:
        """Evict pods side by side and wait until they are gone, and those that somebody else is deleting.

        Raises:
            Ended: one could not be evicted in time, did not end in time, or the removal is not to go on. What has been
                evicted by then is.
        """
        until = self._clock.monotonic() + self._settings.eviction
        due = dict(zip([pod.uid for pod in pods], await self._all(pods, until), strict=True))
        now = self._clock.monotonic()
        wall = self._clock.now()
        for pod in leaving(await self._picture.pods(self._node), now=wall):
            ends = max(0.0, (pod.deleted or wall) - wall) + self._settings.overtime
            due.setdefault(pod.uid, now + max(ends, self._settings.overtime))
        await self._until_gone(due)

    async def evict_daemon_sets(self, pods: Sequence[Pod]) -> None:
        """Ask once for the eviction of pods of DaemonSets and wait for those that go; nothing of it keeps the node.

        Raises:
            Ended: the removal is not to go on.
        """
        due = {}
        for pod in pods:
            await self._control.checkpoint()
            async with self._at_once:
                answer = await attempt(
                    self._api, self._action(pod), timeout=self._settings.timeout, grace_period=self._grace(pod)
                )
            if answer.result == EVICTED:
                self.evicted[pod.key] = pod.uid
                due[pod.uid] = self._clock.monotonic() + grace_of(pod, self._most) + self._settings.overtime
        await self._until_gone(due, bound=False)

    async def _all(self, pods: Sequence[Pod], until: float) -> list[float]:
        """By when each pod has to be gone, on the monotonic clock."""
        answers = await asyncio.gather(*(self._one(pod, until) for pod in pods))
        if self._ended is not None:
            raise self._ended
        return answers

    async def _one(self, pod: Pod, until: float) -> float:
        """Evict one pod; where that fails the others end as well, after what they have in flight."""
        try:
            return await self._insist(pod, until)
        except Ended as ended:
            self._ended = self._ended or ended
            return 0.0

    async def _insist(self, pod: Pod, until: float) -> float:
        """Ask for the eviction until it is granted, or the pod is gone.

        Raises:
            Ended: it was not granted in time, or the removal is not to go on.
        """
        tries = 0
        while True:
            await self._control.checkpoint()
            if self._ended is not None:
                raise self._ended
            blocked = await self._picture.blocks(pod.key) if tries else None
            if blocked is not None:
                raise Ended(Result.ABORTED, blocked, pod=pod)
            async with self._at_once:
                answer = await attempt(
                    self._api, self._action(pod), timeout=self._settings.timeout, grace_period=self._grace(pod)
                )
            now = self._clock.monotonic()
            if answer.result == STARTED:
                self._control.say(f"pod {pod.key}: {answer.message}")
                self.evicted[pod.key] = pod.uid
                return now + self._settings.longest_grace_wait
            if answer.result == EVICTED:
                self.evicted[pod.key] = pod.uid
            if answer.result in (EVICTED, GONE):
                return now + grace_of(pod, self._most) + self._settings.overtime
            if not answer.again or now >= until:
                await self._control.checkpoint()  # nobody leads: that is no failure of the pod
                reason = reasons.NOT_ENOUGH_PDB if answer.result == REFUSED else answer.reason
                raise failed(reason, f"pod {pod.key} was not evicted ({tries + 1} tries): {answer.message}", pod=pod)
            self._control.say(f"pod {pod.key}: {answer.message}")
            backoff = self._settings.budget_backoff if answer.result == REFUSED else self._settings.error_backoff
            wait = max(backoff.delay(tries), answer.retry_after or 0.0)
            tries += 1
            await self._control.pause(min(wait, max(0.0, until - now)))

    async def _until_gone(self, due: dict[str, float], *, bound: bool = True) -> None:
        """Wait until none of these pods lives on the node.

        Args:
            due: by when each has to be gone, by its UID.
            bound: whether one that is not by then ends the removal.

        Raises:
            Ended: one was not, or the removal is not to go on.
        """
        while due:
            there = [pod for pod in await self._picture.pods(self._node) if pod.uid in due and not pod.terminal]
            now = self._clock.monotonic()
            late = [pod for pod in there if now >= due[pod.uid]]
            if late and bound:
                message = f"pod {late[0].key} has not ended within its time ({len(there)} are left in all)"
                raise failed(reasons.POD_DID_NOT_END, message, pod=late[0])
            if len(late) == len(there):
                return
            self._control.say(f"waiting for {len(there)} pods to end, {there[0].key} among them")
            await self._control.checkpoint()
            await self._control.pause(self._settings.poll)

    def _grace(self, pod: Pod) -> int | None:
        """What an eviction says of it; ``None`` where the pod's own is as it is to be."""
        own = pod.spec.termination_grace_period
        return self._most if (GRACE if own is None else own) > self._most else None

    @property
    def _most(self) -> int:
        return self._picture.spec.max_pod_grace_period

    def _action(self, pod: Pod) -> Evict:
        return Evict(
            policy="",
            strategy=STRATEGY,
            namespace=pod.namespace,
            pod=pod.name,
            node=self._node,
            target="",
            reason=reasons.UNDERUTILIZED,
            message="",
            uid=pod.uid,
        )
