"""Builds the node templates of all node groups from an existing node, the record of an earlier node, or an estimate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import IntEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.groups.node_group import GroupMachine, MachineState, NodeGroup, ObjectProblem, TemplateSource
from trimtab.autoscaling.template.daemon_sets import DaemonSetPredictor, ExpectedPods, Uncounted
from trimtab.autoscaling.template.estimate import (
    READY,
    ClusterDefaults,
    cluster_defaults,
    from_annotations,
    from_provider,
    has_provider_template,
)
from trimtab.autoscaling.template.learned_node import LearnedNode, NodeOverhead, learned_node, outdated_problem
from trimtab.autoscaling.template.node_template import (
    DAEMON_SET,
    TO_BE_DELETED,
    NodeTemplate,
    TemplateOrigin,
    Templates,
    daemon_set_of,
    is_startup_taint,
    lasting_taints,
    template_name,
    with_taints,
)
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.protections import MIRROR_ANNOTATION, is_system_namespace
from trimtab.kube.frozen import NO_LABELS, Labels, ResourceList
from trimtab.kube.objects import CSINode, Node, OwnerReference, Pod, PodSpec, Taint
from trimtab.kube.rules.node_labels import HOSTNAME

SETTLED_SECONDS: Final = 60.0
"""Seconds for which a node must have been ready before it is used as a sample.

