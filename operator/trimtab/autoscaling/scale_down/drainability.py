"""Determines whether a pod may be evicted so that its node can be removed.

The rules are those of cluster-autoscaler's ``simulator/drainability/rules``, in the order of :data:`IN_ORDER`. To add a
rule, write a function and add it to that tuple.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

from trimtab.api import reasons
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.budgets import BudgetLedger
from trimtab.disruption.protections import LOCAL_VOLUME_KINDS, MIRROR_ANNOTATION
from trimtab.disruption.protections.causes import SAFE_TO_EVICT
from trimtab.kube.objects import Pod, ReplicaSet, ReplicationController, StatefulSet, Volume

PREFIX: Final = "cluster-autoscaler.kubernetes.io/"
SAFE_TO_EVICT_LOCAL_VOLUMES: Final = f"{PREFIX}safe-to-evict-local-volumes"

DEFAULT_GRACE_PERIOD: Final = 30
"""Grace period in seconds if the pod's spec does not set one."""

LONG_TERMINATING_THRESHOLD: Final = 30.0
"""Seconds after the end of the grace period (upstream's ``PodLongTerminatingExtraThreshold``).

A pod that still exists after that time no longer blocks the removal of its node.
"""

REPLICATING_KINDS: Final = ("ReplicaSet", "StatefulSet", "Job", "ReplicationController")
"""Kinds of controllers that are trusted to recreate their pods.

Upstream trusts the same kinds (``skip-nodes-with-custom-controller-pods``).
"""

_CONTROLLERS: Final[dict[str, type[ReplicaSet] | type[ReplicationController] | type[StatefulSet]]] = {
    "ReplicaSet": ReplicaSet,
    "ReplicationController": ReplicationController,
    "StatefulSet": StatefulSet,
}

_SYSTEM_NAMESPACE: Final = "kube-system"


class DrainOutcome(StrEnum):
    """What draining a node does to a pod on it."""

    SKIP = "Skip"
    """The drain ignores the pod, because it is deleted with the node or is about to terminate."""
    DRAIN = "Drain"
    """The drain evicts the pod. Later rules are not evaluated."""
    BLOCK = "Block"
    """The pod blocks the removal of the node."""
    WAIT = "Wait"
    """The pod blocks the removal of the node until it completes."""


class DrainVerdict(Struct, frozen=True, gc=False):
    """The result of a rule for a pod.

    Attributes:
        outcome: the effect of draining the node on the pod.
        reason: the reason why the pod blocks the removal, as a code of :mod:`trimtab.api.reasons`; empty if it does
            not.
        message: the reason as a clause that follows the pod's name.
    """

    outcome: DrainOutcome
    reason: str = ""
    message: str = ""


SKIP: Final = DrainVerdict(DrainOutcome.SKIP)
DRAIN: Final = DrainVerdict(DrainOutcome.DRAIN)


def block(reason: str, message: str) -> DrainVerdict:
    """Return the verdict that a pod blocks the removal of its node."""
    return DrainVerdict(DrainOutcome.BLOCK, reason, message)


class DrainContext(Struct, frozen=True):
    """The cluster state and the settings with which rules evaluate pods.

    Attributes:
        snapshot: the cluster state.
        budgets: the disruptions that PodDisruptionBudgets still allow, after the planned evictions.
        now: the current time in seconds since the epoch.
        local_storage_blocks: whether pods with local storage block the removal (``skipNodesWithLocalStorage``).
        holds: whether ``safe-to-evict`` annotations block the removal. False after ``maxHold``.
    """

    snapshot: Snapshot
    budgets: BudgetLedger
    now: float
    local_storage_blocks: bool = True
    holds: bool = True


DrainCheck = Callable[[Pod, DrainContext], DrainVerdict | None]
"""A rule: a function that returns its result for a pod, or ``None`` if the rule does not apply."""


def of_daemon_set(pod: Pod) -> bool:
    """Return whether the pod's controller is a DaemonSet of any API group."""
    owner = pod.controller
    return owner is not None and owner.kind == "DaemonSet"


