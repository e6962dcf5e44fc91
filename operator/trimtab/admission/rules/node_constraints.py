"""PodNodeConstraints: users who may not create pods/binding may not select the node of a pod either.

Source: OpenShift 3.11, ``pkg/scheduler/admission/podnodeconstraints``, with its resources, operations and messages. The
plugin checks ``spec.nodeName`` and the keys of ``spec.nodeSelector``, in pods when they are created and in pod
templates when they are created or updated, except those of DaemonSets. ``additionalChecks`` add checks of the other
ways to select a node. All refusals depend on a SubjectAccessReview for the user of the request.

**Users.** The plugin trusts no user by name: controllers need the permission like all other users. With
Kubernetes' own RBAC rules the DaemonSet controller may create pods/binding and the ReplicaSet controller may not. So a
pod with a blacklisted label is refused even if its template is older than the rule, and an administrator who wants
Deployments with such labels must grant pods/binding to the controllers of Deployments and ReplicaSets. The rule warns
about that when the template is written.

The additional checks trust kube-controller-manager (:mod:`trimtab.admission.users`), because they have checked the
template when its author wrote it. Otherwise they would refuse the node affinity for ``metadata.name`` that the
DaemonSet controller adds, and the tolerations that DedicatedNodes adds to the templates of authors in its groups.

**Other rules.** Node selectors, node affinity and tolerations that another rule adds to such a pod are permitted, even
if the user writes them. The same applies to the tolerations that kube-apiserver adds to nearly every pod.

**Updates of workloads** that do not change the pod template are not checked, unlike in OpenShift. Refusing them would
only prevent users from scaling the workload down or removing its finalizers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.admission.requests import (
    CREATE,
    DAEMON_SET,
    TEMPLATE_PATHS,
    Affinity,
    Attributes,
    NodeTerm,
    PodSpec,
    Requirement,
    Toleration,
)
from trimtab.admission.rules import AdmissionRule, Refusal, RuleDefaults
from trimtab.admission.tolerations import EXISTS, MAX_TOLERATIONS, TOO_MANY, new_tolerations
from trimtab.admission.users import is_workload_controller
from trimtab.api.placement_admission import (
    DAEMON_SETS,
    EPHEMERAL_CONTAINERS,
    GATED_POD_UPDATES,
    NODE_AFFINITY,
    POD_NODE_CONSTRAINTS,
    TOLERATIONS,
    TOPOLOGY_KEYS,
    FailurePolicy,
    PodNodeConstraints,
    ProtectedTaint,
    RuleName,
)
from trimtab.kube.objects.node import Taint
from trimtab.kube.rules.taints import NO_SCHEDULE, tolerates

METADATA_NAME: Final = "metadata.name"
"""The field of a node that ``matchFields`` of a node affinity can select."""

BY_NODE_NAME: Final = "node selection by nodeName is prohibited by policy for your role"
BY_LABELS: Final = "node selection by label(s) [{}] is prohibited by policy for your role"
BY_NODE_NAME_AND_LABELS: Final = "node selection by nodeName and label(s) [{}] is prohibited by policy for your role"
"""The messages of OpenShift's plugin."""
BY_AFFINITY: Final = "node selection by node affinity for [{}] is prohibited by policy for your role"
BY_TOPOLOGY: Final = "node selection by topology key(s) [{}] is prohibited by policy for your role"
BY_TOLERATIONS: Final = "toleration of protected taint(s) [{}] is prohibited by policy for your role"
EPHEMERAL: Final = "ephemeral containers are prohibited by policy for your role, because you could not create the pod: "

_CONTROLLED: Final = frozenset(kind for _, kind in TEMPLATE_PATHS) - {DAEMON_SET, "PodTemplate"}
"""Workloads whose pods are created by controllers that may not create pods/binding by default."""


