"""Records size changes, removals and cleanups of the autoscaler in the history."""

from __future__ import annotations

from typing import Final

from trimtab.api import reasons
from trimtab.api.history_record import HistoryEntry
from trimtab.api.scalars import to_time
from trimtab.autoscaling.actuation.removal import RemovalOutcome, RemovalState
from trimtab.autoscaling.providers import ScaleResult
from trimtab.autoscaling.report.iteration_report import IterationReport, ScaleUpOutcome
from trimtab.controller.history import History
from trimtab.disruption.outcome import Refusal
from trimtab.kube.rules.taints import TO_BE_DELETED

MAX_PODS: Final = 10
"""Maximum number of pods of a scale-up that an entry names."""


class AutoscalerHistory:
    """Records the actions of the autoscaler.

    Args:
        history: takes the entries.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._names: dict[str, str] = {}

    def report(self, report: IterationReport) -> None:
        """Record the size changes of an iteration, and the nodes that it cleaned up."""
        self._names = {id_: group.key for id_, group in report.groups.by_id.items()}
        for scale_up in report.scale_up_outcomes:
            self._history.add(self._scale_up(scale_up))
        for corrected in report.size_corrections:
            self._history.add(self._correction(corrected, now=report.finished))
        for node, uid in sorted(report.cleaned_nodes.items()):
            self._history.add(
                HistoryEntry(
                    time=to_time(report.finished),
                    controller="autoscaler",
                    action="Untaint",
                    reason=reasons.CLUSTER_AUTOSCALER_CLEANUP,
                    message="removed the taint, the cordon and the machine marks that an earlier process left",
                    node=node,
                    uid=uid,
                    taint=TO_BE_DELETED,
                )
            )

    def began(self, state: RemovalState) -> None:
        """Record the start of a removal, and its cordon. An earlier process has recorded those of a resumed one."""
        if not state.resumed:
            self._history.add(
                HistoryEntry(
                    time=to_time(state.since),
                    controller="autoscaler",
                    action="RemoveNode",
                    reason=state.why or reasons.UNDERUTILIZED,
                    result="Started",
                    message=state.message,
                    node=state.node,
                    uid=state.uid,
                    node_group=self._name(state.group),
                )
            )
        if state.cordoned:
            self._history.add(
                HistoryEntry(
                    time=to_time(state.since),
                    controller="autoscaler",
                    action="Cordon",
                    reason=state.why or reasons.UNDERUTILIZED,
                    message="cordoned before its pods are evicted",
                    node=state.node,
                    uid=state.uid,
                    node_group=self._name(state.group),
                )
            )

    def ended(self, outcome: RemovalOutcome) -> None:
        """Record the end of a removal."""
        self._history.add(
            HistoryEntry(
                time=to_time(outcome.finished),
                controller="autoscaler",
                action="RemoveNode",
                reason=outcome.why or outcome.reason,
                result="Succeeded" if outcome.done else "Failed" if outcome.failed else "Refused",
                message=outcome.message if outcome.done else "",
                result_reason=None if outcome.done else outcome.reason,
                result_message="" if outcome.done else outcome.message,
                node=outcome.node,
                uid=outcome.uid,
                node_group=self._name(outcome.group),
                pods=tuple(sorted(outcome.evicted)[:MAX_PODS]),
            )
        )

    def uncordoned(self, node: str, uid: str, why: Refusal, *, at: float) -> None:
        """Record that a node that is kept was uncordoned."""
        self._history.add(
            HistoryEntry(
                time=to_time(at),
                controller="autoscaler",
                action="Uncordon",
                reason=why.reason,
                message=why.message,
                node=node,
                uid=uid,
            )
        )

    def _scale_up(self, scale_up: ScaleUpOutcome) -> HistoryEntry:
        action, scaled = scale_up.action, scale_up.scaled
        return HistoryEntry(
            time=to_time(scale_up.at),
            controller="autoscaler",
            action="ScaleUp",
            reason=action.reason,
            result="Succeeded" if scaled.done else "Failed",
            message=action.message,
            result_reason=None if scaled.failure is None else str(scaled.failure),
            result_message=scaled.message,
            node_group=action.machine_set,
            from_size=scaled.before,
            to_size=scaled.after,
            pods=action.pods[:MAX_PODS],
        )

    def _correction(self, scaled: ScaleResult, *, now: float) -> HistoryEntry:
        return HistoryEntry(
            time=to_time(now),
            controller="autoscaler",
            action="ScaleUp" if scaled.after > scaled.before else "ScaleDown",
            reason=reasons.TARGET_CHANGED if scaled.after > scaled.before else reasons.TARGET_LOWERED,
            result="Succeeded" if scaled.done else "Failed",
            result_reason=None if scaled.failure is None else str(scaled.failure),
            result_message=scaled.message,
            node_group=self._name(scaled.group),
            from_size=scaled.before,
            to_size=scaled.after,
        )

    def _name(self, group: str) -> str:
        return self._names.get(group, group)
