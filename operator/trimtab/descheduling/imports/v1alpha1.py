"""``descheduler/v1alpha1``: the file of OpenShift 3.11's descheduler and of the descheduler project up to v0.30.

Its ``strategies`` are taken as they stand: trimtab's kind has them from there. What differs is said here and nowhere
else: a strategy without ``enabled`` is off; what every strategy may narrow down for itself (namespaces, labels,
priority) trimtab has once for a policy; ``weight`` never had an effect; ``nodeFit`` is ignored, because trimtab never
moves a pod that has no place. What trimtab would do differently without saying so is refused by name.

Fields: kubernetes-sigs/descheduler, pkg/api/v1alpha1, v0.6 to v0.30.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from trimtab.api.base import API_VERSION
from trimtab.api.check import FieldError, unknown_key
from trimtab.api.checks import validate
from trimtab.api.decode import InvalidObject, describe, read_policy
from trimtab.api.descheduler_policy import KIND, DeschedulerPolicy
from trimtab.api.strategies import STRATEGIES
from trimtab.kube.rules.selectors import SelectorError, parse_label_selector

FOREIGN_VERSION: Final = "descheduler/v1alpha1"
DEFAULT_NAME: Final = "default"
"""What an imported policy is called: the format knows no names."""

_LATER_VERSION: Final = "descheduler/v1alpha2"
_ONLY: Final = f"must be a {KIND} of {FOREIGN_VERSION}"
_NOT_YET_READ: Final = (
    f"{_LATER_VERSION} (profiles and plugins) is not read yet; write the policy as {KIND} of {API_VERSION} or of "
    f"{FOREIGN_VERSION}"
)
NOT_YET: Final = (
    "PodLifeTime",
    "RemoveFailedPods",
    "RemovePodsHavingTooManyRestarts",
    "RemovePodsViolatingNodeTaints",
    "RemovePodsViolatingTopologySpreadConstraint",
)
_SCOPE: Final = ("namespaces", "labelSelector", "thresholdPriority", "thresholdPriorityClassName")
_IGNORED_PARAMS: Final = ("nodeFit", "includeSoftConstraints")

_Spec = dict[str, Any]


def import_policy(data: object, *, source: str = "") -> DeschedulerPolicy:
    """A policy file of the descheduler project as a DeschedulerPolicy in mode Simulate.

    Args:
        data: what JSON or YAML gave.
        source: where it came from, for messages.

    Raises:
        InvalidObject: with everything that is wrong, or that this version cannot do yet, under the file's own names.
    """
    if not isinstance(data, Mapping) or data.get("apiVersion") != FOREIGN_VERSION or data.get("kind") != KIND:
        later = isinstance(data, Mapping) and data.get("apiVersion") == _LATER_VERSION
        error = FieldError("apiVersion" if later else "", _NOT_YET_READ if later else _ONLY)
        raise InvalidObject((error,), source=source, object=describe(data))
    translation = _Translation(data)
    policy, errors = read_policy(translation.policy())
    if policy is not None and not translation.errors:  # what is left after those would only confuse
        errors = validate(policy)
    errors = (*translation.errors, *(_foreign(error) for error in errors))
    if policy is None or errors:
        raise InvalidObject(errors, source=source, object=describe(data))
    return policy


_PLACES: Final = {
    "spec.strategies": "strategies",
    "spec.limits.perNode": "maxNoOfPodsToEvictPerNode",
    "spec.limits.perNamespace": "maxNoOfPodsToEvictPerNamespace",
    "spec.limits.perCycle": "maxNoOfPodsToEvictTotal",
    "spec.nodeSelector": "nodeSelector",
    "spec.namespaces": "strategies.*.params.namespaces",
    "spec.podSelector": "strategies.*.params.labelSelector",
    "spec.priorityThreshold.value": "strategies.*.params.thresholdPriority",
    "spec.priorityThreshold.name": "strategies.*.params.thresholdPriorityClassName",
    "spec.priorityThreshold": "strategies.*.params.thresholdPriority",
}


def _foreign(error: FieldError) -> FieldError:
    """An error under the name that the field has in the file."""
    for ours, theirs in _PLACES.items():
        if error.field.startswith(ours):
            return FieldError(theirs + error.field.removeprefix(ours), error.message)
    return error


class _Translation:
    """One file on its way to a spec; ``errors`` collects what has no counterpart."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data
        self.errors: list[FieldError] = []
        self.spec: _Spec = {}

    def policy(self) -> dict[str, Any]:
        for key, value in self.data.items():
            if key in {"apiVersion", "kind", "metadata", "strategies"} or value is None:
                continue
            take = _TOP_LEVEL.get(key)
            if take is None:
                allowed = ("apiVersion", "kind", "strategies", *_TOP_LEVEL)
                self.errors.append(FieldError(str(key), unknown_key(str(key), allowed)))
            else:
                take(self, key, value)
        self._strategies()
        metadata = self.data.get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": name or DEFAULT_NAME},
            "spec": self.spec,
        }

    def _strategies(self) -> None:
        strategies = self.data.get("strategies")
        if not isinstance(strategies, Mapping):
            self.spec["strategies"] = strategies
            return
        taken: dict[str, Any] = {}
        scopes: dict[str, dict[str, Any]] = {}
        for name, strategy in strategies.items():
            if name in NOT_YET:
                self._not_yet(name, strategy)
            elif isinstance(strategy, Mapping):
                taken[name], scope = _split(strategy)
                if taken[name]["enabled"] is True:
                    scopes[name] = scope
            else:
                taken[name] = {"enabled": False} if strategy is None else strategy
        self.spec["strategies"] = taken
        self._scope(scopes)

    def _not_yet(self, name: str, strategy: object) -> None:
        if isinstance(strategy, Mapping) and strategy.get("enabled"):
            message = f"this strategy is not supported yet; supported: {', '.join(STRATEGIES)}"
            self.errors.append(FieldError(f"strategies.{name}", message))

    def _scope(self, scopes: Mapping[str, dict[str, Any]]) -> None:
        """Lift what all enabled strategies say of the pods they look at into the policy."""
        for key in _SCOPE:
            said = {name: scope.get(key) for name, scope in scopes.items()}
            values = list(said.values())
            if any(value != values[0] for value in values):
                who = " and ".join(name for name, value in said.items() if value is not None)
                message = (
                    f"given for {who} only, or differently: here it holds for all strategies of a policy; "
                    "make one policy for each scope"
                )
                self.errors.append(FieldError(f"strategies.*.params.{key}", message))
            elif values and values[0] is not None:
                self._set_scope(key, values[0])

    def _set_scope(self, key: str, value: Any) -> None:
        if key == "namespaces":
            given = value.items() if isinstance(value, Mapping) else ()
            self.spec["namespaces"] = {name: names for name, names in given if names} if given else value
        elif key == "labelSelector":
            self.spec["podSelector"] = value
        else:
            threshold = self.spec.setdefault("priorityThreshold", {})
            threshold["value" if key == "thresholdPriority" else "name"] = value

    def limit(self, key: str, value: object) -> None:
        name = _PLACES_BACK[key].removeprefix("spec.limits.")
        self.spec.setdefault("limits", {})[name] = value

    def node_selector(self, key: str, value: object) -> None:
        if not isinstance(value, str):
            self.errors.append(FieldError(key, "must be a selector in text form, e.g. disk=ssd,zone!=a"))
            return
        if not value.strip():
            return
        try:
            selector = parse_label_selector(value)
        except SelectorError as error:
            self.errors.append(FieldError(key, str(error)))
            return
        expressions = [
            {"key": item.key, "operator": item.operator, "values": list(item.values)}
            if item.values
            else {"key": item.key, "operator": item.operator}
            for item in selector.match_expressions
        ]
        self.spec["nodeSelector"] = {"matchLabels": dict(selector.match_labels), "matchExpressions": expressions}

    def protection(self, key: str, value: object) -> None:
        if not isinstance(value, bool):
            self.errors.append(FieldError(key, "must be true or false"))
        elif value:
            protections = self.spec.setdefault("protections", {})
            lifted = key == "evictLocalStoragePods"
            protections["disabled" if lifted else "extra"] = ["PodsWithLocalStorage" if lifted else "PodsWithPVC"]

    def never(self, key: str, value: object) -> None:
        if value is not False:
            self.errors.append(FieldError(key, "must be false or left out: these pods are always protected"))