By then its DaemonSet pods exist and its devices are registered.
"""

_TOPOLOGY_PREFIXES: Final = ("topology.", "failure-domain.beta.kubernetes.io/")
"""Prefixes of labels that describe the location of a node."""

_DEFAULTS: Final = ClusterAutoscalerSpec()


class SampleQuality(IntEnum):
    """The quality of a node as a sample, best first."""

    SETTLED = 0
    FRESH = 1
    """The node has been ready for less than :data:`SETTLED_SECONDS` seconds."""
    UNHEALTHY = 2
    """The node is not ready, cordoned, starting or terminating. It is used only if there is no other sample."""


class NodeSample(Struct, frozen=True):
    """A node to learn a template from, and all nodes of the group with the same quality."""

    node: Node
    machine: GroupMachine
    quality: SampleQuality
    peers: tuple[Node, ...]


def choose_sample(group: NodeGroup, snapshot: Snapshot, *, now: float, startup: Collection[str]) -> NodeSample | None:
    """Return the node to learn the group's template from, or ``None`` if the group has no suitable node.

    Nodes are ranked by quality, number of resources, age (newest first) and name. The newest node represents what the
    group provisions now, because the group's template may have changed. But a ready node may lack its GPUs for minutes,
    until their driver is installed and has registered them.
    """
    machine_of = {machine.node: machine for machine in group.machines if machine.node}
    ranked = []
    for name in sorted(machine_of):
        node = snapshot.nodes.get(name)
        if node is not None and node.allocatable:
            deleting = machine_of[name].state is MachineState.DELETING
            ranked.append(
                (SampleQuality.UNHEALTHY if deleting else sample_quality(node, now=now, startup=startup), node)
            )
    if not ranked:
        return None
    best = min(rank for rank, _ in ranked)
    peers = [node for rank, node in ranked if rank is best]
    newest = max(peers, key=lambda node: (_resource_count(node), node.created or 0.0))  # the first by name if equal
    return NodeSample(newest, machine_of[newest.name], best, tuple(peers))


def _resource_count(node: Node) -> int:
    return sum(amount > 0 for amount in node.allocatable.values())


def sample_quality(node: Node, *, now: float, startup: Collection[str]) -> SampleQuality:
    """Return the quality of a node as a sample at the given time."""
    starting = any(is_startup_taint(taint, startup) for taint in node.taints)
    leaving = any(taint.key == TO_BE_DELETED for taint in node.taints)
    if not node.ready or node.unschedulable or node.deleted is not None or starting or leaving:
        return SampleQuality.UNHEALTHY
    since = next((each.since for each in node.conditions if each.type == "Ready"), None)
    return SampleQuality.FRESH if since is not None and now - since < SETTLED_SECONDS else SampleQuality.SETTLED


def learned_template(
    group: NodeGroup, sample: NodeSample, snapshot: Snapshot, *, startup: Collection[str]
) -> NodeTemplate:
    """Return the template learned from a sample. It does not contain any pods yet."""
    like, name = sample.node, template_name(group.id)
    labels, messages = _learned_labels(sample, group.template)
    node = replace(
        like,
        name=name,
        uid=name,
        resource_version="",
        labels=Labels({**labels, **group.template.labels}),
        annotations=NO_LABELS,
        created=None,
        deleted=None,
        unschedulable=False,
        provider_id="",
        taints=_learned_taints(sample, group.template, startup),
        conditions=READY,
        images=ResourceList(),
    )
    drivers = snapshot.objects.of(CSINode).get(like.name)
    assumed = list(messages)
    if sample.quality is SampleQuality.FRESH:
        assumed.insert(0, f"{like.name} has been ready for less than {SETTLED_SECONDS:g}s")
    elif sample.quality is SampleQuality.UNHEALTHY:
        assumed.insert(0, f"the template is based on {like.name}, which is not ready or not schedulable")
    return NodeTemplate(
        group=group.id,
        node=node,
        drivers=None if drivers is None else replace(drivers, name=name, uid=name, resource_version=""),
        sample=like.name,
        assumptions=tuple(assumed),
    )


def _learned_labels(sample: NodeSample, source: TemplateSource) -> tuple[dict[str, str], Sequence[str]]:
    """Return the labels that a new node will also have, and messages about labels that are unknown.

    The hostname, labels whose value is the name of the node or machine, and topology labels that differ between the
    group's nodes are left out: the next node's zone is unknown, and a volume must not depend on it. Labels that the
    sample got from its machine, and that the group's object no longer defines, are left out too.
    """
    own = {sample.node.name, sample.machine.name, sample.node.labels.get(HOSTNAME, "")} - {""}
    kept, messages = {}, []
    for key, value in sorted(sample.node.labels.items()):
        if key.startswith(_TOPOLOGY_PREFIXES):
            places = sorted({node.labels.get(key, "none") for node in sample.peers})
            if len(places) > 1:
                messages.append(f"{key} is left out: the group's nodes are in {', '.join(places)}")
                continue
        elif key == HOSTNAME or value in own:
            continue
        if key not in source.labels and sample.machine.node_labels.get(key) == value:
            continue
        kept[key] = value
    return kept, messages


def _learned_taints(sample: NodeSample, source: TemplateSource, startup: Collection[str]) -> tuple[Taint, ...]:
    """Return the taints that a new node will have.

    A changed template of a node group does not change its existing machines. So taints of the sample's machine that the
    template no longer has are dropped, and taints of the template are added even if no node has them yet. Initial
    taints, which a node gets only when it joins, are an exception: if the sample no longer has one, the next node will
    lose it too.
    """
    given = {(taint.key, taint.effect) for taint in source.taints}
    old = {(taint.key, taint.effect) for taint in sample.machine.node_taints}
    present = {(taint.key, taint.effect) for taint in sample.node.taints}
    lost = {(taint.key, taint.effect) for taint in source.initial_taints} & old - present
    kept = (taint for taint in _shared_taints(sample, startup) if (taint.key, taint.effect) not in old - given)
    return with_taints(kept, (taint for taint in source.taints if (taint.key, taint.effect) not in lost))


def _shared_taints(sample: NodeSample, startup: Collection[str]) -> tuple[Taint, ...]:
    """Return the lasting taints that all nodes of the same quality have.

    A taint on a single node was probably added by a user.
    """
    taints = lasting_taints(sample.node.taints, startup)
    for node in sample.peers:
        present = {(taint.key, taint.effect) for taint in node.taints}
        taints = tuple(taint for taint in taints if (taint.key, taint.effect) in present)
    return taints


_PLACEHOLDER_NAMESPACE: Final = "kube-system"


def recorded_template(
    group: NodeGroup, *, daemons_known: bool
) -> tuple[NodeTemplate | None, tuple[ObjectProblem, ...]]:
    """Return the template from the record in an annotation of a group's object, with its static pods.

    The record has precedence over capacity annotations, which are an estimate, but only while the group's object
    defines the same nodes as when it was recorded. Labels and taints of the object override the recorded ones.

    Args:
        group: the group.
        daemons_known: whether the snapshot contains DaemonSets. If so, DaemonSet pods are not taken from the record.

    Returns:
        The template, or ``None`` if there is no usable record; and a problem if the record is unusable.
    """
    found = learned_node(group)
    if found is None or isinstance(found, ObjectProblem):
        return None, () if found is None else (found,)
    if not found.known:
        return None, ()
    old = outdated_problem(group, found)
    if old is not None:
        return None, (old,)
    return _recorded_template(group, found, daemons_known=daemons_known), ()


def _recorded_template(group: NodeGroup, found: LearnedNode, *, daemons_known: bool) -> NodeTemplate:
    name = template_name(group.id)
    node = Node(
        name=name,
        uid=name,
        labels=Labels({**found.labels, **group.template.labels}),
        taints=with_taints(found.taints, _object_taints(group, found)),
        allocatable=found.allocatable,
        capacity=found.capacity,
        conditions=READY,
    )
    pods = _placeholder_pods("static", found.static, name)
    if not daemons_known:
        pods += _placeholder_pods("daemon", found.daemons, name)
    time = datetime.fromtimestamp(found.recorded_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return NodeTemplate(
        group=group.id,
        node=node,
        pods=tuple(pods),
        drivers=None if found.drivers is None else CSINode(name=name, uid=name, drivers=found.drivers),
        origin=TemplateOrigin.RECORDED,
        sample=found.node,
        assumptions=(f"a new node is assumed to be like {found.node or 'the last one'} at {time}",),
    )


def _object_taints(group: NodeGroup, found: LearnedNode) -> Iterator[Taint]:
    """Yield the taints of the group's object, except for initial taints that the recorded node had lost."""
    lost = {(each.key, each.effect) for each in group.template.initial_taints}
    lost -= {(each.key, each.effect) for each in found.taints}
    return (each for each in group.template.taints if (each.key, each.effect) not in lost)


