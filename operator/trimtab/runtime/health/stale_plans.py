"""Reports overdue plans in the condition ``Degraded`` of custom objects, independently of the controllers.

The reporter runs on the supervisor's event loop with its own connection, so it works even if the controllers' loop
hangs. While a plan is overdue, it replaces the condition ``Degraded``, and restores the previous one afterwards. If the
controller writes the status in the meantime, the controller's condition takes precedence.
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
from trimtab.controller.progress import Component, PlanSchedule
from trimtab.kube.api import Api, ApiError, NotFound, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.resources import Resource
from trimtab.kube.verbs import merge_patch

log = logging.getLogger(__name__)

PERIOD: Final = 5.0
"""Seconds between two checks for overdue plans, and between two attempts to report one."""

TIMEOUT: Final = 5.0
"""Timeout of one request, in seconds."""

Subject = tuple[Resource, str]
"""The resource and name of a cluster-scoped custom object for which a controller makes plans."""

Body = dict[str, Any]


class StalePlanReporter:
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
        """Set the condition for plans that have become overdue, and restore it for plans that no longer are.

        Call it every :data:`PERIOD` seconds.
        """
        stale: dict[Subject, tuple[PlanSchedule, float]] = {}
        for component in self._components():
            plan_schedule = component.plan_schedule
            if plan_schedule is not None and component.plan_is_stale():
                stale[plan_schedule.resource, plan_schedule.name] = plan_schedule, component.plan_overdue_seconds()
        for subject, (plan_schedule, seconds) in stale.items():
            if subject not in self._replaced:
                await self._attempt(subject, self._report(subject, plan_schedule, seconds))
        for subject in self._replaced.keys() - stale.keys():
            await self._attempt(subject, self._withdraw(subject))

    async def _attempt(self, subject: Subject, change: Any) -> None:
        resource, name = subject
        try:
            await change
        except NotFound:
            self._replaced.pop(subject, None)
        except (ApiError, Unreachable) as error:
            log.warning("Cannot update the condition Degraded of %s %s; retrying: %s", resource.kind, name, error)
        except Exception:  # a bug in one report must not prevent the others
            log.exception("Cannot update the condition Degraded of %s %s; retrying", resource.kind, name)

    async def _report(self, subject: Subject, plan_schedule: PlanSchedule, seconds: float) -> None:
        body = await self._read(subject)
        before = _degraded(body)
        now = to_time(self._clock.now()).isoformat(timespec="seconds").replace("+00:00", "Z")
        degraded = before is not None and before["status"] == "True"
        condition = {
            "type": DEGRADED,
            "status": "True",
            "reason": reasons.PLAN_STALE,
            "message": f"the next plan is overdue by {seconds:.0f} s; the interval is {plan_schedule.interval:g} s",
            "lastTransitionTime": before["lastTransitionTime"] if before is not None and degraded else now,
            "observedGeneration": body["metadata"].get("generation", 0),
        }
        await self._write(subject, body, condition)
        self._replaced[subject] = None if before is not None and before["reason"] == reasons.PLAN_STALE else before
        log.warning("%s %s: %s", plan_schedule.resource.kind, plan_schedule.name, condition["message"])

    async def _withdraw(self, subject: Subject) -> None:
        body = await self._read(subject)
        now = _degraded(body)
        if now is not None and now["reason"] == reasons.PLAN_STALE:
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
