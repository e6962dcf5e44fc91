"""Predicts the DaemonSet pods of a new node: those that run on such nodes, and those that can be created and fit.

A DaemonSet object alone proves nothing. A user who may create one in a namespace could request more than a node has,
while a quota or admission policy prevents all its pods; then no node of any group would look large enough for other
pods. So these rules apply:

- On a sample that has been ready for a while, DaemonSet pods count if they exist. A pod that was created for the sample
  and is pending counts too, and so does one that a rolling update is replacing.
- If there is no such sample, a DaemonSet counts if one of its pods was ever bound to a node. If it runs on less than
  most of the nodes that it tolerates, its user may have excluded all nodes for which a quota allows no pod. Then it
  counts only within a tenth of the new node or the group's record, unless it is in a system namespace.
- A DaemonSet does not count if fewer than nine in ten of its desired pods were created.
- If a group had nodes before, DaemonSets that match no existing node count as long as their pods together request no
  more than the DaemonSet pods that ran on the group's nodes (the group's record).
- What admission sets is added to the templates: priorities, default requests of LimitRanges, the overhead of
  RuntimeClasses.
- Pods that have not run yet must fit. Pods of ``system-node-critical``, which preempt others, count as if they ran as
  soon as they are created.

Cluster-autoscaler counts the pods on the sample, and for a group without nodes all DaemonSets that match it. With
``--force-ds`` (here ``spec.scaleUp.forceDaemonSets``) it counts all that match in either case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Set
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.autoscaling.template.learned_node import NodeOverhead
from trimtab.autoscaling.template.node_template import DAEMON_SET, daemon_set_of
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.workloads.owners import OwnerKey, owns
from trimtab.cluster.workloads.pod_defaults import PodDefaults
from trimtab.disruption.protections import is_system_namespace
from trimtab.kube.objects import SYSTEM_CLASSES, DaemonSet, Node, NodeSelector, OwnerReference, Pod, PodSpec
from trimtab.kube.rules.selectors import matches_node_selector
from trimtab.kube.rules.taints import find_untolerated_taint

NODE_NAME_FIELD: Final = "metadata.name"
NODE_CRITICAL: Final = SYSTEM_CLASSES["system-node-critical"]

CREATED_SHARE: Final = 0.9
"""Minimum share of the desired pods of a DaemonSet that must have been created.

