"""Clusters in memory for benchmarks: the same objects every time, made without an API server."""

from __future__ import annotations

import random
from collections.abc import Iterator

from msgspec import Struct

from trimtab.kube.frozen import Labels, ResourceList
from trimtab.kube.objects import (
    Affinity,
    Container,
    KubeObject,
    LabelSelector,
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
    """How large a cluster is, and how badly its pods lie.

    Attributes:
        nodes: of 8 cpu and 32Gi each, in three zones.
        pods: of 100m and 128Mi each, running.
        owner_size: pods of one ReplicaSet.
        crowded: the share of nodes that hold more pods than the others.
        weights: how likely a pod is on a crowded node and on another one: 54 and 14 pods each, with the rest as it is.
        seed: of the pods' places.
        picky: every how many owners' pods must not share a node with their siblings; 0 for none.
    """

    nodes: int = 5000
    pods: int = 150_000
    owner_size: int = 20
    crowded: float = 0.4
    weights: tuple[int, int] = (27, 7)
    picky: int = 0
    seed: int = 1


def cluster(shape: Shape) -> Iterator[KubeObject]:
    """The nodes, then the pods, owner by owner; the places of pods are drawn, the same for the same seed."""
    for number in range(shape.nodes):
        yield node(number)
    crowded = int(shape.nodes * shape.crowded)
    weights = [shape.weights[number >= crowded] for number in range(shape.nodes)]
    places = random.Random(shape.seed).choices(range(shape.nodes), weights, k=shape.pods)
    for number, place in enumerate(places):
        owner = number // shape.owner_size
        yield pod(number, owner, place, picky=bool(shape.picky) and owner % shape.picky == 0)


def node(number: int) -> Node:
    """A ready node."""
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


def pod(number: int, owner: int, place: int, *, picky: bool = False) -> Pod:
    """A running and ready pod of a ReplicaSet."""
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
    """A spec per owner, as every template has an image of its own."""
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
    """Like :func:`_spec`, with anti-affinity to the pods of the same app on the same host."""
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
    """Shared by the pods of a ReplicaSet, as those that are decoded from an API server's answer share theirs."""
    reference = OwnerReference("ReplicaSet", app, f"uid-{app}", "apps/v1", controller=True)
    return _known.setdefault(f"owner-{app}", (reference,))  # type: ignore[return-value]
