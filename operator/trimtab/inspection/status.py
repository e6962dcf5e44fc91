"""The state of all custom resources and of the operator in one document: what is degraded, in flight or blocked.

Everything is read from the resources' specs and statuses and from the recorded actions. Nothing is planned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api.bounds import plural
from trimtab.api.conditions import (
    CONFLICTING,
    CONTENDED,
    DEGRADED,
    EFFECTIVE,
    PERMISSIONS_MISSING,
    PROGRESSING,
    READY,
    Condition,
    find_condition,
)
from trimtab.api.plan import rfc3339
from trimtab.api.reasons import NO_REPLICA
from trimtab.api.schedule import next_opening, open_at

if TYPE_CHECKING:
    from trimtab.api.cluster_autoscaler import ClusterAutoscaler
    from trimtab.api.descheduler_policy import DeschedulerPolicy
    from trimtab.api.history_record import HistoryEntry
    from trimtab.api.machine_autoscaler import MachineAutoscaler
    from trimtab.api.node_pressure_policy import NodePressurePolicy
    from trimtab.api.placement_admission import PlacementAdmission
    from trimtab.api.scheduler_policy import SchedulerPolicy
    from trimtab.api.taint_manager import TaintManager
    from trimtab.inspection.cluster import PolicySet

Document = dict[str, Any]


LAST_ACTIONS: Final = 5
"""Maximum number of recorded actions of each resource."""

STATES: Final = (
    "Degraded",
    "NotReady",
    "Conflicting",
    "Unknown",
    "Stale",
    "Waiting",
    "Acting",
    "Suspended",
    "OutsideWindows",
    "Idle",
)
"""The states of a resource, the worst first.