def _split(strategy: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A strategy as trimtab has it, and what it says of the pods it looks at."""
    ours = {key: value for key, value in strategy.items() if key != "weight" and value is not None}
    ours.setdefault("enabled", False)
    params = ours.get("params")
    if not isinstance(params, Mapping):
        return ours, {}
    scope = {key: params[key] for key in _SCOPE if params.get(key) is not None}
    ours["params"] = {
        key: _without_deviation(value) if key == "nodeResourceUtilizationThresholds" else value
        for key, value in params.items()
        if key not in _SCOPE and key not in _IGNORED_PARAMS and value is not None
    }
    return ours, scope


def _without_deviation(thresholds: Any) -> Any:
    """Thresholds without ``useDeviationThresholds: false``, which says nothing; true is refused as unknown."""
    if isinstance(thresholds, Mapping) and thresholds.get("useDeviationThresholds") is False:
        return {key: value for key, value in thresholds.items() if key != "useDeviationThresholds"}
    return thresholds


_PLACES_BACK: Final = {theirs: ours for ours, theirs in _PLACES.items()}
_TOP_LEVEL: Final[Mapping[str, Callable[[_Translation, str, Any], None]]] = {
    "nodeSelector": _Translation.node_selector,
    "evictLocalStoragePods": _Translation.protection,
    "ignorePvcPods": _Translation.protection,
    "evictSystemCriticalPods": _Translation.never,
    "evictFailedBarePods": _Translation.never,
    "maxNoOfPodsToEvictPerNode": _Translation.limit,
    "maxNoOfPodsToEvictPerNamespace": _Translation.limit,
    "maxNoOfPodsToEvictTotal": _Translation.limit,
}
