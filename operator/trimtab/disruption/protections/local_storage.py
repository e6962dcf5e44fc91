"""Pods with local storage: their data stays behind, or is lost."""

from __future__ import annotations

from typing import Final

from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.reasons import LOCAL_STORAGE
from trimtab.disruption.protections.protection import Protection
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod

KINDS: Final = ("emptyDir", "hostPath")


class PodsWithLocalStorage(Protection):
    """Refuses pods with an emptyDir or hostPath volume, unless the policy lifts it."""

    name = LOCAL_STORAGE
    of_template = True

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        """Unless ``protections.disabled`` has PodsWithLocalStorage."""
        return "PodsWithLocalStorage" not in spec.protections.disabled

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        kinds = {volume.kind for volume in pod.spec.volumes}.intersection(KINDS)
        return self.refuse(f"the pod has volumes of kind {', '.join(sorted(kinds))}") if kinds else None
