"""Detects another operator process that runs the same controllers on the same cluster.

Leader election only excludes candidates for the same Lease. It does not exclude a process without leader election, or
one with a Lease of another name or in another namespace. Therefore each process that runs controllers, elected or not,
renews a second Lease (``<lease name>-acting``) with its identity and its controllers, and checks for others::

    every 10 s:  list the Leases with the label trimtab.dev/acting, in all namespaces if RBAC permits it
                 if another holder has renewed its Lease since the last check, and runs one of our controllers:
                     that process is active
                 renew our own Lease

Two processes with the same namespace and Lease name write the same object, so each finds the other's identity in it.
The check compares versions between two lists, never clocks: the Lease of a killed process no longer changes, and the
next leader takes it over without a warning. The detector reports and counts active operators, but does not stop
this process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from trimtab.api import reasons
from trimtab.controller.progress import current_component
from trimtab.kube import verbs
from trimtab.kube.api import Api, ApiError, Conflict, Forbidden, NotFound, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.events.event import WARNING
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.printable import printable
from trimtab.kube.resources import LEASES, ObjectReference
from trimtab.runtime.leader_election.lease_lock import Lease, LeaseLock

log = logging.getLogger(__name__)

SUFFIX: Final = "-acting"
LABEL: Final = "trimtab.dev/acting"
CONTROLLERS: Final = "trimtab.dev/controllers"
"""Annotation that lists the controllers of the Lease's holder, separated by commas."""

CHECK_PERIOD: Final = 10.0
"""Seconds between two checks."""
ACTIVE_FOR: Final = 3.5 * CHECK_PERIOD
"""Seconds after its last renewal for which another process is considered active."""
CHECKS_TO_DETECT: Final = 3
"""Number of checks after which an active operator has been detected, because it renews its Lease once per period."""
LEASE_DURATION: Final = 40
"""``leaseDurationSeconds`` of the second Lease. It is informative only."""
LIST_RETRY_PERIOD: Final = 600.0
"""Seconds until the next list after one that was forbidden or too large.

Each forbidden request contributes to the alert on 403 responses.
"""
MAX_OTHERS: Final = 64
"""Maximum number of other holders in memory. It is limited because any client may create Leases with the label."""
MAX_LIST_BYTES: Final = 2**20
"""Maximum size of a list in bytes. It is limited because clients decide how many Leases exist and how large they are.
"""

_TIMEOUT: Final = 5.0
_RELEASE_TIMEOUT: Final = 2.0


class _OtherOperator(Struct):
    """Another operator process, as last observed.

    Attributes:
        lease_key: namespace and name of the process's Lease.
        version: the resource version of the Lease.
        changed_at: the time of the last observed change of the version, on the monotonic clock; ``None`` before the
            first change.
    """

    lease_key: str
    version: str
    changed_at: float | None = None