It is below 1 because the controller lags by a few seconds while many nodes register at once. A quota that allows a pod
on almost every node is therefore no obstacle.
"""


DOUBTED_SHARE: Final = 0.1
"""Maximum share of a new node that the pods of DaemonSets on few nodes may request together."""


class Uncounted(Struct, frozen=True, order=True):
    """A DaemonSet that matches a new node, or a static pod of a sample, whose pod is not expected on a new node.

    Attributes:
        key: ``namespace/name``.
        reason: a code of :mod:`trimtab.api.reasons`.
        message: the explanation with numbers.
        kind: the kind of the object.
    """

    key: str
    reason: str
    message: str
    kind: str = DAEMON_SET


class ExpectedPods(Struct, frozen=True):
    """DaemonSet pods that are expected on a new node.

    Attributes:
        pods: the pods, bound to the node.
        uncounted: the DaemonSets that match the node and are not counted.
    """

    pods: tuple[Pod, ...] = ()
    uncounted: tuple[Uncounted, ...] = ()


class _ExpectedPod(Struct, frozen=True):
    """A pod of a DaemonSet as its template states it, and as admission makes it."""

    stated: Pod
    admitted: Pod

    def runs_on(self, node: Node) -> bool:
        """Return whether the pod is created for the node, and runs there.

        The DaemonSet controller reads the template. A RuntimeClass may restrict the pod to fewer nodes.
        """
        return should_run(self.stated, node) and (self.admitted is self.stated or should_run(self.admitted, node))


class _ExistingPods(Struct):
    """What is known from the existing pods of a DaemonSet.

    This is the nodes with a pending or terminating pod, those with any bound pod, and whether any pod may preempt
    others.
    """

    waiting: set[str]
    bound: set[str]
    preempts: bool = False


class DaemonSetPredictor:
    """Predicts the DaemonSet pods of new nodes.

    If the snapshot has no DaemonSets, existing pods that can hardly be forged are used. Their original required node
    affinity is unknown then, because the DaemonSet controller replaces it with the node's name. So a pod may be
    expected on more nodes than it runs on, but never on fewer.

    Args:
        snapshot: the cluster state with DaemonSets and pods.
        force: whether to count all DaemonSets that match a node (``spec.scaleUp.forceDaemonSets``).

    Attributes:
        known: whether the snapshot contains DaemonSets.
    """

    def __init__(self, snapshot: Snapshot, *, force: bool = False) -> None:
        self._made = made = snapshot.objects.of(DaemonSet)
        self._snapshot = snapshot
        self._force = force
        self.known = bool(made)
        self._taints = Counter(node.taints for node in snapshot.nodes.at if node is not None)
        self._defaults = PodDefaults.of(snapshot)
        found = (
            [_expected_pod(made[key], self._defaults) for key in sorted(made) if made[key].deleted is None]
            if made
            else [_ExpectedPod(pod, pod) for pod in self._of_pods()]
        )
        self._pods = tuple(sorted(found, key=lambda each: -each.admitted.priority))
        self._created: dict[str, _ExistingPods] = {}

    def kept_from_sample(self, pods: Collection[Pod], node: Node) -> ExpectedPods:
        """Return the DaemonSet pods on a sample that an identical new node will also run.

        A pod's owner reference alone is not trusted. The DaemonSet must exist, have that API group and UID, and match
        the new node.

        Args:
            pods: DaemonSet pods on the sample.
            node: the new node.
        """
        if not self.known or self._force:
            return ExpectedPods(tuple(pods))
        kept: dict[str, Pod] = {}
        uncounted = []
        for pod in sorted(pods, key=lambda each: (each.created or 0.0, each.key)):  # keep each one's oldest pod
            name = daemon_set_of(pod)
            owner = self._made.get(name)
            if owner is None or owner.deleted is not None or not owns(key_of(owner), pod) or name in kept:
                continue
            if owner.desired == 0 or not _expected_pod(owner, self._defaults).runs_on(node):
                continue  # the DaemonSet wants no pod there: the owner reference is forged
            refusal = _refusal(owner)
            if refusal is None:
                kept[name] = pod
            else:
                uncounted.append(Uncounted(name, *refusal))
        return ExpectedPods(tuple(kept.values()), tuple(uncounted))

    def expected_on(
        self,
        node: Node,
        *,
        existing: Collection[Pod] = (),
        skip: Collection[str] = (),
        sample: str = "",
        recorded: NodeOverhead | None = None,
    ) -> ExpectedPods:
        """Return the pods that DaemonSets will create on a new node.

        Args:
            node: the new node. It must not have taints that describe a node's state.
            existing: DaemonSet and static pods that have already been placed on the node.
            skip: further DaemonSets (``namespace/name``) to skip, in addition to those of the existing pods.
            sample: name of a settled node of the group; empty if there is none.
            recorded: DaemonSet pods that earlier nodes of the group had.
        """
        known = {daemon_set_of(pod) for pod in existing} | set(skip)
        room = _FreeResources(node.allocatable, existing)
        left = _FreeResources.of_overhead(recorded) if recorded is not None else None
        share = _FreeResources({name: int(amount * DOUBTED_SHARE) for name, amount in node.allocatable.items()})
        found, uncounted = [], []
        for each in self._pods:
            pod, name = each.admitted, daemon_set_of(each.admitted)
            if name in known or not each.runs_on(node):
                continue
            refusal = None if self._force else self._doubt(name, sample, left, share, each)
            if refusal is None and not self._force and not room.take(pod):
                refusal = (
                    reasons.DAEMON_SET_TOO_LARGE,
                    f"its pod does not fit on {node.name} next to pods of higher priority",
                )
            if refusal is None:
                found.append(replace(pod, node=node.name))
            else:
                uncounted.append(Uncounted(name, *refusal))
        return ExpectedPods(tuple(found), tuple(uncounted))

    def _doubt(
        self, name: str, sample: str, left: _FreeResources | None, share: _FreeResources, expected: _ExpectedPod
    ) -> tuple[str, str] | None:
        """Return a reason and a message if a DaemonSet's pod is not expected on a new node, else ``None``."""
        owner = self._made.get(name)
        if owner is None or owner.desired is None:  # read from a file: its status is unknown
            return None
        refusal = _refusal(owner)
        if refusal is not None:
            return refusal
        created = self._created_of(owner)
        ran = bool(owner.desired) and bool(created.bound or created.preempts)
        if sample:
            if ran and sample in created.waiting:
                return None
            return reasons.DAEMON_SET_NOT_ON_NODES, f"node {sample} is such a node, but has no pod of it"
        if ran and (is_system_namespace(owner.namespace) or self._on_most_nodes(created.bound, expected.stated)):
            return None
        if (ran or not owner.desired) and left is not None and left.take(expected.admitted):
            return None
        if not ran:
            return reasons.DAEMON_SET_NEVER_RAN, "none of its pods was ever bound to a node"
        if share.take(expected.admitted):
            return None
        message = (
            f"it runs on {len(created.bound)} existing nodes only, so that a quota may allow no further pod, and its "
            f"pod requests more than {DOUBTED_SHARE:.0%} of the node"
        )
        return reasons.DAEMON_SET_ON_FEW_NODES, message

    def _on_most_nodes(self, bound: Set[str], pod: Pod) -> bool:
        """Return whether a DaemonSet runs on most of the nodes whose taints its pods tolerate."""
        tolerated = sum(
            number
            for taints, number in self._taints.items()
            if find_untolerated_taint(taints, pod.spec.tolerations) is None
        )
        return 2 * len(bound) > tolerated

    def _of_pods(self) -> Iterator[Pod]:
        """Yield a pod of each DaemonSet in a system namespace or on most nodes, without the name of its node.

        Others may be forged, because users write owner references.
        """
        for key in self._snapshot.owners():
            if key.kind != DAEMON_SET:
                continue
            there = [
                pod for pod in self._snapshot.owned_by(key) if pod.node and pod.deleted is None and not pod.terminal
            ]
            if there and (
                is_system_namespace(key.namespace) or self._on_most_nodes({pod.node for pod in there}, there[0])
            ):
                spec = _without_node_name(there[0].spec)
                yield replace(there[0], name=key.name, uid=f"{there[0].uid}-new", spec=spec)

    def _created_of(self, owner: DaemonSet) -> _ExistingPods:
        found = self._created.get(owner.key)
        if found is None:
            found = self._created[owner.key] = _ExistingPods(set(), set())
            key = key_of(owner)
            for pod in self._snapshot.each_owned_by(key):
                if pod.terminal or not owns(key, pod):
                    continue
                if pod.deleted is not None:
                    if pod.node:  # the controller will create the next pod there
                        found.bound.add(pod.node)
                        found.waiting.add(pod.node)
                    continue
                found.preempts = found.preempts or _preempts(pod)
                if pod.node:
                    found.bound.add(pod.node)
                else:
                    found.waiting.update(_intended_nodes(pod))
        return found


