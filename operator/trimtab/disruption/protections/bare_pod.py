"""Bare pods: nothing would make them anew."""

from __future__ import annotations

from trimtab.api.reasons import BARE_POD
from trimtab.disruption.protections.protection import Protection
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod


class BarePods(Protection):
    """Refuses pods without a controller. An owner that is none only decides when the pod is garbage."""

    name = BARE_POD
    liftable = False
    of_template = True

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        if pod.controller is not None:
            return None
        if not pod.owners:
            return self.refuse("no controller owns the pod: it would not come back")
        owners = ", ".join(f"{owner.kind} {owner.name}" for owner in pod.owners)
        return self.refuse(f"no controller owns the pod: it would not come back ({owners}: without controller: true)")
