"""The history of actions: reads it from HistoryRecords and DeschedulingRuns.

Example::

    entries = entries_of(manifests)
    cluster = ClusterInput(snapshot=snapshot, now=now, history=entries)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from trimtab.api import descheduling_run, history_record
from trimtab.api.base import API_VERSION
from trimtab.api.bounds import plural
from trimtab.api.descheduling_run import RunAction, RunOutcome
from trimtab.api.history_record import HistoryEntry, Result
from trimtab.api.plan import rfc3339

SubjectType = Literal["pod", "node", "nodegroup", "policy", "namespace"]

SAME_OUTCOME: Final = 300.0
"""Maximum number of seconds between the time of an outcome in a DeschedulingRun and in a HistoryRecord."""

_RESULTS: Final[Mapping[str, Result]] = {
    "Evicted": "Succeeded",
    "Started": "Started",
    "Refused": "Refused",
    "Failed": "Failed",
}
"""The results of a run's actions for which a request was sent."""


def entries_of(manifests: Iterable[Mapping[str, Any]]) -> tuple[HistoryEntry, ...]:
    """Return the actions in HistoryRecords and DeschedulingRuns, the oldest first.

    An action that is in both is returned once. Users can change these objects, so entries that are invalid, and entries
    with values of later versions, are omitted.

    Args:
        manifests: objects of these kinds as decoded JSON. Objects of other kinds are ignored.
    """
    recorded: dict[HistoryEntry, None] = {}
    of_runs: list[HistoryEntry] = []
    for manifest in manifests:
        if manifest.get("kind") == history_record.KIND:
            recorded |= dict.fromkeys(_of_record(manifest))
        elif manifest.get("kind") == descheduling_run.KIND:
            of_runs += _of_run(manifest)
    known: dict[tuple[str, str, str], list[float]] = {}
    for entry in recorded:
        known.setdefault(_outcome_key(entry), []).append(entry.time.timestamp())
    found = list(recorded)
    for entry in of_runs:
        at = entry.time.timestamp()
        if not any(abs(other - at) <= SAME_OUTCOME for other in known.get(_outcome_key(entry), ())):
            found.append(entry)
    return tuple(sorted(found, key=lambda entry: entry.time))


def _outcome_key(entry: HistoryEntry) -> tuple[str, str, str]:
    return entry.uid or f"{entry.namespace}/{entry.pod}", entry.policy, entry.result


def _of_record(manifest: Mapping[str, Any]) -> Iterable[HistoryEntry]:
    for each in _items(manifest, "spec", "entries"):
        try:
            entry = msgspec.convert(each, HistoryEntry)
        except msgspec.ValidationError:
            continue
        if entry.time.tzinfo is not None:
            yield entry


def _of_run(manifest: Mapping[str, Any]) -> Iterable[HistoryEntry]:
    plan = _value(manifest, "spec", "plan")
    policy = plan.get("policy", "") if isinstance(plan, Mapping) else ""
    actions: dict[str, RunAction] = {}
    for each in _items(manifest, "spec", "plan", "actions"):
        try:
            action = msgspec.convert(each, RunAction)
        except msgspec.ValidationError:
            continue
        actions[action.uid] = action
    for each in _items(manifest, "status", "outcomes"):
        try:
            outcome = msgspec.convert(each, RunOutcome)
        except msgspec.ValidationError:
            continue
        planned = actions.get(outcome.uid)
        if planned is not None and outcome.result in _RESULTS and outcome.time.tzinfo is not None:
            yield _of_outcome(planned, outcome, str(policy))


def _of_outcome(action: RunAction, outcome: RunOutcome, policy: str) -> HistoryEntry:
    succeeded = outcome.result in ("Evicted", "Started")
    return HistoryEntry(
        time=outcome.time,
        controller="descheduler",
        action="Evict",
        reason=action.reason,
        message=action.message,
        result=_RESULTS[outcome.result],
        result_reason=None if succeeded else outcome.reason,
        result_message="" if succeeded else outcome.message,
        policy=policy,
        strategy=action.strategy,
        namespace=outcome.namespace,
        pod=outcome.pod,
        uid=outcome.uid,
        owner=action.owner,
        node=action.node,
        target=action.target,
    )


def _value(manifest: Any, *path: str) -> Any:
    for key in path:
        manifest = manifest.get(key) if isinstance(manifest, Mapping) else None
    return manifest


def _items(manifest: Mapping[str, Any], *path: str) -> Sequence[Any]:
    found = _value(manifest, *path)
    return found if isinstance(found, Sequence) and not isinstance(found, str) else ()


