"""Remedies that free resources or reduce what the pod needs: requests, evictions, ports and volumes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, ClassVar, Final

import numpy as np
from msgspec.structs import replace

from trimtab.cluster.affinity import BoundTerm, as_incoming, terms_of
from trimtab.cluster.resources import PODS, IntArray
from trimtab.cluster.volumes import claim_key
from trimtab.kube.frozen import ResourceList
from trimtab.kube.objects import (
    HostPort,
    KubeObject,
    Node,
    OwnerReference,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
)
from trimtab.kube.rules.quantity import format_amount
from trimtab.placement.remedies.costs import (
    BIND_CLAIM,
    EACH_ADDITIONAL,
    EVICT_EACH,
    HIGHER_PRIORITY,
    LARGEST_CUT,
    MOVE,
    MOVE_EACH,
    PROTECTED,
    RELAX_CONSTRAINT,
    REQUEST,
    REQUEST_SHARE,
    WAIT,
)
from trimtab.placement.remedies.interface import IMPOSSIBLE, Costs, RefusalRemedy, Remedy, RemedyCase, Step


def requested(case: RemedyCase) -> tuple[IntArray, IntArray]:
    """Return the resource columns that the pod requests, and the requested amounts: int64, both of the same length."""
    pairs = case.snapshot.amounts(case.pod.spec).wanted
    return np.array([column for column, _ in pairs]), np.array([amount for _, amount in pairs])


def shortage(case: RemedyCase) -> IntArray:
    """Return how much of each requested resource is missing on each node: int64, shape (capacity, requested columns).

    The amount is 0 if enough of the resource is free.
    """
    nodes = case.snapshot.nodes
    columns, amounts = requested(case)
    missing: IntArray = amounts - (nodes.allocatable[:, columns] - nodes.requested[:, columns])
    return np.maximum(missing, 0)


def amounts_by_name(case: RemedyCase, columns: IntArray, amounts: IntArray) -> dict[str, str]:
    """Return the amounts above 0 as quantities, by resource name."""
    names = case.snapshot.nodes.axis.names
    return {
        names[column]: format_amount(names[column], amount)
        for column, amount in zip(columns.tolist(), amounts.tolist(), strict=True)
        if amount > 0
    }


def amounts_text(amounts: dict[str, str]) -> str:
    """Format amounts for a sentence: ``cpu 500m and memory 1Gi``."""
    return " and ".join(f"{name} {amount}" for name, amount in amounts.items())


MAX_EVICTED: Final = 12
"""Maximum number of pods to evict. Adding a node is cheaper than evicting more pods."""

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"


def bound_to_node(pod: Pod) -> bool:
    """Return whether evicting the pod frees no resources, because it would run on the same node again.

    This applies to static pods, and to pods that a DaemonSet recreates on the node.
    """
    owner = pod.controller
    return MIRROR_ANNOTATION in pod.annotations or (owner is not None and owner.kind in ("DaemonSet", "Node"))


def eviction_step(
    case: RemedyCase, node: Node, victims: Iterable[Pod], *, reason: str, why: str, **details: Any
) -> Step | None:
    """Return a step that evicts pods from a node, or ``None`` if that frees no resources or is too expensive.

    The cost depends on whether the evicted pods fit on other nodes. To determine this, the pod of ``case`` is placed
    first, and then the evicted pods in descending order of priority.

    Args:
        case: the unschedulable pod.
        node: the node on which the pod would be placed.
        victims: the pods to evict.
        reason: the reason code.
        why: the end of the message, which states the purpose of the eviction.
        details: further fields of the step's machine-readable output.
    """
    gone = sorted(victims, key=lambda pod: (-pod.priority, pod.key))
    if not gone or len(gone) > MAX_EVICTED or any(map(bound_to_node, gone)):
        return None
    cost = MOVE + HIGHER_PRIORITY * sum(pod.priority > case.pod.priority for pod in gone)
    if cost + MOVE_EACH * len(gone) >= case.limit:
        return None
    by_priority = sorted(gone, key=lambda pod: (pod.priority, pod.key))
    targets = _targets(case, node, gone)
    cost += sum(MOVE_EACH if pod.key in targets else EVICT_EACH for pod in gone)
    protections = {pod.key: text for pod in by_priority if (text := case.protection(pod)) is not None}
    cost += PROTECTED * len(protections)
    texts = [f"{pod.key} (to {targets[pod.key]})" if pod.key in targets else pod.key for pod in by_priority]
    without_target = len(gone) - len(targets)
    return Step(
        reason=reason,
        change=f"evict {', '.join(texts)} from {_where(node, gone)}: {why}"
        f"{_warning(case, gone, without_target, protections)}",
        cost=cost,
        kind="Node",
        name=node.name,
        details={
            **details,
            "pods": [_pod_document(pod, targets.get(pod.key), protections.get(pod.key)) for pod in by_priority],
        },
        removes=tuple(gone),
    )


def _targets(case: RemedyCase, node: Node, gone: list[Pod]) -> dict[str, str]:
    """Return the nodes on which the evicted pods would be placed, by the pods' ``namespace/name``."""
    placer, snapshot = case.placer, case.snapshot
    found: dict[str, str] = {}
    with snapshot.fork():
        for pod in gone:
            snapshot.remove(pod)
        snapshot.put(replace(case.pod, node=node.name))
        for pod in gone:
            pending = placer.replacement(pod)
            slot = placer.choose(pending, placer.feasible(pending))
            if slot is not None:
                found[pod.key] = placer.reserve(pending, slot).node
    return found


