"""Predicts the pod that a controller creates in place of a running one.

The two differ if the running pod was resized in place (generally available since Kubernetes 1.35), and if the template
was changed after the pod was created. Planners seek a place for the pod that will need one. The peers seek a place for
the running pod, and evict pods whose replacements then fit nowhere (kubernetes-sigs/karpenter#829).

If a template sets ``spec.nodeName``, all its pods are on that node, whatever the running pod's scheduling rules permit.
The replacement then has a node affinity for that node, so that no planner seeks another place for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.workloads.deployments import HASH_LABEL, workload
from trimtab.cluster.workloads.owners import OwnerKey, owner_key
from trimtab.kube.frozen import FrozenMap, Labels, ResourceList
from trimtab.kube.objects import (
    Affinity,
    Container,
    Job,
    LabelRequirement,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodSpec,
    PodTemplate,
    PriorityClass,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
    VerticalPodAutoscaler,
)
from trimtab.kube.objects.pod import WeightedPodTerm
from trimtab.kube.rules.pod_requests import with_totals
from trimtab.kube.rules.quantity import format_amount

Controller: TypeAlias = ReplicaSet | StatefulSet | ReplicationController | Job

_KINDS: Final[dict[str, type[Controller]]] = {
    "ReplicaSet": ReplicaSet,
    "StatefulSet": StatefulSet,
    "ReplicationController": ReplicationController,
    "Job": Job,
}
"""The controllers whose templates are read, by kind. They create a pod with the same role in place of a lost one."""

_READ: Final = (*_KINDS.values(), VerticalPodAutoscaler)

_REVISION: Final = "controller-revision-hash"
_CLAIM: Final = "persistentVolumeClaim"
_NODE_NAME: Final = "metadata.name"


def expected_replacement(
    pod: Pod,
    template: PodTemplate,
    *,
    changed: bool = True,
    vertically_scaled: bool = False,
    classes: Mapping[str, PriorityClass] | None = None,
) -> Pod:
    """Return the pod that a controller creates from a template in place of a running pod.

    What the template states is taken from the template. What it leaves open is taken from the running pod, because
    admission sets it: requests from a LimitRange, injected containers, further tolerations and node labels, the claims
    of a StatefulSet.

    Args:
        pod: the running pod.
        template: the present template of its controller. If one of the two exceeds the complexity limits, the pod is
            returned unchanged.
        changed: whether the template may have changed since the pod was created. If not, only requests and scheduling
            gates can differ, because all other fields of a pod are immutable.
        vertically_scaled: whether a VerticalPodAutoscaler sets the requests. The replacement then has those of the pod.
        classes: the PriorityClasses by name, with which the priority is determined.
    """
    new, old = template.spec, pod.spec
    if new is old or new.complexity or old.complexity:
        return pod
    sized = old if vertically_scaled else _with_requests(old, new)
    spec = replace(sized, scheduling_gates=new.scheduling_gates or old.scheduling_gates)
    labels = pod.labels
    if changed:
        labels = _merged(labels, template.labels)
        priority_class = (classes or {}).get(new.priority_class_name)
        spec = replace(
            spec,
            node_selector=_merged(old.node_selector, new.node_selector),
            affinity=_affinity(old.affinity, new.affinity, labels),
            tolerations=_with_missing(new.tolerations, old.tolerations),
            topology_spread=new.topology_spread or old.topology_spread,
            host_ports=new.host_ports or old.host_ports,
            volumes=_with_missing(new.volumes, (each for each in old.volumes if each.kind == _CLAIM)),
            resource_claims=new.resource_claims or old.resource_claims,
            priority=old.priority if priority_class is None else priority_class.value,
            priority_class_name=new.priority_class_name or old.priority_class_name,
        )
    if spec == old and labels == pod.labels:
        return pod
    return replace(pod, spec=spec, labels=labels)


def differences(pod: Pod, replacement: Pod) -> str:
    """Return where a running pod and its replacement differ, as text; empty if only in labels or not at all."""
    old, new = pod.spec, replacement.spec
    if old is new:
        return ""
    found = [
        f"{name} {format_amount(name, amount)} instead of {format_amount(name, old.requests.get(name, 0))}"
        for name, amount in sorted({**dict.fromkeys(old.requests, 0), **new.requests}.items())
        if amount != old.requests.get(name, 0)
    ]
    texts = dict(_FIELDS)
    node = _pinned_node(new)
    if node and node != _pinned_node(old):
        texts["affinity"] = f"nodeName {node}"
    found += [text for field, text in texts.items() if getattr(old, field) != getattr(new, field)]
    return ", ".join(found)


_FIELDS: Final = {
    "node_selector": "another nodeSelector",
    "affinity": "another affinity",
    "tolerations": "other tolerations",
    "topology_spread": "other topologySpreadConstraints",
    "host_ports": "other host ports",
    "volumes": "other volumes",
    "resource_claims": "other resourceClaims",
    "scheduling_gates": "scheduling gates",
    "priority": "another priority",
}
"""The fields in which a replacement can differ, apart from requests, with their texts."""


class _Known(Struct, frozen=True):
    """A prediction, with the objects whose ids are its key."""

    alike: Pod
    spec: PodSpec
    labels: Labels


class Replacements:
    """Predicts the replacements of the pods of a snapshot, once for all pods of an owner with the same spec.

    The best evidence is the newest pod of the owner that was created from the present template and not changed since,
    because it shows what admission and webhooks make of the template. Often, this is the pod itself: its generation is
    1 until it is resized. Without such a pod, the template itself is used.

    Args:
        snapshot: the cluster state.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[tuple[str, int, int, int, bool], _Known] = {}
        self._examples: dict[OwnerKey, Pod | None] = {}
        self._vertical_targets: set[tuple[str, str, str]] | None = None
        self._newest: dict[OwnerKey, ReplicaSet] | None = None
        self._revision = self._version = -1
        self._latest: tuple[Pod | None, Pod] = (None, Pod("", ""))

    def of(self, pod: Pod) -> Pod:
        """Return the pod that will be created in place of a bound pod, not bound to a node.

        A pod that is not bound is returned unchanged, because it needs a place itself.
        """
        if not pod.node:
            return pod
        latest, replacement = self._latest
        if pod is latest and self._snapshot.objects.version == self._version:
            return replacement  # planners ask several times for the same pod
        known = self._find(pod)
        if known is None:
            replacement = replace(pod, node="")
        else:
            replacement = replace(pod, node="", spec=known.spec, labels=known.labels, nominated_node="")
        self._latest = pod, replacement
        return replacement

    def _find(self, pod: Pod) -> _Known | None:
        """Return the prediction, or ``None`` if the replacement is like the pod."""
        objects = self._snapshot.objects
        if objects.version != self._version:
            self._version, revision = objects.version, objects.revision(*_READ)
            if revision != self._revision:
                self._known.clear()
                self._examples.clear()
                self._vertical_targets = None
                self._newest = None
                self._revision = revision
        key = (pod.namespace, id(pod.owners), id(pod.spec), id(pod.labels), pod.generation == 1)
        known = self._known.get(key)
        if known is None:
            made = self._predict(pod)
            known = self._known[key] = _Known(pod, made.spec, made.labels)
        return None if known.spec is pod.spec and known.labels is pod.labels else known

    def _predict(self, pod: Pod) -> Pod:
        direct = _controller_of(pod, self._snapshot)
        controller = self._newest_of_deployment(direct) if isinstance(direct, ReplicaSet) else direct
        made = self._from_template(pod, controller)
        # Until a rollout ends, either ReplicaSet may create the replacement.
        node = _template_node(direct) or _template_node(controller)
        return replace(made, spec=pinned(made.spec, node)) if node else made

    def _from_template(self, pod: Pod, controller: Controller | None) -> Pod:
        template = None if controller is None else controller.template
        if controller is None or template is None:
            return pod
        unchanged = _is_of_template(pod, controller)
        if unchanged and pod.generation == 1:
            return pod
        example = self._newest_as_admitted(controller)
        if example is None:
            return expected_replacement(
                pod,
                template,
                changed=not unchanged,
                vertically_scaled=self._is_vertically_scaled(pod),
                classes=self._snapshot.priority_classes,
            )
        spec = replace(example.spec, volumes=pod.spec.volumes) if isinstance(controller, StatefulSet) else example.spec
        return pod if spec == pod.spec else replace(pod, spec=spec, labels=_merged(pod.labels, template.labels))

    def _is_vertically_scaled(self, pod: Pod) -> bool:
        """Return whether a VerticalPodAutoscaler sets the requests of the pod's workload."""
        if self._vertical_targets is None:
            found = self._snapshot.objects.of(VerticalPodAutoscaler).values()
            self._vertical_targets = {
                (each.namespace, each.target_kind, each.target_name) for each in found if each.sets_requests
            }
        owners = (owner_key(pod), workload(pod))
        return any(owner is not None and owner[:3] in self._vertical_targets for owner in owners)

    def _newest_of_deployment(self, owned: ReplicaSet) -> ReplicaSet:
        """Return the newest ReplicaSet with pods of a ReplicaSet's Deployment.

        While a Deployment rolls out, its controller first scales down ReplicaSets whose pods are not available. So the
        pod that lastingly replaces an evicted one is of the newest ReplicaSet.
        """
        deployment = _deployment(owned)
        if deployment is None:
            return owned
        if self._newest is None:
            self._newest = {}
            for each in self._snapshot.objects.of(ReplicaSet).values():
                key = _deployment(each) if each.template is not None else None
                if key is not None:
                    known = self._newest.get(key)
                    if known is None or (each.revision, each.name) > (known.revision, known.name):
                        self._newest[key] = each
        newest = self._newest.get(deployment)
        return owned if newest is None or newest.revision <= owned.revision else newest

    def _newest_as_admitted(self, controller: Controller) -> Pod | None:
        """Return the newest pod of a controller that is as admission made it from the present template, if any."""
        owner = OwnerKey(controller.namespace, type(controller).__name__, controller.name, controller.uid)
        if owner not in self._examples:
            found = (
                each
                for each in self._snapshot.each_owned_by(owner)
                if each.deleted is None
                and each.generation == 1
                and not each.spec.complexity
                and _is_of_template(each, controller)
            )
            self._examples[owner] = max(found, key=lambda each: (each.created or 0.0, each.key), default=None)
        return self._examples[owner]


