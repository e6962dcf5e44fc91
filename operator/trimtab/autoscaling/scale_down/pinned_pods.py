"""Finds pods that can run on no node but their own because of their own spec.

Such a pod blocks the removal of its node, however much room other nodes have: its controller's template sets
``nodeName``, its node selector or required node affinity matches no other node, or the template requests more than any
matching node has. ``scaleDown.maxHold`` limits this. Other pods without a place, for example in a full cluster, are not
pinned: a new node would have room for them. What depends on other objects, such as pod affinity and topology spread,
does not pin a pod either.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec.structs import replace

from trimtab.cluster.resources import BoolArray
from trimtab.cluster.workloads.replacements import bound_by_template
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Node, Pod, PodSpec
from trimtab.kube.rules.node_labels import HOSTNAME
from trimtab.placement.node_masks import affinity_mask, matches_required
from trimtab.placement.placer import Placer

_NEW_NODE: Final = "?"
"""The name of a node that does not exist yet. Because it is no valid name, no selector can contain it."""

_OF_VOLUMES: Final = frozenset({"VolumeBinding", "VolumeZone"})


class PinnedPods:
    """Finds pinned pods. Results are cached by spec, so the nodes of the snapshot must not change.

    Args:
        placer: predicts the replacements of pods.
    """

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._snapshot = placer.snapshot
        self._known: dict[int, tuple[PodSpec, str | None]] = {}

    def is_pinned(self, pod: Pod) -> bool:
        """Return whether the replacement of a bound pod can run at most on the pod's node, regardless of its volumes.

        A pod whose volumes exist only on its node is not pinned, because removing the node could delete the data.
        """
        return self.only_node(pod) in ("", pod.node) and not self._volumes_stay(pod)

    def returns(self, pod: Pod) -> bool:
        """Return whether the template of the pod's controller sets ``nodeName``, so that no drain empties the node."""
        return bound_by_template(pod, self._snapshot)

    def only_node(self, pod: Pod) -> str | None:
        """Return the only node on which the replacement of a pod can run, even if all nodes were empty.

        Returns:
            The node's name, an empty string if no node suits the pod, or ``None`` if several nodes or new nodes do.
        """
        spec = self._placer.replacement(pod).spec
        known = self._known.get(id(spec))
        if known is None:
            known = self._known[id(spec)] = spec, self._find(spec)
        return known[1]

    def _volumes_stay(self, pod: Pod) -> bool:
        """Return whether the pod's volumes cannot be used on other nodes."""
        if not pod.spec.volumes:
            return False
        replacement = self._placer.replacement(pod)
        others: BoolArray = self._snapshot.nodes.used.copy()
        others[self._snapshot.nodes.slot_of[pod.node]] = False
        for each in self._placer.filters:
            if each.name in _OF_VOLUMES:
                if each.refusal(replacement) is not None:
                    return True
                passing = each.passing(replacement)
                if passing is not None:
                    others &= passing
        return not others.any()

    def _find(self, spec: PodSpec) -> str | None:
        nodes = self._snapshot.nodes
        large_enough: BoolArray = nodes.used.copy()
        for column, amount in self._snapshot.amounts(spec).wanted:
            large_enough &= nodes.allocatable[:, column] >= amount
        matching = large_enough & affinity_mask(self._snapshot, spec.node_selector, spec.affinity.node.required)
        found = np.flatnonzero(matching).tolist()
        large = np.flatnonzero(large_enough).tolist()
        if len(found) > 1 or any(matches_required(spec, _new_node_like(nodes.node(slot))) for slot in large):
            return None
        return nodes.node(found[0]).name if found else ""


def _new_node_like(node: Node) -> Node:
    """Return a new node with the labels of an existing one, except those that contain its name."""
    own = {node.name, node.labels.get(HOSTNAME, node.name)}
    labels = {key: _NEW_NODE if value in own else value for key, value in node.labels.items()}
    return replace(node, name=_NEW_NODE, labels=Labels({**labels, HOSTNAME: _NEW_NODE}))