def _where(node: Node, gone: list[Pod]) -> str:
    others = sorted({pod.node for pod in gone} - {node.name})
    here = [f"node {node.name}"] if any(pod.node == node.name for pod in gone) else []
    return " and ".join([*here, *(f"node {name}" for name in others)])


def _warning(case: RemedyCase, gone: list[Pod], without_target: int, protections: dict[str, str]) -> str:
    higher = sum(pod.priority > case.pod.priority for pod in gone)
    texts = []
    if without_target:
        texts.append(f"{without_target} of {len(gone)} would fit nowhere else")
    if higher:
        texts.append(f"{higher} with a higher priority than {case.pod.priority}")
    texts += (f"{pod} is protected: {why}" for pod, why in protections.items())
    lower = all(pod.priority < case.pod.priority for pod in gone)
    if lower and case.pod.spec.preemption_policy != "Never":
        texts.append("lower priority: kube-scheduler preempts such pods itself")
    return f" ({', '.join(texts)})" if texts else ""


def _pod_document(pod: Pod, target: str | None, protected: str | None) -> dict[str, Any]:
    found = {"pod": pod.key, "priority": pod.priority, "node": pod.node, "target": target}
    return found if protected is None else {**found, "protected": protected}


class WaitForPods(Remedy):
    """Waits until terminating pods have terminated, because they use their resources until then."""

    reason: ClassVar = "WaitForPods"
    rules: ClassVar = frozenset(("NodeResourcesFit", "NodePorts", "InterPodAffinity"))
    evicts: ClassVar = True

    def bound(self, case: RemedyCase, rule: str) -> Costs | float:
        there = np.zeros(case.snapshot.nodes.capacity, dtype=np.bool_)
        there[sorted(case.terminating)] = True
        return np.where(there, WAIT, IMPOSSIBLE)

    def steps(self, case: RemedyCase, node: Node, rule: str) -> Iterator[Step]:
        slot = case.snapshot.nodes.slot_of[node.name]
        pods = [pod for key in case.terminating.get(slot, ()) if (pod := case.snapshot.pods.get(key)) is not None]
        if pods:
            names = ", ".join(pod.key for pod in pods)
            yield Step(
                reason=self.reason,
                change=f"wait until {names} {'has' if len(pods) == 1 else 'have'} terminated on node {node.name}",
                cost=WAIT,
                kind="Node",
                name=node.name,
                details={"pods": [{"pod": pod.key, "priority": pod.priority, "node": node.name} for pod in pods]},
                removes=tuple(pods),
            )


