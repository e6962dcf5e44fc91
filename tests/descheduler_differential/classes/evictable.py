"""The rules of the descheduler's DefaultEvictor, without nodeFit."""

from __future__ import annotations

from typing import Final

from tests.descheduler_differential.case import ANNOTATION, EVICTOR, Case
from trimtab.kube.rules.selectors import matches_labels

_CRITICAL: Final = 2_000_000_000


def evictable(case: Case, name: str) -> bool:
    """Whether DefaultEvictor permits the eviction of a pod that has not ended."""
    pod, manifest, args = case.pod(name), case.manifest(name), case.args(EVICTOR)
    annotations = manifest["metadata"].get("annotations", {})
    volumes = manifest["spec"].get("volumes", ())
    extra = args.get("podProtections", {}).get("extraEnabled", ())
    if ANNOTATION + "evict" in annotations:
        return True
    critical = "SystemCriticalPods" not in case.disabled
    threshold = args.get("priorityThreshold", {}).get("value", _CRITICAL)
    spec = case.trimtab.policies[0].spec
    alike = [other for other in case.trimtab.snapshot.pods.values() if other.owners == pod.owners]
    refusals = (
        args.get("noEvictionPolicy") == "Mandatory" and ANNOTATION + "prefer-no-eviction" in annotations,
        "kubernetes.io/config.mirror" in annotations,
        pod.deleted is not None,
        critical and (pod.spec.priority or 0) >= min(threshold, _CRITICAL),
        not pod.owners and ("FailedBarePods" not in case.disabled or pod.phase != "Failed"),
        "PodsWithLocalStorage" not in case.disabled and any({"hostPath", "emptyDir"} & set(each) for each in volumes),
        "DaemonSetPods" not in case.disabled and any(owner.kind == "DaemonSet" for owner in pod.owners),
        "PodsWithPVC" in extra and any("persistentVolumeClaim" in each for each in volumes),
        "PodsWithoutPDB" in extra
        and not any(
            budget.namespace == pod.namespace and matches_labels(budget.selector, pod.labels)
            for budget in case.trimtab.snapshot.budgets.values()
        ),
        spec.pod_selector is not None and not matches_labels(spec.pod_selector.compile(), pod.labels),
        len(pod.owners) == 1 and len(alike) < args.get("minReplicas", 0),
        _too_young(case, name),
    )
    return not any(refusals)


def _too_young(case: Case, name: str) -> bool:
    spec, pod = case.trimtab.policies[0].spec, case.pod(name)
    least = spec.protections.min_pod_age_seconds
    return least > 0 and (pod.started is None or case.trimtab.now - pod.started < least)
