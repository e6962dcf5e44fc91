"""DaemonSets' pods: each belongs to its node, and would be made anew there."""

from __future__ import annotations

from trimtab.api.reasons import DAEMON_SET_POD
from trimtab.disruption.protections.protection import Protection
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod


class DaemonSetPods(Protection):
    """Refuses pods with an owner of kind DaemonSet, of whatever API group: its likes behave alike."""

    name = DAEMON_SET_POD
    liftable = False
    of_template = True

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        owner = next((owner for owner in pod.owners if owner.kind == "DaemonSet"), None)
        return None if owner is None else self.refuse(f"DaemonSet {owner.name} keeps one pod on this node")