class LowerRequests(Remedy):
    """Lowers the pod's requests by the missing amounts.

    :data:`~trimtab.placement.remedies.costs.LARGEST_CUT` is the limit.
    """

    reason: ClassVar = "LowerRequests"
    rules: ClassVar = frozenset(("NodeResourcesFit",))

    def bound(self, case: RemedyCase, rule: str) -> Costs | float:
        columns, amounts = requested(case)
        shares = shortage(case) / amounts
        possible = np.where(columns == PODS, shares == 0, shares <= LARGEST_CUT).all(axis=1)
        return np.where(possible, REQUEST + REQUEST_SHARE * shares.sum(axis=1), IMPOSSIBLE)

    def steps(self, case: RemedyCase, node: Node, rule: str) -> Iterator[Step]:
        bound = self.bound(case, rule)
        slot = case.snapshot.nodes.slot_of[node.name]
        cost = float(np.broadcast_to(bound, case.snapshot.nodes.capacity)[slot])
        if cost == IMPOSSIBLE:
            return
        spec = case.pod.spec
        columns, _ = requested(case)
        short = shortage(case)[slot]
        cut = {case.snapshot.nodes.axis.names[column]: int(by) for column, by in zip(columns, short, strict=True) if by}
        lowered = _lowered(spec.requests, cut)
        before = {name: format_amount(name, spec.requests[name]) for name in cut}
        after = {name: format_amount(name, lowered[name]) for name in cut}
        by = amounts_text(amounts_by_name(case, columns, short))
        texts = [f"{name} from {before[name]} to {after[name]}" for name in cut]
        yield case.pod_step(
            self.reason,
            f"lower the requests of {case.template}: {', '.join(texts)}; node {node.name} lacks {by}",
            cost,
            field="spec.containers[*].resources.requests",
            before=before,
            after=after,
            requests=lowered,
            nonzero_requests=_lowered(spec.nonzero_requests, cut),
            scored_requests=_lowered(spec.scored_requests, cut),
        )


def _lowered(amounts: ResourceList, cut: dict[str, int]) -> ResourceList:
    return ResourceList({name: max(amount - cut.get(name, 0), 0) for name, amount in amounts.items()})


class FreeRoom(Remedy):
    """Evicts as few pods from a node as necessary, lowest priority first, like preemption in kube-scheduler.

    Pods that are protected from eviction are chosen only if the others do not free enough.
    """

    reason: ClassVar = "FreeRoom"
    rules: ClassVar = frozenset(("NodeResourcesFit",))
    evicts: ClassVar = True

    def bound(self, case: RemedyCase, rule: str) -> Costs | float:
        columns, amounts = requested(case)
        large = (case.snapshot.nodes.allocatable[:, columns] >= amounts).all(axis=1)
        missing = (shortage(case) / amounts).max(axis=1)
        return np.where(large, MOVE + MOVE_EACH * np.clip(missing, 0.01, 1.0), IMPOSSIBLE)

    def steps(self, case: RemedyCase, node: Node, rule: str) -> Iterator[Step]:
        columns, _ = requested(case)
        short = shortage(case)[case.snapshot.nodes.slot_of[node.name]]
        pods = [pod for pod in case.snapshot.pods_on(node.name) if not pod.terminal and not bound_to_node(pod)]
        rows = np.array([case.snapshot.row(pod.spec)[columns] for pod in pods]).reshape(-1, len(columns))
        most = int(min((case.limit - MOVE) / MOVE_EACH, MAX_EVICTED))
        if most < 1 or (np.sort(rows, axis=0)[-most:].sum(axis=0) < short).any():
            return
        missing = amounts_by_name(case, columns, short)
        free = [at for at, pod in enumerate(pods) if case.protection(pod) is None]
        if len(free) < len(pods) and (rows[free].sum(axis=0) >= short).all():
            pods, rows = [pods[at] for at in free], rows[free]
        chosen = [choose_victims(pods, rows, short, few=few) for few in (True, False)]
        for victims in chosen if chosen[0] != chosen[1] else chosen[:1]:
            step = eviction_step(
                case, node, victims, reason=self.reason, why=f"{amounts_text(missing)} is missing", frees=missing
            )
            if step:
                yield step


