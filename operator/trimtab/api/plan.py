"""The plan: the list of actions that planners return, ``trimtab plan`` prints and the executor executes.

A plan is a plain document (``trimtab.dev/v1alpha1``, kind ``Plan``). It is deterministic: for the same cluster,
policies and ``now`` it is identical byte for byte. Therefore planners append entries in an order that depends only on
names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal

import msgspec
from msgspec import Struct

from trimtab.kube.clock import calendar_time

DeleteHow = Literal["Delete", "Evict"]

BY_EVICTION: Final = "Evict"
"""A value of ``how``: the pod is evicted, so PodDisruptionBudgets apply. It is deleted only after ``maximumWait``."""


class PlannedTaint(Struct, frozen=True, gc=False, omit_defaults=True):
    """A taint in a plan."""

    key: str
    effect: str
    value: str = ""


class PlannedToleration(Struct, frozen=True, gc=False, omit_defaults=True):
    """A toleration in a plan."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    seconds: int | None = msgspec.field(name="tolerationSeconds", default=None)


class Delete(Struct, frozen=True, gc=False, rename="camel", tag_field="action", tag="Delete", omit_defaults=True):
    """Delete this pod at a deadline.

    Attributes:
        namespace: namespace of the pod.
        pod: name of the pod.
        node: the node that the pod runs on.
        due: the deadline (RFC 3339). If it has passed, it is the time of the plan.
        reason: code of :mod:`trimtab.api.reasons`.
        message: details of the reason.
        taint: the taint that limits the pod's time on its node.
        toleration: the toleration that determines the deadline; omitted if no toleration matches the taint.
        uid: UID of the pod. A later pod with the same name is not deleted.
        how: omitted unless it is :data:`BY_EVICTION`.
    """

    namespace: str
    pod: str
    node: str
    due: str
    reason: str
    message: str
    taint: PlannedTaint
    toleration: PlannedToleration | None = None
    uid: str = ""
    how: DeleteHow = "Delete"


class TaintNode(Struct, frozen=True, gc=False, tag_field="action", tag="Taint"):
    """Add this taint to a node that has no taint with the same key and effect.

    ``reason`` is a code of :mod:`trimtab.api.reasons`. ``message`` contains the conditions and rates that were
    compared.
    """

    node: str
    taint: PlannedTaint
    reason: str
    message: str


class UntaintNode(Struct, frozen=True, gc=False, tag_field="action", tag="Untaint"):
    """Remove the taint with this key and effect from a node.

    It is a separate action, so that readers of ``Taint`` actions cannot mistake a removal for an addition.
    """

    node: str
    taint: PlannedTaint
    reason: str
    message: str


NodeTainting = TaintNode | UntaintNode
"""Actions on the taints of nodes."""


class PodMove(Struct, frozen=True, gc=False):
    """A pod (``namespace/name``) on a removed node, and the node on which capacity is reserved for its replacement."""

    pod: str
    target: str


class RemoveNode(
    Struct, frozen=True, gc=False, rename="camel", tag_field="action", tag="RemoveNode", omit_defaults=True
):
    """Drain this node and delete its machine.

    Attributes:
        node: name of the node.
        machine_set: the object (of any kind) that has the node group's size, as ``namespace/name``.
        reason: code of :mod:`trimtab.api.reasons`.
        moves: pods of the node with the nodes on which capacity is reserved for their replacements, in the order of
            reservation. DaemonSet pods, static pods and terminated pods are not listed.
        message: details of the reason.
        group: id of the node group, which also contains its kind and API group.
        machine: the Machine that gets the deletion annotation, as ``namespace/name``; empty if the group has no Machine
            objects.
        uid: UID of the node. A later node with the same name is not removed.
        savings: price of the node per hour; omitted if its group has no price.
    """

    node: str
    machine_set: str
    reason: str
    moves: tuple[PodMove, ...]
    message: str
    group: str = ""
    machine: str = ""
    uid: str = ""
    savings: float | None = None


How = Literal["Evict", "Surge"]
EvictHow = Literal["Evict", "Surge", "Delete"]

SURGE: Final = "Surge"
"""A value of ``how``: the pod is not evicted.

Instead, its Deployment is restarted with a rolling update, which starts the new pod before the old one terminates.
"""


