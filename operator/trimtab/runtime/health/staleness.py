"""Reports overdue plans and statuses in the condition ``Degraded`` of custom objects, independently of the controllers.

The reporter runs on the supervisor's event loop with its own connection, so it works even if the controllers' loop
hangs. While a plan or the write of a status is overdue, it replaces the condition ``Degraded``, and restores the
previous one afterwards. If the controller writes the status in the meantime, the controller's condition takes
precedence. The API server may accept the condition although it rejects the controller's status, which is much larger.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from trimtab.api import reasons
from trimtab.api.conditions import DEGRADED, Condition
from trimtab.api.scalars import to_time
from trimtab.api.state import state_of
from trimtab.controller.progress import MIN_TOLERANCE, Component, Subject
from trimtab.kube.api import Api, ApiError, NotFound, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.verbs import merge_patch

log = logging.getLogger(__name__)

PERIOD: Final = 5.0
"""Seconds between two checks, and between two attempts to report the same problem."""

TIMEOUT: Final = 5.0
"""Timeout of one request, in seconds."""

Body = dict[str, Any]

_STALE: Final = (reasons.PLAN_STALE, reasons.STATUS_STALE)


class StalenessReporter:
    """Sets and restores the condition ``Degraded``. Call :meth:`check` periodically.

    Args:
        api: the API client. It must send no request unless this process is the leader.
        components: returns the components of this process.
        clock: provides the time.
    """

    def __init__(self, api: Api, components: Callable[[], Iterable[Component]], clock: Clock) -> None:
        self._api = api
        self._components = components
        self._clock = clock
        self._replaced: dict[Subject, Body | None] = {}

    async def check(self) -> None:
        """Set the condition of objects that have become stale, and restore that of objects that no longer are.

        Call it every :data:`PERIOD` seconds.
        """
        stale = self._stale()
        for subject, (reason, message) in stale.items():
            if subject not in self._replaced:
                await self._attempt(subject, self._report(subject, reason, message))
        for subject in self._replaced.keys() - stale.keys():
            await self._attempt(subject, self._withdraw(subject))

    def _stale(self) -> dict[Subject, tuple[str, str]]:
        """Return the reason and message for each object whose plan or status is overdue."""
        found: dict[Subject, tuple[str, str]] = {}
        components = list(self._components())
        tolerances: dict[Subject, float] = {}
        for component in components:
            schedule = component.plan_schedule
            if schedule is not None:
                subject = (schedule.resource, schedule.name)
                tolerances[subject] = max(tolerances.get(subject, 0.0), schedule.tolerance)
                if component.plan_is_stale():
                    seconds = component.plan_overdue_seconds()
                    text = f"the next plan is overdue by {seconds:.0f} s; the interval is {schedule.interval:g} s"
                    found[subject] = reasons.PLAN_STALE, text
        for component in components:
            if component.status_of is None or component.status_of in found:
                continue
            seconds = max(component.inactive_seconds(), component.failing_seconds())
            if seconds > tolerances.get(component.status_of, MIN_TOLERANCE):
                cause = f": {component.error}" if component.error else ""
                text = f"the status could not be updated for {seconds:.0f} s and may be out of date{cause}"
                found[component.status_of] = reasons.STATUS_STALE, text
        return found

    async def _attempt(self, subject: Subject, change: Any) -> None:
        resource, name = subject
        try:
            await change
        except NotFound:
            self._replaced.pop(subject, None)
        except (ApiError, Unreachable) as error:
            log.warning("Failed to update the Degraded condition of %s %s; retrying: %s", resource.kind, name, error)
        except Exception:  # a bug in one report must not prevent the others
            log.exception("Failed to update the Degraded condition of %s %s; retrying", resource.kind, name)

    async def _report(self, subject: Subject, reason: str, message: str) -> None:
        body = await self._read(subject)
        before = _degraded(body)
        now = to_time(self._clock.now()).isoformat(timespec="seconds").replace("+00:00", "Z")
        degraded = before is not None and before["status"] == "True"
        condition = {
            "type": DEGRADED,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": before["lastTransitionTime"] if before is not None and degraded else now,
            "observedGeneration": body["metadata"].get("generation", 0),
        }
        await self._write(subject, body, condition)
        self._replaced[subject] = None if before is not None and before["reason"] in _STALE else before
        log.warning("%s %s is degraded: %s", subject[0].kind, subject[1], message)

    async def _withdraw(self, subject: Subject) -> None:
        body = await self._read(subject)
        now = _degraded(body)
        if now is not None and now["reason"] in _STALE:
            await self._write(subject, body, self._replaced[subject])
        del self._replaced[subject]

    async def _read(self, subject: Subject) -> Body:
        """Read the object with a list request, because the controllers' roles do not permit get."""
        resource, name = subject
        selector = {"fieldSelector": f"metadata.name={name}"}
        listed = await self._api.request("GET", resource.path(), params=selector, timeout=TIMEOUT)
        if not listed["items"]:
            raise NotFound(f'{resource.kind} "{name}" does not exist', status=404)
        found: Body = listed["items"][0]
        return found

    async def _write(self, subject: Subject, body: Body, condition: Body | None) -> None:
        """Replace the condition. The write fails with a conflict if the object was changed since it was read."""
        resource, name = subject
        before = body.get("status") or {}
        others = [each for each in before.get("conditions") or () if each["type"] != DEGRADED]
        conditions = [*others, *(() if condition is None else (condition,))]
        status: Body = {"conditions": conditions}
        if "state" in before:
            status["state"] = state_of(msgspec.convert(conditions, tuple[Condition, ...]))
        changed = {"metadata": {"resourceVersion": body["metadata"]["resourceVersion"]}, "status": status}
        await merge_patch(self._api, resource, name, changed, subresource="status", timeout=TIMEOUT)


def _degraded(body: Body) -> Body | None:
    conditions = (body.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == DEGRADED), None)
