"""Predicts the DaemonSet pods of a new node: those that run on such nodes, and those that can be created and fit.

A DaemonSet object alone proves nothing. A user who may create one in a namespace could request more than a node has,
while a quota or admission policy prevents all its pods; then no node of any group would look large enough for other
pods. So these rules apply:

- On a sample that has been ready for a while, DaemonSet pods count if they exist. A pod that was created for the sample
  and is pending counts too, and so does one that a rolling update is replacing.
- If there is no such sample, a DaemonSet counts if one of its pods was ever bound to a node. If it does not run on
  most of the nodes whose taints it tolerates and whose labels it selects, its user may have excluded all nodes for
  which a quota allows no pod. Then it counts only within a tenth of the new node or the group's record, unless it is in
  a system namespace. A requirement that names nodes (``kubernetes.io/hostname``, ``metadata.name``, or another label
  whose value is a node's name) is ignored here, because it can exclude any nodes. A requirement of another label
  selects a kind of nodes, so that a DaemonSet on all nodes with GPUs counts. A user can still exclude all but one node
  if that node differs from all others in such a label.
- Outside system namespaces, a pod is expected to request no more than an existing one proves. If the template was never
  created, because the update strategy is ``OnDelete`` or a rolling update makes no progress, that is the largest bound
  pod of the DaemonSet. A pod on a sample may be a user's bare pod that the DaemonSet has adopted. It counts up to the
  requests of the template, or of most pods of the DaemonSet, because a webhook or the vertical pod autoscaler may have
  enlarged all of them.
- A DaemonSet does not count if fewer than nine in ten of its desired pods were created.
- If a group had nodes before, DaemonSets that match no existing node count as long as their pods together request no
  more than the DaemonSet pods that ran on the group's nodes (the group's record). DaemonSets whose pods ran come first.
- What admission sets is added to the templates: priorities, default requests of LimitRanges, the overhead of
  RuntimeClasses.
- Pods that have not run yet must fit. Pods of ``system-node-critical``, which preempt others, count as if they ran as
  soon as they are created.

Cluster-autoscaler counts the pods on the sample, and for a group without nodes all DaemonSets that match it. With
``--force-ds`` (here ``spec.scaleUp.forceDaemonSets``) it counts all that match in either case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
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
from trimtab.kube.frozen import Labels, ResourceList
from trimtab.kube.objects import (
    SYSTEM_CLASSES,
    DaemonSet,
    LabelRequirement,
    Node,
    NodeSelector,
    OwnerReference,
    Pod,
    PodSpec,
    Taint,
)
from trimtab.kube.rules.node_labels import HOSTNAME
from trimtab.kube.rules.selectors import matches_node_selector, node_matcher
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
    """A DaemonSet that matches a new node, or a static pod of a sample, that is not expected on a new node.

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

    Attributes:
        waiting: the nodes with a pending or terminating pod.
        bound: the nodes with a bound pod.
        requests: the requests of the bound pods, and the number of pods with these requests.
        preempts: whether any pod may preempt others.
        on_most_nodes: whether the DaemonSet is trusted to run on most of the nodes that it selects; ``None`` until this
            is known.
    """

    waiting: set[str]
    bound: set[str]
    requests: Counter[ResourceList]
    preempts: bool = False
    on_most_nodes: bool | None = None

    def largest(self) -> dict[str, int]:
        """Return the largest amount of each resource that a bound pod requests."""
        names = {name for requests in self.requests for name in requests}
        return {name: max(requests.get(name, 0) for requests in self.requests) for name in names}

    def of_most(self) -> dict[str, int]:
        """Return the amount of each resource that most bound pods request, if there are several."""
        total = self.requests.total()
        found: dict[str, int] = {}
        for name in self.largest() if total > 1 else ():
            counted = 0
            for requests in sorted(self.requests, key=lambda each: -each.get(name, 0)):
                counted += self.requests[requests]
                if 2 * counted > total:
                    found[name] = requests.get(name, 0)
                    break
        return found


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
        self._nodes: dict[tuple[Taint, ...], list[Node]] = {}
        for node in snapshot.nodes.at:
            if node is not None:
                self._nodes.setdefault(node.taints, []).append(node)
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
            expected = _expected_pod(owner, self._defaults)
            if owner.desired == 0 or not expected.runs_on(node):
                continue  # the DaemonSet wants no pod there: the owner reference is forged
            refusal = _refusal(owner)
            if refusal is None:
                kept[name] = self._proven_on_sample(pod, expected.admitted, owner)
            else:
                uncounted.append(Uncounted(name, *refusal))
        return ExpectedPods(tuple(kept.values()), tuple(uncounted))

    def _proven_on_sample(self, pod: Pod, template: Pod, owner: DaemonSet) -> Pod:
        limits = template.spec.requests
        if is_system_namespace(owner.namespace) or _at_most(pod, limits) is pod:
            return pod
        usual = self._created_of(owner).of_most()
        return _at_most(pod, {name: max(limits.get(name, 0), usual.get(name, 0)) for name in {*limits, *usual}})

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
        matching = [each for each in self._pods if daemon_set_of(each.admitted) not in known and each.runs_on(node)]
        refusals: dict[str, tuple[str, str] | None] = {}
        if not self._force:
            matching = [replace(each, admitted=self._proven(each.admitted)) for each in matching]
            for each in sorted(matching, key=lambda each: not self._ran(self._made.get(daemon_set_of(each.admitted)))):
                refusals[daemon_set_of(each.admitted)] = self._doubt(each, sample, left, share)
        found, uncounted = [], []
        for each in matching:
            pod, name = each.admitted, daemon_set_of(each.admitted)
            refusal = refusals.get(name)
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

    def _proven(self, pod: Pod) -> Pod:
        """Return a pod made from a template, with no larger requests than those of a pod that was bound, if any was."""
        owner = self._made.get(daemon_set_of(pod))
        if owner is None or is_system_namespace(owner.namespace):
            return pod
        created = self._created_of(owner)
        return _at_most(pod, created.largest()) if created.requests else pod

    def _ran(self, owner: DaemonSet | None) -> bool:
        """Return whether a pod of the DaemonSet was bound, or is certain to be."""
        if owner is None or not owner.desired:
            return False
        created = self._created_of(owner)
        return bool(created.bound or created.preempts)

    def _doubt(
        self, expected: _ExpectedPod, sample: str, left: _FreeResources | None, share: _FreeResources
    ) -> tuple[str, str] | None:
        """Return a reason and a message if a DaemonSet's pod is not expected on a new node, else ``None``."""
        owner = self._made.get(daemon_set_of(expected.admitted))
        if owner is None or owner.desired is None:  # read from a file: its status is unknown
            return None
        refusal = _refusal(owner)
        if refusal is not None:
            return refusal
        created, ran = self._created_of(owner), self._ran(owner)
        if sample:
            if ran and sample in created.waiting:
                return None
            return reasons.DAEMON_SET_NOT_ON_NODES, f"node {sample} is such a node, but has no pod of it"
        if ran and created.on_most_nodes is None:
            trusted = is_system_namespace(owner.namespace)
            created.on_most_nodes = trusted or self._on_most_nodes(created.bound, expected.stated)
        if ran and created.on_most_nodes:
            return None
        if (ran or not owner.desired) and left is not None and left.take(expected.admitted):
            return None
        if not ran:
            return reasons.DAEMON_SET_NEVER_RAN, "none of its pods was ever bound to a node"
        if share.take(expected.admitted):
            return None
        message = (
            f"it runs on {len(created.bound)} existing nodes, which are not most of those that it selects by labels, "
            f"so that a quota may allow no further pod, and its pod requests more than {DOUBTED_SHARE:.0%} of the node"
        )
        return reasons.DAEMON_SET_ON_FEW_NODES, message

    def _on_most_nodes(self, bound: Set[str], pod: Pod) -> bool:
        """Return whether a DaemonSet runs on most of the nodes that it tolerates and selects by their kind.

        Users can list the nodes that a DaemonSet should not run on, but they cannot change the labels of nodes.
        """
        spec = _without_names(pod.spec, self._names_nodes)
        matches, selector = node_matcher(spec.affinity.node.required), spec.node_selector.items()
        found = {
            node.name
            for taints, nodes in self._nodes.items()
            if find_untolerated_taint(taints, spec.tolerations) is None
            for node in nodes
            if selector <= node.labels.items() and matches(node.labels, node.name)
        }
        return 2 * len(bound & found) > len(found)

    def _names_nodes(self, key: str, values: Iterable[str]) -> bool:
        return key in (HOSTNAME, NODE_NAME_FIELD) or any(each in self._snapshot.nodes.slot_of for each in values)

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
                spec = _without_names(there[0].spec, lambda key, _: key == NODE_NAME_FIELD)
                yield replace(there[0], name=key.name, uid=f"{there[0].uid}-new", spec=spec)

    def _created_of(self, owner: DaemonSet) -> _ExistingPods:
        found = self._created.get(owner.key)
        if found is None:
            found = self._created[owner.key] = _ExistingPods(set(), set(), Counter())
            key = key_of(owner)
            for pod in self._snapshot.each_owned_by(key):
                if pod.terminal or not owns(key, pod):
                    continue
                if pod.node:
                    found.requests[pod.spec.requests] += 1
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