class DuplicateOperatorDetector:
    """Renews this process's second Lease, and reports other operators.

    Run :meth:`run` while this process runs controllers.

    Args:
        api: the API client.
        namespace: namespace of the Lease.
        lease_name: name of the Lease for leader election, from which the name of the second Lease derives.
        identity: identity of this process.
        controllers: the controllers that this process runs.
        recorder: posts an event on the Lease.
        observe: called after each check with the number of other active processes.
        describe: called after each check with a description of all active operators; ``""`` if this process is the
            only one. All of these operators log the same description. The first checks do not report that there is no
            other operator, because they cannot detect one.
        clock: provides the time.

    Attributes:
        others: namespace and name of the Lease of each other active process, by the identity of the process.
    """

    def __init__(
        self,
        api: Api,
        *,
        namespace: str,
        lease_name: str,
        identity: str,
        controllers: Collection[str],
        recorder: Recorder,
        observe: Callable[[int], None],
        describe: Callable[[str], None] = lambda _: None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.others: dict[str, str] = {}
        self._api = api
        self._lock = LeaseLock(api, namespace=namespace, name=lease_name + SUFFIX)
        self._identity = identity
        self._controllers = frozenset(controllers)
        self._recorder = recorder
        self._observe = observe
        self._describe = describe
        self._checks = 0
        self._clock = clock
        self._holders: dict[str, _OtherOperator] = {}
        self._ours: Lease | None = None
        self._last_error = ""
        self._list_from: dict[str, float] = {}

    async def run(self) -> None:
        """Check and renew until cancelled, then release the Lease."""
        component = current_component()
        try:
            while True:
                component.begin()
                await self._check_and_renew()
                component.succeed(CHECK_PERIOD)
                await self._clock.sleep(CHECK_PERIOD)
        finally:
            await self._release()

    async def _check_and_renew(self) -> None:
        try:
            found = await self._list()
            self._update_others(found)
            self._ours = await self._renewed(found.get(self._lease_key))
        except Conflict:
            pass  # another process wrote the same Lease after the list; the next check finds its identity
        except (ApiError, Unreachable, TimeoutError) as error:
            if (message := str(error)) != self._last_error:
                self._last_error = message
                log.warning("Failed to detect other trimtab operators in this cluster: %s", message)
        except Exception as error:  # a malformed Lease must not end this task
            if (message := repr(error)) != self._last_error:
                self._last_error = message
                log.exception("Failed to detect other trimtab operators in this cluster: unexpected error")
        else:
            self._last_error = ""

    @property
    def _lease_key(self) -> str:
        return f"{self._lock.namespace}/{self._lock.name}"

    async def _list(self) -> dict[str, Mapping[str, Any]]:
        """Return the second Leases of all operators by key.

        If the list of all namespaces is too large, only our namespace is listed. If that list is too large, or RBAC
        forbids listing all namespaces, only our own Lease is read.
        """
        now, namespace = self._clock.monotonic(), self._lock.namespace
        paths = (LEASES.path(), LEASES.path(namespace=namespace))
        for path in paths:
            if now < self._list_from.get(path, now):
                continue
            try:
                listed = await self._read(path)
            except Forbidden:
                self._list_from = dict.fromkeys(paths, now + LIST_RETRY_PERIOD)
                break
            if listed is not None:
                return {f"{each['metadata']['namespace']}/{each['metadata']['name']}": each for each in listed}
            message = (
                "Failed to list %s to detect other trimtab operators in this cluster: the response exceeds %d bytes"
            )
            log.warning(message, path, MAX_LIST_BYTES)
            self._list_from[path] = now + LIST_RETRY_PERIOD
        try:
            return {
                self._lease_key: await verbs.get(
                    self._api, LEASES, self._lock.name, namespace=namespace, timeout=_TIMEOUT
                )
            }
        except NotFound:
            return {}

    async def _read(self, path: str) -> list[dict[str, Any]] | None:
        """Return the Leases with the label; ``None`` if the list is too large."""
        params = {"labelSelector": LABEL, "limit": str(verbs.PAGE_SIZE)}
        found: list[dict[str, Any]] = []
        left = MAX_LIST_BYTES
        async with asyncio.timeout(_TIMEOUT):
            while True:
                body = bytearray()
                async with self._api.stream(path, params=params, idle_timeout=_TIMEOUT) as chunks:
                    async for chunk in chunks:
                        body += chunk
                        if len(body) > left:
                            return None
                left -= len(body)
                page = msgspec.json.decode(body)
                found += page.get("items") or []
                if not (token := page["metadata"].get("continue")):
                    return found
                params = {**params, "continue": token}

    def _update_others(self, found: Mapping[str, Mapping[str, Any]]) -> None:
        """Compare the Leases with those of the previous check, and report changes."""
        now = self._clock.monotonic()
        # Our own namespace last: if there are more than MAX_OTHERS holders, those of our namespace replace the others.
        for lease_key, body in sorted(found.items(), key=lambda each: each[0].startswith(f"{self._lock.namespace}/")):
            lease = Lease.from_json(body)
            annotations = body["metadata"].get("annotations") or {}
            theirs = set(annotations.get(CONTROLLERS, "").split(","))
            if lease.holder in ("", self._identity) or not theirs & self._controllers:
                continue
            self._observe_holder(lease.holder, lease_key, lease.resource_version, now)
        limit = now - ACTIVE_FOR
        active = {
            identity: each.lease_key
            for identity, each in self._holders.items()
            if each.changed_at is not None and each.changed_at > limit
        }
        if active and not self.others:  # not for each identity: clients may invent identities
            self._report(active)
        elif self.others and not active:
            log.info("No other trimtab operator runs the controllers of this operator any more")
        self.others = active
        self._observe(len(active))
        self._checks += 1
        if active or self._checks > CHECKS_TO_DETECT:
            self._describe(self._description(active))

    def _observe_holder(self, identity: str, lease_key: str, version: str, now: float) -> None:
        known = self._holders.get(identity)
        if known is not None and (known.lease_key, known.version) == (lease_key, version):
            return
        # If our own Lease has another holder, that process wrote it after our last renewal.
        renewed = known is not None or (lease_key == self._lease_key and self._ours is not None)
        self._holders.pop(identity, None)
        self._holders[identity] = _OtherOperator(lease_key, version, now if renewed else None)
        while len(self._holders) > MAX_OTHERS:
            del self._holders[next(iter(self._holders))]

    def _description(self, active: Mapping[str, str]) -> str:
        if not active:
            return ""
        operators = sorted({**active, self._identity: self._lease_key}.items())
        named = ", ".join(f"{printable(identity)} (Lease {lease_key})" for identity, lease_key in operators[:3])
        more = ", …" if len(operators) > 3 else ""
        return f"{len(operators)} operators run the same controllers and may undo each other's changes: {named}{more}"

    def _report(self, active: Mapping[str, str]) -> None:
        named = ", ".join(f"{identity} (Lease {lease_key})" for identity, lease_key in sorted(active.items())[:3])
        others = "1 other operator runs" if len(active) == 1 else f"{len(active)} other operators run"
        note = f"{others} the same controllers: {named}; the operators may undo each other's changes"
        fields = {"reason": reasons.ANOTHER_OPERATOR_ACTIVE}
        log.warning(
            "Found other active trimtab operators in this cluster (%s): %s",
            reasons.ANOTHER_OPERATOR_ACTIVE,
            note,
            extra=fields,
        )
        uid = "" if self._ours is None else self._ours.metadata.get("uid", "")
        regarding = ObjectReference.to(LEASES, self._lock.name, namespace=self._lock.namespace, uid=uid)
        self._recorder.event(regarding, reason=reasons.ANOTHER_OPERATOR_ACTIVE, action="Act", note=note, type=WARNING)

    async def _renewed(self, body: Mapping[str, Any] | None) -> Lease:
        lease = Lease() if body is None else Lease.from_json(body)
        metadata = lease.metadata
        labels = {**(metadata.get("labels") or {}), LABEL: "true"}
        annotations = {**(metadata.get("annotations") or {}), CONTROLLERS: ",".join(sorted(self._controllers))}
        ours = msgspec.structs.replace(lease, metadata={**metadata, "labels": labels, "annotations": annotations})
        renewed = ours.held_by(self._identity, duration=LEASE_DURATION, now=self._clock.now())
        return await self._lock.write(renewed, timeout=_TIMEOUT)

    async def _release(self) -> None:
        """Try to release the Lease, so that the next process need not wait until this one is considered inactive."""
        if self._ours is None:
            return
        try:
            await self._lock.write(self._ours.released(now=self._clock.now()), timeout=_RELEASE_TIMEOUT)
        except (ApiError, Unreachable, TimeoutError, asyncio.CancelledError) as error:
            log.debug("Failed to release %s: %s", self._lock, error)