Degraded: the condition Degraded or PermissionsMissing is True. NotReady: Ready is False. Conflicting: the condition
Conflicting or Contended is True. Unknown: the operator has not written a status. Stale: the status is for an earlier
generation of the spec. Waiting: evictions wait for another controller or a limit. Acting: Progressing is True.
Suspended: the policy is suspended. OutsideWindows: all its windows are closed.
"""

PROBLEMS: Final = frozenset({"Degraded", "NotReady", "Conflicting"})
"""States in which the operator does not do everything that the spec asks for."""


class OperatorInstance(Struct, frozen=True, kw_only=True):
    """A process that runs controllers, from the Lease that it renews.

    Attributes:
        identity: the holder of the Lease.
        namespace: the namespace of the Lease.
        controllers: the controllers that the process runs.
        since: when it acquired the Lease, in RFC 3339.
        renewed: when it renewed the Lease last, in seconds since the epoch.
        duration: seconds for which a renewal is valid.
    """

    identity: str
    namespace: str = ""
    controllers: tuple[str, ...] = ()
    since: str = ""
    renewed: float = 0.0
    duration: float = 0.0

    def active(self, now: float) -> bool:
        """Return whether the process has renewed its Lease in time."""
        return bool(self.identity) and now - self.renewed <= self.duration


class OperatorState(Struct, frozen=True, kw_only=True):
    """What is known about the operator.

    Attributes:
        instances: the processes that run controllers, now or earlier.
        unknown: why it is unknown whether the operator runs; empty if it is known.
        ready: the number of ready replicas; ``None`` if it is unknown.
        replicas: the desired number of replicas; ``None`` if it is unknown.
        version: the version of the operator; empty if it is unknown.
    """

    instances: tuple[OperatorInstance, ...] = ()
    unknown: str = ""
    ready: int | None = None
    replicas: int | None = None
    version: str = ""


def status_document(
    policies: PolicySet,
    *,
    now: float,
    history: Sequence[HistoryEntry] = (),
    operator: OperatorState | None = None,
    invalid: Sequence[str] = (),
    read_at: float | None = None,
) -> Document:
    """Return the state of the operator and of all custom resources, the worst first, ready for JSON.

    Args:
        policies: the custom resources with their statuses.
        now: the current time, in seconds since the epoch.
        history: the recorded actions, the oldest first.
        operator: the processes of the operator; ``None`` for files, in which the operator is unknown.
        invalid: the errors of resources that are invalid, which the operator does not process.
        read_at: as in :func:`resource_states`.
    """
    states = resource_states(policies, now=now, history=history, read_at=read_at)
    states.sort(key=lambda each: (STATES.index(each["state"]), each["kind"], each["namespace"], each["name"]))
    found = None if operator is None else _operator(operator, now=now)
    stopped = found is not None and found["running"] is False
    wrong = [each for each in states if each["state"] in PROBLEMS]
    return {
        "message": f"invalid: {plural(len(invalid), 'resource')}"
        if invalid
        else _message(states, wrong, stopped=stopped),
        "time": rfc3339(now),
        "degraded": bool(wrong or invalid) or (stopped and bool(states)),
        "operator": found,
        "invalid": list(invalid),
        "resources": states,
    }


def resource_states(
    policies: PolicySet, *, now: float, history: Sequence[HistoryEntry] = (), read_at: float | None = None
) -> list[Document]:
    """Return the state of each custom resource, in the order of kinds and names.

    Args:
        policies: the custom resources with their statuses.
        now: the current time, in seconds since the epoch.
        history: the recorded actions, the oldest first.
        read_at: the newest time that other objects of the cluster show, in seconds since the epoch, if the cluster may
            have been read earlier or with another clock; ``None`` if it was read at ``now``.
    """
    found = [_descheduler(each, now=now) for each in policies.descheduler]
    if policies.cluster_autoscaler is not None:
        found.append(_autoscaler(policies.cluster_autoscaler, now=now))
    found += [_machine_autoscaler(each) for each in policies.machine_autoscalers]
    if policies.taint_manager is not None:
        found.append(_taint_manager(policies.taint_manager))
    found += [_scheduler(each) for each in policies.schedulers]
    found += [_pressure(each) for each in policies.pressure]
    if policies.admission is not None:
        found.append(_admission(policies.admission, now=now, read_at=read_at))
    return [{**each, "lastActions": last_actions(history, each["kind"], each["name"])} for each in found]


_CONTROLLERS: Final = {
    "DeschedulerPolicy": "descheduler",
    "ClusterAutoscaler": "autoscaler",
    "TaintManager": "tainting",
    "SchedulerPolicy": "scheduler",
    "NodePressurePolicy": "pressure",
}
"""The controller in recorded actions, by kind."""

_SINGLETONS: Final = frozenset({"ClusterAutoscaler", "TaintManager"})
"""Kinds of which there is one object, whose name need not be recorded."""


def last_actions(history: Sequence[HistoryEntry], kind: str, name: str) -> list[Document]:
    """Return the last recorded actions of a custom resource, the latest first."""
    controller = _CONTROLLERS.get(kind)
    found: list[Document] = []
    for entry in reversed(history):
        if len(found) == LAST_ACTIONS:
            break
        if entry.controller == controller and (kind in _SINGLETONS or entry.policy == name):
            found.append(action_document(entry))
    return found


def action_document(entry: HistoryEntry) -> Document:
    """Return a recorded action for a list of actions, ready for JSON."""
    pod = f"{entry.namespace}/{entry.pod}" if entry.pod else ""
    return {
        "time": rfc3339(entry.time.timestamp()),
        "action": entry.action,
        "object": pod or entry.node or entry.node_group,
        "node": entry.node,
        "policy": entry.policy,
        "strategy": entry.strategy,
        "result": entry.result,
        "reason": entry.reason,
        "message": entry.result_message or entry.message,
    }


def _message(states: Sequence[Document], wrong: Sequence[Document], *, stopped: bool) -> str:
    if not states:
        return "there is no custom resource that configures trimtab" + (", and the operator is not running" * stopped)
    number = plural(len(states), "resource")
    if stopped:
        return f"the operator is not running: {number} have no effect"
    if wrong:
        names = ", ".join(f"{each['kind']} {each['name']}" for each in wrong[:3])
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        return f"{len(wrong)} of {number} cannot do all that the spec asks for: {names}{more}"
    waiting = sum(each["state"] == "Waiting" for each in states)
    acting = sum(each["state"] == "Acting" for each in states)
    unknown = sum(each["state"] in ("Unknown", "Stale") for each in states)
    parts = [f"{waiting} waiting"] * bool(waiting) + [f"{acting} acting"] * bool(acting)
    parts += [f"{unknown} not processed yet"] * bool(unknown)
    return f"no problems in {number}" + (f": {', '.join(parts)}" if parts else "")


def _operator(operator: OperatorState, *, now: float) -> Document:
    active = [each for each in operator.instances if each.active(now)]
    past = [each for each in operator.instances if not each.active(now)]
    if operator.unknown:
        message = f"whether the operator runs is unknown: {operator.unknown}"
    elif active:
        message = f"{active[0].identity} leads since {active[0].since}"
    elif past:
        last = max(past, key=lambda each: each.renewed)
        message = (
            f"the operator is not running; {last.identity or 'the last process'} stopped at {rfc3339(last.renewed)}"
        )
    else:
        message = "the operator is not running, and has not run in this cluster"
    return {
        "running": None if operator.unknown else bool(active),
        "message": message,
        "leaders": [
            {
                "identity": each.identity,
                "namespace": each.namespace,
                "controllers": list(each.controllers),
                "since": each.since,
                "renewed": rfc3339(each.renewed),
            }
            for each in active
        ],
        "readyReplicas": operator.ready,
        "replicas": operator.replicas,
        "version": operator.version or None,
    }


# --- the kinds --------------------------------------------------------------------------------------------------------


def _state(
    kind: str,
    resource: Any,
    *,
    mode: str,
    in_flight: str,
    next_run: datetime | None = None,
    last_run: datetime | None = None,
    suspended: bool = False,
    window: Document | None = None,
    details: Document | None = None,
) -> Document:
    """Return the state of a resource from its conditions, with the fields that all kinds have.

    Args:
        kind: the kind.
        resource: the resource.
        mode: what it is allowed to do.
        in_flight: what it does now; empty for nothing.
        next_run: when it acts next, if that is known.
        last_run: when it ran last.
        suspended: whether it is suspended.
        window: its windows if it has any: ``open``, and ``opens`` if they are closed.
        details: numbers of its status.
    """
    status = resource.status
    conditions: tuple[Condition, ...] = status.conditions
    blocked = [*_blocking_conditions(conditions), *_waiting(getattr(status, "waiting_evictions", ()))]
    if suspended:
        blocked.append(_block("Suspended", "spec.suspend is true"))
    if window is not None and not window["open"]:
        blocked.append(_block("OutsideWindows", f"all windows are closed until {window['opens']}"))
    generation = resource.metadata.generation
    stale = status.observed_generation < generation
    if stale and conditions:
        message = f"the status is for generation {status.observed_generation}, the spec has {generation}"
        blocked.append(_block("Stale", message))
    ready = find_condition(conditions, READY)
    return {
        "kind": kind,
        "namespace": resource.metadata.namespace or "",
        "name": resource.metadata.name,
        "state": _worst_state(conditions, blocked, in_flight=bool(in_flight)),
        "mode": mode,
        "ready": None if ready is None else ready.status,
        "message": "the operator has not processed it" if ready is None else ready.message,
        "nextRun": _time(next_run),
        "lastRun": _time(last_run),
        "window": window,
        "inFlight": in_flight,
        "blockedBy": blocked,
        "missingPermissions": _missing(conditions),
        "details": details or {},
    }


def _worst_state(conditions: tuple[Condition, ...], blocked: Sequence[Document], *, in_flight: bool) -> str:
    kinds = {each["type"] for each in blocked}
    if not conditions:
        return "Unknown"
    if kinds & {DEGRADED, PERMISSIONS_MISSING}:
        return "Degraded"
    rest = [
        ("NotReady", READY in kinds),
        ("Conflicting", bool(kinds & {CONFLICTING, CONTENDED})),
        ("Stale", "Stale" in kinds),
        ("Waiting", "WaitingEvictions" in kinds),
        ("Suspended", "Suspended" in kinds),
        ("Acting", in_flight or _is(conditions, PROGRESSING)),
        ("OutsideWindows", "OutsideWindows" in kinds),
    ]
    return next((state for state, applies in rest if applies), "Idle")


_EXPECTED: Final = frozenset({"Suspended", "OutsideWindows"})
"""Reasons of Ready=False that the spec asks for."""


def _blocking_conditions(conditions: tuple[Condition, ...]) -> Iterable[Document]:
    for condition in conditions:
        if condition.type == READY:
            wrong = condition.status == "False" and condition.reason not in _EXPECTED
        else:
            wrong = condition.status == "True" and condition.type not in (PROGRESSING, EFFECTIVE)
        if wrong:
            since = rfc3339(condition.last_transition_time.timestamp())
            yield _block(condition.type, condition.message, reason=condition.reason, since=since)
        if condition.type == EFFECTIVE and condition.status == "False":
            yield _block(condition.type, condition.message, reason=condition.reason)


def _waiting(entries: Iterable[Any]) -> Iterable[Document]:
    for each in entries:
        what = (
            f"{plural(each.count, 'eviction')} for {each.waits_for}"
            if each.waits_for
            else plural(each.count, "eviction")
        )
        since = rfc3339(each.since.timestamp())
        yield _block("WaitingEvictions", f"{what}: {each.message}", reason=each.reason, since=since)


def _block(type_: str, message: str, *, reason: str = "", since: str | None = None) -> Document:
    return {"type": type_, "reason": reason or type_, "message": message, "since": since}


def _is(conditions: tuple[Condition, ...], type_: str) -> bool:
    found = find_condition(conditions, type_)
    return found is not None and found.status == "True"


def _missing(conditions: tuple[Condition, ...]) -> str:
    found = find_condition(conditions, PERMISSIONS_MISSING)
    return found.message if found is not None and found.status == "True" else ""


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else rfc3339(moment.timestamp())


def _some(*parts: tuple[int, str, str]) -> str:
    """Return the parts whose number is not zero, each with its noun in the singular or plural: ``2 pods, 1 node``."""
    return ", ".join(f"{number} {one if number == 1 else many}" for number, one, many in parts if number)


def _descheduler(policy: DeschedulerPolicy, *, now: float) -> Document:
    spec, status = policy.spec, policy.status
    window: Document | None = None
    if spec.windows:
        is_open = open_at(spec.windows, now)
        opens = None if is_open else next_opening(spec.windows, after=now)
        window = {"open": is_open, "opens": None if opens is None else rfc3339(opens)}
    run = status.last_run
    progressing = find_condition(status.conditions, PROGRESSING)
    return _state(
        "DeschedulerPolicy",
        policy,
        mode=spec.mode,
        in_flight=progressing.message if progressing is not None and progressing.status == "True" else "",
        next_run=None if spec.suspend else status.next_run,
        last_run=None if run is None else run.time,
        suspended=spec.suspend,
        window=window,
        details={}
        if run is None
        else {
            "planned": run.planned,
            "evicted": run.evicted,
            "started": run.started,
            "refused": run.refused,
            "kept": run.kept,
            "evictedTotal": status.evicted,
        },
    )


def _autoscaler(autoscaler: ClusterAutoscaler, *, now: float) -> Document:
    status = autoscaler.status
    adding = [each for each in status.node_groups if each.scale_up is not None]
    backoff = [
        each for each in status.node_groups if each.backoff_until is not None and each.backoff_until.timestamp() > now
    ]
    removing = len(status.removing) + status.removing_omitted
    replacing = sum(each.given_up is None for each in status.replacements)
    run = status.last_iteration
    down = "on" if autoscaler.spec.scaling_down.enabled else "off"
    found = _state(
        "ClusterAutoscaler",
        autoscaler,
        mode=f"ScaleDown {down}",
        in_flight=_some(
            (len(adding), "scale-up", "scale-ups"),
            (removing, "removal", "removals"),
            (replacing, "replacement", "replacements"),
        ),
        last_run=None if run is None else run.time,
        details={
            "nodeGroups": len(status.node_groups) + status.node_groups_omitted,
            "pendingPods": 0 if run is None else run.pending_pods,
            "unneeded": len(status.unneeded) + status.unneeded_omitted,
            "removing": removing,
            "kept": {each.reason: each.count for each in status.kept_reasons},
        },
    )
    for each in backoff:
        error = "" if each.last_error is None else f" ({each.last_error.reason}: {each.last_error.message})"
        until = _time(each.backoff_until)
        found["blockedBy"].append(_block("GroupBacksOff", f"node group {each.id} is in backoff until {until}{error}"))
    return found


def _machine_autoscaler(autoscaler: MachineAutoscaler) -> Document:
    spec = autoscaler.spec
    return _state(
        "MachineAutoscaler",
        autoscaler,
        mode=f"{spec.min_replicas} to {spec.max_replicas} nodes",
        in_flight="",
        details={"replicas": autoscaler.status.replicas},
    )


def _taint_manager(manager: TaintManager) -> Document:
    status = manager.status
    counts = status.counts
    waiting = sum(each.waiting for each in status.zones)
    found = _state(
        "TaintManager",
        manager,
        mode=manager.spec.mode,
        in_flight=_some((counts.overdue, "overdue pod", "overdue pods"), (waiting, "node to taint", "nodes to taint")),
        next_run=status.next_deadlines[0].due if status.next_deadlines else None,
        details={
            "taintedNodes": counts.tainted_nodes,
            "podsWithDeadline": counts.pods_with_deadline,
            "overdue": counts.overdue,
            "held": counts.held,
        },
    )
    for each in status.refused[:LAST_ACTIONS]:
        found["blockedBy"].append(_block("Refused", f"{each.namespace}/{each.pod}: {each.message}"))
    for node in status.stuck_nodes[:LAST_ACTIONS]:
        found["blockedBy"].append(_block("StuckNode", f"{node.name}: {node.message}"))
    return found


def _scheduler(policy: SchedulerPolicy) -> Document:
    queue = policy.status.queue
    return _state(
        "SchedulerPolicy",
        policy,
        mode=policy.spec.scheduler_name,
        in_flight=_some((queue.active + queue.backoff, "queued pod", "queued pods")),
        details={
            "active": queue.active,
            "backoff": queue.backoff,
            "unschedulable": queue.unschedulable,
            "gated": queue.gated,
        },
    )


def _pressure(policy: NodePressurePolicy) -> Document:
    counts = policy.status.counts
    return _state(
        "NodePressurePolicy",
        policy,
        mode=policy.spec.mode,
        in_flight=_some((counts.under_pressure, "node under pressure", "nodes under pressure")),
        details={
            "nodes": counts.nodes,
            "read": counts.read,
            "underPressure": counts.under_pressure,
            "evicted": counts.evicted,
        },
    )


def _admission(admission: PlacementAdmission, *, now: float, read_at: float | None) -> Document:
    status = admission.status
    last = max((each.last_seen.timestamp() for each in status.replicas), default=None)
    running = status.running_replicas(now if read_at is None else max(read_at, last or 0.0))
    ready = find_condition(status.conditions, READY)
    if ready is not None and ready.status == "True" and not running:
        # Only replicas write the conditions, and a killed one cannot.
        since = "" if last is None else f" since {rfc3339(last)}"
        stale = replace(ready, status="False", reason=NO_REPLICA, message=f"no webhook replica has reported{since}")
        others = (each for each in status.conditions if each is not ready)
        admission = replace(admission, status=replace(status, conditions=(stale, *others)))
    found = _state(
        "PlacementAdmission",
        admission,
        mode=admission.spec.mode,
        in_flight="",
        details={"mutated": status.mutated, "refused": status.refused, "replicas": len(running)},
    )
    found["blockedBy"] += [_block("Replica", f"{each.name}: {each.problem}") for each in running if each.problem]
    return found