def _placeholder_pods(what: str, overhead: NodeOverhead, node: str) -> list[Pod]:
    """Return placeholders for the recorded pods, which are known only by their number and total requests.

    The first placeholder requests the total, and the others request nothing.
    """
    made = []
    for number in range(overhead.pods):
        name = f"learned-{what}-{number}"
        daemon = what == "daemon"
        pod = Pod(
            namespace=_PLACEHOLDER_NAMESPACE,
            name=name,
            uid=f"{node}/{name}",
            owners=(OwnerReference(kind=DAEMON_SET, name=name, api_version="apps/v1", controller=True),)
            if daemon
            else (),
            annotations=Labels() if daemon else Labels({MIRROR_ANNOTATION: name}),
            spec=PodSpec(requests=overhead.requests) if not number else PodSpec(),
            node=node,
            phase="Running",
        )
        made.append(pod)
    return made


def build_templates(
    snapshot: Snapshot,
    groups: Iterable[NodeGroup],
    *,
    now: float,
    spec: ClusterAutoscalerSpec = _DEFAULTS,
) -> Templates:
    """Build the template of each group.

    The first of these that is available is used: a ready node of the group, the record of an earlier node, the group's
    annotations or its provider, a node that is not ready. The result does not depend on the order of objects.

    Args:
        snapshot: the cluster state with the groups' nodes, their pods, and DaemonSets if they are known.
        groups: the node groups.
        now: the current time in seconds since the epoch. Nodes that became ready recently are used only if there is no
            other node.
        spec: the spec of the ClusterAutoscaler, of which ``startupTaints``, ``scaleUp.forceDaemonSets`` and
            ``scaleUp.defaultArchitecture`` are used.
    """
    daemons = DaemonSetPredictor(snapshot, force=spec.scale_up.force_daemon_sets)
    architecture = spec.scale_up.default_architecture
    startup = frozenset(spec.startup_taints)
    found: dict[str, NodeTemplate] = {}
    problems: list[ObjectProblem] = []
    uncounted: dict[tuple[str, str], ObjectProblem] = {}
    defaults = cluster_defaults((node for node in snapshot.nodes.at if node is not None), architecture=architecture)
    for group in sorted(groups, key=lambda each: each.id):
        made, wrong, left_out = _template_of(group, snapshot, daemons, defaults, now=now, startup=startup)
        problems += wrong
        if made is not None:
            found[group.id] = made
        for each in left_out:
            uncounted.setdefault((each.kind, each.key), _uncounted_problem(each, group))
    return Templates(
        of_group=found,
        problems=tuple(sorted(problems)),
        uncounted=tuple(uncounted[key] for key in sorted(uncounted)),
    )


