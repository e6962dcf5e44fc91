"""PodTolerationRestriction: adds the default tolerations of a namespace to its pods, and restricts their tolerations.

Source: k8s.io/kubernetes v1.36, ``plugin/pkg/admission/podtolerationrestriction``. There are three differences:

* If ``allowApiServerDefaults`` is set, the whitelist need not contain the tolerations that kube-apiserver and the other
  rules add.
* In an update of a pod only tolerations that it did not have before must be on the whitelist, and none are removed.
  The in-tree plugin refuses every update of a pod that is older than the whitelist, including the removal of its last
  finalizer, and its removal of redundant tolerations makes the API server refuse the update.
* The message about an invalid annotation names the annotation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec.structs import fields, replace

from trimtab.admission.pod_resources import is_best_effort
from trimtab.admission.requests import CREATE, Attributes, NamespaceInfo, PodSpec, Toleration
from trimtab.admission.rules import AdmissionRule, Refusal, RuleDefaults
from trimtab.admission.rules.dedicated_nodes import DedicatedNodesRule
from trimtab.admission.rules.extended_resources import ExtendedResourceTolerationRule
from trimtab.admission.rules.special_hardware import SpecialHardwareRule
from trimtab.admission.rules.toleration_seconds import DefaultTolerationSecondsRule, api_server_defaults
from trimtab.admission.tolerations import (
    EXISTS,
    MAX_TOLERATIONS,
    TOO_MANY,
    has_too_many,
    is_covered,
    merge_tolerations,
    new_tolerations,
)
from trimtab.api.placement_admission import (
    POD_TOLERATION_RESTRICTION,
    FailurePolicy,
    PlacementAdmissionSpec,
    PodToleration,
    PodTolerationRestriction,
    RuleName,
)
from trimtab.kube.rules.taints import MEMORY_PRESSURE, NO_SCHEDULE

DEFAULTS_ANNOTATION: Final = "scheduler.alpha.kubernetes.io/defaultTolerations"
WHITELIST_ANNOTATION: Final = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"

CONFLICT_WITH_NAMESPACE: Final = (
    "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist"
)
CONFLICT_WITH_CLUSTER: Final = (
    "pod tolerations (possibly merged with namespace default tolerations) conflict with its cluster whitelist"
)

MEMORY_PRESSURE_TOLERATION: Final = Toleration(key=MEMORY_PRESSURE, operator=EXISTS, effect=NO_SCHEDULE)

_MAX_CACHED: Final = 16384
_FIELDS: Final = {field.encode_name.lower(): field.encode_name for field in fields(Toleration)}


class PodTolerationRestrictionRule(RuleDefaults):
    """Merges default tolerations into pods, and refuses pods with tolerations that are not on the whitelist.

    Args:
        block: the configuration of this rule, which namespaces override with annotations.
        spec: the other rules, whose tolerations pods may have.
    """

    def __init__(self, block: PodTolerationRestriction, spec: PlacementAdmissionSpec) -> None:
        self._defaults = tuple(map(_toleration, block.default_tolerations))
        self._whitelist = tuple(map(_toleration, block.tolerations_whitelist))
        self.name: RuleName = POD_TOLERATION_RESTRICTION
        self.failure_policy: FailurePolicy = block.failure_policy
        self._allow_defaults = block.allow_api_server_defaults
        self._adding: list[AdmissionRule] = []
        if spec.default_toleration_seconds is not None:
            self._adding.append(DefaultTolerationSecondsRule(spec.default_toleration_seconds))
        if spec.extended_resource_toleration is not None:
            self._adding.append(ExtendedResourceTolerationRule(spec.extended_resource_toleration))
        if spec.dedicated_nodes is not None:
            self._adding.append(DedicatedNodesRule(spec.dedicated_nodes))
        if spec.special_hardware is not None:
            self._adding.append(SpecialHardwareRule(spec.special_hardware))
        self._api_server_defaults = api_server_defaults(spec.default_toleration_seconds)

    def mutate(self, request: Attributes, spec: PodSpec) -> PodSpec:
        """Merge the default tolerations and, unless the pod is BestEffort, a toleration of memory-pressure.

        If a default toleration and one of the pod have the same key, the pod keeps both.

        Raises:
            Refusal: a toleration is not on the whitelist, or an annotation of the namespace is invalid.
        """
        if not request.is_pod or request.subresource:
            return spec
        extra: list[Toleration] = []
        if request.operation == CREATE:
            defaults = _annotated(request.namespace, DEFAULTS_ANNOTATION)
            extra += self._defaults if defaults is None else defaults
        if not is_best_effort(spec):
            extra.append(MEMORY_PRESSURE_TOLERATION)
        present = spec.tolerations or ()
        if has_too_many(spec):
            # In an update, only additions count; _check counts them.
            merged = present
        elif request.operation == CREATE:
            merged = merge_tolerations(present, extra) if extra else present
        else:
            merged = (*present, *(each for each in extra if not is_covered(each, present)))
        changed = spec if merged == present else replace(spec, tolerations=merged)
        for refusal in self._check(request, changed):
            raise refusal
        return changed

    def validate(self, request: Attributes) -> Iterable[Refusal]:
        """Check the tolerations of the final pod, to which other webhooks may have added some."""
        if not request.is_pod or request.subresource:
            return ()
        return self._check(request, request.pod.spec)

    def _check(self, request: Attributes, spec: PodSpec) -> Iterator[Refusal]:
        """Yield at most one refusal: a pod in a namespace with a whitelist has a toleration that is not on it."""
        try:
            tolerations = new_tolerations(replace(request, pod=replace(request.pod, spec=spec)))
            whitelist = _annotated(request.namespace, WHITELIST_ANNOTATION) if tolerations else ()
        except Refusal as refusal:
            yield refusal
            return
        message = CONFLICT_WITH_NAMESPACE
        if whitelist is None:
            whitelist, message = self._whitelist, CONFLICT_WITH_CLUSTER
        if not whitelist:
            return
        conflicts = [each for each in tolerations if not is_covered(each, whitelist)]
        if conflicts and not self._are_defaults(conflicts, request, spec):
            yield Refusal(message)

    def _are_defaults(self, tolerations: Iterable[Toleration], request: Attributes, spec: PodSpec) -> bool:
        """Return whether kube-apiserver or another rule adds each of the tolerations to such a pod."""
        if not self._allow_defaults:
            return False
        unexplained = set(tolerations) - self._api_server_defaults
        if not is_best_effort(spec):
            unexplained.discard(MEMORY_PRESSURE_TOLERATION)
        without = replace(spec, tolerations=None)
        for rule in self._adding:
            if not unexplained:
                break
            unexplained.difference_update(rule.mutate(request, without).tolerations or ())
        return not unexplained


def _toleration(toleration: PodToleration) -> Toleration:
    return Toleration(
        key=toleration.key,
        operator=toleration.operator,
        value=toleration.value,
        effect=toleration.effect,
        toleration_seconds=toleration.toleration_seconds,
    )


def _annotated(namespace: NamespaceInfo, key: str) -> Sequence[Toleration] | None:
    """Return the tolerations in an annotation of the namespace; ``None`` if it has no such annotation.

    Raises:
        Refusal: the annotation is invalid. Ignoring it would permit tolerations that it was meant to forbid.
    """
    text = namespace.annotations.get(key)
    if text is None:
        return None
    try:
        return _parsed(text) if len(text) <= _MAX_CACHED else parse_tolerations(text)
    except ValueError as error:
        raise Refusal(f"annotation {key} of namespace {namespace.name} is invalid: {error}") from None


def parse_tolerations(text: str) -> tuple[Toleration, ...]:
    """Parse a JSON list of tolerations, as leniently as Go's ``encoding/json`` does for the in-tree plugin.

    The empty string and ``null`` are empty lists. The case of field names does not matter, unknown fields are ignored
    and ``null`` leaves a field empty.

    Raises:
        ValueError: the text is not a JSON list of tolerations, or a list of more than :data:`MAX_TOLERATIONS`.
    """
    if not text:
        return ()
    try:
        items = msgspec.json.decode(text, type=list[dict[str, Any] | None] | None) or []
        if len(items) > MAX_TOLERATIONS:
            raise ValueError(TOO_MANY)
        return tuple(msgspec.convert(_known_fields(item or {}), Toleration) for item in items)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


_parsed = lru_cache(maxsize=1024)(parse_tolerations)


def _known_fields(item: dict[str, Any]) -> dict[str, Any]:
    return {
        _FIELDS[name.lower()]: value for name, value in item.items() if name.lower() in _FIELDS and value is not None
    }
