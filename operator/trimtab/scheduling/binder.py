"""Binds pods to the nodes that a cycle has chosen: many at the same time, and each at most once.

A binding names the UID of the pod, so that a new pod with the same name is never bound in place of the old one. It
contains no resource version, because a change of the pod's status does not matter.

What can go wrong, and what happens then:

- The pod was deleted or bound in the meantime, or its node was removed: the binding is not sent.
- The API server refuses the binding: the pod returns to the queue.
- There is no response, so the pod may or may not have been bound: the same binding is sent again. If the API server
  then reports that the pod already has a node, the pod is read to find out which.
- The watches are stale, or the process may have lost its lease: the binding is not sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from trimtab.cluster.own_writes import Assumption
from trimtab.controller.loop import BackgroundTasks
from trimtab.kube import verbs
from trimtab.kube.api import ApiError, Conflict, NotFound, NotLeading, ServerError, Unreachable
from trimtab.kube.objects import PersistentVolume, PersistentVolumeClaim, Pod
from trimtab.kube.resources import PODS
from trimtab.kube.retry import Backoff
from trimtab.placement.volume_binding import has_claims
from trimtab.scheduling.dependencies import SchedulerDependencies, VolumeBindingError
from trimtab.scheduling.extender_verdicts import ExtenderError
from trimtab.scheduling.extenders import ExtenderChain
from trimtab.scheduling.queue import QueuedPod

log = logging.getLogger(__name__)

CONCURRENCY: Final = 32
"""Maximum number of bindings in flight. Each occupies one of the transport's connections, which watches share."""

REQUEST_TIMEOUT: Final = 15.0
"""Timeout of a request in seconds."""

LOST_ANSWER: Final = Backoff(initial=0.2, maximum=5.0, attempts=6)
"""Backoff before a binding is sent again after its response was lost."""


class Binding(Struct, eq=False):
    """A pod that the snapshot assumes to be on a node, and that has to be bound to this node.

    Attributes:
        queued: the pod in the scheduling queue.
        node: the name of the node.
        assumption: the pod and its volumes in the snapshot.
        attempt_seconds: duration of the scheduling attempt that chose the node.
        volume_task: the task that binds the volumes of the pod before the pod, if it has claims.
    """

    queued: QueuedPod
    node: str
    assumption: Assumption
    attempt_seconds: float
    volume_task: asyncio.Task[None] | None = None


class Obsolete(Exception):
    """The pod must no longer be bound, for example because it was deleted. Nothing has to be reported."""


