"""Compares the conversion of descheduler/v1alpha2 with the decoder of sigs.k8s.io/descheduler, field by field.

``python -m tests.descheduler_differential.decoding FILE…`` reads policies, ConfigMaps and values of the chart. It
prints for each policy whether both accept it, and which fields differ.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.descheduler_differential.binary import decoder
from tests.differential.api_client import Manifest
from trimtab.api.decode import InvalidObject
from trimtab.api.descheduler_policy import KIND
from trimtab.api.scalars import parse_go_duration
from trimtab.descheduling.imports import chart, v1alpha2
from trimtab.kube.errors import InputError
from trimtab.kube.rules.selectors import parse_label_selector
from trimtab.kube.wire.files.documents import documents
from trimtab.kube.wire.files.packages import merge_values, unwrap
from trimtab_local.progress import for_terminal

Facts = dict[tuple[str, int], dict[str, Any]]
"""What each enabled strategy does, by its name and the number of earlier profiles that enable it."""

CLASS_PRIORITY: Final = 1000
"""The priority of every PriorityClass, which ``main.go`` of the decoder defines."""
SYSTEM_CRITICAL: Final = 2_000_000_000

_LIMITS: Final = {
    "MaxNoOfPodsToEvictPerNode": "limits.perNode",
    "MaxNoOfPodsToEvictPerNamespace": "limits.perNamespace",
    "MaxNoOfPodsToEvictTotal": "limits.perCycle",
    "GracePeriodSeconds": "gracePeriodSeconds",
}
_DISABLING: Final = {"evictLocalStoragePods": "PodsWithLocalStorage", "evictFailedBarePods": "FailedBarePods"}
_EXTRA: Final = {"ignorePvcPods": "PodsWithPVC", "ignorePodsWithoutPDB": "PodsWithoutPDB"}
_ALWAYS: Final = {"SystemCriticalPods", "DaemonSetPods"}
"""Protections that trimtab cannot disable; a warning says so."""
_NESTS: Final = (
    "nodeResourceUtilizationThresholds",
    "removeDuplicates",
    "podsHavingTooManyRestarts",
    "podLifeTime",
    "failedPods",
)
"""Objects under ``params`` in which trimtab has parameters that v1alpha2 has in ``args``."""
_DEFAULTS: Final = {
    "param.constraints": ["DoNotSchedule"],
    "param.minPodLifetimeSeconds": 3600,
    "param.topologyBalanceNodeFit": True,
}
"""Defaults that upstream's decoder sets, and that our policies have without stating them."""


class Decoded(msgspec.Struct, frozen=True):
    """What upstream's decoder returns: a policy with its defaults, or the error with which the descheduler ends."""

    policy: dict[str, Any] | None = None
    error: str = ""