class Subject(Struct, frozen=True, kw_only=True):
    """The object whose history is selected, for example ``Subject(type="pod", namespace="shop", name="web-1")``.

    Attributes:
        type: pod, node, nodegroup, policy or namespace.
        name: its name.
        namespace: its namespace; empty for objects without one, and if a node group may be in any namespace.
    """

    type: SubjectType
    name: str
    namespace: str = ""

    def matches(self, entry: HistoryEntry) -> bool:
        """Return whether an action concerned the object."""
        key = f"{self.namespace}/{self.name}"
        match self.type:
            case "pod":
                return (entry.namespace, entry.pod) == (self.namespace, self.name) or key in entry.pods
            case "node":
                return self.name in (entry.node, entry.target)
            case "nodegroup":
                return entry.node_group == key if self.namespace else entry.node_group.endswith(f"/{self.name}")
            case "policy":
                return entry.policy == self.name
            case "namespace":
                return entry.namespace == self.name or any(pod.startswith(f"{self.name}/") for pod in entry.pods)


def select_history(
    entries: Iterable[HistoryEntry], *, since: float, until: float, subject: Subject | None = None
) -> tuple[HistoryEntry, ...]:
    """Return the actions in a period, the oldest first.

    Args:
        entries: the actions, the oldest first.
        since: the start of the period, in seconds since the epoch.
        until: the end of the period, in seconds since the epoch.
        subject: the object whose actions are wanted; ``None`` for all actions.
    """
    return tuple(
        entry
        for entry in entries
        if since <= entry.time.timestamp() <= until and (subject is None or subject.matches(entry))
    )


def history_document(
    entries: Iterable[HistoryEntry], *, since: float, until: float, subject: Subject | None = None
) -> dict[str, Any]:
    """Return the document of ``trimtab history``: the period, the numbers of actions, and the actions.

    Args:
        entries: the actions, the oldest first.
        since: the start of the period, in seconds since the epoch.
        until: the end of the period, in seconds since the epoch.
        subject: the object whose actions are wanted; ``None`` for all actions.
    """
    found = select_history(entries, since=since, until=until, subject=subject)
    counts = Counter((entry.action, entry.result) for entry in found)
    return {
        "apiVersion": API_VERSION,
        "kind": "History",
        "since": rfc3339(since),
        "until": rfc3339(until),
        "message": _summary(found),
        "counts": [
            {"action": action, "result": result, "count": count} for (action, result), count in sorted(counts.items())
        ],
        "entries": [entry_document(entry) for entry in found],
    }


def entry_document(entry: HistoryEntry) -> dict[str, Any]:
    """Return an action as JSON, with the pod as ``namespace/name``. Empty fields are omitted."""
    document: dict[str, Any] = msgspec.to_builtins(entry)
    namespace = document.pop("namespace", "")
    document["time"] = rfc3339(entry.time.timestamp())
    document["result"] = entry.result
    if entry.pod:
        document["pod"] = f"{namespace}/{entry.pod}"
    return document


_NOUNS: Final[tuple[tuple[str, str], ...]] = (
    ("Evict", "eviction"),
    ("Delete", "deletion"),
    ("Preempt", "preemption"),
    ("ScaleUp", "scale-up"),
    ("ScaleDown", "scale-down"),
    ("RemoveNode", "node removal"),
    ("Taint", "taint"),
    ("Untaint", "removed taint"),
    ("Cordon", "cordon"),
    ("Uncordon", "uncordon"),
)


def _summary(entries: Sequence[HistoryEntry]) -> str:
    """Summarize actions: ``14 evictions by 2 policies, 3 scale-ups; 2 refused, 1 failed``."""
    # A removal has an entry when it starts and another when it ends.
    done = [
        each
        for each in entries
        if each.result == "Succeeded" or (each.result == "Started" and each.action != "RemoveNode")
    ]
    parts = []
    for action, noun in _NOUNS:
        of_action = [each for each in done if each.action == action]
        policies = {each.policy for each in of_action if each.policy}
        by = f" by {len(policies)} {'policy' if len(policies) == 1 else 'policies'}" if policies else ""
        if of_action:
            parts.append(plural(len(of_action), noun) + by)
    numbers = Counter(each.result for each in entries)
    failed = [f"{numbers[name]} {name.lower()}" for name in ("Refused", "Failed") if numbers[name]]
    return "; ".join(filter(None, (", ".join(parts), ", ".join(failed)))) or "no actions"
