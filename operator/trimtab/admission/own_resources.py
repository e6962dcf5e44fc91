"""Validates trimtab's own resources where their schemas cannot: against the other objects of the cluster.

The webhook ``/validate/resources`` calls :func:`review_own_resource` when a resource is created or its spec changes. It
refuses only resources that the operator would not act on, with the message that the status would have later. Everything
that is legal but probably a mistake is a warning.

An update is never refused for an error that the old object also has. Otherwise a change of another object (for example,
the deletion of a PriorityClass) would prevent every further edit of the resource.

Such requests are rare, so :class:`OwnResourceReviewer` lists the other objects for each request and watches none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct

from trimtab.admission.audit import Audit, AuditedObject, decode
from trimtab.admission.requests import Toleration, WireRequest
from trimtab.admission.rules.node_selector import PodNodeSelectorRule
from trimtab.admission.rules.toleration_seconds import api_server_defaults
from trimtab.admission.tolerations import is_covered
from trimtab.api import (
    cluster_autoscaler,
    descheduler_policy,
    machine_autoscaler,
    node_pressure_policy,
    placement_admission,
    scheduler_policy,
)
from trimtab.api.bounds import named, plural
from trimtab.api.cluster_autoscaler import ClusterAutoscaler
from trimtab.api.decode import (
    CLUSTER_AUTOSCALER,
    MACHINE_AUTOSCALER,
    NODE_PRESSURE_POLICY,
    PLACEMENT_ADMISSION,
    POLICY,
    SCHEDULER_POLICY,
    TAINT_MANAGER,
    DecodableKind,
    read_object,
)
from trimtab.api.descheduler_policy import DeschedulerPolicy, contradict, includes
from trimtab.api.machine_autoscaler import MachineAutoscaler, ScaleTargetRef
from trimtab.api.node_pressure_policy import NodePressurePolicy
from trimtab.api.placement_admission import (
    PlacementAdmission,
    PlacementAdmissionSpec,
    PodToleration,
    parse_node_selector,
)
from trimtab.api.reasons import ADMISSION_WARNED
from trimtab.api.scalars import parse_duration
from trimtab.api.scheduler_policy import SchedulerPolicy
from trimtab.api.schema import FieldError
from trimtab.api.taint_manager import TAINT_AND_EVICT, NodeLifecycle, TaintManager
from trimtab.disruption.settings_conflicts import settings_conflict
from trimtab.kube import verbs
from trimtab.kube.api import Api, ApiError, Forbidden, NotFound, Unreachable
from trimtab.kube.errors import InputError
from trimtab.kube.resources import (
    CLUSTER_AUTOSCALERS,
    DAEMON_SETS,
    DESCHEDULER_POLICIES,
    MACHINE_AUTOSCALERS,
    NAMESPACES,
    NODE_PRESSURE_POLICIES,
    PRIORITY_CLASSES,
    SCHEDULER_POLICIES,
    Resource,
)

log = logging.getLogger(__name__)

KINDS: Final[Mapping[str, DecodableKind]] = {
    kind.name: kind
    for kind in (
        POLICY,
        CLUSTER_AUTOSCALER,
        MACHINE_AUTOSCALER,
        NODE_PRESSURE_POLICY,
        PLACEMENT_ADMISSION,
        SCHEDULER_POLICY,
        TAINT_MANAGER,
    )
}
"""The kinds that are reviewed, by name."""

SHORT_COOLDOWN: Final = 60
SHORT_UNNEEDED_TIME: Final = 60.0
DEFAULT_SCHEDULER: Final = "default-scheduler"

Findings = Iterator[FieldError]


class PolicyConflict(Protocol):
    """Policies that would undo each other's evictions."""

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the policies."""
        ...

    @property
    def message(self) -> str:
        """Return a description of the strategies and of the reason why they conflict."""
        ...


FindConflicts = Callable[[Sequence[DeschedulerPolicy]], Iterable[PolicyConflict]]
"""Returns the conflicts among policies that are not suspended: ``descheduling.policy_conflicts.conflicts``."""


class ThresholdConflict(Protocol):
    """A threshold that has no effect, because the kubelet or a hard threshold is met no later."""

    @property
    def message(self) -> str:
        """Return the values that were compared."""
        ...


FindThresholdConflicts = Callable[[NodePressurePolicy], Iterable[ThresholdConflict]]
"""Returns the thresholds of a policy that have no effect on any node: ``pressure.assignment.threshold_conflicts``."""


def _no_conflicts(policies: Sequence[DeschedulerPolicy]) -> Iterable[PolicyConflict]:
    del policies
    return ()


def _no_threshold_conflicts(policy: NodePressurePolicy) -> Iterable[ThresholdConflict]:
    del policy
    return ()


class OtherObjects(Struct, frozen=True, kw_only=True):
    """The objects of the cluster with which a resource is compared.

    Objects that are being deleted are omitted.

    Attributes:
        priority_classes: the names of the PriorityClasses; ``None`` if they could not be listed. Then no policy is
            refused because of a missing PriorityClass.
        policies: all valid DeschedulerPolicies.
        machine_autoscalers: all valid MachineAutoscalers.
        scheduler_policies: all valid SchedulerPolicies.
        pressure_policies: all valid NodePressurePolicies.
        cluster_autoscaler: the ClusterAutoscaler named default; ``None`` if there is none or if it is invalid.
        daemon_sets: namespaces and then DaemonSets, for the audit of a PlacementAdmission.
        daemon_sets_complete: whether these are all of them.
        find_conflicts: returns the conflicts among policies.
        find_threshold_conflicts: returns the thresholds of a NodePressurePolicy that have no effect.
    """

    priority_classes: Collection[str] | None = None
    policies: Sequence[DeschedulerPolicy] = ()
    machine_autoscalers: Sequence[MachineAutoscaler] = ()
    scheduler_policies: Sequence[SchedulerPolicy] = ()
    pressure_policies: Sequence[NodePressurePolicy] = ()
    cluster_autoscaler: ClusterAutoscaler | None = None
    daemon_sets: Sequence[AuditedObject] = ()
    daemon_sets_complete: bool = True
    find_conflicts: FindConflicts = _no_conflicts
    find_threshold_conflicts: FindThresholdConflicts = _no_threshold_conflicts

    @classmethod
    def of(
        cls,
        objects: Iterable[Mapping[str, Any]],
        *,
        priority_classes: Collection[str] | None = None,
        daemon_sets: Sequence[AuditedObject] = (),
        daemon_sets_complete: bool = True,
        find_conflicts: FindConflicts = _no_conflicts,
        find_threshold_conflicts: FindThresholdConflicts = _no_threshold_conflicts,
    ) -> OtherObjects:
        """Decode trimtab's own resources. Invalid objects and those being deleted are omitted.

        Args:
            objects: own resources of any kind, as the API server returns them, with ``kind`` and ``apiVersion``.
            priority_classes: see :class:`OtherObjects`.
            daemon_sets: see :class:`OtherObjects`.
            daemon_sets_complete: see :class:`OtherObjects`.
            find_conflicts: see :class:`OtherObjects`.
            find_threshold_conflicts: see :class:`OtherObjects`.
        """
        found: dict[str, list[Any]] = {kind: [] for kind in KINDS}
        for each in objects:
            kind = KINDS.get(str(each.get("kind")))
            value = None if kind is None or _is_being_deleted(each) else read_object(each, kind)[0]
            if kind is not None and value is not None and not kind.check(value):
                found[kind.name].append(value)
        autoscalers = found[cluster_autoscaler.KIND]
        return cls(
            priority_classes=priority_classes,
            policies=tuple(found[descheduler_policy.KIND]),
            machine_autoscalers=tuple(found[machine_autoscaler.KIND]),
            scheduler_policies=tuple(found[scheduler_policy.KIND]),
            pressure_policies=tuple(found[node_pressure_policy.KIND]),
            cluster_autoscaler=autoscalers[0] if autoscalers else None,
            daemon_sets=daemon_sets,
            daemon_sets_complete=daemon_sets_complete,
            find_conflicts=find_conflicts,
            find_threshold_conflicts=find_threshold_conflicts,
        )


class OwnResourceReview(Struct, frozen=True):
    """The result of a review.

    Attributes:
        errors: reasons to refuse the request; empty if it is admitted.
        warnings: warnings for the client.
    """

    errors: tuple[FieldError, ...] = ()
    warnings: tuple[FieldError, ...] = ()


ADMITTED: Final = OwnResourceReview()


def review_own_resource(
    kind: str, new: Mapping[str, Any] | None, old: Mapping[str, Any] | None, existing: OtherObjects
) -> OwnResourceReview:
    """Validate a resource against its rules and against the other objects of the cluster.

    Deletions, updates of an object that is being deleted, and updates that leave the spec unchanged (such as those of
    the status, labels or finalizers) are always admitted, without warnings.

    Args:
        kind: kind of the object. Kinds that are not in :data:`KINDS` are admitted.
        new: the object after the request; ``None`` for a deletion.
        old: the object before the request; ``None`` for a creation.
        existing: the other objects. It may also contain the object itself.
    """
    decodable = KINDS.get(kind)
    if decodable is None or new is None or _is_being_deleted(new) or (old and new.get("spec") == old.get("spec")):
        return ADMITTED
    value, invalid = read_object(new, decodable)
    if value is None:
        # The API server has validated the object against its schema, which may be newer than this process while the
        # operator is upgraded, so that a refusal would be wrong.
        return OwnResourceReview(warnings=invalid)
    errors = tuple(_errors(value, decodable, existing))
    previous = read_object(old, decodable)[0] if old else None
    known = frozenset(() if previous is None else _errors(previous, decodable, existing))
    warnings = (*(each for each in errors if each in known), *_warnings(value, existing))
    return OwnResourceReview(tuple(each for each in errors if each not in known), tuple(dict.fromkeys(warnings)))


def _is_being_deleted(manifest: Mapping[str, Any]) -> bool:
    metadata = manifest.get("metadata")
    return isinstance(metadata, Mapping) and bool(metadata.get("deletionTimestamp"))


def _errors(value: Any, kind: DecodableKind, existing: OtherObjects) -> Findings:
    yield from kind.check(value)
    match value:
        case DeschedulerPolicy():
            yield from _unknown_priority_class(value, existing)
            yield from _policy_conflicts(value, existing)


def _warnings(value: Any, existing: OtherObjects) -> Findings:
    match value:
        case DeschedulerPolicy():
            yield from _policy_warnings(value, existing)
        case ClusterAutoscaler():
            yield from _autoscaler_warnings(value, existing)
        case MachineAutoscaler():
            yield from _target_owners(value, existing)
            yield from _machine_autoscaler_warnings(value, existing)
        case SchedulerPolicy():
            yield from _scheduler_names(value, existing)
            yield from _scheduler_warnings(value)
        case TaintManager():
            yield from _taint_manager_warnings(value)
        case NodePressurePolicy():
            yield from _pressure_warnings(value, existing)
        case PlacementAdmission():
            yield from _admission_warnings(value.spec)
            yield from _stranded_daemon_sets(value.spec, existing)


# --- DeschedulerPolicy -----------------------------------------------------------------------------------------------


def _unknown_priority_class(policy: DeschedulerPolicy, existing: OtherObjects) -> Findings:
    threshold = policy.spec.priority_threshold
    if threshold is None or not threshold.name or existing.priority_classes is None:
        return
    if threshold.name not in existing.priority_classes:
        message = f'there is no PriorityClass "{threshold.name}", so the policy would evict no pod'
        yield FieldError("spec.priorityThreshold.name", message)


def _policy_conflicts(policy: DeschedulerPolicy, existing: OtherObjects) -> Findings:
    if policy.spec.suspend:
        return
    others = [each for each in existing.policies if each.name != policy.name and not each.spec.suspend]
    for conflict in existing.find_conflicts((*others, policy)):
        if policy.name in conflict.names:
            named = sorted(conflict.names - {policy.name})
            remedy = f"; suspend DeschedulerPolicy {' and '.join(named)} first" if named else ""
            yield FieldError("spec.strategies", f"{conflict.message}{remedy}")


def _policy_warnings(policy: DeschedulerPolicy, existing: OtherObjects) -> Findings:
    spec = policy.spec
    if spec.suspend:
        return
    limits = spec.limits
    bounded = (limits.per_cycle, limits.per_node, limits.per_namespace, limits.per_owner)
    if spec.mode == "Act" and not any(bounded):
        yield FieldError(
            "spec.limits",
            f"mode Act without a limit per cycle, node, namespace or owner: up to {limits.per_minute} pods a minute "
            "are evicted until the plan is done",
        )
    cooldown = spec.cooldown
    if parse_duration(cooldown.initial) < SHORT_COOLDOWN:
        yield FieldError(
            "spec.cooldown.initial",
            f"{cooldown.initial} is shorter than a pod usually needs to start, so pods that cannot be moved are "
            "evicted again and again",
        )
    if parse_duration(cooldown.maximum) < parse_duration(cooldown.initial):
        message = f"{cooldown.maximum} is shorter than initial, {cooldown.initial}, so initial has no effect"
        yield FieldError("spec.cooldown.maximum", message)
    if "SystemNamespaces" in spec.protections.disabled and not spec.namespaces.include:
        message = "SystemNamespaces is disabled and namespaces.include is empty: pods in kube-system may be evicted"
        yield FieldError("spec.protections.disabled", message)
    if existing.cluster_autoscaler is not None:
        conflict = settings_conflict(policy, existing.cluster_autoscaler)
        if conflict is not None:
            yield FieldError("spec.strategies", f"ClusterAutoscaler {conflict.autoscaler}: {conflict.why}")


# --- autoscalers -----------------------------------------------------------------------------------------------------


def _target_of(reference: ScaleTargetRef) -> tuple[str, str, str]:
    """Return API group, kind and name. Two versions of an API serve the same objects."""
    return reference.api_version.partition("/")[0], reference.kind, reference.name


def _target_owners(autoscaler: MachineAutoscaler, existing: OtherObjects) -> Findings:
    """Not an error, because tools rename an object by creating the new one first. The controller handles it."""
    target = autoscaler.spec.scale_target_ref
    for other in sorted(existing.machine_autoscalers, key=lambda each: each.key):
        same_namespace = other.metadata.namespace == autoscaler.metadata.namespace
        if other.key == autoscaler.key or not same_namespace:
            continue
        if _target_of(other.spec.scale_target_ref) == _target_of(target):
            message = (
                f"the MachineAutoscaler {other.key} already scales {target.kind} {target.name}. Its limits apply until "
                "it is deleted"
            )
            yield FieldError("spec.scaleTargetRef", message)
            return


def _machine_autoscaler_warnings(autoscaler: MachineAutoscaler, existing: OtherObjects) -> Findings:
    spec, cluster = autoscaler.spec, existing.cluster_autoscaler
    if cluster is None:
        yield FieldError("", "there is no ClusterAutoscaler named default, so no node group is scaled")
    if spec.min_replicas == spec.max_replicas:
        message = f"equals minReplicas, {spec.min_replicas}, so the node group is never scaled"
        yield FieldError("spec.maxReplicas", message)
    others = (each for each in existing.machine_autoscalers if each.key != autoscaler.key)
    yield from _total_warnings("spec.maxReplicas", cluster, (*others, autoscaler))


def _autoscaler_warnings(autoscaler: ClusterAutoscaler, existing: OtherObjects) -> Findings:
    spec, scale_down = autoscaler.spec, autoscaler.spec.scaling_down
    if not spec.resource_limits.max_nodes_total:
        message = "is unset, so only the maximum sizes of the node groups limit the number of nodes"
        yield FieldError("spec.resourceLimits.maxNodesTotal", message)
    yield from _total_warnings("spec.resourceLimits.maxNodesTotal", autoscaler, existing.machine_autoscalers)
    if scale_down.enabled and scale_down.unneeded_seconds < SHORT_UNNEEDED_TIME:
        yield FieldError(
            "spec.scaleDown.unneededTime",
            f"{scale_down.unneeded_seconds:g} s is shorter than a node usually needs to start, so nodes may be removed "
            "and added again and again",
        )
    if spec.pod_priority_threshold > 0:
        yield FieldError(
            "spec.podPriorityThreshold",
            f"{spec.pod_priority_threshold} is above 0, the priority of pods without a PriorityClass: no node is added "
            "for them, and they do not prevent the removal of their node",
        )
    for policy in sorted(existing.policies, key=lambda each: each.name):
        conflict = settings_conflict(policy, autoscaler)
        if conflict is not None:
            yield FieldError("spec.scaleDown", f"DeschedulerPolicy {conflict.policy}: {conflict.why}")


def _total_warnings(
    field: str, cluster: ClusterAutoscaler | None, autoscalers: Iterable[MachineAutoscaler]
) -> Findings:
    limit = cluster.spec.resource_limits.max_nodes_total if cluster is not None else None
    total = sum(each.spec.max_replicas for each in autoscalers)
    if limit and total > limit:
        yield FieldError(
            field,
            f"the maximum sizes of all MachineAutoscalers add up to {total}, but the ClusterAutoscaler permits "
            f"{limit} nodes (maxNodesTotal), including those outside of node groups",
        )


# --- schedulers and taints -------------------------------------------------------------------------------------------


def _scheduler_names(policy: SchedulerPolicy, existing: OtherObjects) -> Findings:
    """Not an error, because tools rename an object by creating the new one first. The scheduler handles it."""
    name = policy.spec.scheduler_name
    for other in sorted(existing.scheduler_policies, key=lambda each: each.name):
        if other.name != policy.name and other.spec.scheduler_name == name:
            message = (
                f"SchedulerPolicy {other.name} already has schedulerName {name}. The older policy applies until it is "
                "deleted"
            )
            yield FieldError("spec.schedulerName", message)
            return


def _scheduler_warnings(policy: SchedulerPolicy) -> Findings:
    if policy.spec.scheduler_name == DEFAULT_SCHEDULER:
        message = f"kube-scheduler also handles {DEFAULT_SCHEDULER}; stop it, or both schedule the same pods"
        yield FieldError("spec.schedulerName", message)


def _taint_manager_warnings(manager: TaintManager) -> Findings:
    if manager.spec.mode == TAINT_AND_EVICT:
        yield FieldError(
            "spec.mode",
            f"{TAINT_AND_EVICT} requires that the node-lifecycle-controller and taint-eviction-controller of "
            "kube-controller-manager are disabled",
        )
    elif manager.spec.node_lifecycle != NodeLifecycle():
        yield FieldError("spec.nodeLifecycle", f"has no effect in mode {manager.spec.mode}")


# --- NodePressurePolicy ----------------------------------------------------------------------------------------------


def _pressure_warnings(policy: NodePressurePolicy, existing: OtherObjects) -> Findings:
    others = sorted(existing.pressure_policies, key=lambda each: each.name)
    for other in others:
        if other.name < policy.name and includes(other.spec.node_selector, policy.spec.node_selector):
            # Not an error, because tools rename an object by creating the new one first.
            message = (
                f"NodePressurePolicy {other.name}, whose name sorts first, handles all nodes that this policy selects, "
                "so this policy has no effect"
            )
            yield FieldError("spec.nodeSelector", message)
            return
    for other in others:
        if other.name == policy.name or contradict(other.spec.node_selector, policy.spec.node_selector):
            continue
        first, second = sorted((policy.name, other.name))
        message = (
            f"NodePressurePolicy {other.name} may select the same nodes. {first}, whose name sorts first, handles "
            f"them, and {second} does not"
        )
        yield FieldError("spec.nodeSelector", message)
    for conflict in existing.find_threshold_conflicts(policy):
        yield FieldError("spec", conflict.message)


# --- PlacementAdmission ----------------------------------------------------------------------------------------------


def _admission_warnings(spec: PlacementAdmissionSpec) -> Findings:
    refusing = {
        "podNodeConstraints": spec.pod_node_constraints,
        "podTolerationRestriction": spec.pod_toleration_restriction,
        "dedicatedNodes": spec.dedicated_nodes,
    }
    others = (
        spec.pod_node_selector,
        spec.default_toleration_seconds,
        spec.extended_resource_toleration,
        spec.special_hardware,
    )
    if not any((*refusing.values(), *others)):
        yield FieldError("spec", "has no rule, so no pod is changed or refused")
    for name, rule in refusing.items():
        if rule is not None and rule.failure_policy == "Ignore":
            yield FieldError(
                f"spec.{name}.failurePolicy",
                "Ignore: while no webhook responds, pods that the rule would refuse are admitted",
            )
    yield from _whitelist_warnings(spec)
    yield from _toleration_warnings(spec)
    yield from _pool_warnings(spec)


def _stranded_daemon_sets(spec: PlacementAdmissionSpec, existing: OtherObjects) -> Findings:
    """Warn of existing DaemonSets to whose pods a node selector is added that their controller does not consider."""
    if spec.pod_node_selector is None:
        return
    audit = Audit([PodNodeSelectorRule(spec.pod_node_selector)], exempt=spec.exempt_namespaces)
    for each in existing.daemon_sets:
        audit.add(each)
    found = [f"{each.namespace}/{each.name}" for each in audit.result().kept if each.reason == ADMISSION_WARNED]
    if found:
        yield FieldError(
            "spec.podNodeSelector",
            f"kubelets would reject pods of {plural(len(found), 'DaemonSet')} again and again, because their pod "
            f"templates lack the node selector of their namespaces: {named(found)}. Set exemptDaemonSetPods, or add "
            "the labels to the pod templates",
        )
    if not existing.daemon_sets_complete:
        yield FieldError(
            "spec.podNodeSelector",
            "the check for DaemonSets whose pods kubelets would reject is incomplete, because not all namespaces and "
            "DaemonSets could be listed. To check them, run trimtab plan --policy with this PlacementAdmission",
        )


def _whitelist_warnings(spec: PlacementAdmissionSpec) -> Findings:
    """Warn of whitelists that refuse every pod of a namespace without its own node selector."""
    rule = spec.pod_node_selector
    if rule is None:
        return
    default = parse_node_selector(rule.cluster_default_node_selector)
    for namespace, text in sorted(rule.namespace_whitelists.items()):
        field = f"spec.podNodeSelector.namespaceWhitelists.{namespace}"
        whitelist = parse_node_selector(text)
        missing = sorted(f"{key}={value}" for key, value in default.items() if whitelist.get(key) != value)
        if whitelist and missing:
            yield FieldError(
                field,
                f"does not contain {', '.join(missing)} of clusterDefaultNodeSelector, so every pod in the namespace "
                "is refused unless an annotation of the namespace sets another node selector",
            )
        if namespace in spec.exempt_namespaces:
            yield FieldError(field, f"has no effect, because {namespace} is in exemptNamespaces")


def _toleration_warnings(spec: PlacementAdmissionSpec) -> Findings:
    """Warn of whitelists that refuse every pod of a namespace without its own whitelist."""
    rule = spec.pod_toleration_restriction
    if rule is None or not rule.tolerations_whitelist:
        return
    whitelist = [_toleration(each) for each in rule.tolerations_whitelist]
    field = "spec.podTolerationRestriction"
    for index, default in enumerate(rule.default_tolerations):
        if not is_covered(_toleration(default), whitelist):
            message = "is not permitted by tolerationsWhitelist, so every pod with it is refused"
            yield FieldError(f"{field}.defaultTolerations[{index}]", message)
    missing = sorted(each.key for each in api_server_defaults(None) if not is_covered(each, whitelist))
    if missing and not rule.allow_api_server_defaults:
        yield FieldError(
            f"{field}.tolerationsWhitelist",
            f"does not permit the tolerations of {' and '.join(missing)} that kube-apiserver adds to pods without "
            "them, so these pods are refused; set allowApiServerDefaults",
        )


def _toleration(toleration: PodToleration) -> Toleration:
    return Toleration(
        toleration.key, toleration.operator, toleration.value, toleration.effect, toleration.toleration_seconds
    )


def _pool_warnings(spec: PlacementAdmissionSpec) -> Findings:
    pools = spec.dedicated_nodes.pools if spec.dedicated_nodes is not None else ()
    classes = spec.special_hardware.classes if spec.special_hardware is not None else ()
    for index, pool in enumerate(pools):
        field = f"spec.dedicatedNodes.pools[{index}]"
        exempt = sorted({*pool.namespaces} & {*spec.exempt_namespaces})
        if exempt:
            message = f"{', '.join(exempt)}: no rule applies, because exemptNamespaces contains the namespace"
            yield FieldError(f"{field}.namespaces", message)
        for each in classes:
            if each.taint == pool.taint:
                yield FieldError(
                    f"{field}.taint",
                    f"is also the taint of the hardware class {each.name}: pods outside the pool that use the hardware "
                    "get a toleration of the taint, and are refused because of that toleration",
                )


# --- reading the other objects ---------------------------------------------------------------------------------------

COMPARED: Final[Mapping[str, tuple[Resource, ...]]] = {
    descheduler_policy.KIND: (DESCHEDULER_POLICIES, CLUSTER_AUTOSCALERS, PRIORITY_CLASSES),
    cluster_autoscaler.KIND: (DESCHEDULER_POLICIES, MACHINE_AUTOSCALERS),
    machine_autoscaler.KIND: (MACHINE_AUTOSCALERS, CLUSTER_AUTOSCALERS),
    scheduler_policy.KIND: (SCHEDULER_POLICIES,),
    node_pressure_policy.KIND: (NODE_PRESSURE_POLICIES,),
}
"""The resources with which an object is compared, by its kind."""

READ_TIMEOUT: Final = 1.5
"""Seconds for all lists of a review together; less than the timeout of the webhook."""

AUDITED_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of the namespaces and DaemonSets that a review reads. Tenants decide how large their objects are."""

