"""RemovePodsViolatingTopologySpreadConstraint and its parameters."""

from __future__ import annotations

from typing import Annotated, Literal

from trimtab.api.base import Spec, bounded, doc
from trimtab.api.strategies.base import SET, Strategy

UnsatisfiableConstraintAction = Literal["DoNotSchedule", "ScheduleAnyway"]


class TopologySpreadParams(Spec, frozen=True):
    """Parameters of RemovePodsViolatingTopologySpreadConstraint."""

    constraints: Annotated[
        tuple[UnsatisfiableConstraintAction, ...],
        bounded(
            "Which of the pods' topology spread constraints are mended, by their whenUnsatisfiable: DoNotSchedule, "
            "ScheduleAnyway, or both. Without it: DoNotSchedule. Constraints with DoNotSchedule are never worsened.",
            least=1,
            limit=2,
            **SET,
        ),
    ] = ("DoNotSchedule",)
    topology_balance_node_fit: Annotated[
        bool,
        doc(
            "Taken for the sake of files of the descheduler project, and without effect: a pod is never moved unless "
            "a node was found that takes it."
        ),
    ] = True


class RemovePodsViolatingTopologySpreadConstraint(Strategy, frozen=True):
    """Evens out pods over zones, nodes or other domains until their topology spread constraints hold."""

    params: Annotated[TopologySpreadParams, doc("Parameters of RemovePodsViolatingTopologySpreadConstraint.")] = (
        TopologySpreadParams()
    )