def _at_most(pod: Pod, limits: Mapping[str, int]) -> Pod:
    """Return the pod with no larger requests than these."""
    requests = pod.spec.requests
    if all(amount <= limits.get(name, 0) for name, amount in requests.items()):
        return pod
    limited = ResourceList({name: min(amount, limits.get(name, 0)) for name, amount in requests.items()})
    return replace(pod, spec=replace(pod.spec, requests=limited))


def _without_names(spec: PodSpec, names_nodes: Callable[[str, Iterable[str]], bool]) -> PodSpec:
    """Return a spec without the requirements whose key and values name nodes."""

    def kept(requirements: tuple[LabelRequirement, ...]) -> tuple[LabelRequirement, ...]:
        return tuple(each for each in requirements if not names_nodes(each.key, each.values))

    labels = Labels({key: value for key, value in spec.node_selector.items() if not names_nodes(key, (value,))})
    required = spec.affinity.node.required
    if required is not None:
        terms = [
            replace(term, match_expressions=kept(term.match_expressions), match_fields=kept(term.match_fields))
            for term in required.terms
        ]
        # Terms are ORed: a term that required only the names of nodes now matches every node.
        all_left = bool(terms) and all(term.match_expressions or term.match_fields for term in terms)
        required = NodeSelector(terms=tuple(terms)) if all_left else None
    return replace(
        spec, node_selector=labels, affinity=replace(spec.affinity, node=replace(spec.affinity.node, required=required))
    )


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
