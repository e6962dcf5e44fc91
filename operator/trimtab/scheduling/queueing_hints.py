"""Queueing hints: which changes of the cluster can make an unschedulable pod schedulable, as in kube-scheduler v1.36.

An unschedulable pod is retried only after a change that could make one of the filters that rejected it pass. For
example, pods that wait for memory are not retried after a change of a node's labels. Each filter registers the changes
that can affect it. If the effect depends on the pod and the changed object, it also registers a hint function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Final, Literal

from msgspec import Struct

from trimtab.kube.objects import KubeObject, Node, Pod, Taint
from trimtab.kube.rules.taints import UNSCHEDULABLE, find_untolerated_taint, tolerates
from trimtab.placement.filters.legacy import (
    CheckNodeCondition,
    CheckNodeDiskPressure,
    CheckNodeMemoryPressure,
    CheckNodePIDPressure,
    NodeConditionFilter,
)
from trimtab.placement.node_masks import matches_required

ChangedResource = Literal[
    "Node",
    "AssignedPod",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
    "CSINode",
    "CSIDriver",
    "CSIStorageCapacity",
    "Namespace",
    "Service",
]
Action = Literal["Add", "Update", "Delete"]

LABELS: Final = "labels"
TAINTS: Final = "taints"
ALLOCATABLE: Final = "allocatable"
UNSCHEDULABLE_FIELD: Final = "unschedulable"
FEATURES: Final = "declared features"
CONDITIONS: Final = "conditions"
REQUESTS: Final = "requests"
OTHER: Final = "other"


EventKind = tuple[ChangedResource, Action, frozenset[str]]
"""The kind of an event: the resource, the action and the changed parts."""


class ClusterEvent(Struct, frozen=True):
    """A change of an object that scheduling depends on.

    Attributes:
        resource: the kind of object. ``AssignedPod`` is a pod with a node.
        action: what happened to the object.
        changes: the parts of the object that an update changed, as constants of this module; empty for other actions.
        old: the object before the change; ``None`` if it was added, or if several events were merged.
        new: the object after the change; ``None`` if it was deleted, or if several events were merged.
    """

    resource: ChangedResource
    action: Action
    changes: frozenset[str] = frozenset()
    old: KubeObject | None = None
    new: KubeObject | None = None

    @property
    def kind(self) -> EventKind:
        """The resource, the action and the changed parts of the event, but not its objects."""
        return self.resource, self.action, self.changes


Hint = Callable[[Pod, ClusterEvent], bool]
"""Returns whether an event can make a pod schedulable. It is called only with events whose objects are known."""


class EventRule(Struct, frozen=True):
    """An event that can make a filter pass.

    Attributes:
        resource: the kind of object that changes.
        actions: the actions on the object.
        changes: an update must change at least one of these parts; empty for any part.
        hint: evaluates one event for one pod; if ``None``, every such event may help every pod.
    """

    resource: ChangedResource
    actions: frozenset[Action]
    changes: frozenset[str] = frozenset()
    hint: Hint | None = None

    def applies_to(self, kind: EventKind) -> bool:
        """Return whether events of a kind may make the filter pass for some pod."""
        resource, action, changes = kind
        if resource != self.resource or action not in self.actions:
            return False
        return action != "Update" or not self.changes or bool(self.changes & changes)

    def helps(self, pod: Pod, event: ClusterEvent) -> bool:
        """Return whether an event that the rule applies to may make the filter pass for a pod that it rejected."""
        return self.hint is None or (event.old is None and event.new is None) or self.hint(pod, event)


_CORDON: Final = Taint(key=UNSCHEDULABLE, effect="NoSchedule")


def _node_has_room(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether the node is large enough for the pod and, after an update, has more of a requested resource.

    Source: ``isSchedulableAfterNodeChange`` of NodeResourcesFit.
    """
    old, new = event.old, event.new
    if not isinstance(new, Node):
        return True
    requests = pod.spec.requests
    if any(amount > new.allocatable.get(name, 0) for name, amount in requests.items()):
        return False
    if not isinstance(old, Node):
        return True
    more = [name for name, amount in new.allocatable.items() if amount > old.allocatable.get(name, 0)]
    return any(name == "pods" or requests.get(name, 0) for name in more)


