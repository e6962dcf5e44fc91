"""Small clusters for hypothesis: few names, labels and sizes, so that rules and objects meet often."""

from __future__ import annotations

import random
from typing import TypeVar

from hypothesis import strategies as st

from trimtab.cluster.affinity import affinity_terms, terms_of
from trimtab.cluster.node_table import TopologyKey
from trimtab.cluster.resources import UNKNOWN
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels, ResourceList
from trimtab.kube.objects import (
    Affinity,
    Container,
    CSINode,
    HostPort,
    KubeObject,
    LabelSelector,
    Namespace,
    Node,
    NodeAffinity,
    NodeCondition,
    NodeDriver,
    NodeSelector,
    NodeSelectorTerm,
    OwnerReference,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodAffinityTerm,
    PodDisruptionBudget,
    PodSpec,
    PreferredNodeTerm,
    ReplicaSet,
    Service,
    StorageClass,
    Taint,
    Toleration,
    TopologySpread,
    Volume,
    WeightedPodTerm,
)
from trimtab.kube.objects.meta import LabelRequirement

HOSTNAME = "kubernetes.io/hostname"
ZONE = "zone"
DISK = "disk"
GPU = "example.com/gpu"
NODE_NAMES = tuple(f"n{number}" for number in range(1, 6))
NAMESPACES = ("shop", "blog")
APPS = ("a", "b", "c")
CLAIMS = ("data", "logs")
SHELVED = (
    PodDisruptionBudget,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    CSINode,
    Service,
    ReplicaSet,
)
T = TypeVar("T")
TAINT = Taint(key="reserved", effect="NoSchedule")


