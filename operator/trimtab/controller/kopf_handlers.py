"""Registers the Kopf handlers that run a reconcile loop for each object of a custom resource.

Most kinds have a loop per object (:func:`register_loops`). A kind that has a single object per cluster, such as the
TaintManager, also has a handler that cleans up after the deletion, and refuses objects with other names
(:func:`register_singleton`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

import kopf

from trimtab.api.conditions import READY, find_condition
from trimtab.controller.reporter import R, next_status, not_ready
from trimtab.controller.status_writer import StatusWriter
from trimtab.kube.resources import Resource

STOP_TIMEOUT: Final = 28.0
"""Seconds that a stopping daemon has to finish its in-flight requests (Kopf's cancellation backoff)."""

CANCEL_TIMEOUT: Final = 2.0
"""Seconds that a cancelled daemon has to end (Kopf's cancellation timeout)."""

CLEANUP_TIMEOUT: Final = 180.0
"""Seconds after which Kopf removes the finalizer of a deleted object even if the cleanup failed."""


class StopFlag(Protocol):
    """The stop flag that Kopf passes to a daemon. It is set when the object is deleted or the operator exits."""

    def __bool__(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> Awaitable[object]:
        """Wait until it is set."""
        ...


class ObjectLoop(Protocol):
    """The reconcile loop of one object."""

    def observe(self, body: Mapping[str, Any]) -> None:
        """Store the latest version of the object."""
        ...

    def end(self) -> None:
        """End :meth:`run` because the object was deleted, with or without its finalizer."""
        ...

    async def run(self, stopped: StopFlag) -> None:
        """Reconcile the object until stopped."""
        ...


class Singleton(ObjectLoop, Protocol):
    """The controller for a kind of which only one object is allowed."""

    async def clean_up(self) -> None:
        """Remove from the cluster everything that the controller created, because the object is being deleted."""
        ...

    async def stop(self) -> None:
        """Stop the tasks that :meth:`clean_up` started, if :meth:`run` was not called."""
        ...


L = TypeVar("L", bound=ObjectLoop)


def register_loops(
    registry: kopf.OperatorRegistry,
    resource: Resource,
    *,
    make: Callable[[str], L],
    running: dict[str, L],
    when: Callable[..., bool] | None = None,
    never_started: Callable[[Mapping[str, Any], str], None] = lambda _body, _uid: None,
    stop_timeout: float = STOP_TIMEOUT,
) -> None:
    """Register a daemon for each object of a resource, and an event handler that forwards the object's changes to it.

    Kopf's finalizer delays the deletion of an object until its loop has ended. Changes are forwarded separately,
    because the daemon would see them only in its next iteration.

    Args:
        registry: the handler registry of a Kopf operator.
        resource: the custom resource.
        make: creates the loop of an object with a name.
        running: the loops by UID, because a new object may have the name of a deleted one. The handlers update it.
        when: Kopf's filter of the objects; ``None`` for all objects.
        never_started: called with the body and the UID of a deleted object whose loop is not running.
        stop_timeout: seconds that a stopping loop has to finish its in-flight requests.
    """
    selector = (resource.group, resource.version, resource.plural)

    @kopf.on.event(*selector, registry=registry, when=when)
    async def changed(body: kopf.Body, uid: str | None, type: str | None, **_: Any) -> None:  # noqa: A002
        loop = running.get(uid or "")
        if loop is None:
            if type == "DELETED":
                never_started(body, uid or "")
        elif type == "DELETED":
            loop.end()  # Kopf does not stop the daemon of an object that was deleted without its finalizer
        elif not body["metadata"].get("deletionTimestamp"):
            loop.observe(body)

    @kopf.daemon(
        *selector,
        registry=registry,
        when=when,
        cancellation_backoff=stop_timeout,
        cancellation_timeout=CANCEL_TIMEOUT,
    )
    async def reconcile(
        body: kopf.Body, name: str | None, uid: str | None, stopped: kopf.DaemonStopped, **_: Any
    ) -> None:
        loop = running[uid or ""] = make(name or "")
        try:
            loop.observe(body)
            await loop.run(stopped)
        finally:
            running.pop(uid or "", None)


def register_singleton(
    registry: kopf.OperatorRegistry,
    resource: Resource,
    single: str,
    *,
    make: Callable[[], Singleton],
    refuse: Callable[[Mapping[str, Any]], Awaitable[None]],
) -> None:
    """Register the handlers of a resource that has a single object per cluster.

    The handlers are a daemon for the object with this name, and a deletion handler. Kopf's finalizer delays the
    deletion until the deletion handler has cleaned up. This also works if the process that created the objects no
    longer runs.

    Args:
        registry: the handler registry of a Kopf operator.
        resource: the custom resource.
        single: name of the single object.
        make: creates the controller of the object.
        refuse: called with the body of an object that has a different name. It reports in the object's status that only
            one object is allowed.
    """
    selector = (resource.group, resource.version, resource.plural)
    running: dict[str, Singleton] = {}

    def has_name(name: str | None, **_: Any) -> bool:
        return name == single

    def has_other_name(name: str | None, **_: Any) -> bool:
        return name != single

    register_loops(registry, resource, make=lambda _: make(), running=running, when=has_name)

    @kopf.on.event(*selector, registry=registry, when=has_other_name)
    async def misnamed(body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002
        if type != "DELETED":
            await refuse(body)

    async def clean_up(_: str) -> None:
        controller = make()
        try:
            await controller.clean_up()
        finally:
            await controller.stop()

    register_clean_up(registry, resource, running=running, clean_up=clean_up, when=has_name)


def register_clean_up(
    registry: kopf.OperatorRegistry,
    resource: Resource,
    *,
    running: Mapping[str, ObjectLoop],
    clean_up: Callable[[str], Awaitable[None]],
    when: Callable[..., bool] | None = None,
) -> None:
    """Register a deletion handler. Kopf's finalizer delays the deletion of an object until it has cleaned up.

    Args:
        registry: the handler registry of a Kopf operator.
        resource: the custom resource.
        running: the running loops by UID. The object is cleaned up after its loop has ended.
        clean_up: removes what the operator created for an object, given by its UID. A failure is retried for
            :data:`CLEANUP_TIMEOUT`.
        when: Kopf's filter of the objects; ``None`` for all objects.
    """
    selector = (resource.group, resource.version, resource.plural)

    @kopf.on.delete(*selector, registry=registry, when=when, timeout=CLEANUP_TIMEOUT, backoff=2.0)
    async def deleted(uid: str | None, **_: Any) -> None:
        if uid in running:
            raise kopf.TemporaryError("the reconcile loop has not ended yet", delay=1.0)
        await clean_up(uid or "")


async def reject_other_name(
    writer: StatusWriter[R], body: Mapping[str, Any], *, message: str, reason: str, now: float
) -> None:
    """Report in the status of an object with an unexpected name that the kind allows only one object.

    No-op if the status already reports that. trimtab's CRD rejects such objects, but they may have been created before
    the CRD was installed, or with the CRD of another project.

    Args:
        writer: the status writer of the object.
        body: the object.
        message: the message of the conditions Ready and Degraded.
        reason: the reason of these conditions, such as InvalidTaintManager.
        now: the current time in seconds since the epoch.
    """
    writer.resume(body.get("status") or {})
    before = find_condition(writer.status.conditions, READY)
    if before is not None and before.message == message:
        return
    generation = int(body["metadata"].get("generation", 0))
    writer.put(next_status(writer.status, not_ready(reason, message), generation=generation, now=now))
    await writer.stop()