AUDITED_PAGE: Final = 100
"""Number of namespaces or DaemonSets per request. A page that exceeds :data:`AUDITED_BYTES` is not used."""


class OwnResourceReviewer:
    """Reviews objects of trimtab's own kinds.

    Args:
        api: the API server.
        find_conflicts: see :class:`OtherObjects`.
        find_threshold_conflicts: see :class:`OtherObjects`.
    """

    def __init__(
        self,
        api: Api,
        find_conflicts: FindConflicts = _no_conflicts,
        find_threshold_conflicts: FindThresholdConflicts = _no_threshold_conflicts,
    ) -> None:
        self._api = api
        self._find_conflicts = find_conflicts
        self._find_threshold_conflicts = find_threshold_conflicts

    async def review(self, request: WireRequest) -> OwnResourceReview:
        """Review the object of a request.

        Raises:
            ApiError: an object could not be read.
            Unreachable: there was no response.
            InputError: the object cannot be decoded.
        """
        new, old = _object(request.object), _object(request.old_object)
        kind = request.kind.kind
        compared = COMPARED.get(kind, ())
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                listed = dict(zip(compared, await asyncio.gather(*map(self._list, compared)), strict=True))
        except TimeoutError as error:
            raise Unreachable(f"the other objects could not be listed within {READ_TIMEOUT} s") from error
        classes = listed.pop(PRIORITY_CLASSES, None)
        audited: list[AuditedObject] = []
        complete = True
        if kind == placement_admission.KIND and ((new or {}).get("spec") or {}).get("podNodeSelector") is not None:
            complete = await self._list_audited(audited)
        existing = OtherObjects.of(
            (each for items in listed.values() for each in items or ()),
            priority_classes=None if classes is None else {str(each["metadata"]["name"]) for each in classes},
            daemon_sets=audited,
            daemon_sets_complete=complete,
            find_conflicts=self._find_conflicts,
            find_threshold_conflicts=self._find_threshold_conflicts,
        )
        return review_own_resource(kind, new, old, existing)

    async def _list(self, resource: Resource) -> list[dict[str, Any]] | None:
        """List the objects of a resource; ``None`` if it is not served or forbidden."""
        try:
            found = await verbs.list_objects(self._api, resource, timeout=READ_TIMEOUT)
        except (NotFound, Forbidden) as error:
            log.debug(
                "Failed to list %s; processing the admission request without these objects: %s", resource.plural, error
            )
            return None
        return [{**each, "kind": resource.kind, "apiVersion": resource.api_version} for each in found.items]

    async def _list_audited(self, found: list[AuditedObject]) -> bool:
        """List namespaces, then DaemonSets, and return whether these are all of them.

        Only a warning depends on them. Therefore no failure to list them fails the review.
        """
        left = AUDITED_BYTES
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                for resource in (NAMESPACES, DAEMON_SETS):
                    token: str | None = ""
                    while token is not None:
                        content = await self._read_page(resource, token, left)
                        left -= len(content)
                        page = _page(content)
                        found += [decode(resource.kind, each) for each in page.items or ()]
                        token = page.metadata.continue_ or None
        except (ApiError, Unreachable, InputError, TimeoutError) as error:
            log.debug("Failed to list namespaces and DaemonSets for an admission request: %s", error)
            if resource is NAMESPACES:  # the node selectors of namespaces are unknown
                found.clear()
            return False
        return True

    async def _read_page(self, resource: Resource, token: str, most: int) -> bytes:
        """Read a page of a list.

        Raises:
            InputError: the page has more than ``most`` bytes.
        """
        params = {"limit": str(AUDITED_PAGE)} | ({"continue": token} if token else {})
        content = bytearray()
        async with self._api.stream(resource.path(), params=params, idle_timeout=READ_TIMEOUT) as chunks:
            async for chunk in chunks:
                content += chunk
                if len(content) > most:
                    raise InputError(f"the {resource.plural} exceed {AUDITED_BYTES} bytes")
        return bytes(content)


class _ListMetadata(Struct, frozen=True):
    continue_: str = msgspec.field(default="", name="continue")


class _Page(Struct, frozen=True):
    items: tuple[msgspec.Raw, ...] | None = None
    metadata: _ListMetadata = _ListMetadata()


_page_decoder: Final = msgspec.json.Decoder(_Page)


def _page(content: bytes) -> _Page:
    try:
        return _page_decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"not a list: {error}") from error


def _object(raw: msgspec.Raw) -> Mapping[str, Any] | None:
    """Decode the object of a request; ``None`` if there is none.

    Raises:
        InputError: it is not an object.
    """
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"invalid object: {error}") from error
    if found is not None and not isinstance(found, dict):
        raise InputError("invalid object: not a mapping")
    return found