class Evict(Struct, frozen=True, gc=False, rename="camel", tag_field="action", tag="Evict", omit_defaults=True):
    """Evict this pod from ``node``. Capacity for its replacement is reserved on ``target``.

    Attributes:
        policy: name of the policy.
        strategy: name of the strategy.
        namespace: namespace of the pod.
        pod: name of the pod.
        node: the node that the pod runs on.
        target: the node for the replacement. It is the same as ``node`` if the eviction only restarts the pod and no
            other node is better for it. It is empty for a terminated pod, which uses no capacity and is only deleted,
            and for evictions because of node pressure, which do not wait for a replacement.
        reason: code of :mod:`trimtab.api.reasons`.
        message: details of the reason.
        uid: UID of the pod. A later pod with the same name is not evicted.
        owner: the pod's controller, as ``Kind/name``. Limits per owner count evictions by it.
        how: omitted unless it is :data:`SURGE`, or ``Delete`` for a pod whose eviction was refused for the
            ``deleteAfter`` of a NodePressurePolicy.
        cause: the pod whose scheduling rule caused the eviction, as ``namespace/name``; omitted if that pod is in the
            same namespace or no other pod is the cause.
        grace_period: the termination grace period in seconds that the eviction sets; omitted if it is the pod's own.
    """

    policy: str
    strategy: str
    namespace: str
    pod: str
    node: str
    target: str
    reason: str
    message: str
    uid: str = ""
    owner: str = ""
    how: EvictHow = "Evict"
    cause: str = ""
    grace_period: int = 0

    @property
    def deployment(self) -> str:
        """Return the name of the Deployment to restart: the ReplicaSet's name minus the pod template hash."""
        return self.owner.partition("/")[2].rpartition("-")[0]

    @property
    def key(self) -> str:
        """Return ``namespace/pod``."""
        return f"{self.namespace}/{self.pod}"


class ScaleUp(Struct, frozen=True, gc=False, rename="camel", tag_field="action", tag="ScaleUp", omit_defaults=True):
    """Scale up a node group from ``from`` to ``to`` nodes for unschedulable pods.

    Attributes:
        machine_set: the object (of any kind) whose size is set, as ``namespace/name``.
        from_: the previous target size.
        to: the new target size.
        reason: code of :mod:`trimtab.api.reasons`.
        pods: the pending pods that the new nodes are for, as ``namespace/name``, sorted; empty if the nodes replace
            other nodes.
        message: details of the reason.
        group: id of the node group, which also contains its kind and API group.
        hourly_cost: price of the new nodes per hour; omitted if the group has no price.
        savings: price per hour of the nodes that are removed after a replacement, in the first action of the
            replacement; omitted for other actions.
    """

    machine_set: str
    from_: int = msgspec.field(name="from")
    to: int
    reason: str
    pods: tuple[str, ...]
    message: str
    group: str = ""
    hourly_cost: float | None = None
    savings: float | None = None


Scaling = ScaleUp | RemoveNode
"""Actions on node groups."""


class Bind(Struct, frozen=True, gc=False, tag_field="action", tag="Bind"):
    """Bind this pending pod to ``node``. ``message`` contains the number of feasible nodes."""

    policy: str
    namespace: str
    pod: str
    node: str
    reason: str
    message: str
    uid: str = ""


class Preempt(
    Struct,
    frozen=True,
    gc=False,
    tag_field="action",
    tag="Preempt",
    rename={"for_": "for"},
):
    """Remove this pod from ``node`` to make room for the pending pod ``for`` (``namespace/name``)."""

    policy: str
    namespace: str
    pod: str
    node: str
    for_: str
    reason: str
    message: str
    uid: str = ""


Scheduling = Bind | Preempt
"""Actions of a scheduler."""


class Refuse(Struct, frozen=True, gc=False, tag_field="action", tag="Refuse", omit_defaults=True):
    """Placement admission would refuse this object if an ordinary user created it now. Nothing happens to it.

    Attributes:
        kind: kind of the object, e.g. Deployment or Pod.
        namespace: namespace of the object.
        name: name of the object.
        rule: the rule that refuses it.
        reason: code of :mod:`trimtab.api.reasons`.
        message: the message that the user would receive.
        pods: number of pods of the workload that would be refused; omitted if there are none and for a single pod.
    """

    kind: str
    namespace: str
    name: str
    rule: str
    reason: str
    message: str
    pods: int = 0


class Mutate(Struct, frozen=True, gc=False, rename="camel", tag_field="action", tag="Mutate", omit_defaults=True):
    """Placement admission would change this object if an ordinary user created it now. Nothing happens to it.

    Attributes:
        kind: kind of the object, e.g. Deployment or Pod.
        namespace: namespace of the object.
        name: name of the object.
        rule: the rule that changes it.
        reason: code of :mod:`trimtab.api.reasons`.
        message: description of the changes.
        pods: number of pods of the workload that would be changed; omitted if there are none and for a single pod.
        tolerations: tolerations that the rule adds or whose tolerationSeconds it changes.
        removed_tolerations: tolerations that the rule removes, because added ones replace them.
        node_selector: entries that the rule adds to the node selector.
        node_affinity: requirements that the rule adds to the required node affinity, e.g. ``dedicated in [team-a]``.
    """

    kind: str
    namespace: str
    name: str
    rule: str
    reason: str
    message: str
    pods: int = 0
    tolerations: tuple[PlannedToleration, ...] = ()
    removed_tolerations: tuple[PlannedToleration, ...] = ()
    node_selector: dict[str, str] = {}
    node_affinity: tuple[str, ...] = ()


Admission = Refuse | Mutate
"""What placement admission would do with existing objects."""

Action = Evict | Scaling | Scheduling | NodeTainting | Delete | Admission
"""The union of all actions, tagged by the field ``action``."""


