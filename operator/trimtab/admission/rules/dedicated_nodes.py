"""DedicatedNodes: pools of nodes that are reserved for the pods of some groups and namespaces.

The nodes of a pool have a taint and a label. The rule adds a toleration of the taint and a required node affinity for
the label to the pods of the pool, and refuses all other pods that tolerate the taint, by key and value or with a
wildcard. It decides as follows.

**Who belongs to a pool.** By namespace: all pods in the namespace, of all users. By group: the pods and
workloads that a user of the group writes, in any namespace. kube-controller-manager is never a member by group, because
it acts for the authors of pod templates (:mod:`trimtab.admission.users`).

**Several pools.** If a pod belongs to several pools, the rule selects the pool whose label the pod requires; else the
pool whose taint the pod tolerates by key; else the pool to which its namespace belongs; else the first in the list. So
users can select a pool in a pod or in a pod template. Pools with the same label are the same nodes with different
taints, so the rule adds the tolerations of all of them.

**Pod templates.** The rule changes templates when they are created or changed, so that pods that a controller creates
have the toleration too. It does not change templates that kube-controller-manager copies into ReplicaSets and Jobs: the
Deployment controller would no longer recognize its ReplicaSet and would create one after another. The same applies to
every ReplicaSet with a controller (Argo Rollouts). Pods in the namespaces of a pool are always changed when they are
created, except those of DaemonSets, which their controller has created for one node.

**Pods that controllers create.** If a pool has groups, kube-controller-manager may create pods that tolerate its taint,
because the rule has checked the template when its author wrote it. If a pool has only namespaces, its members do not
depend on the user, so these pods are checked like all others. No webhook checks templates that are older than the
pool; ``trimtab plan`` lists them. Pods of DaemonSets may tolerate every taint if kube-controller-manager creates them.

**Updates by others.** A user who is not a member may update a workload of the pool if its pod template stays the same,
byte by byte, for example to scale or annotate it. The user may also update its pods, but may not add a toleration of
the taint, change an image or add an ephemeral container, because the user's code would then run on the nodes. Requests
for ``pods/exec`` do not contain the pod, so only RBAC can restrict them.

**Node names.** The scheduler does not see pods with ``spec.nodeName``, and a kubelet checks only NoExecute taints. So
``spec.nodeName`` is reserved for users who may create pods/binding, and for pods that require the label of their pool,
which kubelets do check.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from trimtab.admission.requests import CREATE, DAEMON_SET, EPHEMERAL_CONTAINERS, Attributes, PodSpec
from trimtab.admission.rules import Refusal, RuleDefaults
from trimtab.admission.tolerations import (
    add_toleration_of,
    has_too_many,
    new_tolerations,
    require_label,
    requires_label,
    tolerations_for,
)
from trimtab.admission.users import is_node, is_workload_controller
from trimtab.api.placement_admission import (
    DEDICATED_NODES,
    DedicatedNodes,
    DedicatedPool,
    FailurePolicy,
    NodeLabel,
    RuleName,
)
from trimtab.kube.rules.taints import NO_SCHEDULE, format_taint

REPLICA_SET: Final = "ReplicaSet"

NODE_NAME_BYPASSES_TAINTS: Final = "spec.nodeName is not allowed, because it bypasses the taints of reserved nodes"


class DedicatedNodesRule(RuleDefaults):
    """Adds toleration and node affinity to the pods of pools, and refuses others that tolerate the taints of pools."""

    def __init__(self, block: DedicatedNodes) -> None:
        self._pools = tuple(map(_Pool, block.pools))
        self.name: RuleName = DEDICATED_NODES
        self.failure_policy: FailurePolicy = block.failure_policy

    def mutate(self, request: Attributes, spec: PodSpec) -> PodSpec:
        """Add toleration and required node affinity of the pool to new pods, and to new and changed templates.

        The pod of the request selects the pool, even if ``spec`` does not: other rules call this with a spec without
        tolerations and affinity, to find out what the rule adds.
        """
        if not _is_changed(request) or has_too_many(spec) or has_too_many(request.pod.spec):
            return spec
        # Nothing is added for the pools that the author of a template has selected: the pod has it already.
        mine = self._chosen_by_author(request, spec, request.pod.spec) or self._pools_of(request)
        if not mine:
            return spec
        label = max(mine, key=lambda pool: pool.preference(request, spec)).label
        for pool in mine:
            if pool.label == label:
                spec = add_toleration_of(spec, pool.taint)
        return require_label(spec, label.key, label.value)

    def validate(self, request: Attributes) -> Iterator[Refusal]:
        """Check the final pod or template, to which other webhooks and rules may have added tolerations."""
        if is_node(request.user) or request.subresource not in ("", EPHEMERAL_CONTAINERS) or request.same_template:
            return
        others = [pool for pool in self._pools if not pool.admits(request)]
        updates_pod = request.is_pod and request.operation != CREATE
        if updates_pod:
            yield from _check_code(request, others)
        if request.subresource:
            return
        try:
            tolerations = new_tolerations(request)
        except Refusal as refusal:
            yield refusal
            return
        for pool in others:
            if tolerations_for(tolerations, pool.taint):
                yield Refusal(pool.tolerated_by(request), unless_may_bind=request.kind == DAEMON_SET)
        if not updates_pod:
            yield from self._check_node_selection(request, others)

    def _check_node_selection(self, request: Attributes, others: Iterable[_Pool]) -> Iterator[Refusal]:
        """Yield refusals of a pool's pod that does not require its label, and of other pods that set spec.nodeName."""
        spec = request.pod.spec
        mine = self._pools_of(request)
        if any(pool.is_required_by(spec) for pool in mine):
            return
        if mine and self._must_select(request):
            yield Refusal(mine[0].not_selected_by(request))
        bypassed = any(pool.taint.effect == NO_SCHEDULE for pool in others)
        if spec.node_name and bypassed and not is_workload_controller(request.user):
            yield Refusal(NODE_NAME_BYPASSES_TAINTS, unless_may_bind=True)

    def warnings(self, request: Attributes) -> Iterator[str]:
        """Warn about a pod that requires the label of its pool and selects another value: no node matches both."""
        spec = request.pod.spec
        for pool in self._pools_of(request):
            selected = (spec.node_selector or {}).get(pool.label.key, pool.label.value)
            if selected != pool.label.value and pool.is_required_by(spec):
                yield pool.excluded_by(request, selected)

    def _pools_of(self, request: Attributes) -> list[_Pool]:
        return [pool for pool in self._pools if pool.has_member(request)]

    def _chosen_by_author(self, request: Attributes, *specs: PodSpec) -> list[_Pool]:
        """Return the pools that the author of a pod template, as a member of a group, has selected for its pods."""
        if not is_workload_controller(request.user):
            return []
        return [pool for pool in self._pools if any(map(pool.is_selected_by, specs))]

    def _must_select(self, request: Attributes) -> bool:
        """Return whether the final object must require the label of a pool.

        A ReplicaSet with a controller must do so only if its pods would not be changed, that is, if its namespace
        belongs to no pool.
        """
        if self._chosen_by_author(request, request.pod.spec):
            return False
        if _is_controlled_replica_set(request):
            return not any(request.namespace.name in pool.namespaces for pool in self._pools)
        return _is_changed(request)