class Maker:
    """Draws objects from a seed: faster than drawing each field from hypothesis, and so with more variety."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def one_in(self, number: int) -> bool:
        return self._chance.randrange(number) == 0

    def pick(self, *values: T) -> T:
        return self._chance.choice(values)

    def node(self, name: str) -> Node:
        """In one of two zones, with one of two disks; now and then tainted, cordoned, not ready."""
        labels = {HOSTNAME: name, DISK: self.pick("ssd", "hdd")}
        zone = self.pick("x", "y", None)
        if zone:
            labels[ZONE] = zone
        amounts = {"cpu": self.pick(1000, 2000, 4000), "memory": 4 << 30, "pods": self.pick(4, 8, 12)}
        if self.one_in(2):
            amounts[GPU] = 2
        return Node(
            name=name,
            labels=Labels(labels),
            unschedulable=self.one_in(8),
            taints=(TAINT,) if self.one_in(8) else (),
            allocatable=ResourceList(amounts),
            conditions=(NodeCondition("Ready", "False" if self.one_in(10) else "True"),),
            images=ResourceList({"web:1": 300 << 20}) if self.one_in(3) else ResourceList(),
        )

    def term(self) -> PodAffinityTerm:
        """A pod affinity term over the apps."""
        if self.one_in(2):
            selector = LabelSelector(Labels({"app": self.pick(*APPS)}))
        else:
            values = (self.pick(*APPS),) if self.one_in(2) else APPS[:2]
            selector = LabelSelector(match_expressions=(LabelRequirement("app", self.pick("In", "NotIn"), values),))
        return PodAffinityTerm(
            topology_key=self.pick(HOSTNAME, HOSTNAME, ZONE),
            selector=selector,
            namespaces=("blog",) if self.one_in(3) else (),
            namespace_selector=LabelSelector(Labels({"team": "x"})) if self.one_in(3) else None,
        )

    def spread(self) -> TopologySpread:
        """A spread constraint over the apps, hard or soft."""
        hard = self.one_in(2)
        return TopologySpread(
            max_skew=self.pick(1, 1, 2),
            topology_key=self.pick(HOSTNAME, ZONE),
            when_unsatisfiable="DoNotSchedule" if hard else "ScheduleAnyway",
            selector=LabelSelector(Labels({"app": self.pick(*APPS)})),
            min_domains=self.pick(None, 2, 3) if hard else None,
            node_affinity_policy=self.pick("", "Ignore"),
            node_taints_policy=self.pick("", "Honor"),
        )

    def weighted(self) -> tuple[WeightedPodTerm, ...]:
        """No preference mostly, else one."""
        return (WeightedPodTerm(self.pick(1, 50), self.term()),) if self.one_in(6) else ()

    def claim(self, name: str) -> PersistentVolumeClaim:
        """Bound to the volume of the same name, by one pod alone now and then; sometimes not bound yet."""
        bound = not self.one_in(4)
        return PersistentVolumeClaim(
            namespace=self.pick(*NAMESPACES),
            name=name,
            volume=name if bound else "",
            bind_completed=bound,
            storage_class=self.pick("late", "late", "now"),
            access_modes=(self.pick("ReadWriteOnce", "ReadWriteOncePod"),),
            request=1 << 30,
            phase="Bound" if bound else "Pending",
        )

    def volume(self, name: str) -> PersistentVolume:
        """In one of the zones, or anywhere."""
        zone = self.pick("x", "y", None)
        there = NodeSelectorTerm((LabelRequirement(ZONE, "In", (zone or "",)),))
        return PersistentVolume(
            name=name,
            capacity=self.pick(1, 2) << 30,
            access_modes=("ReadWriteOnce", "ReadWriteOncePod"),
            storage_class="late",
            node_affinity=NodeSelector((there,)) if zone else None,
            source="csi",
            driver="disks",
            handle=name,
            phase=self.pick("Available", "Bound"),
        )

    def storage(self) -> list[KubeObject]:
        """Two classes, two claims with their volumes, and nodes that take one or two volumes."""
        drivers = (NodeDriver("disks", self.pick(1, 2)),)
        return [
            StorageClass("late", provisioner="disks", binding_mode="WaitForFirstConsumer"),
            StorageClass("now", provisioner="disks"),
            *(self.claim(name) for name in CLAIMS),
            *(self.volume(name) for name in CLAIMS),
            *(CSINode(name, drivers=drivers) for name in NODE_NAMES if not self.one_in(3)),
        ]

    def owners(self) -> list[KubeObject]:
        """The apps' ReplicaSets, and a service."""
        service: list[KubeObject] = [Service("shop", "a", selector=Labels({"app": "a"}))]
        return service + [
            ReplicaSet(namespace, app, selector=LabelSelector(Labels({"app": app})))
            for namespace in NAMESPACES
            for app in APPS
            if not self.one_in(3)
        ]

    def spec(self) -> PodSpec:
        """Some of everything that filters read."""
        requests = {"cpu": self.pick(0, 100, 250, 500, 1000), "memory": self.pick(0, 1 << 30)}
        if self.one_in(8):
            requests[GPU] = 1
        requests = {name: amount for name, amount in requests.items() if amount}
        on_ssd = NodeSelectorTerm((LabelRequirement(DISK, "In", ("ssd",)),))
        return PodSpec(
            requests=ResourceList(requests),
            qos="Burstable" if requests else "BestEffort",
            host_ports=(HostPort(80),) if self.one_in(8) else (),
            node_selector=Labels({DISK: "ssd"}) if self.one_in(6) else Labels(),
            affinity=Affinity(
                node=NodeAffinity(
                    required=NodeSelector((on_ssd,)) if self.one_in(6) else None,
                    preferred=(PreferredNodeTerm(10, on_ssd),) if self.one_in(3) else (),
                ),
                pod_required=(self.term(),) if self.one_in(10) else (),
                pod_preferred=self.weighted(),
                anti_preferred=self.weighted(),
                anti_required=tuple(self.term() for _ in range(self.pick(1, 1, 2))) if self.one_in(4) else (),
            ),
            tolerations=(Toleration(operator="Exists"),) if self.one_in(4) else (),
            topology_spread=tuple(self.spread() for _ in range(self.pick(1, 1, 2))) if self.one_in(5) else (),
            volumes=(Volume("persistentVolumeClaim", claim=self.pick(*CLAIMS)),) if self.one_in(6) else (),
            containers=(Container("main", "web:1", ResourceList(requests)),),
            priority=self.pick(None, 0, 10),
        )

    def pod(self, name: str, spec: PodSpec | None = None, on: tuple[str, ...] = NODE_NAMES) -> Pod:
        """On a node most of the time, in one of three apps, owned by the app's ReplicaSet."""
        app, namespace = self.pick(*APPS), self.pick(*NAMESPACES)
        return Pod(
            namespace=namespace,
            name=name,
            uid=f"uid-{namespace}-{name}",
            labels=Labels({"app": app}),
            owners=() if self.one_in(12) else (OwnerReference("ReplicaSet", app, controller=True),),
            created=self.pick(None, 1000.0, 2000.0),
            deleted=3000.0 if self.one_in(12) else None,
            node="" if self.one_in(12) else self.pick(*on),
            spec=self.spec() if spec is None else spec,
            phase=self.pick("Succeeded", "Failed") if self.one_in(10) else "Running",
            ready=True,
            started=0.0,
            restarts=self.pick(0, 0, 0, 5, 20),
        )

    def budget(self) -> PodDisruptionBudget:
        """For one app's pods."""
        app = self.pick(*APPS)
        selector = LabelSelector(Labels({"app": app}))
        return PodDisruptionBudget(
            self.pick(*NAMESPACES),
            app,
            selector=selector,
            disruptions_allowed=self.pick(0, 1, 2),
            current_healthy=5,
        )

    def namespace(self) -> Namespace:
        """The namespace ``blog``, whose label terms may select."""
        return Namespace("blog", labels=Labels({"team": self.pick("x", "y")}))