class _Selection(Struct, frozen=True):
    """The parts of a pod spec that select nodes in a restricted way.

    Attributes:
        node_name: whether ``spec.nodeName`` is set.
        labels: the items of the node selector with blacklisted keys.
        requirements: the requirements of the node affinity for blacklisted keys or the name of the node.
        tolerations: the tolerations of protected taints.
        topology_keys: the blacklisted labels by whose values nodes are grouped for pod affinity, pod anti-affinity or
            topology spread constraints.
    """

    node_name: bool = False
    labels: frozenset[tuple[str, str]] = frozenset()
    requirements: frozenset[Requirement] = frozenset()
    tolerations: frozenset[Toleration] = frozenset()
    topology_keys: frozenset[str] = frozenset()

    def __sub__(self, other: _Selection) -> _Selection:
        return _Selection(
            node_name=self.node_name and not other.node_name,
            labels=self.labels - other.labels,
            requirements=self.requirements - other.requirements,
            tolerations=self.tolerations - other.tolerations,
            topology_keys=self.topology_keys - other.topology_keys,
        )

    def __bool__(self) -> bool:
        return bool(self.node_name or self.labels or self.requirements or self.tolerations or self.topology_keys)


class PodNodeConstraintsRule(RuleDefaults):
    """Refuses pods and pod templates that select nodes, unless their user may create pods/binding.

    Args:
        block: the configuration of the rule.
        others: the other rules, whose additions to pods are permitted.
        api_server_defaults: the tolerations that kube-apiserver itself adds to pods.
    """

    def __init__(
        self,
        block: PodNodeConstraints,
        others: Sequence[AdmissionRule] = (),
        api_server_defaults: Collection[Toleration] = (),
    ) -> None:
        self._blacklist = frozenset(block.node_selector_label_blacklist)
        self._checks = frozenset(block.additional_checks)
        self._protected = block.protected_taints
        self._others = others
        self._api_server_defaults = api_server_defaults
        self.name: RuleName = POD_NODE_CONSTRAINTS
        self.failure_policy: FailurePolicy = block.failure_policy

    def mutate(self, _request: Attributes, spec: PodSpec) -> PodSpec:
        """Change nothing."""
        return spec

    def validate(self, request: Attributes) -> Iterator[Refusal]:
        """Return a refusal for each restricted way in which the user of the request selects nodes."""
        try:
            selection = self._selected_by_user(request)
        except Refusal as refusal:
            yield refusal
            return
        if selection:
            selection -= self._added_by_others(request)
        prefix = EPHEMERAL if request.subresource else ""
        for message in self._messages(selection):
            yield Refusal(prefix + message, unless_may_bind=True)

    def warnings(self, request: Attributes) -> Iterator[str]:
        """Warn a user who may select nodes, but whose pods are created by a controller that may not."""
        if request.kind not in _CONTROLLED or is_workload_controller(request.user):
            return
        spec = _without_additional(request.pod.spec)
        if not request.same_template and self._selection(request, spec) - self._added_by_others(request):
            yield (
                f"pods of this {request.kind} will be refused, unless the controllers that create them may create "
                f"pods/binding in namespace {request.namespace.name}, because they select nodes by name or label"
            )

    def _selected_by_user(self, request: Attributes) -> _Selection:
        spec = request.pod.spec
        if request.subresource:
            # The scheduler has set the node name.
            ignored = EPHEMERAL_CONTAINERS not in self._checks
            return _Selection() if ignored else self._selection(request, replace(spec, node_name=""))
        if not request.is_pod:
            ignored = request.same_template or (request.kind == DAEMON_SET and DAEMON_SETS not in self._checks)
            return _Selection() if ignored else self._selection(request, spec)
        if request.operation == CREATE:
            return self._selection(request, spec)
        if request.old is None:
            return _Selection()
        # The API server permits updates to add tolerations, and to change the rest while a pod has scheduling gates.
        old = replace(request.old.spec, tolerations=None)
        new = replace(spec, tolerations=new_tolerations(request) if TOLERATIONS in self._checks else None)
        if GATED_POD_UPDATES not in self._checks or not old.scheduling_gates:
            return _Selection(tolerations=self._selection(request, new).tolerations)
        added = self._selection(request, new) - self._selection(request, old)
        if NODE_AFFINITY not in self._checks or is_workload_controller(request.user):
            return added
        # Adding the requirement of one term to another term also narrows the selection, so duplicates count.
        return replace(added, requirements=frozenset(Counter(self._restricted(new)) - Counter(self._restricted(old))))

    def _selection(self, request: Attributes, spec: PodSpec) -> _Selection:
        """Return the parts of a pod spec that are restricted for the user of a request.

        Raises:
            Refusal: there are too many tolerations to check.
        """
        node_name = bool(spec.node_name)
        labels = frozenset((key, value) for key, value in (spec.node_selector or {}).items() if key in self._blacklist)
        if is_workload_controller(request.user):
            return _Selection(node_name, labels)
        requirements: frozenset[Requirement] = frozenset()
        if NODE_AFFINITY in self._checks:
            requirements = frozenset(self._restricted(spec))
        tolerations: frozenset[Toleration] = frozenset()
        if TOLERATIONS in self._checks and spec.tolerations:
            if len(spec.tolerations) > MAX_TOLERATIONS:
                raise Refusal(TOO_MANY, unless_may_bind=True)
            chosen = (each for each in spec.tolerations if each not in self._api_server_defaults)
            tolerations = frozenset(each for each in chosen if any(self._tolerated_by(each)))
        topology_keys: frozenset[str] = frozenset()
        if TOPOLOGY_KEYS in self._checks:
            topology_keys = self._blacklist.intersection(_topology_keys(spec))
        return _Selection(node_name, labels, requirements, tolerations, topology_keys)

    def _restricted(self, spec: PodSpec) -> Iterator[Requirement]:
        """Yield requirements for blacklisted labels, whatever the operator, and for the name of the node."""
        for term in _terms(spec):
            yield from (each for each in term.match_expressions or () if each.key in self._blacklist)
            yield from (each for each in term.match_fields or () if each.key == METADATA_NAME)

    def _tolerated_by(self, toleration: Toleration) -> Iterator[ProtectedTaint]:
        """Yield the protected taints that the toleration matches, with at least one value and effect."""
        for taint in self._protected:
            effect = taint.effect or toleration.effect or NO_SCHEDULE
            matched = replace(toleration, operator=EXISTS) if taint.value is None else toleration
            if tolerates(matched, Taint(key=taint.key, value=taint.value or "", effect=effect)):
                yield taint

    def _added_by_others(self, request: Attributes) -> _Selection:
        """Return what other rules would add to the pod if it selected no nodes itself."""
        spec = _without_additional(replace(request.pod.spec, node_selector=None))
        creation = replace(request, operation=CREATE, subresource="", old=None)
        for rule in self._others:
            try:
                spec = rule.mutate(creation, spec)
            except Refusal:
                continue
        return replace(self._selection(request, spec), node_name=False)

    def _messages(self, selection: _Selection) -> Iterator[str]:
        labels = _listed(key for key, _ in selection.labels)
        if selection.node_name:
            yield BY_NODE_NAME_AND_LABELS.format(labels) if labels else BY_NODE_NAME
        elif labels:
            yield BY_LABELS.format(labels)
        if selection.requirements:
            yield BY_AFFINITY.format(_listed(each.key for each in selection.requirements))
        if selection.topology_keys:
            yield BY_TOPOLOGY.format(_listed(selection.topology_keys))
        if selection.tolerations:
            taints = {
                format_protected_taint(taint) for each in selection.tolerations for taint in self._tolerated_by(each)
            }
            yield BY_TOLERATIONS.format(_listed(taints))


def _without_additional(spec: PodSpec) -> PodSpec:
    """Return a pod spec without the fields that only the additional checks consider."""
    return replace(spec, affinity=None, tolerations=None, topology_spread_constraints=None)


def _terms(spec: PodSpec) -> Iterator[NodeTerm]:
    affinity = spec.node_affinity
    yield from (affinity.required and affinity.required.node_selector_terms) or ()
    yield from (each.preference for each in affinity.preferred or ())


def _topology_keys(spec: PodSpec) -> Iterator[str]:
    affinity = spec.affinity or Affinity()
    for each in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if each is not None:
            yield from (term.topology_key for term in each.required or ())
            yield from (weighted.pod_affinity_term.topology_key for weighted in each.preferred or ())
    yield from (each.topology_key for each in spec.topology_spread_constraints or ())


def _listed(names: Iterable[str]) -> str:
    """Return names in the form in which Go prints a list."""
    return " ".join(sorted(set(names)))


def format_protected_taint(taint: ProtectedTaint) -> str:
    """Return ``key=value:effect`` without the parts that are unset."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}" if taint.effect else f"{taint.key}{value}"