def _uncounted_problem(each: Uncounted, group: NodeGroup) -> ObjectProblem:
    if each.kind != DAEMON_SET:  # plan entries whose object is a pod are pending pods
        message = f"static pod {each.key} is not expected on new nodes: {each.message}"
        return ObjectProblem(group.kind, group.namespace, group.name, each.reason, message)
    namespace, _, name = each.key.partition("/")
    message = f"is not expected on new nodes, e.g. of {group.key}: {each.message}"
    return ObjectProblem(each.kind, namespace, name, each.reason, message)


def _template_of(
    group: NodeGroup,
    snapshot: Snapshot,
    daemons: DaemonSetPredictor,
    defaults: ClusterDefaults,
    *,
    now: float,
    startup: frozenset[str],
) -> tuple[NodeTemplate | None, tuple[ObjectProblem, ...], tuple[Uncounted, ...]]:
    sample = choose_sample(group, snapshot, now=now, startup=startup)
    record_problems: tuple[ObjectProblem, ...] = ()
    if sample is None or sample.quality is SampleQuality.UNHEALTHY:
        known, record_problems = recorded_template(group, daemons_known=daemons.known)
        record = learned_node(group)
        recorded = record.daemons if isinstance(record, LearnedNode) else None
        if known is not None:
            made, left_out = _with_pods(_without_startup_taints(known, startup), None, snapshot, daemons, recorded)
            return made, record_problems, left_out
        estimate, wrong = (
            (from_provider(group, defaults, startup=startup), ())
            if has_provider_template(group)
            else from_annotations(group, defaults)
        )
        if isinstance(estimate, NodeTemplate):
            made, left_out = _with_pods(_without_startup_taints(estimate, startup), None, snapshot, daemons)
            return made, (*record_problems, *wrong), left_out
        if sample is None:
            return None, (estimate, *record_problems, *wrong), ()
    learned = _without_startup_taints(learned_template(group, sample, snapshot, startup=startup), startup)
    made, left_out = _with_pods(learned, sample, snapshot, daemons)
    return made, record_problems, left_out


def _without_startup_taints(template: NodeTemplate, startup: frozenset[str]) -> NodeTemplate:
    """Return the template with startup taints removed. A group's object may define them too."""
    taints = tuple(taint for taint in template.node.taints if not is_startup_taint(taint, startup))
    return template if taints == template.node.taints else replace(template, node=replace(template.node, taints=taints))