def bound_by_template(pod: Pod, snapshot: Snapshot) -> bool:
    """Return whether the template of the pod's controller sets ``spec.nodeName``.

    No scheduler placed such a pod, and each replacement is on the same node.
    """
    return bool(_template_node(_controller_of(pod, snapshot)))


def pinned(spec: PodSpec, node: str) -> PodSpec:
    """Return the spec with the node affinity with which the DaemonSet controller pins a pod to a node."""
    required = spec.affinity.node.required
    field = (LabelRequirement(_NODE_NAME, "In", (node,)),)
    terms = (NodeSelectorTerm(),) if required is None else required.terms
    selector = NodeSelector(tuple(replace(term, match_fields=field) for term in terms))
    return replace(spec, affinity=replace(spec.affinity, node=replace(spec.affinity.node, required=selector)))


def _pinned_node(spec: PodSpec) -> str:
    """Return the node to which :func:`pinned` has pinned a spec, or an empty string."""
    required = spec.affinity.node.required
    fields = () if required is None or not required.terms else required.terms[0].match_fields
    return fields[0].values[0] if fields and fields[0].key == _NODE_NAME and fields[0].values else ""


def _template_node(controller: Controller | None) -> str:
    return "" if controller is None or controller.template is None else controller.template.node


def _controller_of(pod: Pod, snapshot: Snapshot) -> Controller | None:
    reference = pod.controller
    kind = None if reference is None else _KINDS.get(reference.qualified_kind)
    if reference is None or kind is None:
        return None
    found = snapshot.objects.of(kind).get(f"{pod.namespace}/{reference.name}")
    return None if found is None or (found.uid and reference.uid and found.uid != reference.uid) else found