class _FreeResources:
    """Tracks the free resources of a node, or of a part of it."""

    def __init__(self, amounts: Mapping[str, int], existing: Collection[Pod] = ()) -> None:
        self._free = dict(amounts)
        for pod in existing:
            self._subtract(pod)

    @staticmethod
    def of_overhead(recorded: NodeOverhead) -> _FreeResources:
        """Return free resources that amount to the total requests of the recorded pods."""
        return _FreeResources({**recorded.requests, "pods": recorded.pods})

    def take(self, pod: Pod) -> bool:
        """Subtract the pod's requests from the node's free resources if it fits, and return whether it does."""
        wanted = {**pod.spec.requests, "pods": 1}
        if any(amount > self._free.get(name, 0) for name, amount in wanted.items() if amount):
            return False
        self._subtract(pod)
        return True

    def _subtract(self, pod: Pod) -> None:
        for name, amount in {**pod.spec.requests, "pods": 1}.items():
            self._free[name] = self._free.get(name, 0) - amount


def key_of(daemon_set: DaemonSet) -> OwnerKey:
    """Return the key that the pods of a DaemonSet have as their owner's key."""
    return OwnerKey(daemon_set.namespace, DAEMON_SET, daemon_set.name, daemon_set.uid)


def _refusal(owner: DaemonSet) -> tuple[str, str] | None:
    """Return a reason and a message if too few of a DaemonSet's pods were created, else ``None``.

    A quota or an admission policy may prevent their creation.
    """
    desired, current = owner.desired or 0, owner.current or 0
    if current >= CREATED_SHARE * desired:
        return None
    message = f"only {current} of {desired} pods were created: a quota or an admission policy may refuse them"
    return reasons.DAEMON_SET_NOT_CREATED, message


def _preempts(pod: Pod) -> bool:
    return pod.priority >= NODE_CRITICAL and pod.spec.preemption_policy != "Never"


def _intended_nodes(pod: Pod) -> Iterator[str]:
    """Yield the name of the node for which the DaemonSet controller created a pod, as stated in the pod's affinity."""
    required = pod.spec.affinity.node.required
    for term in () if required is None else required.terms:
        for each in term.match_fields:
            if each.key == NODE_NAME_FIELD:
                yield from each.values


def _expected_pod(daemon_set: DaemonSet, defaults: PodDefaults) -> _ExpectedPod:
    owner = OwnerReference(
        kind=DAEMON_SET, name=daemon_set.name, uid=daemon_set.uid, api_version="apps/v1", controller=True
    )
    pod = Pod(
        namespace=daemon_set.namespace,
        name=daemon_set.name,
        uid=f"{daemon_set.uid}-pod",
        labels=daemon_set.template.labels,
        owners=(owner,),
        spec=daemon_set.template.spec,
        phase="Running",
    )
    return _ExpectedPod(pod, defaults.created(pod))


def _without_node_name(spec: PodSpec) -> PodSpec:
    required = spec.affinity.node.required
    if required is None:
        return spec
    terms = tuple(
        replace(term, match_fields=tuple(each for each in term.match_fields if each.key != NODE_NAME_FIELD))
        for term in required.terms
    )
    kept = tuple(term for term in terms if term.match_expressions or term.match_fields)
    # Terms are ORed: a term that required only the node's name now matches every node.
    selector = NodeSelector(terms=kept) if kept and len(kept) == len(terms) else None
    return replace(spec, affinity=replace(spec.affinity, node=replace(spec.affinity.node, required=selector)))


def should_run(pod: Pod, node: Node) -> bool:
    """Return whether the DaemonSet controller creates a pod on the node.

    The rule is that of k8s.io/kubernetes ``NodeShouldRunDaemonPod`` (v1.36).
    """
    spec = pod.spec
    chosen = all(node.labels.get(key) == value for key, value in spec.node_selector.items())
    return (
        chosen
        and matches_node_selector(spec.affinity.node.required, node.labels, node.name)
        and find_untolerated_taint(node.taints, spec.tolerations) is None
    )