def _pod_frees_requests(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether a deleted pod, or a pod that requests less, frees a resource that this pod requests.

    Source: ``isSchedulableAfterPodEvent`` of NodeResourcesFit. Every deleted pod frees one of the node's ``pods``.
    """
    if event.action == "Delete":
        return True
    old, new = event.old, event.new
    if not isinstance(old, Pod) or not isinstance(new, Pod):
        return True
    before, after = old.spec.requests, new.spec.requests
    return any(before.get(name, 0) > after.get(name, 0) for name in pod.spec.requests)


def _node_matches(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether the node matches the pod's node selector and required affinity but did not before the event."""
    old, new = event.old, event.new
    if not isinstance(new, Node) or not matches_required(pod.spec, new):
        return False
    return not isinstance(old, Node) or not matches_required(pod.spec, old)


def _taints_tolerated(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether the pod tolerates the node's taints but did not before the event."""
    old, new = event.old, event.new
    tolerations = pod.spec.tolerations
    if not isinstance(new, Node) or find_untolerated_taint(new.taints, tolerations) is not None:
        return False
    return not isinstance(old, Node) or find_untolerated_taint(old.taints, tolerations) is not None


def _node_is_schedulable(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether the node is not cordoned, or the pod tolerates the taint of cordoned nodes."""
    new = event.new
    if not isinstance(new, Node):
        return True
    return not new.unschedulable or any(tolerates(each, _CORDON) for each in pod.spec.tolerations)


def _node_is_named(pod: Pod, event: ClusterEvent) -> bool:
    return isinstance(event.new, Node) and event.new.name == pod.node


def _frees_ports(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether the deleted pod used a host port that this pod needs."""
    if not isinstance(event.old, Pod):
        return True
    wanted = {(port.protocol, port.port) for port in pod.spec.host_ports}
    return any((port.protocol, port.port) in wanted for port in event.old.spec.host_ports)


def _declares_features(pod: Pod, event: ClusterEvent) -> bool:
    return isinstance(event.new, Node) and set(pod.spec.required_features) <= set(event.new.declared_features)


def _conditions_hold(predicate: type[NodeConditionFilter]) -> Hint:
    """Return a hint that holds if the node satisfies the predicate but did not before the event."""

    def hint(_pod: Pod, event: ClusterEvent) -> bool:
        old, new = event.old, event.new
        if not isinstance(new, Node) or predicate.failed(new):
            return False
        return not isinstance(old, Node) or bool(predicate.failed(old))

    return hint


def _topology_node(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether the node has or had one of the topology keys of the pod's spread constraints or affinity terms."""
    affinity = pod.spec.affinity
    keys = {each.topology_key for each in pod.spec.topology_spread}
    keys |= {each.topology_key for each in (*affinity.pod_required, *affinity.anti_required)}
    # A pod without terms was rejected by the anti-affinity of others, whose keys are not known here.
    return not keys or any(isinstance(node, Node) and keys & node.labels.keys() for node in (event.old, event.new))


_ADD: Final[frozenset[Action]] = frozenset(("Add",))
_UPDATE: Final[frozenset[Action]] = frozenset(("Update",))
_ADD_UPDATE: Final = _ADD | _UPDATE
_DELETE: Final[frozenset[Action]] = frozenset(("Delete",))
_ALL: Final = _ADD_UPDATE | _DELETE


def _volumes(*resources: ChangedResource) -> tuple[EventRule, ...]:
    return tuple(EventRule(each, _ADD_UPDATE) for each in resources)


HINTS: Final[Mapping[str, tuple[EventRule, ...]]] = {
    "NodeResourcesFit": (
        EventRule("Node", _ADD_UPDATE, frozenset((ALLOCATABLE,)), _node_has_room),
        EventRule("AssignedPod", _UPDATE | _DELETE, frozenset((REQUESTS,)), _pod_frees_requests),
    ),
    "NodeAffinity": (EventRule("Node", _ADD_UPDATE, frozenset((LABELS,)), _node_matches),),
    "NodeName": (EventRule("Node", _ADD, hint=_node_is_named),),
    "NodeUnschedulable": (
        EventRule("Node", _ADD_UPDATE, frozenset((UNSCHEDULABLE_FIELD, TAINTS)), _node_is_schedulable),
    ),
    "TaintToleration": (EventRule("Node", _ADD_UPDATE, frozenset((TAINTS,)), _taints_tolerated),),
    "NodePorts": (EventRule("Node", _ADD), EventRule("AssignedPod", _DELETE, hint=_frees_ports)),
    "NodeDeclaredFeatures": (EventRule("Node", _ADD_UPDATE, frozenset((FEATURES,)), _declares_features),),
    "InterPodAffinity": (
        EventRule("AssignedPod", _ALL, frozenset((LABELS,))),
        EventRule("Node", _ADD_UPDATE, frozenset((LABELS,)), _topology_node),
        EventRule("Namespace", _ADD_UPDATE),
    ),
    "PodTopologySpread": (
        EventRule("AssignedPod", _ALL, frozenset((LABELS,))),
        EventRule("Node", _ALL, frozenset((LABELS, TAINTS)), _topology_node),
    ),
    "VolumeRestrictions": (EventRule("AssignedPod", _DELETE), *_volumes("PersistentVolumeClaim")),
    "NodeVolumeLimits": (
        EventRule("AssignedPod", _DELETE),
        EventRule("Node", _ADD_UPDATE, frozenset((ALLOCATABLE,))),  # some legacy predicates read limits of the node
        *_volumes("CSINode", "PersistentVolumeClaim"),
    ),
    "VolumeBinding": (
        EventRule("Node", _ADD_UPDATE, frozenset((LABELS,))),
        *_volumes(
            "StorageClass", "PersistentVolumeClaim", "PersistentVolume", "CSINode", "CSIDriver", "CSIStorageCapacity"
        ),
    ),
    "VolumeZone": (
        EventRule("Node", _ADD_UPDATE, frozenset((LABELS,))),
        *_volumes("StorageClass", "PersistentVolumeClaim", "PersistentVolume"),
    ),
    "SchedulingGates": (),
    **{
        each.name: (
            EventRule("Node", _ADD_UPDATE, frozenset((CONDITIONS, UNSCHEDULABLE_FIELD)), _conditions_hold(each)),
        )
        for each in (CheckNodeCondition, CheckNodeMemoryPressure, CheckNodeDiskPressure, CheckNodePIDPressure)
    },
}
"""The events that can make each filter pass. A filter that is not listed can pass after any event."""


def helps(pod: Pod, rejected_by: frozenset[str], event: ClusterEvent) -> bool:
    """Return whether an event may make a pod that these filters rejected schedulable.

    As in kube-scheduler, it is enough if the event may make one of the filters pass, because different nodes may have
    failed different filters.

    Args:
        pod: the unschedulable pod.
        rejected_by: names of the filters that failed for some node; empty if they are unknown.
        event: the change.
    """
    rules = rules_for(rejected_by, event.kind)
    return rules is None or any(rule.helps(pod, event) for rule in rules)


@functools.lru_cache(maxsize=4096)
def rules_for(rejected_by: frozenset[str], kind: EventKind) -> tuple[EventRule, ...] | None:
    """Return the rules that decide whether events of a kind help pods that these filters rejected.

    Returns:
        The rules, at least one of which must hold; without rules, no such event helps. ``None`` if every such event may
        help.
    """
    if not rejected_by or not rejected_by <= HINTS.keys():
        return None
    return tuple(rule for name in sorted(rejected_by) for rule in HINTS[name] if rule.applies_to(kind))


def node_changes(old: Node, new: Node) -> frozenset[str]:
    """Return the parts of a node that an update changed, among those that filters read; empty if there are none."""
    compared = {
        LABELS: old.labels != new.labels,
        TAINTS: old.taints != new.taints,
        ALLOCATABLE: old.allocatable != new.allocatable,
        UNSCHEDULABLE_FIELD: old.unschedulable != new.unschedulable,
        FEATURES: old.declared_features != new.declared_features,
        CONDITIONS: old.condition_statuses != new.condition_statuses,
    }
    return frozenset(name for name, changed in compared.items() if changed)


def pod_changes(old: Pod, new: Pod) -> frozenset[str]:
    """Return the parts of an assigned pod that an update changed, among those that the filters read for other pods."""
    changed = {LABELS} if old.labels != new.labels else set()
    if old.spec is not new.spec and old.spec.requests != new.spec.requests:
        changed.add(REQUESTS)
    return frozenset(changed)
