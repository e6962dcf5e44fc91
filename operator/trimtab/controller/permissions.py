"""Checks whether trimtab's service account has the permissions that the controllers need, and reports missing ones.

    PERMISSIONS.set(registry := PermissionRegistry())      # the composition root, before it starts tasks
    PermissionChecker(registry, api, clock, namespace=…)   # one task in each process
    registry.require(key, requirements)                    # a reconcile loop, for each version of its object

All status writers add the condition ``PermissionsMissing`` to the statuses that controllers build. While an object
lacks a permission without which it cannot do its work, they also report ``Ready=False`` and ``Degraded=True``; the
conditions of the controller return when the permission does. A change wakes the reconcile loops.

When the permissions are checked:

- at the start, and when an object needs other permissions: those that have not been checked;
- after a change of the account's rules: all. One SelfSubjectRulesReview per namespace every :data:`PERIOD` seconds
  shows such a change, and another one follows at once when the API server refuses a request (403);
- while a permission is missing: that one, every :data:`MISSING_PERIOD` seconds;
- otherwise all of them, every :data:`FULL_PERIOD` seconds.

Load on the API server: with all controllers about 100 access reviews at the start, at most eight at a time. A quiet
process then sends two rules reviews every five seconds (one for its own namespace and one for kube-node-lease) and 100
access reviews every five minutes: 0.7 requests a second. An authorizer that cannot list its rules, such as a webhook,
shortens the five minutes to one (2 requests a second).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.conditions import (
    DEGRADED,
    PERMISSIONS_MISSING,
    READY,
    Condition,
    ConditionUpdate,
    find_condition,
    set_conditions,
)
from trimtab.api.scalars import to_time
from trimtab.controller.progress import current_component
from trimtab.controller.reporter import condition
from trimtab.kube.api import Api, ApiError, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.permissions import GrantedRules, Permission, granted_rules, is_permitted
from trimtab.kube.resources import EVENTS, Resource

log = logging.getLogger(__name__)

PERIOD: Final = 5.0
"""Seconds between two reviews of the account's rules."""

MISSING_PERIOD: Final = 2.0
"""Seconds between two checks while a permission is missing."""

FULL_PERIOD: Final = 300.0
"""Seconds between two checks of all permissions."""

FULL_PERIOD_INCOMPLETE: Final = 60.0
"""The same if the rules review does not include all authorizers."""

REFUSED_PERIOD: Final = 10.0
"""The same after a request was refused (403). A webhook or an admission plugin may refuse many requests."""

LEAST_PAUSE: Final = 1.0
"""Minimum seconds between two checks."""

CONCURRENCY: Final = 8
"""Maximum number of access reviews at a time."""


class Requirement(Struct, frozen=True):
    """A permission that a controller needs.

    Attributes:
        permission: the permission.
        granted_by: the chart value whose role contains the permission.
        essential: whether the controller cannot do its work without it.
    """

    permission: Permission
    granted_by: str
    essential: bool = True


def requirements(
    verbs: str,
    *resources: Resource,
    granted_by: str,
    subresource: str = "",
    namespace: str = "",
    name: str = "",
    essential: bool = True,
) -> tuple[Requirement, ...]:
    """Return the requirements for several verbs, separated by spaces, on several resources."""
    return tuple(
        Requirement(Permission(verb, resource, subresource, namespace, name), granted_by, essential)
        for resource in resources
        for verb in verbs.split()
    )


def events(granted_by: str, *, namespace: str = "") -> tuple[Requirement, ...]:
    """Return the requirements for writing events, without which a controller works but does not report."""
    return requirements("create patch", EVENTS, granted_by=granted_by, namespace=namespace, essential=False)


def own_resource(resource: Resource, granted_by: str) -> tuple[Requirement, ...]:
    """Return the requirements for reconciling a custom resource. ``patch`` is for its finalizer."""
    return (
        *requirements("list watch patch", resource, granted_by=granted_by),
        *requirements("patch", resource, granted_by=granted_by, subresource="status"),
    )


class ObjectKey(Struct, frozen=True):
    """Identifies the objects that share a list of requirements.

    Attributes:
        resource: the custom resource.
        name: the name of the object; empty if all objects of the resource have the same requirements.
    """

    resource: Resource
    name: str = ""


