"""Reports placement admission in the status of the PlacementAdmission: conditions, counts, refusals and replicas.

    reporter = AdmissionReporter(api, recorder, clock, replica="trimtab-admission-x1", health=health)
    reporter.record(outcome)      # for each request; returns at once
    reporter.wake()               # the rules, the webhooks or the certificate have changed
    await reporter.run()          # a task of the role: writes the status
    await reporter.stop()         # the final write

All replicas write the same status. A write is based on the version that was just read (its ``resourceVersion`` is the
precondition), so no replica overwrites the counts of another one. :mod:`trimtab.controller.status_writer` cannot be
used, because it writes the status of a controller that is its only writer.

Each replica adds the counts that it has not added yet. If the response to a write is lost, the replica recognizes in
the next version whether the write succeeded: ``lastSeen`` of its own entry then has the time of that write. Conditions
depend only on the object and on what the replicas report in their entries, so that replicas with different problems do
not overwrite each other's conditions.

A refusal is visible to the client that sent the request, so there is no event for it.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.base import status_patch
from trimtab.api.conditions import DEGRADED, READY, Condition, ConditionUpdate, find_condition
from trimtab.api.decode import PLACEMENT_ADMISSION, read_object
from trimtab.api.placement_admission import (
    DEDICATED_NODES,
    DEFAULT_TOLERATION_SECONDS,
    EXTENDED_RESOURCE_TOLERATION,
    MAX_REFUSALS,
    MAX_REPLICAS,
    NAME,
    POD_NODE_CONSTRAINTS,
    POD_NODE_SELECTOR,
    POD_TOLERATION_RESTRICTION,
    SPECIAL_HARDWARE,
    PlacementAdmission,
    PlacementAdmissionSpec,
    PlacementAdmissionStatus,
    RecentRefusal,
    ReplicaStatus,
    Result,
    RuleCount,
    RuleName,
)
from trimtab.api.scalars import to_time
from trimtab.api.schema import FieldError
from trimtab.api.state import with_state
from trimtab.controller.loop import Loop
from trimtab.controller.permissions import ObjectKey, permissions, without_permissions
from trimtab.controller.reporter import condition, next_status, not_ready
from trimtab.controller.status_writer import REQUEST_TIMEOUT
from trimtab.kube import verbs
from trimtab.kube.api import Api, ApiError, Conflict, NotFound, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.events.event import WARNING, truncate
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.resources import PLACEMENT_ADMISSIONS, ObjectReference
from trimtab.kube.retry import Backoff

log = logging.getLogger(__name__)

WRITE_PERIOD: Final = 10.0
"""Seconds between two writes of a replica if only counts change."""
HEARTBEAT: Final = 60.0
"""Maximum seconds between two writes of a replica."""
LEAST_REST: Final = 1.0
"""Minimum seconds between two writes of a replica, even if a condition changes."""
CONFLICTS: Final = 8
"""Maximum number of attempts of one write. Each replica writes at most once a second, so a few attempts suffice."""
RETRY: Final = Backoff(initial=2.0, maximum=30.0)
"""Delay after a failed write. The counts are kept and added by the next one."""

KEY: Final = ObjectKey(PLACEMENT_ADMISSIONS, NAME)
"""The key of the permissions of the PlacementAdmission."""

NO_REPLICA_MESSAGE: Final = "no replica serves the webhooks, so the failure policies of the rules apply"

MUTATED: Final = "Mutated"
REFUSED: Final = "Refused"


class RequestOutcome(Struct, frozen=True, kw_only=True):
    """What a webhook did with a request, for counts, the status and events.

    Attributes:
        results: the result of each rule that ran, by name.
        refusals: the rules that refused the request, or would have in Enforce mode, with their messages.
        kind: kind of the object.
        namespace: its namespace.
        name: its name, or its generateName.
    """

    results: Mapping[RuleName, Result]
    refusals: tuple[tuple[RuleName, str], ...] = ()
    kind: str = ""
    namespace: str = ""
    name: str = ""


class Health(Struct, frozen=True):
    """The state of a replica.

    Attributes:
        registered: whether the webhook configurations have the webhooks that the PlacementAdmission needs.
        not_registered: why they do not have them; empty if unknown.
        problem: why this replica cannot apply the rules or maintain its certificate; empty if it can.
        certificate_expires: when its serving certificate expires, in seconds since the epoch; ``None`` if it has none.
    """

    registered: bool
    not_registered: str = ""
    problem: str = ""
    certificate_expires: float | None = None


class Unreported(Struct):
    """What a replica has counted and not yet written.

    Attributes:
        counts: the number of requests by rule and result.
        mutated: the number of requests that were changed.
        refused: the number of requests that were refused.
        refusals: the last refusals, the latest first.
    """

    counts: Counter[tuple[RuleName, Result]]
    mutated: int
    refused: int
    refusals: deque[RecentRefusal]

    @classmethod
    def empty(cls) -> Unreported:
        """Return counts of zero."""
        return cls(Counter(), 0, 0, deque(maxlen=MAX_REFUSALS))

    def __bool__(self) -> bool:
        return bool(self.counts)

    def add(self, later: Unreported) -> None:
        """Add requests that were counted later."""
        self.counts.update(later.counts)
        self.mutated += later.mutated
        self.refused += later.refused
        self.refusals.extendleft(reversed(later.refusals))


class AdmissionReporter(Loop):
    """Writes what one replica has counted, and its state, to the status of the PlacementAdmission.

    Args:
        api: the API server.
        recorder: records events.
        clock: provides the time.
        replica: name of this replica's pod. No other replica may have it.
        health: returns the state of this replica.
    """

    def __init__(
        self, api: Api, recorder: Recorder, clock: Clock, *, replica: str, health: Callable[[], Health]
    ) -> None:
        super().__init__("status of PlacementAdmission", clock, rest=LEAST_REST)
        self._api = api
        self._recorder = recorder
        self._clock = clock
        self._replica = replica
        self._health = health
        self._unreported = Unreported.empty()
        self._in_doubt: tuple[datetime, Unreported] | None = None
        self._shown: Health | None = None
        self._written_at: float | None = None
        self._woken = True
        self._uid = ""
        self._failures = 0
        self._permissions = permissions()

    def record(self, outcome: RequestOutcome) -> None:
        """Count a request."""
        unreported = self._unreported
        results = outcome.results
        for item in results.items():
            unreported.counts[item] += 1
        values = results.values()
        unreported.mutated += MUTATED in values
        if REFUSED not in values:
            return
        unreported.refused += 1
        now = to_time(self._clock.now())
        for rule, message in outcome.refusals:
            if results.get(rule) == REFUSED:
                cut = (outcome.kind[:253], outcome.namespace[:253], outcome.name[:253], truncate(message, 1024))
                unreported.refusals.appendleft(RecentRefusal(now, rule, *cut))

    def wake(self) -> None:
        """Write the status soon, because a condition may have changed."""
        self._woken = True
        super().wake()

    async def run(self) -> None:
        """Write the status until :meth:`close`."""
        with self._permissions.listening(self.wake):
            await self._iterate_until_closed()

    async def stop(self) -> None:
        """Write what is not reported yet, and remove this replica from the status. Call it after the loop has ended."""
        try:
            await self._write(leaving=True)
        except (ApiError, Unreachable) as error:
            log.warning("Failed to write the status of PlacementAdmission default during shutdown: %s", error)

    # ── The loop ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _iterate(self) -> float | None:
        now = self._clock.monotonic()
        due = self._written_at is None or now - self._written_at >= HEARTBEAT
        if due or self._woken or self._unreported or self._in_doubt or self._health() != self._shown:
            self._woken = False
            try:
                await self._write()
            except (ApiError, Unreachable) as error:  # requests are answered nevertheless
                log.warning("Failed to write the status of PlacementAdmission default; retrying: %s", error)
                return self._retry_delay()
        self._failures = 0
        return WRITE_PERIOD

    async def _failed(self, error: Exception) -> float | None:
        del error
        return self._retry_delay()

    def _retry_delay(self) -> float:
        self._woken = True
        delay = RETRY.delay(self._failures)
        self._failures += 1
        return delay

    async def _write(self, *, leaving: bool = False) -> None:
        for attempt in range(1, CONFLICTS + 1):
            try:
                found = await verbs.get(self._api, PLACEMENT_ADMISSIONS, NAME, timeout=REQUEST_TIMEOUT)
                await self._write_once(found, leaving=leaving)
            except NotFound:
                self._forget()  # without the object there are no rules
            except Conflict:
                if attempt == CONFLICTS:
                    raise
                continue
            self._written_at = self._clock.monotonic()
            return

    async def _write_once(self, found: Mapping[str, Any], *, leaving: bool) -> None:
        metadata = found["metadata"]
        uid, generation = str(metadata["uid"]), int(metadata.get("generation", 0))
        if self._uid not in ("", uid):
            self._forget()  # the counts of a deleted object
        self._uid = uid
        admission, errors = read_object({**found, "status": {}}, PLACEMENT_ADMISSION)
        errors = errors or PLACEMENT_ADMISSION.check(admission)
        before = read_placement_status(found.get("status"))
        previous = replace(before, conditions=without_permissions(before.conditions))
        self._resolve(previous)
        health = self._health()
        now = self._clock.now()
        status = build_status(
            previous,
            admission,
            errors,
            unreported=self._unreported,
            replica=self._replica,
            health=None if leaving else health,
            generation=generation,
            now=now,
        )
        conditions = self._permissions.add_to(
            status.conditions, KEY, before=before.conditions, now=now, generation=generation
        )
        status = with_state(replace(status, conditions=conditions))
        sent, self._unreported = self._unreported, Unreported.empty()
        self._in_doubt = (to_time(now), sent)
        patch = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "status": status_patch(status),
        }
        try:
            await verbs.merge_patch(
                self._api, PLACEMENT_ADMISSIONS, NAME, patch, subresource="status", timeout=REQUEST_TIMEOUT
            )
        except ApiError as error:
            if error.status < 500:  # it was certainly not written
                self._take_back()
            raise
        self._in_doubt, self._shown = None, health
        if not leaving:
            self._report_change(before, status, uid)

    def _resolve(self, current: PlacementAdmissionStatus) -> None:
        """Find out whether the last write, whose response was lost, succeeded."""
        if self._in_doubt is None:
            return
        at, _ = self._in_doubt
        mine = next((each for each in current.replicas if each.name == self._replica), None)
        if mine is not None and mine.last_seen == at:
            self._in_doubt = None
        else:
            self._take_back()

    def _take_back(self) -> None:
        if self._in_doubt is not None:
            _, sent = self._in_doubt
            sent.add(self._unreported)
            self._unreported, self._in_doubt = sent, None

    def _forget(self) -> None:
        self._unreported, self._in_doubt, self._uid = Unreported.empty(), None, ""
        self._shown = self._health()

    def _report_change(self, before: PlacementAdmissionStatus, after: PlacementAdmissionStatus, uid: str) -> None:
        """Record an event if the object has become degraded. The replica whose write changed the condition does so."""
        old, new = find_condition(before.conditions, DEGRADED), find_condition(after.conditions, DEGRADED)
        if new is None or new.status != "True" or (old is not None and _same(old, new)):
            return
        self._recorder.event(
            ObjectReference.to(PLACEMENT_ADMISSIONS, NAME, uid=uid),
            reason=new.reason,
            action="Admission",
            note=new.message,
            type=WARNING,
        )
        log.warning("PlacementAdmission %s is degraded (%s): %s", NAME, new.reason, new.message)


def _same(old: Condition, new: Condition) -> bool:
    return (old.status, old.reason, old.message) == (new.status, new.reason, new.message)


def read_placement_status(wire: object) -> PlacementAdmissionStatus:
    """Return the status in the cluster; empty if it cannot be decoded."""
    head = {"apiVersion": PLACEMENT_ADMISSIONS.api_version, "kind": PLACEMENT_ADMISSIONS.kind}
    found: PlacementAdmission | None
    found, _ = read_object({**head, "metadata": {"name": NAME}, "spec": {}, "status": wire}, PLACEMENT_ADMISSION)
    return PlacementAdmissionStatus() if found is None else found.status


def build_status(
    previous: PlacementAdmissionStatus,
    admission: PlacementAdmission | None,
    errors: Sequence[FieldError],
    *,
    unreported: Unreported,
    replica: str,
    health: Health | None,
    generation: int,
    now: float,
) -> PlacementAdmissionStatus:
    """Build the next status.

    Args:
        previous: the status in the cluster.
        admission: the object; ``None`` if it does not match its schema.
        errors: the errors of the object; empty if it is valid.
        unreported: the requests to add.
        replica: name of this replica.
        health: the state of this replica; ``None`` if it stops.
        generation: generation of the object.
        now: the time in seconds since the epoch.
    """
    others = [each for each in previous.running_replicas(now) if each.name != replica]
    if health is not None:
        expires = None if health.certificate_expires is None else to_time(health.certificate_expires)
        mine = ReplicaStatus(replica[:253], to_time(now), expires, truncate(health.problem, 1024))
        newest = sorted(others, key=lambda each: each.last_seen, reverse=True)
        others = [*newest[: MAX_REPLICAS - 1], mine]
    replicas = tuple(sorted(others, key=lambda each: each.name))
    counts = Counter({(each.rule, each.result): each.count for each in previous.counts})
    counts.update(unreported.counts)
    refusals = sorted([*unreported.refusals, *previous.recent_refusals], key=lambda each: each.time, reverse=True)
    changed = replace(
        previous,
        mutated=previous.mutated + unreported.mutated,
        refused=previous.refused + unreported.refused,
        counts=tuple(RuleCount(rule, result, count) for (rule, result), count in sorted(counts.items())),
        recent_refusals=tuple(refusals[:MAX_REFUSALS]),
        replicas=replicas,
    )
    if health is None and replicas:  # the replicas that remain report the conditions
        return changed
    wanted = _conditions(None if errors or admission is None else admission.spec, errors, replicas, health)
    return next_status(changed, wanted, generation=generation, now=now)


def _conditions(
    spec: PlacementAdmissionSpec | None,
    errors: Sequence[FieldError],
    replicas: Sequence[ReplicaStatus],
    health: Health | None,
) -> tuple[ConditionUpdate, ...]:
    if health is None:
        return (
            condition(READY, False, reasons.NO_REPLICA, NO_REPLICA_MESSAGE),
            condition(DEGRADED, True, reasons.NO_REPLICA, NO_REPLICA_MESSAGE),
        )
    if spec is None:
        problem = "; ".join(map(str, errors)) or "the spec cannot be decoded"
        message = f"{problem}. The last valid version remains in effect."
        return not_ready(reasons.INVALID_PLACEMENT_ADMISSION, message)
    if failing := [f"replica {each.name}: {each.problem}" for each in replicas if each.problem]:
        degraded = condition(DEGRADED, True, reasons.REPLICA_DEGRADED, "; ".join(failing))
    else:
        degraded = condition(DEGRADED, False, reasons.ALL_WELL, "all replicas apply the rules")
    if not health.registered:
        message = health.not_registered or "the webhooks are not registered yet"
        return condition(READY, False, reasons.WEBHOOKS_NOT_REGISTERED, message), degraded
    rules = ", ".join(configured_rules(spec)) or "no rule is configured"
    if spec.mode == "Warn":
        return condition(
            READY, True, reasons.WARNING_ONLY, f"the webhooks warn clients and refuse nothing: {rules}"
        ), degraded
    return condition(READY, True, reasons.ENFORCING, rules), degraded


def configured_rules(spec: PlacementAdmissionSpec) -> tuple[str, ...]:
    """Return the names of the rules that a spec configures, in the order of :data:`RuleName`."""
    rules = {
        POD_NODE_CONSTRAINTS: spec.pod_node_constraints,
        POD_NODE_SELECTOR: spec.pod_node_selector,
        DEFAULT_TOLERATION_SECONDS: spec.default_toleration_seconds,
        POD_TOLERATION_RESTRICTION: spec.pod_toleration_restriction,
        EXTENDED_RESOURCE_TOLERATION: spec.extended_resource_toleration,
        DEDICATED_NODES: spec.dedicated_nodes,
        SPECIAL_HARDWARE: spec.special_hardware,
    }
    return tuple(name for name, rule in rules.items() if rule is not None)
