"""Builds clusters in memory for benchmarks. The objects are the same every time, and no API server is used."""

from __future__ import annotations

import random
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from trimtab.kube.frozen import Labels, ResourceList
from trimtab.kube.objects import (
    Affinity,
    Container,
    KubeObject,
    LabelSelector,
    Machine,
    Node,
    NodeCondition,
    OwnerReference,
    Pod,
    PodAffinityTerm,
    PodSpec,
    Toleration,
)

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
CREATED = 1_795_000_000.0


class Shape(Struct, frozen=True):
    """The size of a cluster, and the distribution of its pods.

    Attributes:
        nodes: the number of nodes with 8 cpu and 32Gi, in three zones.
        pods: the number of running pods that request 100m and 128Mi.
        owner_size: the number of pods per ReplicaSet.
        crowded: the fraction of nodes that have more pods than the others.
        weights: the relative probability that a pod is on a crowded node, and on another node. The default results in
            54 and 14 pods per node.
        seed: the seed of the distribution.
        picky: with ``n``, the pods of every ``n``-th owner have anti-affinity to each other; 0 for none.
    """

    nodes: int = 5000
    pods: int = 150_000
    owner_size: int = 20
    crowded: float = 0.4
    weights: tuple[int, int] = (27, 7)
    picky: int = 0
    seed: int = 1


def cluster(shape: Shape) -> Iterator[KubeObject]:
    """Yield the nodes, then the pods of each owner. The nodes of pods are random, but equal for the same seed."""
    for number in range(shape.nodes):
        yield node(number)
    crowded = int(shape.nodes * shape.crowded)
    weights = [shape.weights[number >= crowded] for number in range(shape.nodes)]
    places = random.Random(shape.seed).choices(range(shape.nodes), weights, k=shape.pods)
    for number, place in enumerate(places):
        owner = number // shape.owner_size
        yield pod(number, owner, place, picky=bool(shape.picky) and owner % shape.picky == 0)


def node(number: int) -> Node:
    """Return a ready node."""
    name = f"node-{number:05}"
    amounts = ResourceList({"cpu": 8000, "memory": 32 << 30, "pods": 110, "ephemeral-storage": 100 << 30})
    return Node(
        name=name,
        uid=f"uid-{name}",
        labels=Labels({HOSTNAME: name, ZONE: f"zone-{number % 3}"}),
        created=CREATED,
        allocatable=amounts,
        capacity=amounts,
        conditions=(NodeCondition("Ready", "True"),),
    )


def joined(machine: Machine, node: Node) -> tuple[Machine, Node]:
    """Return a machine and its node as the Machine API creates them: they name each other and have one provider ID."""
    from trimtab.autoscaling.groups.annotations import NODES_MACHINE  # loads asyncio, which most benchmarks do without

    provider_id = f"aws:///zone-a/i-{node.name}"
    mark = {**node.annotations, NODES_MACHINE: machine.key}
    return (
        replace(machine, node=node.name, node_uid=node.uid, provider_id=provider_id, phase="Running"),
        replace(node, annotations=Labels(mark), provider_id=provider_id),
    )


def pod(number: int, owner: int, place: int, *, picky: bool = False) -> Pod:
    """Return a running and ready pod of a ReplicaSet."""
    app = f"app-{owner:05}"
    name = f"{app}-{number:06}"
    return Pod(
        namespace=f"team-{owner % 50:02}",
        name=name,
        uid=f"uid-{name}",
        labels=_labels(app),
        owners=_owners(app),
        created=CREATED + number,
        node=f"node-{place:05}",
        spec=_picky_spec(app) if picky else _spec(owner),
        phase="Running",
        ready=True,
        started=CREATED + number,
    )


_REQUESTS = ResourceList({"cpu": 100, "memory": 128 << 20})
_TOLERATIONS = tuple(
    Toleration(key=f"node.kubernetes.io/{key}", operator="Exists", effect="NoExecute", seconds=300)
    for key in ("not-ready", "unreachable")
)
_known: dict[str, object] = {}


def _spec(owner: int) -> PodSpec:
    """Return a new spec for each owner, as each pod template has its own image."""
    key = f"spec-{owner}"
    if key not in _known:
        _known[key] = PodSpec(
            containers=(Container("main", f"registry.example/app-{owner}:1", _REQUESTS),),
            requests=_REQUESTS,
            qos="Burstable",
            tolerations=_TOLERATIONS,
        )
    return _known[key]  # type: ignore[return-value]


def _picky_spec(app: str) -> PodSpec:
    """Return a spec like :func:`_spec`, with anti-affinity to the pods of the same app on the same host."""
    key = f"picky-{app}"
    if key not in _known:
        term = PodAffinityTerm(HOSTNAME, LabelSelector(_labels(app)))
        _known[key] = PodSpec(
            containers=(Container("main", f"registry.example/{app}:1", _REQUESTS),),
            requests=_REQUESTS,
            qos="Burstable",
            tolerations=_TOLERATIONS,
            affinity=Affinity(anti_required=(term,)),
        )
    return _known[key]  # type: ignore[return-value]


def _labels(app: str) -> Labels:
    return _known.setdefault(f"labels-{app}", Labels({"app": app}))  # type: ignore[return-value]


def _owners(app: str) -> tuple[OwnerReference, ...]:
    """Return owner references that the pods of a ReplicaSet share, like those decoded from an API response."""
    reference = OwnerReference("ReplicaSet", app, f"uid-{app}", "apps/v1", controller=True)
    return _known.setdefault(f"owner-{app}", (reference,))  # type: ignore[return-value]
