"""What DaemonSets would put on a new node."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import DaemonSet, Node, NodeSelector, OwnerReference, Pod, PodSpec
from trimtab.kube.rules.selectors import matches_node_selector
from trimtab.kube.rules.taints import untolerated

KIND = "DaemonSet"
NODE_NAME = "metadata.name"


class DaemonPods:
    """The pods of all DaemonSets, one each.

    They are those that the DaemonSets make; where the snapshot has no DaemonSets, those that they have made, of which
    the required node affinity is lost: the DaemonSet controller writes the node's name in its place. Then a pod is
    expected on more nodes than it will be on, never on fewer.

    Attributes:
        known: whether the snapshot has the DaemonSets themselves.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        made = snapshot.shelves.of(DaemonSet)
        self.known = bool(made)
        found = (
            [_of_daemon_set(made[key]) for key in sorted(made) if made[key].deleted is None]
            if made
            else _of_pods(snapshot)
        )
        self._pods = tuple(found)

    def on(self, node: Node, *, there: Collection[str] = ()) -> tuple[Pod, ...]:
        """The pods that would come with a node, bound to it.

        Args:
            node: without taints that its state sets.
            there: DaemonSets, ``namespace/name``, whose pods are accounted for.
        """
        return tuple(
            replace(pod, node=node.name) for pod in self._pods if daemon_set_of(pod) not in there and _suits(pod, node)
        )


def daemon_set_of(pod: Pod) -> str:
    """The DaemonSet that made a pod, ``namespace/name``; empty of other pods."""
    owner = pod.controller
    return f"{pod.namespace}/{owner.name}" if owner is not None and owner.kind == KIND else ""


def _of_daemon_set(daemon_set: DaemonSet) -> Pod:
    owner = OwnerReference(kind=KIND, name=daemon_set.name, uid=daemon_set.uid, api_version="apps/v1", controller=True)
    return Pod(
        namespace=daemon_set.namespace,
        name=daemon_set.name,
        uid=f"{daemon_set.uid}-pod",
        labels=daemon_set.pod_labels,
        owners=(owner,),
        spec=daemon_set.pod_spec,
        phase="Running",
    )


def _of_pods(snapshot: Snapshot) -> list[Pod]:
    found = []
    for key in snapshot.owners():
        if key[1] != KIND:
            continue
        alive = (pod for pod in snapshot.owned_by(key) if pod.deleted is None and not pod.terminal)
        first = next(alive, None)
        if first is not None:
            found.append(replace(first, name=key[2], uid=f"{first.uid}-new", spec=_without_node_name(first.spec)))
    return found


def _without_node_name(spec: PodSpec) -> PodSpec:
    required = spec.affinity.node.required
    if required is None:
        return spec
    terms = tuple(
        replace(term, match_fields=tuple(each for each in term.match_fields if each.key != NODE_NAME))
        for term in required.terms
    )
    kept = tuple(term for term in terms if term.match_expressions or term.match_fields)
    # Terms are alternatives: one that asked for the node's name alone asks for nothing now.
    selector = NodeSelector(terms=kept) if kept and len(kept) == len(terms) else None
    return replace(spec, affinity=replace(spec.affinity, node=replace(spec.affinity.node, required=selector)))


def _suits(pod: Pod, node: Node) -> bool:
    """Whether the DaemonSet controller would make the pod (k8s.io/kubernetes ``NodeShouldRunDaemonPod``, v1.36)."""
    spec = pod.spec
    chosen = all(node.labels.get(key) == value for key, value in spec.node_selector.items())
    return (
        chosen
        and matches_node_selector(spec.affinity.node.required, node.labels, node.name)
        and untolerated(node.taints, spec.tolerations) is None
    )