def choose_victims(pods: list[Pod], rows: IntArray, short: IntArray, *, few: bool) -> list[Pod]:
    """Return the pods to evict from a node so that at least the amounts in ``short`` are freed.

    Pods are selected in ascending order of priority. Then pods that need not be evicted are removed from the selection,
    in descending order of priority.

    Args:
        pods: the pods of a node.
        rows: the amounts of the missing resources that each pod uses: int64, shape (pods, columns). Evicting all pods
            must free enough.
        short: the missing amounts: int64, shape (columns,).
        few: if true, prefer pods of equal priority that free the most, so that few pods are evicted. If false, prefer
            the smallest pods, which fit on other nodes more easily.
    """
    freed = (np.minimum(rows, short) / np.maximum(short, 1)).sum(axis=1)
    size = (rows / np.maximum(rows.max(axis=0), 1)).sum(axis=1)
    first = -freed if few else (freed == 0).astype(np.float64)
    order = sorted(range(len(pods)), key=lambda at: (pods[at].priority, first[at], size[at], pods[at].key))
    enough = (np.cumsum(rows[order], axis=0) >= short).all(axis=1)
    taken = order[: int(enough.argmax()) + 1]
    spare = rows[taken].sum(axis=0) - short
    kept = []
    for at in sorted(taken, key=lambda at: (-pods[at].priority, freed[at], size[at], pods[at].key)):
        if (rows[at] <= spare).all():
            spare = spare - rows[at]
            kept.append(at)
    return [pods[at] for at in taken if at not in kept]


_LAST_PORT: Final = 65_535


class ChangeHostPort(Remedy):
    """Changes each of the pod's host ports that is in use to the next free port on the node."""

    reason: ClassVar = "ChangeHostPort"
    rules: ClassVar = frozenset(("NodePorts",))

    def bound(self, case: RemedyCase, rule: str) -> Costs | float:
        return RELAX_CONSTRAINT

    def steps(self, case: RemedyCase, node: Node, rule: str) -> Iterator[Step]:
        slot = case.snapshot.nodes.slot_of[node.name]
        ports = [_next_free(case, port, slot, case.pod.spec.host_ports) for port in case.pod.spec.host_ports]
        changes = [(old, new) for old, new in zip(case.pod.spec.host_ports, ports, strict=True) if old != new]
        texts = [f"{new.port} instead of {old.port}/{old.protocol}" for old, new in changes]
        yield case.pod_step(
            self.reason,
            f"give {case.template} host port {', '.join(texts)}, which is in use on node {node.name}",
            RELAX_CONSTRAINT,
            field="spec.containers[*].ports[*].hostPort",
            before=[old.port for old, _ in changes],
            after=[new.port for _, new in changes],
            host_ports=tuple(ports),
        )


class FreeHostPort(Remedy):
    """Evicts the pods on the node that use the pod's host ports."""

    reason: ClassVar = "FreeHostPort"
    rules: ClassVar = frozenset(("NodePorts",))
    evicts: ClassVar = True

    def bound(self, case: RemedyCase, rule: str) -> Costs | float:
        return MOVE + MOVE_EACH

    def steps(self, case: RemedyCase, node: Node, rule: str) -> Iterator[Step]:
        wanted = case.pod.spec.host_ports
        victims = [pod for pod in case.snapshot.pods_on(node.name) if not pod.terminal and _holds_one(pod, wanted)]
        ports = ", ".join(f"{port.port}/{port.protocol}" for port in wanted)
        step = eviction_step(case, node, victims, reason=self.reason, why=f"host port {ports} is in use")
        if step:
            yield step


def _next_free(case: RemedyCase, port: HostPort, slot: int, wanted: tuple[HostPort, ...]) -> HostPort:
    """Return the port, or the next higher one, that is free on the node and that the pod does not already use."""
    found = port
    while slot in set(case.snapshot.ports.conflicts((found,))) or (found != port and found in wanted):
        if found.port == _LAST_PORT:
            return port
        found = replace(found, port=found.port + 1)
    return found


def _holds_one(pod: Pod, wanted: tuple[HostPort, ...]) -> bool:
    return any(_same_port(mine, theirs) for mine in wanted for theirs in pod.spec.host_ports)


def _same_port(mine: HostPort, theirs: HostPort) -> bool:
    same = (mine.port, mine.protocol) == (theirs.port, theirs.protocol)
    return same and (mine.ip == theirs.ip or "0.0.0.0" in (mine.ip, theirs.ip))


_VOLUME_PREFIX: Final = "trimtab-proposed-"


