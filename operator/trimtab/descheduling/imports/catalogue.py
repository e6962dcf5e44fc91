"""What the descheduler project's policies may say, and where: so that a slip is told with the place it belongs to.

The project drops what it does not know, or what stands in the wrong place, without a word (its issues #1627 and #1704),
and the user learns of it from pods that should have stayed. Here every such key is an error that says where it belongs.

Names: kubernetes-sigs/descheduler v0.36, pkg/api/v1alpha2 and the plugins' ``types.go``; for v1alpha1 v0.6 to v0.30.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

from trimtab.api.check import FieldError, join_path, unknown_key
from trimtab.api.schema import structural_schema
from trimtab.api.strategies import Strategies

Names = tuple[str, ...]
Shape = Mapping[str, Any] | list[Any] | None
"""What a value may be: a mapping of known keys, a list of one shape, or anything (``None``)."""

EVICTOR: Final = "DefaultEvictor"
DESCHEDULE: Final = "deschedule"
BALANCE: Final = "balance"

PLUGINS: Final[Mapping[str, str]] = {
    "RemoveDuplicates": BALANCE,
    "LowNodeUtilization": BALANCE,
    "HighNodeUtilization": BALANCE,
    "RemovePodsViolatingInterPodAntiAffinity": DESCHEDULE,
    "RemovePodsViolatingNodeAffinity": DESCHEDULE,
    "RemovePodsViolatingNodeTaints": DESCHEDULE,
    "RemovePodsViolatingTopologySpreadConstraint": BALANCE,
    "RemovePodsHavingTooManyRestarts": DESCHEDULE,
    "PodLifeTime": DESCHEDULE,
    "RemoveFailedPods": DESCHEDULE,
}
"""The project's strategies, and the extension point at which each runs."""

SCOPE: Final = ("namespaces", "labelSelector")
"""What strategies say of the pods they look at; here a policy says it for all its strategies."""

_UTILIZATION: Final = ("thresholds", "numberOfNodes", "evictableNamespaces")
ARGS: Final[Mapping[str, Names]] = {
    "RemoveDuplicates": ("namespaces", "excludeOwnerKinds"),
    "LowNodeUtilization": (
        *_UTILIZATION,
        "useDeviationThresholds",
        "targetThresholds",
        "metricsUtilization",
        "evictionLimits",
    ),
    "HighNodeUtilization": (*_UTILIZATION, "evictionModes"),
    "RemovePodsViolatingInterPodAntiAffinity": SCOPE,
    "RemovePodsViolatingNodeAffinity": (*SCOPE, "nodeAffinityType"),
    "RemovePodsViolatingNodeTaints": (*SCOPE, "includePreferNoSchedule", "excludedTaints", "includedTaints"),
    "RemovePodsViolatingTopologySpreadConstraint": (*SCOPE, "constraints", "topologyBalanceNodeFit"),
    "RemovePodsHavingTooManyRestarts": (*SCOPE, "podRestartThreshold", "includingInitContainers", "states"),
    "PodLifeTime": (
        *SCOPE,
        "maxPodLifeTimeSeconds",
        "states",
        "conditions",
        "exitCodes",
        "ownerKinds",
        "includingInitContainers",
        "includingEphemeralContainers",
    ),
    "RemoveFailedPods": (
        *SCOPE,
        "reasons",
        "exitCodes",
        "minPodLifetimeSeconds",
        "excludeOwnerKinds",
        "includingInitContainers",
    ),
}
"""Each strategy's arguments in v1alpha2."""

EVICTOR_SHAPE: Final[Mapping[str, Shape]] = {
    "nodeSelector": None,
    "labelSelector": None,
    "namespaceLabelSelector": None,
    "priorityThreshold": {"value": None, "name": None},
    "nodeFit": None,
    "minReplicas": None,
    "minPodAge": None,
    "noEvictionPolicy": None,
    "podProtections": {
        "defaultDisabled": None,
        "extraEnabled": None,
        "config": {"PodsWithPVC": {"protectedStorageClasses": [{"name": None}]}},
    },
    "evictLocalStoragePods": None,
    "evictDaemonSetPods": None,
    "evictSystemCriticalPods": None,
    "evictFailedBarePods": None,
    "ignorePvcPods": None,
    "ignorePodsWithoutPDB": None,
}
"""The arguments of DefaultEvictor."""


