"""OpenShift's Machine API: each MachineSet is a candidate, and its machines name it as their owner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from trimtab.autoscaling.groups.ownership import machines_by_owner, why_paused
from trimtab.autoscaling.groups.provider import Candidate
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Machine, MachineSet
from trimtab.kube.objects.machine import MACHINE_API

MIRRORED: Final = "ClusterAPI"
HANDED_OVER: Final = "Migrating"


class MachineApi:
    """machine.openshift.io."""

    api_group: ClassVar[str] = MACHINE_API

    def candidates(self, snapshot: Snapshot) -> Iterator[Candidate]:
        """See :class:`~trimtab.autoscaling.groups.provider.Provider`."""
        owned = machines_by_owner(snapshot.shelves.of(Machine).values(), MACHINE_API)
        for key, source in snapshot.shelves.of(MachineSet).items():
            governed = governed_set(source)
            yield Candidate(
                id=f"MachineSet/{key}",
                source=source,
                machines=() if governed else tuple(owned.get(("MachineSet", key), ())),
                governed=governed,
                paused="its authoritativeAPI is Migrating: neither API acts on it"
                if source.authoritative_api == HANDED_OVER
                else why_paused(source),
            )


def governed_set(source: MachineSet) -> str:
    """What else sets the size of a MachineSet, in words: Cluster API's, where OpenShift has made that authoritative."""
    if source.authoritative_api != MIRRORED:
        return ""
    return "its authoritativeAPI is ClusterAPI, whose MachineSet of this name sets its size"