class BindClaim(Remedy, RefusalRemedy):
    """Creates missing or lost claims, and binds pending claims. The volume is assumed to be usable on every node.

    Bound claims are not changed, because their volumes contain data.
    """

    reason: ClassVar = "BindClaim"
    rules: ClassVar = frozenset(("VolumeRestrictions", "VolumeBinding", "VolumeZone"))

    def steps_to_admit(self, case: RemedyCase) -> Iterator[Step]:
        claims = case.snapshot.objects.of(PersistentVolumeClaim)
        keys = [key for key in _claims_of(case.pod) if _claim_problem(case, claims.get(key)) is not None]
        if keys:
            yield _claims_step(case, keys)

    def bound(self, case: RemedyCase, rule: str) -> Costs | float:
        return BIND_CLAIM if any(self.steps_to_admit(case)) else IMPOSSIBLE

    def steps(self, case: RemedyCase, node: Node, rule: str) -> Iterator[Step]:
        return self.steps_to_admit(case)


def _claims_step(case: RemedyCase, keys: list[str]) -> Step:
    claims = case.snapshot.objects.of(PersistentVolumeClaim)
    texts = [f"{_claim_problem(case, claims.get(key))} {key}" for key in keys]
    puts = [each for key in keys for each in _bound_claim_and_volume(case.pod, key, claims.get(key))]
    return Step(
        reason="BindClaim",
        change=f"{' and '.join(texts)}, with a volume that the node can use",
        cost=BIND_CLAIM + EACH_ADDITIONAL * (len(keys) - 1),
        kind="PersistentVolumeClaim",
        name=keys[0],
        details={"claims": keys},
        puts=tuple(puts),
    )


def _claims_of(pod: Pod) -> list[str]:
    found = (claim_key(pod, volume) for volume in pod.spec.volumes)
    return list(dict.fromkeys(key for key in found if key is not None))


def _claim_problem(case: RemedyCase, claim: PersistentVolumeClaim | None) -> str | None:
    """Return what must be done with a claim, as text, or ``None`` if it needs no change."""
    if claim is None:
        return "create claim"
    if claim.deleted is not None or claim.phase == "Lost":
        return "recreate claim"
    bound = claim.bind_completed and claim.volume in case.snapshot.objects.of(PersistentVolume)
    return None if bound else "bind claim"


def _bound_claim_and_volume(pod: Pod, key: str, claim: PersistentVolumeClaim | None) -> tuple[KubeObject, KubeObject]:
    """Return the claim as bound, and the volume that it is bound to, for the snapshot."""
    namespace, _, name = key.partition("/")
    if claim is None:
        owner = OwnerReference("Pod", pod.name, pod.uid, "v1", controller=True)  # ephemeral volumes require it
        claim = PersistentVolumeClaim(namespace, name, owners=(owner,))
    volume = f"{_VOLUME_PREFIX}{namespace}-{name}"
    bound = replace(claim, deleted=None, volume=volume, bind_completed=True, phase="Bound")
    made = PersistentVolume(
        volume,
        capacity=claim.request or 0,
        access_modes=claim.access_modes,
        storage_class=claim.storage_class or "",
        volume_mode=claim.volume_mode,
        claim=key,
        claim_uid=claim.uid,
        phase="Bound",
    )
    return made, bound


class FreeVolumes(Remedy):
    """Evicts as few pods with conflicting volumes as necessary, lowest priority first."""

    reason: ClassVar = "FreeVolumes"
    rules: ClassVar = frozenset(("NodeVolumeLimits", "VolumeRestrictions"))
    evicts: ClassVar = True

    def bound(self, case: RemedyCase, rule: str) -> Costs | float:
        return MOVE + MOVE_EACH

    def steps(self, case: RemedyCase, node: Node, rule: str) -> Iterator[Step]:
        users = sorted(_volume_users(case, node, rule), key=lambda pod: (pod.priority, pod.key))
        victims = _needed_evictions(case, node, rule, [pod for pod in users if not bound_to_node(pod)])
        why = "it has reached its volume limit" if rule == "NodeVolumeLimits" else "the pod's volumes are in use"
        step = eviction_step(case, node, victims, reason=self.reason, why=why)
        if step:
            yield step


def _volume_users(case: RemedyCase, node: Node, rule: str) -> list[Pod]:
    """Return the pods whose volumes may conflict: pods on the node, and pods on any node that use the same claim."""
    snapshot = case.snapshot
    there = list(snapshot.volume_users.on.get(snapshot.nodes.slot_of[node.name], {}).values())
    claims = {volume.claim for volume in case.pod.spec.volumes if volume.claim}
    if rule == "NodeVolumeLimits" or not claims:
        return there
    on_nodes = [pod for pods in snapshot.volume_users.on.values() for pod in pods.values()]
    same = [
        pod
        for pod in on_nodes
        if pod.namespace == case.pod.namespace and any(volume.claim in claims for volume in pod.spec.volumes)
    ]
    return list({pod.key: pod for pod in [*same, *there]}.values())