def decode(executable: Path, policies: Sequence[Manifest]) -> list[Decoded]:
    """Decode policies with upstream's code."""
    lines = b"\n".join(map(msgspec.json.encode, policies))
    done = subprocess.run([executable], input=lines, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return [msgspec.json.decode(line, type=Decoded) for line in done.stdout.splitlines()]


def facts_of_upstream(policy: Mapping[str, Any]) -> Facts:
    """Return the facts in a policy that upstream has decoded."""
    found: Facts = {}
    shared = {ours: policy.get(key) for key, ours in _LIMITS.items()}
    for profile in policy.get("Profiles") or ():
        args = {each["Name"]: each.get("Args") or {} for each in reversed(profile.get("PluginConfigs") or ())}
        evictor = args.get("DefaultEvictor", {})
        nodes = _of_text(policy.get("NodeSelector")) | _of_text(evictor.get("nodeSelector"))
        common = {**shared, **_evictor(evictor), "nodeSelector": nodes}
        plugins = profile.get("Plugins") or {}
        enabled = [
            name for point in ("Deschedule", "Balance") for name in (plugins.get(point) or {}).get("Enabled") or ()
        ]
        for name in dict.fromkeys(enabled):
            own = dict(args.get(name, {}))
            selector = _requirements(evictor.get("labelSelector")) | _requirements(own.pop("labelSelector", None))
            facts = {**common, "podSelector": selector, "namespaces": own.pop("namespaces", None)}
            _add(found, name, facts | _params(own))
    return found


def facts_of_ours(converted: Sequence[Mapping[str, Any]]) -> Facts:
    """Return the facts in DeschedulerPolicies as plain data."""
    found: Facts = {}
    for document in converted:
        spec = document["spec"]
        threshold = spec.get("priorityThreshold") or {"value": SYSTEM_CRITICAL}
        protections = spec.get("protections") or {}
        age = protections.get("minPodAge")
        common = {
            **{f"limits.{key}": value for key, value in (spec.get("limits") or {}).items()},
            "gracePeriodSeconds": spec.get("gracePeriodSeconds"),
            "nodeSelector": _requirements(spec.get("nodeSelector")),
            "podSelector": _requirements(spec.get("podSelector")),
            "namespaceSelector": _requirements(spec.get("namespaceSelector")),
            "namespaces": spec.get("namespaces"),
            "disabled": set(protections.get("disabled") or ()),
            "extra": set(protections.get("extra") or ()),
            "protectedStorageClasses": protections.get("protectedStorageClasses"),
            "minReplicas": protections.get("minReplicas"),
            "minPodAge": parse_go_duration(age) if age else None,
            "noEvictionPolicy": protections.get("noEvictionPolicy"),
            "priorityThreshold": threshold.get("value", CLASS_PRIORITY),
        }
        for name, strategy in spec["strategies"].items():
            if strategy["enabled"]:
                params = dict(strategy.get("params") or {})
                for nest in _NESTS:
                    params |= params.pop(nest, {})
                _add(found, name, common | _params(params))
    return found


def differences(ours: Facts, theirs: Facts) -> list[str]:
    """Return one line for each field whose value differs."""
    found = []
    for key in sorted(ours.keys() | theirs.keys()):
        mine, other = ours.get(key), theirs.get(key)
        if mine is None or other is None:
            found.append(f"{key[0]}: only {'they' if mine is None else 'we'} run it")
            continue
        for field in sorted(mine.keys() | other.keys()):
            value = other.get(field)
            if field not in mine and value == _DEFAULTS.get(field, ...):
                continue
            if mine.get(field) != value:
                found.append(f"{key[0]}: {field}: we have {mine.get(field)!r}, they have {value!r}")
    return found


def _add(found: Facts, name: str, facts: Mapping[str, Any]) -> None:
    number = sum(1 for each, _ in found if each == name)
    found[name, number] = {key: part for key, value in facts.items() if (part := _given(value)) is not None}


def _given(value: Any) -> Any:
    """Return a value without zero values in it, which Go writes for fields that are not set; ``None`` if it is one."""
    if isinstance(value, Mapping):
        value = {key: part for key, item in value.items() if (part := _given(item)) is not None}
    return value or None


def _params(args: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in args.items() if key not in ("apiVersion", "kind")}
    metrics = dict(found.get("metricsUtilization") or {})
    if metrics.pop("metricsServer", False):
        metrics["source"] = "KubernetesMetrics"
    found["metricsUtilization"] = metrics
    return {f"param.{key}": value for key, value in found.items()}


def _evictor(args: Mapping[str, Any]) -> dict[str, Any]:
    protections = args.get("podProtections") or {}
    disabled = {ours for key, ours in _DISABLING.items() if args.get(key)}
    extra = {ours for key, ours in _EXTRA.items() if args.get(key)}
    classes = ((protections.get("config") or {}).get("PodsWithPVC") or {}).get("protectedStorageClasses") or ()
    replicas, age = args.get("minReplicas") or 0, args.get("minPodAge")
    return {
        "disabled": disabled | set(protections.get("defaultDisabled") or ()) - _ALWAYS,
        "extra": extra | set(protections.get("extraEnabled") or ()),
        "protectedStorageClasses": [each["name"] for each in classes],
        "minReplicas": replicas if replicas > 1 else None,
        "minPodAge": parse_go_duration(age) if age else None,
        "noEvictionPolicy": args.get("noEvictionPolicy"),
        "priorityThreshold": (args.get("priorityThreshold") or {}).get("value"),
        "namespaceSelector": _requirements(args.get("namespaceLabelSelector")),
    }


def _of_text(text: str | None) -> set[tuple[Any, ...]]:
    if not text:
        return set()
    selector = parse_label_selector(text)
    found: set[tuple[Any, ...]] = {(key, "In", (value,)) for key, value in selector.match_labels.items()}
    return found | {(each.key, each.operator, tuple(sorted(each.values))) for each in selector.match_expressions}


def _requirements(selector: Mapping[str, Any] | None) -> set[tuple[Any, ...]]:
    given = selector or {}
    found: set[tuple[Any, ...]] = {(key, "In", (value,)) for key, value in (given.get("matchLabels") or {}).items()}
    for each in given.get("matchExpressions") or ():
        found.add((each["key"], each["operator"], tuple(sorted(each.get("values") or ()))))
    return found


def policies_in(file: Path) -> Iterator[Manifest]:
    """Yield the v1alpha2 policies in a file: as they are, in ConfigMaps, and as the chart renders its values."""
    try:
        found = list(documents(file.read_bytes()))
    except InputError:
        return
    for document in found:
        content = document.content
        yield from _policies(msgspec.json.decode(content) if isinstance(content, msgspec.Raw) else content)


def _policies(manifest: Any) -> Iterator[Manifest]:
    if not isinstance(manifest, dict):
        return
    if (manifest.get("kind"), manifest.get("apiVersion")) == (KIND, v1alpha2.FOREIGN_VERSION):
        yield manifest
    elif manifest.get("kind") == "ConfigMap":
        for text in (manifest.get("data") or {}).values():
            if KIND in str(text):
                yield from _policies(msgspec.yaml.decode(text))
    else:
        for values in unwrap(manifest):
            own = values.of(chart.CHART, chart.is_chart_values)
            if own is not None:
                merged = merge_values(chart.defaults_of(own)[1], own.values)
                policy = merged.get("deschedulerPolicy") or {}
                yield from _policies({"apiVersion": merged["deschedulerPolicyAPIVersion"], "kind": KIND, **policy})


def compare(decoded: Decoded, policy: Manifest) -> tuple[str, list[str]]:
    """Return the verdict about a policy, and the details."""
    try:
        ours = v1alpha2.import_policy(policy)
    except InvalidObject as error:
        mine = [str(each) for each in error.errors]
        return ("refused by both", mine) if decoded.policy is None else ("refused only here", mine)
    if decoded.policy is None:
        return "refused only upstream", [decoded.error]
    found = differences(facts_of_ours(ours.documents), facts_of_upstream(decoded.policy))
    return ("differs", found) if found else ("equal", [])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.descheduler_differential.decoding", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    files = parser.parse_args().files
    pairs = [(file, policy) for file in files for policy in policies_in(file)]
    verdicts: Counter[str] = Counter()
    for (file, policy), decoded in zip(
        pairs, decode(decoder(for_terminal()), [each for _, each in pairs]), strict=True
    ):
        verdict, details = compare(decoded, policy)
        verdicts[verdict] += 1
        for detail in details:
            print(f"{file}: {verdict}: {detail}")
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())))
    return 1 if verdicts["differs"] else 0


if __name__ == "__main__":
    sys.exit(main())