def long_terminating(pod: Pod, *, now: float) -> bool:
    """Return whether the pod still exists :data:`LONG_TERMINATING_THRESHOLD` seconds after its grace period ended."""
    if pod.deleted is None:
        return False
    grace = pod.spec.termination_grace_period
    return pod.deleted + (DEFAULT_GRACE_PERIOD if grace is None else grace) + LONG_TERMINATING_THRESHOLD < now


def controller_is_missing(pod: Pod, snapshot: Snapshot) -> bool:
    """Return whether the pod's controller no longer exists, so that nothing would recreate the pod.

    The files from which a snapshot is read may lack controllers. Therefore a controller counts as existing if the
    namespace contains no controller of its kind.
    """
    owner = pod.controller
    kind = None if owner is None else _CONTROLLERS.get(owner.kind)
    if owner is None or kind is None:
        return False
    known = snapshot.objects.of(kind)
    if f"{pod.namespace}/{owner.name}" in known:
        return False
    return any(each.namespace == pod.namespace for each in known.values())


def _mirror(pod: Pod, _: DrainContext) -> DrainVerdict | None:
    return SKIP if MIRROR_ANNOTATION in pod.annotations else None


def _long_terminating(pod: Pod, context: DrainContext) -> DrainVerdict | None:
    return SKIP if long_terminating(pod, now=context.now) else None


def _replica_count(pod: Pod, context: DrainContext) -> DrainVerdict | None:
    """Block pods whose controller no longer exists, because nothing would recreate them."""
    owner = pod.controller
    if owner is None or not controller_is_missing(pod, context.snapshot):
        return None
    return block(reasons.CONTROLLER_NOT_FOUND, f"its {owner.kind} {owner.name} does not exist")


def _daemon_set(pod: Pod, _: DrainContext) -> DrainVerdict | None:
    return DRAIN if of_daemon_set(pod) else None


def _safe_to_evict(pod: Pod, _: DrainContext) -> DrainVerdict | None:
    return DRAIN if pod.annotations.get(SAFE_TO_EVICT) == "true" else None


def _terminal(pod: Pod, _: DrainContext) -> DrainVerdict | None:
    return DRAIN if pod.terminal else None


def _too_complex(pod: Pod, _: DrainContext) -> DrainVerdict | None:
    return block(reasons.POD_TOO_COMPLEX, f"it has {pod.spec.complexity}") if pod.spec.complexity else None


def _pod_group(pod: Pod, _: DrainContext) -> DrainVerdict | None:
    group = pod.spec.pod_group
    return (
        block(reasons.POD_GROUPS_STAY, f"it belongs to PodGroup {group}, whose pods stay together") if group else None
    )


def _on_completion(pod: Pod, context: DrainContext) -> DrainVerdict | None:
    if not context.holds or pod.annotations.get(SAFE_TO_EVICT) != "on-completion":
        return None
    message = f"its annotation {SAFE_TO_EVICT} is on-completion, and the pod has not completed"
    return DrainVerdict(DrainOutcome.WAIT, reasons.BLOCKED_BY_ON_COMPLETION_POD, message)


def _replicated(pod: Pod, _: DrainContext) -> DrainVerdict | None:
    owner = pod.controller
    if owner is None:
        return block(reasons.NOT_REPLICATED, "no controller owns it, so nothing would recreate it")
    if owner.kind not in REPLICATING_KINDS:
        allowed = ", ".join(REPLICATING_KINDS)
        return block(reasons.NOT_REPLICATED, f"its controller {owner.kind} {owner.name} is not one of {allowed}")
    return None


def _system(pod: Pod, context: DrainContext) -> DrainVerdict | None:
    """Block kube-system pods that no PodDisruptionBudget selects, regardless of their age.

    Upstream allows their eviction one hour after their creation. According to OpenShift's documentation, such pods
    block the removal.
    """
    if pod.namespace != _SYSTEM_NAMESPACE or context.budgets.matching(pod):
        return None
    message = f"it is in {_SYSTEM_NAMESPACE}, and no PodDisruptionBudget selects it"
    return block(reasons.UNMOVABLE_KUBE_SYSTEM_POD, message)