makers: st.SearchStrategy[Maker] = st.integers(0, 2**32 - 1).map(Maker)


@st.composite
def worlds(draw: st.DrawFn, *, nodes_least: int = 1, pods_least: int = 0, pods_most: int = 16) -> list[KubeObject]:
    """Nodes, namespaces, pods of a few shared specs, and now and then a budget; the first node is the fullest."""
    number, size = draw(st.integers(nodes_least, len(NODE_NAMES))), draw(st.integers(pods_least, pods_most))
    make = draw(makers)
    names = NODE_NAMES[:number]
    objects: list[KubeObject] = [make.node(name) for name in names]
    objects.append(make.namespace())
    shared = [make.spec() for _ in range(make.pick(1, 2, 3, 4))]
    crowd = ("n1", "n1", *names)
    objects += [make.pod(f"p{index:02}", make.pick(*shared), crowd) for index in range(size)]
    if make.one_in(3):
        objects.append(make.budget())
    if make.one_in(2):
        objects += make.storage()
    if make.one_in(2):
        objects += make.owners()
    return objects


def fingerprint(snapshot: Snapshot) -> dict[str, object]:
    """Everything that planners read of a snapshot, in a form that does not know in which order objects came."""
    table = snapshot.nodes
    held = {resource for node in table.at if node is not None for resource in node.allocatable}
    columns = {
        name: {
            resource: (int(table.allocatable[slot, column]), int(table.requested[slot, column]))
            for column, resource in enumerate(table.axis.names)
            if (column < UNKNOWN or resource in held)  # a request of what no node has counts for no planner
            and (table.allocatable[slot, column] or table.requested[slot, column])
        }
        for name, slot in sorted(table.slot_of.items())
    }
    return {
        "columns": columns,
        "nonzero": {name: table.nonzero[slot].tolist() for name, slot in sorted(table.slot_of.items())},
        "cordoned": {name: bool(table.cordoned[slot]) for name, slot in sorted(table.slot_of.items())},
        "taints": {name: table.taint_sets[table.taints[slot]] for name, slot in sorted(table.slot_of.items())},
        "zones": {name: value_of(table.column(ZONE), slot) for name, slot in sorted(table.slot_of.items())},
        "nodes": {name: table.get(name) for name in sorted(table.slot_of)},
        "order": [table.node(slot).name for slot in table.order().tolist()],
        "pods": dict(sorted(snapshot.pods.items())),
        "on": {name: snapshot.pods_on(name) for name in sorted(table.slot_of)},
        "owners": {owner: snapshot.owned_by(owner) for owner in snapshot.owners()},
        "crowded": snapshot.owners_with_colocated_pods(),
        "objects": {kind.__name__: dict(sorted(snapshot.objects.of(kind).items())) for kind in SHELVED},
        "claims": dict(sorted(snapshot.volume_users.of_claim.items())),
        "volumes": {
            name: sorted(snapshot.volume_users.on.get(slot, ())) for name, slot in sorted(table.slot_of.items())
        },
        "ports": {
            name: sorted(
                port.port for port in (HostPort(80), HostPort(81)) if slot in set(snapshot.ports.conflicts((port,)))
            )
            for name, slot in sorted(table.slot_of.items())
        },
        "anti-affinity": (snapshot.any_anti_affinity, snapshot.any_pod_affinity),
        "affinity": affinity_counts(snapshot),
    }


def affinity_counts(snapshot: Snapshot) -> dict[object, object]:
    """For every pod: how many pods its terms pick and how many terms pick it, node by node."""
    index, counts = snapshot.affinity, {}
    slots = sorted(snapshot.nodes.slot_of.items())
    for key, pod in sorted(snapshot.pods.items()):
        for term in {*terms_of(pod).anti, *affinity_terms(pod)}:
            by_slot = index.matching((term,), term.topology_key).by_slot()
            counts[key, term] = [int(by_slot[slot]) for _, slot in slots]
        against = [counter.by_slot() for counter in index.carriers_against(pod)]
        counts[key] = [sum(int(by_slot[slot]) for by_slot in against) for _, slot in slots]
        drawing = [weight * counter.by_slot() for counter, weight in index.carriers_drawing(pod)]
        counts[key, "drawn"] = [sum(int(by_slot[slot]) for by_slot in drawing) for _, slot in slots]
        staying = index.staying(pod.namespace, LabelSelector(pod.labels))
        dense = staying.by_slot(snapshot.nodes.capacity)
        counts[key, "staying"] = [(staying.counts.get(slot, 0), int(dense[slot])) for _, slot in slots]
    return counts


def value_of(column: TopologyKey, slot: int) -> str | None:
    """What a label column says of a node."""
    domain = int(column.ids[slot])
    return None if domain < 0 else column.values[domain]
