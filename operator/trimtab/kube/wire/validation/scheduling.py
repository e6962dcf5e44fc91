"""What says where pods may run: affinity, spreading, taints and tolerations (core/v1 validation, v1.36)."""

from __future__ import annotations

from typing import Any, Final

from trimtab.kube.wire import json
from trimtab.kube.wire.fields import FieldError
from trimtab.kube.wire.validation.checks import (
    INT64,
    POSITIVE32,
    Shape,
    below,
    between,
    both,
    distinct,
    each,
    given,
    must_be,
    one_of,
    shown,
)
from trimtab.kube.wire.validation.names import DNS_LABEL, LABEL_KEY, LABEL_VALUE, is_decimal_int64
from trimtab.kube.wire.validation.selectors import LABEL_SELECTOR, NODE_SELECTOR, PREFERRED_TERM

EFFECT: Final = one_of("NoSchedule", "PreferNoSchedule", "NoExecute")
WEIGHT: Final = between(1, 100)
_POLICY: Final = one_of("Honor", "Ignore")
_TOPOLOGY_KEY: Final = "the key of a node label"


def _label_keys(message: Any) -> None:
    """``matchLabelKeys`` add to the selector, so there must be one, and it must not say the same already.

    The API server itself writes the values of the pod's keys into the selector, as one expression a key: to find that
    one there is no fault.
    """
    keys = message.match_label_keys
    if not keys:
        return
    if message.label_selector is None:
        raise FieldError("matchLabelKeys", "may only be given with a labelSelector")
    expressions = [expression.key for expression in message.label_selector.match_expressions]
    for index, key in enumerate(keys):
        if key in message.label_selector.match_labels or expressions.count(key) > 1:
            raise FieldError(f"matchLabelKeys[{index}]", f"{key} is in the labelSelector too: give it in one of them")


def _mismatch_label_keys(message: Any) -> None:
    if message.mismatch_label_keys and message.label_selector is None:
        raise FieldError("mismatchLabelKeys", "may only be given with a labelSelector")
    for index, key in enumerate(message.match_label_keys):
        if key in message.mismatch_label_keys:
            raise FieldError(f"matchLabelKeys[{index}]", f"{key} is in mismatchLabelKeys too: give it in one of them")


_POD_TERM: Final = Shape(
    json.PodAffinityTerm,
    needs="topology_key",
    topology_key=LABEL_KEY,
    label_selector=LABEL_SELECTOR,
    namespaces=each(DNS_LABEL),
    namespace_selector=LABEL_SELECTOR,
    match_label_keys=each(LABEL_KEY),
    mismatch_label_keys=each(LABEL_KEY),
    also=[_label_keys, _mismatch_label_keys],
)
_WEIGHTED_POD_TERM: Final = Shape(
    json.WeightedPodAffinityTerm, needs="weight", weight=WEIGHT, pod_affinity_term=_POD_TERM
)
_POD_AFFINITY: Final = Shape(json.PodAffinity, required=each(_POD_TERM), preferred=each(_WEIGHTED_POD_TERM))
_NODE_AFFINITY: Final = Shape(
    json.NodeAffinity,
    required=NODE_SELECTOR,
    preferred=each(
        Shape(json.PreferredSchedulingTerm, needs="weight", weight=WEIGHT, preference=PREFERRED_TERM),
    ),
)
AFFINITY: Final = Shape(
    json.Affinity, node_affinity=_NODE_AFFINITY, pod_affinity=_POD_AFFINITY, pod_anti_affinity=_POD_AFFINITY
)


def _min_domains(message: Any) -> None:
    if message.min_domains is not None and message.when_unsatisfiable != "DoNotSchedule":
        raise FieldError("minDomains", "may only be given where whenUnsatisfiable is DoNotSchedule")


TOPOLOGY_SPREAD: Final = both(
    each(
        Shape(
            json.TopologySpreadConstraint,
            needs="max_skew topology_key when_unsatisfiable",
            max_skew=POSITIVE32,
            topology_key=given(_TOPOLOGY_KEY),
            when_unsatisfiable=one_of("DoNotSchedule", "ScheduleAnyway"),
            label_selector=LABEL_SELECTOR,
            min_domains=POSITIVE32,
            node_affinity_policy=_POLICY,
            node_taints_policy=_POLICY,
            match_label_keys=each(LABEL_KEY),
            also=[_min_domains, _label_keys],
        )
    ),
    distinct(
        lambda message: (message.topology_key, message.when_unsatisfiable), "topologyKey and whenUnsatisfiable together"
    ),
)


def _any_key(message: Any) -> None:
    if not message.key and message.operator != "Exists":
        raise FieldError("operator", "must be Exists where the key is empty, which stands for all taints")


def _value(message: Any) -> None:
    """The value, as the operator wants it; a toleration with Gt or Lt compares integers."""
    operator, value = message.operator, message.value
    if operator == "Exists":
        if value:
            raise FieldError("value", f"must be empty where the operator is Exists, not {shown(value)}")
    elif operator in ("Gt", "Lt"):
        if not is_decimal_int64(value):
            raise FieldError("value", must_be(f"an integer of 64 bits where the operator is {operator}", value).message)
    else:
        try:
            LABEL_VALUE(value)
        except FieldError as error:
            raise below("value", error) from None


def _seconds(message: Any) -> None:
    if message.toleration_seconds is not None and message.effect != "NoExecute":
        given_effect = shown(message.effect) if message.effect else "empty"
        raise FieldError("effect", f"must be NoExecute where tolerationSeconds is given, not {given_effect}")


TOLERATION: Final = Shape(
    json.Toleration,
    key=LABEL_KEY,
    operator=one_of("Exists", "Equal", "Gt", "Lt"),
    effect=EFFECT,
    toleration_seconds=INT64,
    also=[_any_key, _value, _seconds],
)
"""Gt and Lt (alpha in v1.36) pass: a cluster may have them on, and they tolerate nothing where it has not."""

TAINTS: Final = both(
    each(Shape(json.Taint, needs="key effect", key=LABEL_KEY, value=LABEL_VALUE, effect=EFFECT)),
    distinct(lambda taint: (taint.key, taint.effect), "key and effect together"),
)