class PermissionRegistry:
    """Stores which permissions the objects need, and which of them the service account has.

    Attributes:
        permitted: the result of the last check of each permission.
    """

    def __init__(self) -> None:
        self.permitted: dict[Permission, bool] = {}
        self._required: dict[ObjectKey, tuple[Requirement, ...]] = {}
        self._for_all: tuple[Requirement, ...] = ()
        self._listeners: list[Callable[[], None]] = []
        self._due = asyncio.Event()
        self.refused = False

    # --- what objects need --------------------------------------------------------------------------------------------

    def require(self, key: ObjectKey, wanted: Sequence[Requirement]) -> None:
        """Set the permissions that an object needs. New ones are checked at once."""
        wanted = tuple(wanted)
        if self._required.get(key) == wanted:
            return
        self._required[key] = wanted
        self._due.set()

    def require_for_all(self, wanted: Sequence[Requirement]) -> None:
        """Set the permissions that the process needs, for example for its Lease. All objects report missing ones."""
        self._for_all = tuple(wanted)
        self._due.set()

    def release(self, key: ObjectKey) -> None:
        """Forget an object that is no longer reconciled."""
        self._required.pop(key, None)

    @property
    def required(self) -> frozenset[Permission]:
        """Return the permissions that the objects and the process need."""
        return frozenset(each.permission for wanted in (self._for_all, *self._required.values()) for each in wanted)

    @property
    def missing(self) -> frozenset[Permission]:
        """Return the needed permissions that the service account lacks."""
        return frozenset(each for each in self.required if self.permitted.get(each) is False)

    def missing_for(self, key: ObjectKey) -> tuple[Requirement, ...] | None:
        """Return the missing permissions of an object; ``None`` if one of its permissions was never checked."""
        wanted = self._required.get(key)
        if wanted is None:
            return None
        wanted = tuple(dict.fromkeys((*wanted, *self._for_all)))
        if any(each.permission not in self.permitted for each in wanted):
            return None
        return tuple(each for each in wanted if not self.permitted[each.permission])

    # --- changes ------------------------------------------------------------------------------------------------------

    def observe_response(self, status: int) -> None:
        """Record the status of a response. After a 403, all permissions are checked at once."""
        if status == 403 and not self.missing:
            self.refused = True
            self._due.set()

    def update(self, found: dict[Permission, bool]) -> None:
        """Store the results of a check, and call the listeners if one has changed."""
        changed = {each: permitted for each, permitted in found.items() if self.permitted.get(each) is not permitted}
        first = any(each not in self.permitted for each in changed)
        restored = sorted(each.text for each, permitted in changed.items() if permitted and each in self.permitted)
        lost = sorted(each.text for each, permitted in changed.items() if not permitted)
        self.permitted.update(changed)
        if lost:
            log.warning(
                "The operator's service account lacks permissions: %s", ", ".join(lost), extra={"permissions": lost}
            )
        if restored:
            log.info("The operator's service account has regained permissions: %s", ", ".join(restored))
        if lost or restored or first:
            for each in tuple(self._listeners):
                each()

    def subscribe(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call ``changed`` after each change. Return the function that ends the subscription."""
        self._listeners.append(changed)

        def end() -> None:
            if changed in self._listeners:
                self._listeners.remove(changed)

        return end

    @contextmanager
    def listening(self, changed: Callable[[], None]) -> Iterator[None]:
        """Call ``changed`` after each change while the context is active."""
        end = self.subscribe(changed)
        try:
            yield
        finally:
            end()

    async def wait_until_due(self) -> None:
        """Wait until a check is due before its period has passed."""
        await self._due.wait()

    def clear_due(self) -> None:
        """Record that a check begins, which covers all earlier reasons for one."""
        self._due.clear()
        self.refused = False

    # --- the conditions -----------------------------------------------------------------------------------------------

    def add_to(
        self,
        conditions: tuple[Condition, ...],
        key: ObjectKey,
        *,
        before: tuple[Condition, ...],
        now: float,
        generation: int,
    ) -> tuple[Condition, ...]:
        """Return the conditions with PermissionsMissing, and with its effect on Ready and Degraded.

        Args:
            conditions: the conditions as the controller reports them.
            key: the object.
            before: the conditions as they were last reported, with their transition times.
            now: seconds since the epoch.
            generation: generation of the spec that the status describes.
        """
        missing = self.missing_for(key)
        if missing is None:  # not checked yet: keep what the previous process reported
            known = find_condition(before, PERMISSIONS_MISSING)
            return conditions if known is None else (*without_permissions(conditions), known)
        wanted = list(_updates(missing, conditions))
        return tuple(
            _with_reported_transition(each, find_condition(before, each.type), now)
            for each in set_conditions(conditions, wanted, now=now, generation=generation)
        )


def _updates(missing: tuple[Requirement, ...], conditions: tuple[Condition, ...]) -> Iterator[ConditionUpdate]:
    if not missing:
        granted = "the service account has all permissions that this object needs"
        yield condition(PERMISSIONS_MISSING, False, reasons.PERMISSIONS_GRANTED, granted)
        return
    message = describe_missing(missing)
    yield condition(PERMISSIONS_MISSING, True, reasons.PERMISSIONS_MISSING, message)
    if not any(each.essential for each in missing):
        return
    for type_, status in ((READY, "False"), (DEGRADED, "True")):
        found = find_condition(conditions, type_)
        if found is None or found.status != status:  # otherwise the controller has a reason of its own
            yield condition(type_, status == "True", reasons.PERMISSIONS_MISSING, message)


def _with_reported_transition(new: Condition, old: Condition | None, now: float) -> Condition:
    if old is None:
        return new
    at = old.last_transition_time if old.status == new.status else max(new.last_transition_time, to_time(now))
    return new if at == new.last_transition_time else replace(new, last_transition_time=at)


def without_permissions(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """Return conditions without those that :meth:`PermissionRegistry.add_to` sets, to resume from a stored status."""
    return tuple(
        each for each in conditions if each.type != PERMISSIONS_MISSING and each.reason != reasons.PERMISSIONS_MISSING
    )


def describe_missing(missing: Sequence[Requirement]) -> str:
    """Return the message of the condition: each missing permission, grouped by the chart value that grants it."""
    groups: dict[str, list[str]] = {}
    for each in missing:
        groups.setdefault(each.granted_by, []).append(each.permission.text)
    parts = [f"{', '.join(texts)} (chart value {value})" for value, texts in groups.items()]
    return f"the service account lacks permissions: {'; '.join(parts)}"


class PermissionChecker:
    """Checks the permissions of a registry until cancelled.

    Args:
        registry: the needed permissions; the results are stored in it.
        api: the API server.
        clock: provides the time.
        namespace: the namespace of the process, in which the rules of the account are reviewed.
    """

    def __init__(self, registry: PermissionRegistry, api: Api, clock: Clock, *, namespace: str) -> None:
        self._registry = registry
        self._api = api
        self._clock = clock
        self._namespace = namespace
        self._rules: dict[str, GrantedRules] = {}
        self._checked_all: float | None = None

    async def run(self) -> None:
        """Check until cancelled."""
        component = current_component()
        while True:
            component.begin()
            refused = self._registry.refused
            self._registry.clear_due()
            try:
                await self._check(refused=refused)
            except (ApiError, Unreachable) as error:  # keep the last results: nothing is known to be missing
                log.info("Failed to check the operator's permissions; keeping the previous results: %s", error)
                self._checked_all = None
            component.succeed(PERIOD)
            await self._pause()

    async def _check(self, *, refused: bool) -> None:
        registry, required = self._registry, self._registry.required
        if not required:
            return
        now = self._clock.monotonic()
        changed = await self._rules_changed(required)
        everything = changed or self._is_full_check_due(now, refused=refused)
        unknown = required - registry.permitted.keys()
        checked = required if everything else unknown | registry.missing
        registry.update(await self._review(checked))
        if everything:
            self._checked_all = now

    def _is_full_check_due(self, now: float, *, refused: bool) -> bool:
        complete = all(each.complete for each in self._rules.values())
        period = FULL_PERIOD if complete else FULL_PERIOD_INCOMPLETE
        if refused:
            period = REFUSED_PERIOD
        return self._checked_all is None or now - self._checked_all >= period

    async def _rules_changed(self, required: Iterable[Permission]) -> bool:
        namespaces = {each.namespace or self._namespace for each in required}
        rules = {each: await granted_rules(self._api, each) for each in sorted(namespaces)}
        changed = rules != self._rules
        self._rules = rules
        return changed

    async def _review(self, permissions: Iterable[Permission]) -> dict[Permission, bool]:
        slots = asyncio.Semaphore(CONCURRENCY)

        async def review(permission: Permission) -> bool:
            async with slots:
                return await is_permitted(self._api, permission)

        ordered = sorted(permissions, key=lambda each: each.text)
        return dict(zip(ordered, await asyncio.gather(*map(review, ordered)), strict=True))

    async def _pause(self) -> None:
        seconds = (MISSING_PERIOD if self._registry.missing else PERIOD) - LEAST_PAUSE
        await self._clock.sleep(LEAST_PAUSE)
        due = asyncio.create_task(self._registry.wait_until_due(), name="check of permissions")
        sleeping = asyncio.create_task(self._clock.sleep(seconds), name="pause between checks of permissions")
        try:
            await asyncio.wait({due, sleeping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            due.cancel()
            sleeping.cancel()


PERMISSIONS: Final[ContextVar[PermissionRegistry | None]] = ContextVar("permissions", default=None)
"""The permissions of this process. Tasks inherit it from the task that starts them."""


def permissions() -> PermissionRegistry:
    """Return the permissions of the process; an empty registry if no checker runs."""
    return PERMISSIONS.get() or PermissionRegistry()
