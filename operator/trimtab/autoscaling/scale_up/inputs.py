"""What scale-up goes by, beside the snapshot."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.machine_autoscaler import MachineAutoscaler
from trimtab.autoscaling.groups import NO_EXTERNAL_GROUPS, ExternalGroups, Groups
from trimtab.autoscaling.groups import groups as groups_of
from trimtab.autoscaling.scale_up.expanders.advice import Advice
from trimtab.cluster.snapshot import Snapshot


class Inputs(Struct, frozen=True):
    """What scale-up goes by, beside the snapshot.

    Attributes:
        spec: of the ClusterAutoscaler.
        now: seconds since the epoch.
        machine_autoscalers: all of them.
        priorities: for the expander Priority: patterns of groups' names by priority.
        backoff: why groups must not be asked for nodes at present, in words, by their ids.
        status: of the ClusterAutoscaler: what scale-down remembers is there.
        unhealthy: why groups are left as they are, in both directions, in words, by their ids.
        asked: groups whose targets do not show yet what they were asked for, in words, by their ids.
        upcoming: how many nodes of a group are on their way, by its id, where that is known better than from the group.
        halted: why nothing at all is added or removed, in words; empty where that is not so.
        external: what providers outside of the cluster say of their groups.
        advice: for the expander Grpc: what its server said, and what it is to be asked; ``None`` where nobody is asked.
        groups: of the snapshot, where the caller has made them; see :meth:`grouped`.
    """

    spec: ClusterAutoscalerSpec
    now: float
    machine_autoscalers: tuple[MachineAutoscaler, ...] = ()
    priorities: Mapping[int, tuple[str, ...]] = {}
    backoff: Mapping[str, str] = {}
    status: ClusterAutoscalerStatus = ClusterAutoscalerStatus()
    unhealthy: Mapping[str, str] = {}
    asked: Mapping[str, str] = {}
    upcoming: Mapping[str, int] = {}
    halted: str = ""
    external: ExternalGroups = NO_EXTERNAL_GROUPS
    advice: Advice | None = None
    groups: Groups | None = None

    def grouped(self, snapshot: Snapshot) -> Groups:
        """The groups of the snapshot that is planned on: of thousands of nodes they are made once a plan."""
        if self.groups is not None:
            return self.groups
        return groups_of(snapshot, self.machine_autoscalers, self.external)
