"""The remedies that are tried. Whoever adds a filter adds what helps against it here."""

from __future__ import annotations

from typing import Final

from trimtab.placement.remedies.add_node import AddNode
from trimtab.placement.remedies.bind_claim import BindClaim
from trimtab.placement.remedies.change_selector import ChangeSelector
from trimtab.placement.remedies.evict_neighbours import EvictNeighbours
from trimtab.placement.remedies.framework import Addition, Lifting, Remedy
from trimtab.placement.remedies.free_room import FreeRoom
from trimtab.placement.remedies.free_volumes import FreeVolumes
from trimtab.placement.remedies.host_ports import ChangeHostPort, FreeHostPort
from trimtab.placement.remedies.label_node import LabelNode
from trimtab.placement.remedies.larger_node import LargerNode
from trimtab.placement.remedies.lower_requests import LowerRequests
from trimtab.placement.remedies.raise_max_skew import RaiseMaxSkew
from trimtab.placement.remedies.recover_node import RecoverNode
from trimtab.placement.remedies.relax_affinity import RelaxAffinity
from trimtab.placement.remedies.relax_spread import RelaxSpread
from trimtab.placement.remedies.remove_gates import RemoveSchedulingGates
from trimtab.placement.remedies.remove_taint import RemoveTaint
from trimtab.placement.remedies.tolerate_taint import TolerateTaint
from trimtab.placement.remedies.uncordon import Uncordon
from trimtab.placement.remedies.upgrade_kubelet import UpgradeKubelet
from trimtab.placement.remedies.wait_for_pods import WaitForPods

REMEDIES: Final[tuple[Remedy, ...]] = (
    WaitForPods(),
    Uncordon(),
    TolerateTaint(),
    RemoveTaint(),
    RecoverNode(),
    UpgradeKubelet(),
    LabelNode(),
    ChangeSelector(),
    LowerRequests(),
    FreeRoom(),
    ChangeHostPort(),
    FreeHostPort(),
    BindClaim(),
    FreeVolumes(),
    RaiseMaxSkew(),
    RelaxSpread(),
    RelaxAffinity(),
    EvictNeighbours(),
)
"""What makes a node take the pod."""

LIFTINGS: Final[tuple[Lifting, ...]] = (RemoveSchedulingGates(), BindClaim())
"""What helps a pod that is refused before nodes are looked at."""

ADDITIONS: Final[tuple[Addition, ...]] = (AddNode(), LargerNode())
"""Nodes that could be added, the cheapest first."""