def _needed_evictions(case: RemedyCase, node: Node, rule: str, users: list[Pod]) -> list[Pod]:
    """Return a minimal set of pods whose eviction makes the node pass the filter.

    The result is empty if there is no such set, or if it would be too large.
    """
    with case.snapshot.fork():
        for number, pod in enumerate(users):
            case.snapshot.remove(pod)
            if case.passes(rule, case.pod, node.name):
                gone = users[: number + 1]
                break
        else:
            return []
        needed = []
        for pod in reversed(gone):
            case.snapshot.put(pod)
            if not case.passes(rule, case.pod, node.name):
                case.snapshot.remove(pod)
                needed.append(pod)
    return needed if len(needed) <= MAX_EVICTED else []


class EvictNeighbours(Remedy):
    """Evicts the pods that conflict with the pod through required anti-affinity (theirs or the pod's own).

    The conflicting pods may be on other nodes of the same zone. If there are many, adding a node is cheaper.
    """

    reason: ClassVar = "EvictNeighbours"
    rules: ClassVar = frozenset(("InterPodAffinity",))
    evicts: ClassVar = True

    def bound(self, case: RemedyCase, rule: str) -> Costs | float:
        numbers = [counter for _, counter in _opposing_terms(case)]
        if not numbers:
            return IMPOSSIBLE
        most: IntArray = np.maximum.reduce(numbers)  # several terms may select the same pod
        return np.where((most > 0) & (most <= MAX_EVICTED), MOVE + MOVE_EACH * most, IMPOSSIBLE)

    def steps(self, case: RemedyCase, node: Node, rule: str) -> Iterator[Step]:
        slot = case.snapshot.nodes.slot_of[node.name]
        victims: dict[str, Pod] = {}
        there: Counter[str] = Counter()
        for topology_key, numbers in _opposing_terms(case):
            if 0 < numbers[slot] <= MAX_EVICTED:
                there[topology_key] += int(numbers[slot])
        for topology_key, number in there.items():  # each term counts the pods that it selects
            clashing = (pod for pod in _pods_in_domain(case, slot, topology_key) if _conflict(case, pod))
            victims |= {pod.key: pod for pod in islice(clashing, number)}
        step = eviction_step(
            case, node, victims.values(), reason=self.reason, why="required anti-affinity separates them from the pod"
        )
        if step:
            yield step


def _opposing_terms(case: RemedyCase) -> list[tuple[str, IntArray]]:
    """Return the anti-affinity terms that may reject nodes, of the pod itself and of bound pods.

    Each term is returned as its topology key and the number of conflicting pods in the domain of each slot.
    """
    index = case.snapshot.affinity
    found = []
    for term in index.carried_terms(case.pod) if case.pod.spec.affinity.anti_required else ():
        counter = index.matching((as_incoming(term),), term.topology_key)
        found.append((term.topology_key, counter.by_slot()))
    carriers = (counter for counter in index.carriers_against(case.pod) if counter.counts)
    return found + [(counter.topology.key, counter.by_slot()) for counter in carriers]


def _pods_in_domain(case: RemedyCase, slot: int, topology_key: str) -> Iterator[Pod]:
    """Yield the pods on the nodes of the slot's domain, starting with those on the slot itself."""
    nodes = case.snapshot.nodes
    domains = nodes.column(topology_key).ids
    others = np.flatnonzero(nodes.used & (domains == domains[slot])).tolist()
    for there in (slot, *(other for other in others if other != slot)):
        yield from (pod for pod in case.snapshot.pods_on(nodes.node(there).name) if not pod.terminal)


def _conflict(case: RemedyCase, other: Pod) -> bool:
    mine = (as_incoming(term) for term in terms_of(case.pod).anti)
    theirs = terms_of(other).anti if other.spec.affinity.anti_required else ()
    return any(_picks(case, term, other) for term in mine) or any(_picks(case, term, case.pod) for term in theirs)


def _picks(case: RemedyCase, term: BoundTerm, pod: Pod) -> bool:
    return term.matches(pod.namespace, pod.labels, case.snapshot.namespace_labels(pod.namespace))
