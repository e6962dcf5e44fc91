"""Writes the latest status of an object, one write at a time, without blocking the controller.

    writer = StatusWriter(api, clock, resource=TAINT_MANAGERS, name="default", empty=TaintManagerStatus())
    writer.resume(body.get("status") or {})   # start from the status that an earlier process wrote
    writer.put(status)                        # returns immediately; a task writes the status if it changed
    await writer.stop()

It is a :class:`~trimtab.controller.latest_writer.LatestWriter`. If the caller needs the response, or must know whether
the write succeeded, use :func:`write_status`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

import msgspec

from trimtab.api.base import Status, status_patch
from trimtab.api.conditions import CONTENDED, find_condition
from trimtab.api.state import with_state
from trimtab.controller.latest_writer import LatestWriter
from trimtab.controller.other_operators import other_operators
from trimtab.controller.permissions import ObjectKey, permissions, without_permissions
from trimtab.kube.api import Api, ApiError, NotFound, ServerError, TooManyRequests, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.resources import Resource
from trimtab.kube.retry import Backoff
from trimtab.kube.verbs import METADATA_ONLY, merge_patch

log = logging.getLogger(__name__)

S = TypeVar("S", bound=Status)
S_contra = TypeVar("S_contra", bound=Status, contravariant=True)

REQUEST_TIMEOUT: Final = 10.0
"""Timeout of one request, in seconds."""

RETRY: Final = Backoff(initial=0.5, maximum=10.0, attempts=4)
"""Backoff of one status write. A few attempts suffice, because the controller soon produces a newer status."""

NO_RETRY: Final = Backoff(attempts=1)

TRANSIENT: Final = (Unreachable, ServerError, TooManyRequests)
"""Errors after which a retry may succeed."""


async def write_status(
    api: Api,
    resource: Resource,
    name: str,
    status: Status,
    *,
    namespace: str = "",
    uid: str | None = None,
    accept: str = "",
    retry: Backoff = RETRY,
    clock: Clock = SYSTEM_CLOCK,
) -> dict[str, Any]:
    """Write the complete status of an object as a merge patch.

    Args:
        api: the API client.
        resource: the resource of the object.
        name: the name of the object.
        status: the complete status.
        namespace: namespace of the object; empty if it is cluster-scoped.
        uid: expected UID of the object, as a precondition of the write; ``None`` for no precondition.
        accept: the media type of the response, see :func:`~trimtab.kube.verbs.merge_patch`.
        retry: the backoff after transient errors.
        clock: provides the time.

    Returns:
        The object as the API server stored it, or its metadata, depending on ``accept``.

    Raises:
        NotFound: the object does not exist.
        Conflict: the object's UID is not the expected one.
        ApiError: the API server rejects the write.
        Unreachable: the API server did not respond to any attempt.
    """
    body: dict[str, Any] = {"status": status_patch(status)}
    if uid is not None:
        body["metadata"] = {"uid": uid}
    failures = 0
    while True:
        try:
            return await merge_patch(
                api,
                resource,
                name,
                body,
                namespace=namespace,
                subresource="status",
                accept=accept,
                timeout=REQUEST_TIMEOUT,
            )
        except TRANSIENT:
            if retry.exhausted(failures):
                raise
        await clock.sleep(retry.delay(failures))
        failures += 1


class ShouldWrite(Protocol[S_contra]):
    """Decides whether to write a status."""

    def __call__(self, old: S_contra, new: S_contra, *, written: float | None, now: float) -> bool:
        """Return whether ``new`` should be written.

        Args:
            old: the status that was last written, or read at the start.
            new: the desired status.
            written: the time at which this process wrote ``old``, in seconds since the epoch; ``None`` if ``old`` was
                read at the start.
            now: the current time in seconds since the epoch.
        """
        ...


def when_changed(old: Status, new: Status, *, written: float | None, now: float) -> bool:
    """Return whether the status differs from the previous one. See :class:`ShouldWrite`."""
    del written, now
    return old != new


def write_when(urgent: Callable[[S], object], *, period: float, minimum: float = 0.0) -> ShouldWrite[S]:
    """Return the rule that writes urgent changes immediately, and other changes after a period.

    Numbers and lists change all the time, and each write sends the whole status.

    Args:
        urgent: returns the part of a status whose changes are urgent.
        period: minimum seconds between two writes if nothing urgent has changed.
        minimum: minimum seconds between any two writes.
    """

    def worth_writing(old: S, new: S, *, written: float | None, now: float) -> bool:
        if old == new:
            return False
        since = period if written is None else now - written
        if not 0.0 <= since < period:  # negative if the clock was set back
            return True
        return since >= minimum and urgent(old) != urgent(new)

    return worth_writing


def urgent_conditions(status: Any) -> tuple[object, ...]:
    """Return what is urgent in every status: its generation, and the conditions without their messages."""
    return status.observed_generation, [(each.type, each.status, each.reason) for each in status.conditions]


class StatusWriter(LatestWriter[S]):
    """Writes the status of one cluster-scoped object.

    Args:
        api: the API client.
        clock: provides the time.
        resource: the resource of the object.
        name: the name of the object.
        empty: the status to start from if the object has none.
        should_write: decides whether a status is written.
    """

    def __init__(
        self,
        api: Api,
        clock: Clock,
        *,
        resource: Resource,
        name: str,
        empty: S,
        should_write: ShouldWrite[S] = when_changed,
    ) -> None:
        super().__init__(
            clock,
            f"the status of {resource.kind} {name}",
            empty,
            retry=RETRY,
            retried=TRANSIENT,
            kind=f"the status of {resource.kind}",
        )
        self._component.status_of = (resource, name)
        self._api = api
        self._resource = resource
        self._name = name
        self._should_write = should_write
        self._other_operators = other_operators()
        self._permissions = permissions()
        self._key = ObjectKey(resource, name)
        self._end_subscription = self._permissions.subscribe(self._permissions_changed)
        self._reported = empty
        self._has_report = False
        self._final = False
        self._deleted = False

    @property
    def status(self) -> S:
        """Return the desired status as the controller reports it, without the effects of missing permissions."""
        return self._reported

    @property
    def out_of_sync(self) -> bool:
        """Return whether the latest write failed and is not retried before the next :meth:`put`.

        Until then the cluster has an older status. ``False`` if the object does not exist.
        """
        return super().out_of_sync and not self._deleted

    def resume(self, wire: Mapping[str, Any]) -> None:
        """Start from the status in the cluster. A status that cannot be decoded is treated as empty."""
        try:
            self.start_from(msgspec.convert(dict(wire), type(self.value)))
        except msgspec.ValidationError as error:
            log.warning("Failed to decode the status of %s; rebuilding the status: %s", self, error)

    def start_from(self, status: S) -> None:
        """Start from a decoded status in the cluster."""
        self.value = self._written = self._reported = status
        conditions = getattr(status, "conditions", ())
        if (own := without_permissions(conditions)) != conditions:
            self._reported = msgspec.structs.replace(status, conditions=own)

    def amend(self, value: S) -> None:
        """Change the desired status without starting a write, because another change follows."""
        self._reported = value
        self.value = self._with_permissions(value)

    def put(self, value: S) -> None:
        """Set the desired status and return immediately. A task writes it if it should be written.

        The conditions Contended (:mod:`trimtab.controller.other_operators`) and PermissionsMissing
        (:mod:`trimtab.controller.permissions`) are added, and ``state`` is computed from the conditions.
        """
        self._reported = self._with_other_operators(value)
        self._has_report = True
        super().put(self._with_permissions(self._reported))

    async def stop(self, *, everything: bool = False) -> None:
        """Write the desired status if it is not written yet, and stop. The final write takes a few seconds at most.

        Args:
            everything: whether to write the status even if ``should_write`` would delay it.
        """
        self._final = everything
        self._end_subscription()
        await super().stop()

    def __str__(self) -> str:
        return f"{self._resource.kind} {self._name}"

    def _with_other_operators(self, status: S) -> S:
        conditions = getattr(status, "conditions", None)
        if conditions is None:
            return status
        changed = self._other_operators.add_to(
            conditions,
            before=find_condition(getattr(self.value, "conditions", ()), CONTENDED),
            now=self._clock.now(),
            generation=getattr(status, "observed_generation", 0),
        )
        return status if changed == conditions else msgspec.structs.replace(status, conditions=changed)

    def _with_permissions(self, status: S) -> S:
        """Return the status as it is written: with the condition PermissionsMissing, and with the resulting state."""
        conditions = getattr(status, "conditions", None)
        if conditions is None:
            return status
        changed = self._permissions.add_to(
            conditions,
            self._key,
            before=getattr(self.value, "conditions", ()),
            now=self._clock.now(),
            generation=getattr(status, "observed_generation", 0),
        )
        return with_state(status if changed == conditions else msgspec.structs.replace(status, conditions=changed))

    def _permissions_changed(self) -> None:
        if self._has_report:
            super().put(self._with_permissions(self._reported))

    def _due(self) -> bool:
        if self._final:
            return super()._due()
        return self._should_write(self._written, self.value, written=self._written_at, now=self._clock.now())

    async def _send(self, value: S) -> None:
        await write_status(self._api, self._resource, self._name, value, accept=METADATA_ONLY, retry=NO_RETRY)
        self._deleted = False

    def _failed(self, error: Exception, *, retried: bool) -> None:
        self._deleted = isinstance(error, NotFound)  # deleted: there is no object to report on
        if self._deleted:
            self._component.succeed()
        if retried:
            log.warning("Failed to write the status of %s; retrying: %s", self, error)
        elif isinstance(error, ApiError) and not self._deleted:
            log.error("The API server rejected the status of %s: %s", self, error)
        elif not self._deleted:
            log.error("Failed to write the status of %s: unexpected error", self, exc_info=error)