class Kept(Struct, frozen=True, gc=False, omit_defaults=True):
    """A candidate for which no action is planned, with the reason.

    ``pod`` is the pod that prevents the removal of a node, as ``namespace/name``; it is omitted if no single pod does.
    In the JSON document of a kept pod, it is the name of that pod.
    """

    kind: str
    namespace: str
    name: str
    strategy: str
    reason: str
    message: str
    policy: str = ""
    node: str = ""
    pod: str = ""

    def document(self) -> dict[str, object]:
        """Return the candidate for JSON. A pod or node is also named by the field that names it in actions."""
        found: dict[str, object] = msgspec.to_builtins(self)
        if self.kind == "Pod":
            found["pod"] = self.name
        elif self.kind == "Node":
            found["node"] = self.name
        return found


class Plan(Struct, frozen=True):
    """Actions in the order of execution, and the candidates for which no action is planned, with reasons.

    Attributes:
        now: the time for which the plan was made, in seconds since the epoch.
        actions: the pods to evict, in order.
        kept: candidates for which no action is planned, in the order in which they were considered.
        scaling: node groups to scale up, by id, then nodes to remove, in order; ``None`` if there is no
            ClusterAutoscaler. They come first, because evictions must not use the capacity that they reserve.
        scheduling: pending pods to bind and pods to preempt, in the order of the queue; ``None`` if there is no
            SchedulerPolicy. They come before evictions, because evictions must not use the capacity that is reserved
            for pending pods.
        deletions: pods whose time on a tainted node is limited, the earliest deadline first; ``None`` if there is no
            TaintManager. They come last, because their deadlines do not depend on the plan.
        taints: taints to add to and remove from nodes, by node; ``None`` if kube-controller-manager manages them. They
            come before the deletions, which they cause or cancel.
        admissions: existing objects that placement admission would refuse or change, by namespace, kind and name;
            ``None`` if there is no PlacementAdmission. They are the last actions, because nothing executes them.
        node_pressure: the signals, thresholds and eviction orders of nodes, by name, as documents (type NodePressure in
            :mod:`trimtab.pressure.preview`); ``None`` if there is no NodePressurePolicy. The evictions are among
            ``actions``, before all others.
    """

    now: float
    actions: tuple[Evict, ...] = ()
    kept: tuple[Kept, ...] = ()
    scaling: tuple[Scaling, ...] | None = None
    scheduling: tuple[Scheduling, ...] | None = None
    deletions: tuple[Delete, ...] | None = None
    taints: tuple[NodeTainting, ...] | None = None
    admissions: tuple[Admission, ...] | None = None
    node_pressure: tuple[Mapping[str, object], ...] | None = None

    @property
    def every_action(self) -> tuple[Action, ...]:
        """Return all actions, in order."""
        pods = (*(self.scheduling or ()), *self.actions)
        nodes = (*(self.taints or ()), *(self.deletions or ()))
        return (*(self.scaling or ()), *pods, *nodes, *(self.admissions or ()))

    def document(self) -> dict[str, object]:
        """Return the plan as ``trimtab plan -o json`` prints it, ready for JSON or YAML."""
        return {
            "apiVersion": "trimtab.dev/v1alpha1",
            "kind": "Plan",
            "now": rfc3339(self.now),
            "actions": [msgspec.to_builtins(action) for action in self.every_action],
            "kept": [kept.document() for kept in self.kept],
            **({} if self.node_pressure is None else {"nodePressure": list(self.node_pressure)}),
            "summary": {**self.summary(), **self.costs()},
        }

    def costs(self) -> dict[str, float]:
        """Return the total price per hour of new nodes, and of nodes that are removed or replaced.

        The result is empty if no action has a price. Nodes of groups without a price are not counted.
        """
        scaling = self.scaling or ()
        costs = [each.hourly_cost for each in scaling if isinstance(each, ScaleUp) and each.hourly_cost is not None]
        savings = [each.savings for each in scaling if each.savings is not None]
        if not costs and not savings:
            return {}
        return {"hourlyCost": round(sum(costs), 6), "savings": round(sum(savings), 6)}

    def summary(self) -> dict[str, int]:
        """Return the number of actions by type, and the number of kept candidates."""
        counts: Counter[str] = Counter({"Evict": 0})  # always present, for scripts
        if self.scaling is not None:
            counts.update({"ScaleUp": 0, "RemoveNode": 0})
        if self.scheduling is not None:
            counts.update({"Bind": 0, "Preempt": 0})
        if self.deletions is not None:
            counts["Delete"] = 0
        if self.taints is not None:
            counts.update({"Taint": 0, "Untaint": 0})
        if self.admissions is not None:
            counts.update({"Refuse": 0, "Mutate": 0})
        counts.update(str(action.__struct_config__.tag) for action in self.every_action)
        return {**dict(sorted(counts.items())), "kept": len(self.kept)}


def rfc3339(moment: float) -> str:
    """Format seconds since the epoch as RFC 3339 in UTC, with whole seconds as Kubernetes does."""
    return _rfc3339(int(moment))


@lru_cache(maxsize=1024)
def _rfc3339(moment: int) -> str:
    return calendar_time(moment).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"
