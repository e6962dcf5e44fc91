"""RemovePodsHavingTooManyRestarts and its parameters."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from trimtab.api.base import PositiveInt, Spec, bounded, doc
from trimtab.api.strategies.base import SET, Strategy
from trimtab.api.strategies.containers import IncludingInitContainers

RestartState = Literal["Running", "CrashLoopBackOff"]


class TooManyRestartsParams(Spec, frozen=True):
    """Parameters of RemovePodsHavingTooManyRestarts."""

    pod_restart_threshold: Annotated[
        PositiveInt | None,
        doc(
            "Pods go whose containers have been restarted this many times or more, all counted together. Required "
            "where the strategy is enabled."
        ),
    ] = None
    including_init_containers: IncludingInitContainers = False
    states: Annotated[
        tuple[RestartState, ...],
        bounded(
            "Only pods in one of these states: of phase Running, or with a container that waits in CrashLoopBackOff. "
            "Without it: any.",
            limit=32,
            **SET,
        ),
    ] = ()


class RemovePodsHavingTooManyRestarts(Strategy, frozen=True):
    """Evicts pods that have been restarted too often, so that they start anew, elsewhere where another node is free."""

    needs: ClassVar[tuple[str, ...]] = ("podRestartThreshold",)

    params: Annotated[TooManyRestartsParams, doc("Parameters of RemovePodsHavingTooManyRestarts.")] = (
        TooManyRestartsParams()
    )