def _with_pods(
    template: NodeTemplate,
    sample: NodeSample | None,
    snapshot: Snapshot,
    daemons: DaemonSetPredictor,
    recorded: NodeOverhead | None = None,
) -> tuple[NodeTemplate, tuple[Uncounted, ...]]:
    """Return the template with the pods that every new node has, and the DaemonSets and static pods not counted.

    Pods on a sample include the changes that admission made. DaemonSets that should run on the sample and have no pod
    there (it is pending, or the DaemonSet is newer than the node) are added.
    """
    existing = template.pods
    of_sample: tuple[Uncounted, ...] = ()
    if sample is not None:
        on_sample = [pod for pod in snapshot.pods_on(sample.node.name) if not pod.terminal and pod.deleted is None]
        node = template.node.name
        owned = [
            replace(pod, name=owner.rpartition("/")[2], node=node) for pod in on_sample if (owner := daemon_set_of(pod))
        ]
        verified = daemons.kept_from_sample(owned, template.node)
        static = _kept_static_pods((pod for pod in on_sample if not daemon_set_of(pod)), sample, node, snapshot)
        existing = (*verified.pods, *static.pods)
        of_sample = (*verified.uncounted, *static.uncounted)
    written = template.origin is TemplateOrigin.RECORDED
    expected_pods: tuple[Pod, ...] = ()
    uncounted = of_sample
    if daemons.known or not (sample or written):
        settled = sample.node.name if sample is not None and sample.quality is SampleQuality.SETTLED else ""
        skip = [each.key for each in of_sample if each.kind == DAEMON_SET]
        expected = daemons.expected_on(template.node, existing=existing, skip=skip, sample=settled, recorded=recorded)
        expected_pods, uncounted = expected.pods, (*of_sample, *expected.uncounted)
    assumed = template.assumptions
    if not daemons.known and expected_pods:
        names = ", ".join(sorted(map(daemon_set_of, expected_pods)))
        assumed = (*assumed, f"the DaemonSets are unknown; expected because other nodes run their pods: {names}")
    pods = sorted((*existing, *expected_pods), key=lambda pod: pod.key)
    return replace(template, pods=tuple(pods), assumptions=assumed), uncounted


def _kept_static_pods(pods: Iterable[Pod], sample: NodeSample, node: str, snapshot: Snapshot) -> ExpectedPods:
    """Return the static pods on a sample that a new node will also run, bound to that node.

    A user who may create pods can write everything that the kubelet writes when it creates a mirror pod: the
    annotation, the owner reference to the node, and the node's name. Therefore a pod counts only in a system namespace,
    or if it runs on most nodes of the group.

    The phase ``Running`` is proof even on the only node of a group. Only a kubelet writes it, because the ClusterRoles
    ``edit`` and ``admin`` do not permit writes to ``pods/status``. A kubelet reports no status of a mirror pod without
    a static pod (k8s.io/kubernetes v1.36, ``HandlePodAdditions``). And the API server rejects updates that add the
    annotation to a pod that runs (``ValidatePodSpecificAnnotationUpdates``).
    """
    mirrors = {_static_pod(pod): pod for pod in pods if MIRROR_ANNOTATION in pod.annotations}
    doubted = {key for key in mirrors if not is_system_namespace(key[0])}
    running = Counter(
        key
        for peer in (sample.peers if doubted else ())
        for key in {_static_pod(pod) for pod in snapshot.pods_on(peer.name) if _runs_statically(pod)} & doubted
    )
    kept, uncounted = [], []
    for key, pod in mirrors.items():
        number = running[key]
        if key not in doubted or 2 * number > len(sample.peers):
            kept.append(replace(pod, name=key[1], node=node))
            continue
        message = (
            f"it has the annotation of a static pod, and runs on {number} of {len(sample.peers)} such nodes; outside "
            "system namespaces, a static pod counts if it runs on most nodes"
        )
        uncounted.append(Uncounted(pod.key, reasons.STATIC_POD_NOT_COUNTED, message, "Pod"))
    return ExpectedPods(tuple(kept), tuple(uncounted))


def _runs_statically(pod: Pod) -> bool:
    return MIRROR_ANNOTATION in pod.annotations and pod.phase == "Running" and pod.deleted is None


def _static_pod(mirror: Pod) -> tuple[str, str]:
    """Return the namespace and name in the manifest of a static pod. The kubelet appends the name of the node."""
    return mirror.namespace, mirror.name.removesuffix(f"-{mirror.node}")