def _deployment(owned: ReplicaSet) -> OwnerKey | None:
    """Return the Deployment that a ReplicaSet belongs to, or ``None`` if it belongs to none."""
    for owner in owned.owners:
        if owner.controller and owner.qualified_kind == "Deployment":
            return OwnerKey(owned.namespace, "Deployment", owner.name, owner.uid)
    return None


def _is_of_template(pod: Pod, controller: Controller) -> bool:
    """Return whether the pod was certainly created from the present template.

    A Deployment creates another ReplicaSet for another template, and a StatefulSet counts revisions. For other
    controllers, this is not recorded.
    """
    if isinstance(controller, StatefulSet):
        revision = pod.labels.get(_REVISION, "")
        return bool(revision) and revision == controller.update_revision
    if isinstance(controller, Job):
        return True  # the template of a Job is immutable while it has pods
    suffix = pod.labels.get(HASH_LABEL, "")
    return bool(suffix) and controller.name.endswith(f"-{suffix}")


def _with_requests(old: PodSpec, new: PodSpec) -> PodSpec:
    """Return the running pod's spec with the containers, and so the requests, of the replacement."""
    containers = _containers(old.containers, new.containers)
    init_containers = _containers(old.init_containers, new.init_containers)
    pod_level = _merged(old.pod_resources, new.pod_resources)
    if (containers, init_containers, pod_level) == (old.containers, old.init_containers, old.pod_resources):
        return old
    return with_totals(replace(old, containers=containers, init_containers=init_containers, pod_resources=pod_level))