class Binder:
    """Sends bindings with bounded concurrency, in the order in which they were started.

    Args:
        dependencies: the dependencies of the scheduler.
        bound: called with each binding that succeeded.
        failed: called with each binding that failed, and a message for the pod's events; ``""`` for no event.
        extenders: returns the scheduler extenders of a pod's policy. One of them may bind the pod instead.
    """

    def __init__(
        self,
        dependencies: SchedulerDependencies,
        *,
        bound: Callable[[Binding], None],
        failed: Callable[[Binding, str], None],
        extenders: Callable[[Pod], ExtenderChain | None] = lambda _pod: None,
    ) -> None:
        self._extenders = extenders
        self._dependencies = dependencies
        self._bound = bound
        self._failed = failed
        self._unsent: dict[str, Binding] = {}  # by UID; a binding that is no longer in it must not be sent
        self._waiting: deque[Binding] = deque()
        self._workers = BackgroundTasks()
        self._volume_tasks = BackgroundTasks()
        self._closing = False

    @property
    def in_progress(self) -> int:
        """Return the number of bindings that have been started and have not ended."""
        return len(self._waiting) + len(self._workers)

    def start(self, binding: Binding) -> None:
        """Bind a pod in the background. The volumes of a pod are bound first, without delaying other pods."""
        pod = binding.queued.pod
        self._unsent[pod.uid] = binding
        if pod.spec.volumes and has_claims(pod):
            binding.volume_task = self._volume_tasks.start(self._bind_with_volumes(binding))
        else:
            self._enqueue(binding)

    def cancel(self, pod: Pod) -> bool:
        """Cancel the binding of a pod if it has not been sent. The pod returns to the queue.

        Returns:
            Whether the binding was cancelled; ``False`` if it has already been sent, or if there is none.
        """
        binding = self._unsent.pop(pod.uid, None)
        if binding is None:
            return False
        if binding.volume_task is not None:
            binding.volume_task.cancel()  # a later binding of the pod may choose other volumes
        self._failed(binding, "")
        return True

    async def stop(self, seconds: float) -> None:
        """Send no further bindings, and wait for those in flight.

        Args:
            seconds: maximum time to wait. After that, the requests are cancelled.
        """
        self._closing = True
        self._waiting.clear()
        self._unsent.clear()
        await asyncio.gather(self._volume_tasks.stop(), self._workers.stop(seconds))

    def _enqueue(self, binding: Binding) -> None:
        self._waiting.append(binding)
        if len(self._workers) < CONCURRENCY:
            self._workers.start(self._work())

    async def _work(self) -> None:
        while self._waiting:
            binding = self._waiting.popleft()
            if self._take(binding):
                await self._attempt(binding)

    def _take(self, binding: Binding) -> bool:
        """Return whether the binding must be sent or reported, and forget it; ``False`` if it was cancelled.

        A cancelled binding stays in the list of waiting bindings, while its pod may already have another one.
        """
        uid = binding.queued.pod.uid
        if self._unsent.get(uid) is not binding:
            return False
        del self._unsent[uid]
        return True

    async def _bind_with_volumes(self, binding: Binding) -> None:
        reserved = [each.new for each in binding.assumption.reserved]
        volumes = [each for each in reserved if isinstance(each, PersistentVolume | PersistentVolumeClaim)]
        message = ""
        try:
            self._check(binding)
            await self._dependencies.volumes.bind(binding.queued.pod, binding.node, volumes)
        except (Obsolete, NotLeading):
            pass
        except (VolumeBindingError, ApiError, Unreachable) as error:
            message = f"binding volumes: {error}"
        except Exception as error:
            log.exception("Failed to bind the volumes of pod %s: unexpected error", binding.queued.pod.key)
            message = f"binding volumes: {type(error).__name__}: {error}"
        else:
            self._enqueue(binding)
            return
        if self._take(binding):
            self._failed(binding, message)

    async def _attempt(self, binding: Binding) -> None:
        try:
            await self._bind(binding)
        except (Obsolete, NotLeading, NotFound):
            self._failed(binding, "")
        except (ApiError, Unreachable, ExtenderError) as error:
            self._failed(binding, str(error))
        except Exception as error:
            log.exception("Failed to bind pod %s to node %s: unexpected error", binding.queued.pod.key, binding.node)
            self._failed(binding, f"{type(error).__name__}: {error}")
        else:
            self._bound(binding)

    async def _bind(self, binding: Binding) -> None:
        """Bind the pod.

        Raises:
            Obsolete: the pod must no longer be bound.
            ApiError: the API server refused the binding.
            Unreachable: the API server did not respond to any attempt.
            ExtenderError: the extender that binds the pod failed.
        """
        pod, lost = binding.queued.pod, 0
        extenders = self._extenders(pod)
        if extenders is not None and extenders.binds(pod):
            if not self._check(binding):
                await extenders.bind(pod, binding.node)
            return
        path = PODS.path(pod.name, namespace=pod.namespace, subresource="binding")
        while not self._check(binding):
            try:
                await self._dependencies.api.request(
                    "POST", path, body=_body(binding), accept=verbs.METADATA_ONLY, timeout=REQUEST_TIMEOUT
                )
            except NotLeading:
                raise
            except Conflict:
                if lost and await self._has_node(binding):
                    return
                raise
            except (Unreachable, ServerError):
                if self._closing or LOST_ANSWER.exhausted(lost):
                    raise
                await self._dependencies.clock.sleep(LOST_ANSWER.delay(lost))
                lost += 1
            else:
                return

    def _check(self, binding: Binding) -> bool:
        """Return whether the watch already reports the pod on the node of the binding.

        Raises:
            Obsolete: the pod must not be bound, according to the caches.
        """
        dependencies, pod = self._dependencies, binding.queued.pod
        now = dependencies.lister.pod(pod.key)
        if now is None or now.uid != pod.uid or now.deleted is not None:
            raise Obsolete("the pod was deleted")
        if now.node:
            if now.node != binding.node:
                raise Obsolete(f"the pod was bound to node {now.node}")
            return True
        if dependencies.lister.node(binding.node) is None:
            raise Obsolete("the node was removed")
        stale = dependencies.stale()
        if stale is not None:
            raise Obsolete(stale)
        return False

    async def _has_node(self, binding: Binding) -> bool:
        """Read the pod from the API server, and return whether it is bound to the node of the binding."""
        pod = binding.queued.pod
        found = await verbs.get(self._dependencies.api, PODS, pod.name, namespace=pod.namespace)
        return bool(found["metadata"]["uid"] == pod.uid and found["spec"].get("nodeName") == binding.node)


def _body(binding: Binding) -> dict[str, Any]:
    pod = binding.queued.pod
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": binding.node},
    }
