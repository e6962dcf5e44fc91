"""Pods whose controller is gone: nothing would bring them back."""

from __future__ import annotations

from typing import ClassVar, Final

from trimtab.api.reasons import CONTROLLER_NOT_FOUND
from trimtab.autoscaling.scale_down.drainability.rule import Context, Verdict, block
from trimtab.kube.objects import Pod, ReplicaSet, ReplicationController, StatefulSet

_KINDS: Final[dict[str, type[ReplicaSet] | type[ReplicationController] | type[StatefulSet]]] = {
    "ReplicaSet": ReplicaSet,
    "ReplicationController": ReplicationController,
    "StatefulSet": StatefulSet,
}


class ReplicaCount:
    """Blocks them, where the controllers of their kind are known.

    A cluster file need not have controllers: where it has none of the kind in the pod's namespace, nothing is known.
    """

    reads: ClassVar[str] = "template"

    def judge(self, pod: Pod, context: Context) -> Verdict | None:
        """See :meth:`~trimtab.autoscaling.scale_down.drainability.rule.Rule.judge`."""
        owner = pod.controller
        kind = None if owner is None else _KINDS.get(owner.kind)
        if owner is None or kind is None:
            return None
        known = context.snapshot.shelves.of(kind)
        if f"{pod.namespace}/{owner.name}" in known:
            return None
        if not any(each.namespace == pod.namespace for each in known.values()):
            return None
        return block(CONTROLLER_NOT_FOUND, f"its {owner.kind} {owner.name} is not there")