def _containers(old: Sequence[Container], new: Sequence[Container]) -> tuple[Container, ...]:
    """Return the template's containers with what admission added, and the injected containers where they are."""
    stated = {each.name: each for each in new}
    present = {each.name for each in old}
    kept = tuple(_container(each, stated[each.name]) if each.name in stated else each for each in old)
    return (*kept, *(each for each in new if each.name not in present))


def _container(old: Container, new: Container) -> Container:
    requests, limits = _merged(old.requests, new.requests), _merged(old.limits, new.limits)
    image = new.image or old.image
    if (requests, limits, image, new.restart_policy) == (old.requests, old.limits, old.image, old.restart_policy):
        return old
    return replace(old, requests=requests, limits=limits, image=image, restart_policy=new.restart_policy)


_Map = TypeVar("_Map", Labels, ResourceList)
_Item = TypeVar("_Item")


def _merged(old: _Map, new: _Map) -> _Map:
    """Return both maps as one. The new values take precedence, and the old map is returned if it has all of them."""
    return old if new.items() <= old.items() else FrozenMap({**old, **new})


def _with_missing(new: tuple[_Item, ...], old: Iterable[_Item]) -> tuple[_Item, ...]:
    """Return the new items and those of the old that are not among them."""
    return (*new, *(each for each in old if each not in new))


def _affinity(old: Affinity, new: Affinity, labels: Labels) -> Affinity:
    """Return the template's affinity. Rules of a sort that it has none of stay as on the running pod."""
    return Affinity(
        node=replace(
            old.node,
            required=old.node.required if new.node.required is None else new.node.required,
            preferred=new.node.preferred or old.node.preferred,
        ),
        pod_required=_terms(new.pod_required, labels) or old.pod_required,
        pod_preferred=_weighted_terms(new.pod_preferred, labels) or old.pod_preferred,
        anti_required=_terms(new.anti_required, labels) or old.anti_required,
        anti_preferred=_weighted_terms(new.anti_preferred, labels) or old.anti_preferred,
    )


def _terms(terms: tuple[PodAffinityTerm, ...], labels: Labels) -> tuple[PodAffinityTerm, ...]:
    return tuple(_with_label_keys(each, labels) for each in terms)


def _weighted_terms(terms: tuple[WeightedPodTerm, ...], labels: Labels) -> tuple[WeightedPodTerm, ...]:
    return tuple(replace(each, term=_with_label_keys(each.term, labels)) for each in terms)


def _with_label_keys(term: PodAffinityTerm, labels: Labels) -> PodAffinityTerm:
    """Merge ``matchLabelKeys`` and ``mismatchLabelKeys`` into the selector, as the API server does for a new pod."""
    if term.selector is None:
        return term
    added = tuple(
        LabelRequirement(key, operator, (labels[key],))
        for operator, keys in (("In", term.match_label_keys), ("NotIn", term.mismatch_label_keys))
        for key in keys
        if key in labels
    )
    if not added:
        return term
    selector = replace(term.selector, match_expressions=(*term.selector.match_expressions, *added))
    return replace(term, selector=selector)
