"""DefaultEvictor, the descheduler project's plugin that says which pods may go, as protections of a policy.

What it can lift and trimtab never does (critical pods, DaemonSets' pods) is a warning: those pods stay, which harms
nobody. What it adds must not be lost, so that is taken or is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trimtab.api.check import unknown_key
from trimtab.descheduling.imports.draft import Draft, Findings, all_of, without_nulls
from trimtab.descheduling.imports.fields import duration_of_go, is_true, selector_of_text, take_selector

_STAY: Final = {
    "SystemCriticalPods": "critical pods stay protected whatever a policy says; a priority threshold holds as well",
    "DaemonSetPods": "DaemonSets' pods stay protected: they would be made anew on the same node",
}
DISABLED: Final = ("PodsWithLocalStorage", "SystemCriticalPods", "FailedBarePods", "DaemonSetPods")
EXTRA: Final = ("PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims")
FLAGS: Final = {
    "evictLocalStoragePods": "PodsWithLocalStorage",
    "evictDaemonSetPods": "DaemonSetPods",
    "evictSystemCriticalPods": "SystemCriticalPods",
    "evictFailedBarePods": "FailedBarePods",
    "ignorePvcPods": "PodsWithPVC",
    "ignorePodsWithoutPDB": "PodsWithoutPDB",
}
"""The older switches, and the protection that each lifts (``evict…``) or adds (``ignore…``)."""

PLACE_FIRST: Final = "a pod is moved only if a node was found for it and its place reserved, always"


def take_evictor(draft: Draft, args: Mapping[str, Any], place: str, findings: Findings) -> None:
    """Put DefaultEvictor's arguments, whose keys are known to be good, into a draft."""
    flags = [key for key in FLAGS if args.get(key) is True]
    protections = args.get("podProtections", {})
    if flags and any(protections.get(key) for key in ("extraEnabled", "defaultDisabled")):
        findings.error(f"{place}.{flags[0]}", "cannot be given together with podProtections, which takes its place")
    for key in FLAGS:
        if key in args:
            take_flag(draft, key, args[key], f"{place}.{key}", findings)
    _protections(draft, protections, f"{place}.podProtections", findings)
    _numbers(draft, args, place, findings)
    _selectors(draft, args, place, findings)
    if "nodeFit" in args and not is_true(args["nodeFit"], f"{place}.nodeFit", findings):
        findings.warn(f"{place}.nodeFit", f"has no effect: {PLACE_FIRST}")


def take_flag(draft: Draft, key: str, value: Any, place: str, findings: Findings) -> None:
    """One of :data:`FLAGS`."""
    if is_true(value, place, findings):
        _protection(draft, FLAGS[key], place, findings)


def take_threshold(draft: Draft, value: Any, place: str) -> None:
    """A priority threshold by name or value; none that says neither."""
    if isinstance(value, Mapping):
        value = {key: part for key, part in value.items() if part != ""}
    if value != {}:
        draft.put("priorityThreshold", value, place)


def _protection(draft: Draft, name: str, place: str, findings: Findings) -> None:
    if name in _STAY:
        findings.warn(place, _STAY[name])
    else:
        draft.add("protections.disabled" if name in DISABLED else "protections.extra", name, place)


def _protections(draft: Draft, given: Mapping[str, Any], place: str, findings: Findings) -> None:
    for key, known in (("defaultDisabled", DISABLED), ("extraEnabled", EXTRA)):
        names = given.get(key, [])
        if not isinstance(names, list):
            findings.error(f"{place}.{key}", "must be a list")
            continue
        for index, name in enumerate(names):
            here = f"{place}.{key}[{index}]"
            if name not in known:
                findings.error(
                    here, _unknown_protection(str(name), known, other=EXTRA if known is DISABLED else DISABLED)
                )
            elif name in names[:index]:
                findings.error(here, f'must not be given twice: "{name}"')
            else:
                _protection(draft, name, here, findings)
    classes = given.get("config", {}).get("PodsWithPVC", {}).get("protectedStorageClasses")
    if classes:
        here = f"{place}.config.PodsWithPVC.protectedStorageClasses"
        if "PodsWithPVC" not in draft.spec.get("protections", {}).get("extra", ()):
            findings.error(here, "narrows PodsWithPVC, which must be in extraEnabled: nothing is protected without it")
        draft.put("protections.protectedStorageClasses", [(each or {}).get("name", "") for each in classes], here)


def _unknown_protection(name: str, known: tuple[str, ...], *, other: tuple[str, ...]) -> str:
    if name in other:
        listed = "extraEnabled" if name in EXTRA else "defaultDisabled"
        return f"unknown protection here; {name} belongs to podProtections.{listed}"
    return unknown_key(name, known, what="protection")


def _numbers(draft: Draft, args: Mapping[str, Any], place: str, findings: Findings) -> None:
    replicas = args.get("minReplicas", 0)
    if replicas not in (0, 1) or isinstance(replicas, bool):  # the project asks nothing below 2
        draft.put("protections.minReplicas", replicas, f"{place}.minReplicas")
    if "minPodAge" in args:
        age = duration_of_go(args["minPodAge"], f"{place}.minPodAge", findings)
        if age is not None:
            draft.put("protections.minPodAge", age, f"{place}.minPodAge")
    if args.get("noEvictionPolicy", "") != "":
        draft.put("protections.noEvictionPolicy", args["noEvictionPolicy"], f"{place}.noEvictionPolicy")
    if "priorityThreshold" in args:
        take_threshold(draft, args["priorityThreshold"], f"{place}.priorityThreshold")


def _selectors(draft: Draft, args: Mapping[str, Any], place: str, findings: Findings) -> None:
    for key, part in (("labelSelector", "podSelector"), ("namespaceLabelSelector", "namespaceSelector")):
        take_selector(draft, part, without_nulls(args.get(key, {})), f"{place}.{key}", findings)
    here = f"{place}.nodeSelector"
    own = selector_of_text(args["nodeSelector"], here, findings) if "nodeSelector" in args else {}
    if own:
        whole = draft.spec.get("nodeSelector")
        if own != whole:
            findings.warn(here, "limits also the nodes that pods are moved from, not only those that they are moved to")
        draft.put("nodeSelector", own if whole is None else all_of(whole, own), here)