def _not_safe_to_evict(pod: Pod, context: DrainContext) -> DrainVerdict | None:
    if not context.holds or pod.annotations.get(SAFE_TO_EVICT) != "false":
        return None
    return block(reasons.NOT_SAFE_TO_EVICT_ANNOTATION, f"its annotation {SAFE_TO_EVICT} is false")


def _local_storage(pod: Pod, context: DrainContext) -> DrainVerdict | None:
    """Block pods with local volumes that are on disk and not listed in ``safe-to-evict-local-volumes``."""
    if not context.local_storage_blocks or not pod.spec.volumes:
        return None
    text = pod.annotations.get(SAFE_TO_EVICT_LOCAL_VOLUMES, "")
    safe = {name.strip() for name in text.split(",")}
    found = [volume for volume in pod.spec.volumes if _local(volume) and volume.name not in safe]
    if not found:
        return None
    names = ", ".join(f"{volume.name} ({volume.kind})" for volume in found)
    return block(reasons.LOCAL_STORAGE_REQUESTED, f"it has local volumes: {names}")


def _local(volume: Volume) -> bool:
    return volume.kind in LOCAL_VOLUME_KINDS and volume.medium != "Memory"


def _disruption_budget(pod: Pod, context: DrainContext) -> DrainVerdict | None:
    """Block pods that the Eviction API would refuse to evict after the evictions planned so far."""
    refusal = context.budgets.refusal(pod)
    return None if refusal is None else block(reasons.NOT_ENOUGH_PDB, refusal.message)


class DrainRule(NamedTuple):
    """An entry of the rule registry.

    Attributes:
        name: upstream's name of the rule. ``Complexity`` and ``PodGroup`` exist only in trimtab.
        check: the function that evaluates the rule.
        of_template: whether the rule has the same result for all running pods of a template. If so, it is evaluated
            only once for all of them.
    """

    name: str
    check: DrainCheck
    of_template: bool = True


IN_ORDER: Final = (
    DrainRule("Mirror", _mirror),
    DrainRule("LongTerminating", _long_terminating, of_template=False),
    DrainRule("ReplicaCount", _replica_count),
    DrainRule("DaemonSet", _daemon_set),
    DrainRule("SafeToEvict", _safe_to_evict),
    DrainRule("Terminal", _terminal, of_template=False),
    DrainRule("Complexity", _too_complex),
    DrainRule("PodGroup", _pod_group),
    DrainRule("OnCompletion", _on_completion),
    DrainRule("Replicated", _replicated),
    DrainRule("System", _system),
    DrainRule("NotSafeToEvict", _not_safe_to_evict),
    DrainRule("LocalStorage", _local_storage),
    DrainRule("PDB", _disruption_budget, of_template=False),
)
"""The rules in upstream's order. The first rule that returns a result decides."""

_OF_POD: Final = tuple(rule.check for rule in IN_ORDER)
_OF_TEMPLATE: Final = tuple(rule.check for rule in IN_ORDER if rule.of_template)


def judge(pod: Pod, context: DrainContext) -> DrainVerdict:
    """Evaluate all rules for a pod. A pod to which no rule applies may be evicted."""
    return _first_verdict(_OF_POD, pod, context)


def judge_template(pod: Pod, context: DrainContext) -> DrainVerdict:
    """Evaluate the rules that depend only on the pod's template, which excludes PodDisruptionBudgets.

    The result applies to all pods of the template that are running and not being deleted.
    """
    return _first_verdict(_OF_TEMPLATE, pod, context)


def _first_verdict(rules: tuple[DrainCheck, ...], pod: Pod, context: DrainContext) -> DrainVerdict:
    for rule in rules:
        verdict = rule(pod, context)
        if verdict is not None:
            return verdict
    return DRAIN