@cache
def own_params(strategy: str) -> dict[str, str]:
    """The parameters that trimtab's type of a strategy has: name to place under ``params``, one nesting looked into.

    ``thresholds`` of LowNodeUtilization, for one, is at ``nodeResourceUtilizationThresholds.thresholds``. So a
    strategy that gains a parameter gains it for imported policies as well. Only to read: it is found once.
    """
    schema = structural_schema(Strategies)["properties"].get(strategy)
    found: dict[str, str] = {}
    for name, value in (schema or {}).get("properties", {}).get("params", {}).get("properties", {}).items():
        inner = value.get("properties", {})
        if name in ARGS.get(strategy, ()) or not inner:
            found[name] = name
        else:  # descheduler/v1alpha1's nesting, which v1alpha2 has not
            found |= {key: f"{name}.{key}" for key in inner}
    return found


class WrongKind(FieldError, frozen=True):
    """A value of another kind than its place has: what is in it cannot be looked into."""


class Places:
    """Where each key of a format belongs.

    Args:
        places: what a place is called, in words, to the keys that it has.
        owned: whoever has keys of its own, a strategy or a plugin, to these keys.
        owned_at: what the place of those is called, ``{}`` standing for who has them.
        renamed: keys of other versions, to what is to be told of them.
    """

    def __init__(
        self,
        places: Mapping[str, Iterable[str]],
        *,
        owned: Mapping[str, Iterable[str]],
        owned_at: str,
        renamed: Mapping[str, str],
    ) -> None:
        self._of: dict[str, list[str]] = {}
        self._owners: dict[str, list[str]] = {}
        for found, named in ((self._of, places), (self._owners, owned)):
            for place, keys in named.items():
                for key in keys:
                    found.setdefault(key, []).append(place)
        self._owned_at = owned_at
        self._renamed = renamed

    def hint(self, key: str, allowed: Names) -> str:
        """What to tell of a key that its place does not have."""
        if key in self._renamed:
            return f"unknown field; {self._renamed[key]}"
        if home := self._home(key):
            return f"unknown field here; {key} belongs to {home}"
        told = unknown_key(key, allowed)
        if "did you mean" in told:
            return told
        near = difflib.get_close_matches(key, [*self._of, *self._owners], n=1, cutoff=0.8)
        if near:
            return f"unknown field; did you mean {near[0]}, which belongs to {self._home(near[0])}?"
        return told

    def _home(self, key: str) -> str:
        owners = self._owners.get(key, [])
        owned = [self._owned_at.format(_either(owners))] if owners else []
        return _either([*self._of.get(key, ()), *owned])

    def check(self, value: Any, shape: Shape, field: str) -> list[FieldError]:
        """Every key in a value that its shape does not have, and every value of another kind than its shape."""
        if shape is None or value is None:
            return []
        if isinstance(shape, list):
            if not isinstance(value, list):
                return [WrongKind(field, "must be a list")]
            return [
                each for index, item in enumerate(value) for each in self.check(item, shape[0], f"{field}[{index}]")
            ]
        if not isinstance(value, Mapping):
            return [WrongKind(field, f"must be a mapping with {', '.join(shape)}")]
        errors = []
        for key, item in value.items():
            place = join_path(field, str(key))
            if key in shape:
                errors += self.check(item, shape[key], place)
            else:
                errors.append(FieldError(place, self.hint(str(key), tuple(shape))))
        return errors


def _either(places: list[str]) -> str:
    shown = places if len(places) <= 4 else [*places[:3], f"{len(places) - 3} others"]
    return f"{', '.join(shown[:-1])} or {shown[-1]}" if len(shown) > 1 else "".join(shown)
