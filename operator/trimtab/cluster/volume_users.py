"""Which placed pods use volumes, per claim and per node: what the volume filters ask of pods that are there already."""

from __future__ import annotations

from trimtab.kube.objects import Pod


class VolumeUsers:
    """Placed pods that have volumes of a kind that rules read.

    Attributes:
        of_claim: how many pods use a claim, by the claim's ``namespace/name``; claims of ephemeral volumes are left
            out, as only one pod can use them.
        on: the pods of each node slot, by ``namespace/name``.
    """

    def __init__(self) -> None:
        self.of_claim: dict[str, int] = {}
        self.on: dict[int, dict[str, Pod]] = {}

    def count(self, pod: Pod, slot: int, amount: int) -> None:
        """Count a pod in (``amount`` 1) or out (-1) on the node in ``slot``."""
        if amount > 0:
            self.on.setdefault(slot, {})[pod.key] = pod
        else:
            there = self.on[slot]
            del there[pod.key]
            if not there:
                del self.on[slot]
        for volume in pod.spec.volumes:
            if volume.claim:
                key = f"{pod.namespace}/{volume.claim}"
                number = self.of_claim.get(key, 0) + amount
                if number:
                    self.of_claim[key] = number
                else:
                    del self.of_claim[key]