class _Pool:
    """A pool, compiled for checks."""

    def __init__(self, pool: DedicatedPool) -> None:
        self.name = pool.name
        self.taint = pool.taint
        self.groups = frozenset(pool.groups)
        self.namespaces = frozenset(pool.namespaces)
        self.label = pool.node_label or NodeLabel(key=pool.taint.key, value=pool.taint.value)

    def has_member(self, request: Attributes) -> bool:
        if request.namespace.name in self.namespaces:
            return True
        return not self.groups.isdisjoint(request.user.groups) and not is_workload_controller(request.user)

    def admits(self, request: Attributes) -> bool:
        """Return whether pods in the request may tolerate the taint of the pool.

        Only kube-controller-manager's owner references are trusted: pod templates do not contain any.
        """
        if self.has_member(request):
            return True
        return is_workload_controller(request.user) and bool(self.groups or request.of_daemon_set)

    def is_required_by(self, spec: PodSpec) -> bool:
        return requires_label(spec, self.label.key, self.label.value)

    def is_selected_by(self, spec: PodSpec) -> bool:
        return self.is_required_by(spec) and bool(tolerations_for(spec.tolerations or (), self.taint))

    def preference(self, request: Attributes, spec: PodSpec) -> tuple[bool, bool, bool]:
        """Return a sort key. Of several pools, a pod belongs to the first one with the greatest key."""
        specs = (spec, request.pod.spec)
        named = any(each.key for one in specs for each in tolerations_for(one.tolerations or (), self.taint))
        return any(map(self.is_required_by, specs)), named, request.namespace.name in self.namespaces

    def tolerated_by(self, request: Attributes) -> str:
        return f'{request.subject} tolerates the taint {format_taint(self.taint)}, which is reserved for "{self.name}"'

    def not_selected_by(self, request: Attributes) -> str:
        label = f"{self.label.key}={self.label.value}"
        return f'{request.subject} of "{self.name}" must require the node label {label} in its node affinity'

    def excluded_by(self, request: Attributes, selected: str) -> str:
        key, value = self.label.key, self.label.value
        conflict = f"it selects {key}={selected} and requires {key}={value}"
        return f'{request.subject} of "{self.name}" cannot be scheduled: {conflict}'

    def changed_by_other(self, change: str) -> str:
        return f'{change} a pod on the nodes of "{self.name}" is reserved for its groups and namespaces'


def _is_changed(request: Attributes) -> bool:
    """Return whether the rule adds toleration and affinity to the pod or template, if it belongs to a pool."""
    if request.subresource or is_node(request.user):
        return False
    controller = is_workload_controller(request.user)
    if request.is_pod:
        return request.operation == CREATE and not (controller and request.of_daemon_set)
    return not controller and not request.same_template and not _is_controlled_replica_set(request)


def _is_controlled_replica_set(request: Attributes) -> bool:
    return request.kind == REPLICA_SET and request.controlled


def _check_code(request: Attributes, others: Iterable[_Pool]) -> Iterator[Refusal]:
    """Yield refusals of an update that would run the user's code in an existing pod of a pool.

    Users who may create pods/binding are permitted: they could bind their own pod with the same code to the node.
    """
    old = request.old.spec if request.old else PodSpec()
    new = request.pod.spec
    if request.subresource:
        changed = new.ephemeral_containers != old.ephemeral_containers
        change = "adding an ephemeral container to"
    else:
        changed = _images(new) != _images(old)
        change = "changing an image of"
    if not changed:
        return
    for pool in others:
        if tolerations_for(old.tolerations or (), pool.taint):
            yield Refusal(pool.changed_by_other(change), unless_may_bind=True)


def _images(spec: PodSpec) -> list[tuple[str, str]]:
    return [(each.name, each.image) for each in (*(spec.init_containers or ()), *(spec.containers or ()))]
