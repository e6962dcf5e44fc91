"""Pods that only one side protects: the plan names the protection, and the pod proves it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.descheduler_differential.case import EVICTOR, Case, Difference
from tests.descheduler_differential.classes.difference_class import DifferenceClass
from tests.differential.api_client import Manifest
from trimtab.api import reasons
from trimtab.kube.objects import Pod

CRITICAL_ANNOTATION: Final = "scheduler.alpha.kubernetes.io/critical-pod"

_CRITICAL: Final = 2_000_000_000
_UNLIFTED: Final = frozenset(
    {
        reasons.CRITICAL_POD,
        reasons.BARE_POD,
        reasons.STATIC_POD,
        reasons.MIRROR_POD,
        reasons.DAEMON_SET_POD,
        reasons.TERMINATING,
    }
)
"""Reasons that the evict annotation does not override in trimtab."""


def _evict_annotation(case: Case, difference: Difference) -> bool:
    """The pod has the evict annotation, but its value is not "true" or the protection cannot be overridden."""
    value = case.annotation(difference.pod, "evict")
    if value is None:
        return False
    reason = case.reason(difference)
    if reason == reasons.EVICT_ANNOTATION:
        return value != "true"
    pod = case.pod(difference.pod)
    out = pod.deleted is not None or pod.terminal or not case.scope(difference.strategy).covers(pod)
    return reason in _UNLIFTED or (not reason and (out or _of_daemon_set(pod)))


def _of_daemon_set(pod: Pod) -> bool:
    return any(owner.kind == "DaemonSet" for owner in pod.owners)


def _no_eviction_annotation(case: Case, difference: Difference) -> bool:
    """The descheduler keeps the pod for an annotation with the value "false"."""
    mandatory = case.args(EVICTOR).get("noEvictionPolicy") == "Mandatory"
    return mandatory and case.annotation(difference.pod, "prefer-no-eviction") == "false"


def _system_namespace(case: Case, difference: Difference) -> bool:
    name = difference.pod.split("/")[0]
    return case.reason(difference) == reasons.SYSTEM_NAMESPACE and name.startswith(("kube-", "openshift-"))


def _never_lifted(case: Case, difference: Difference) -> bool:
    pod, reason = case.pod(difference.pod), case.reason(difference)
    if reason in ("", reasons.DAEMON_SET_POD) and _of_daemon_set(pod):
        return "DaemonSetPods" in case.disabled
    if "SystemCriticalPods" not in case.disabled:
        return False
    if reason == reasons.CRITICAL_POD:
        return (pod.spec.priority or 0) >= _CRITICAL
    threshold = case.args(EVICTOR).get("priorityThreshold", {}).get("value", _CRITICAL)
    return reason == reasons.PRIORITY_TOO_HIGH and (pod.spec.priority or 0) >= threshold


def _controller_not_owner(case: Case, difference: Difference) -> bool:
    pod = case.pod(difference.pod)
    return case.reason(difference) == reasons.BARE_POD and bool(pod.owners) and pod.controller is None


def _critical_annotation(case: Case, difference: Difference) -> bool:
    annotations = case.manifest(difference.pod)["metadata"].get("annotations", {})
    return case.reason(difference) == reasons.CRITICAL_POD and CRITICAL_ANNOTATION in annotations


def _resource_claims(case: Case, difference: Difference) -> bool:
    claims = bool(case.manifest(difference.pod)["spec"].get("resourceClaims"))
    known = case.reason(difference) in (reasons.RESOURCE_CLAIM, reasons.NO_PLACE, reasons.NOT_ENOUGH_NODES, "")
    return claims and known and not case.fitting_nodes(difference, after=False, home=True)


def _ephemeral_claims(case: Case, difference: Difference) -> bool:
    volumes = case.manifest(difference.pod)["spec"].get("volumes", ())
    plain = any("persistentVolumeClaim" in volume for volume in volumes)
    ephemeral = any("ephemeral" in volume for volume in volumes)
    return case.reason(difference) == reasons.PERSISTENT_VOLUME_CLAIM and ephemeral and not plain


def _replicas_that_run(case: Case, difference: Difference) -> bool:
    """The owner has minReplicas pods only if ended and terminating pods count."""
    least = int(case.args(EVICTOR).get("minReplicas", 0))
    owner = case.pod(difference.pod).controller
    if case.reason(difference) != reasons.TOO_FEW_REPLICAS or owner is None:
        return False
    pods = [pod for pod in case.trimtab.snapshot.pods.values() if pod.controller == owner]
    running = [pod for pod in pods if not pod.terminal and pod.deleted is None]
    return len(running) < least <= len(pods)


def _starting(case: Case, difference: Difference) -> bool:
    pod = case.pod(difference.pod)
    young = pod.started is not None and case.trimtab.now - pod.started < 300
    return case.reason(difference) == reasons.POD_STARTING and pod.phase == "Pending" and young


def _taint_deadline(case: Case, difference: Difference) -> bool:
    """A NoExecute taint evicts the pod, because no toleration matches it or one that does has a limit."""
    spec = case.manifest(difference.pod)["spec"]
    taints = [each for each in case.taints(spec["nodeName"]) if each["effect"] == "NoExecute"]
    tolerations = spec.get("tolerations") or ()
    return case.reason(difference) == reasons.TAINT_DEADLINE and any(_evicts(each, tolerations) for each in taints)


def _evicts(taint: Manifest, tolerations: Sequence[Manifest]) -> bool:
    matching = [
        each
        for each in tolerations
        if each.get("effect", "NoExecute") == "NoExecute"
        and each.get("key", taint["key"]) == taint["key"]
        and (each.get("operator") == "Exists" or each.get("value", "") == taint.get("value", ""))
    ]
    return not matching or any("tolerationSeconds" in each for each in matching)


PROTECTIONS: Final = (
    DifferenceClass("EvictAnnotationValue", "descheduler", _evict_annotation),
    DifferenceClass("NoEvictionAnnotationValue", "trimtab", _no_eviction_annotation),
    DifferenceClass("SystemNamespacesProtected", "descheduler", _system_namespace),
    DifferenceClass("PermanentProtections", "descheduler", _never_lifted),
    DifferenceClass("ControllerRequired", "descheduler", _controller_not_owner),
    DifferenceClass("CriticalAnnotation", "descheduler", _critical_annotation),
    DifferenceClass("ResourceClaimsKept", "descheduler", _resource_claims),
    DifferenceClass("EphemeralClaims", "descheduler", _ephemeral_claims),
    DifferenceClass("RunningReplicas", "descheduler", _replicas_that_run),
    DifferenceClass("StartingPods", "descheduler", _starting),
    DifferenceClass("TaintDeadlines", "descheduler", _taint_deadline),
)
