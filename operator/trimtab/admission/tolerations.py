"""Tolerations and required node labels of pod specs: what they permit, and how rules add to them.

Tolerations are compared as in k8s.io/kubernetes ``pkg/util/tolerations`` (v1.36). All functions are pure: they return
the given pod spec itself if nothing changes, so that rules can be applied any number of times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from trimtab.admission.requests import Affinity, Attributes, NodeTerm, PodSpec, RequiredTerms, Requirement, Toleration
from trimtab.admission.rules import Refusal
from trimtab.kube.rules.taints import NO_EXECUTE, TaintLike, tolerates

EXISTS: Final = "Exists"
EQUAL: Final = "Equal"
IN: Final = "In"

MAX_TOLERATIONS: Final = 256
"""The largest number of tolerations that a pod may have under the rules that compare them.

Kubernetes has no limit except the size of a request, into which 70,000 tolerations fit. To compare all of them with
each other would take minutes, during which the replica answers no other request.
"""
TOO_MANY: Final = f"pods must not have more than {MAX_TOLERATIONS} tolerations"


def new_tolerations(request: Attributes) -> tuple[Toleration, ...]:
    """Return the tolerations that a request adds to a pod, or all tolerations if it does not update a pod.

    The API server lets an update of a pod add tolerations and change tolerationSeconds, and nothing else. A toleration
    with other tolerationSeconds is a new one. In an update of a workload all tolerations are new, because new pods will
    have them.

    Raises:
        Refusal: there are more than :data:`MAX_TOLERATIONS`.
    """
    tolerations: Iterable[Toleration] = request.pod.spec.tolerations or ()
    if request.is_pod and request.old is not None:
        present = set(request.old.spec.tolerations or ())
        tolerations = [each for each in tolerations if each not in present]
    found = tuple(tolerations)
    if len(found) > MAX_TOLERATIONS:
        raise Refusal(TOO_MANY)
    return found


def has_too_many(spec: PodSpec) -> bool:
    """Return whether a new pod has so many tolerations that it is refused. Mutations then skip the pod."""
    return len(spec.tolerations or ()) > MAX_TOLERATIONS


def tolerations_for(tolerations: Iterable[Toleration], taint: TaintLike) -> list[Toleration]:
    """Return the tolerations that tolerate the taint.

    ``tolerationSeconds`` is ignored: a pod that tolerates NoExecute for a second can start on the node. ``Gt`` and
    ``Lt`` compare values, although the API server has that feature off by default: if it is off, no pod has them.
    """
    return [each for each in tolerations if tolerates(each, taint)]


def toleration_of(taint: TaintLike) -> Toleration:
    """Return the toleration that matches only this taint."""
    return Toleration(key=taint.key, operator=EQUAL, value=taint.value, effect=taint.effect)


def is_superset(wide: Toleration, narrow: Toleration) -> bool:
    """Return whether ``wide`` tolerates everything that ``narrow`` does (upstream's ``isSuperset``).

    As in upstream, an Equal toleration covers only tolerations with the explicit operator Equal, and ``Gt`` and ``Lt``
    cover only themselves.
    """
    if wide.key != narrow.key and (wide.key or wide.operator != EXISTS):
        return False
    if wide == narrow:
        return True
    if wide.effect and wide.effect != narrow.effect:
        return False
    if wide.effect == NO_EXECUTE and wide.toleration_seconds is not None:
        seconds = narrow.toleration_seconds
        if seconds is None or seconds > wide.toleration_seconds:
            return False
    if wide.operator in ("", EQUAL):
        return narrow.operator == EQUAL and wide.value == narrow.value
    return wide.operator == EXISTS


def is_covered(toleration: Toleration, by: Iterable[Toleration]) -> bool:
    """Return whether one of the tolerations ``by`` is a superset of the toleration."""
    return any(is_superset(each, toleration) for each in by)


def merge_tolerations(first: Sequence[Toleration], second: Sequence[Toleration]) -> tuple[Toleration, ...]:
    """Return the tolerations of both lists without those that others cover (upstream's ``MergeTolerations``).

    Of equal tolerations the first one remains.
    """
    everything = tuple(dict.fromkeys((*first, *second)))
    merged: list[Toleration] = []
    for position, toleration in enumerate(everything):
        if not is_covered(toleration, merged) and not is_covered(toleration, everything[position + 1 :]):
            merged.append(toleration)
    return tuple(merged)


def add_tolerations(spec: PodSpec, missing: Iterable[Toleration]) -> PodSpec:
    """Append tolerations. A toleration that differs from one of the pod only in tolerationSeconds replaces it.

    This is ``AddOrUpdateTolerationInPod`` of k8s.io/kubernetes ``pkg/apis/core/helper``. tolerationSeconds of existing
    tolerations is the only part of them that may change in an update.
    """
    added = {_without_seconds(toleration): toleration for toleration in missing}
    present = spec.tolerations or ()
    changed = tuple(added.get(_without_seconds(each), each) for each in present)
    found = set(map(_without_seconds, present))
    changed += tuple(toleration for same, toleration in added.items() if same not in found)
    return spec if changed == present else replace(spec, tolerations=changed)


def _without_seconds(toleration: Toleration) -> tuple[str, str, str, str]:
    """Return the identity of a toleration (``MatchToleration``)."""
    return toleration.key, toleration.operator, toleration.value, toleration.effect


def add_toleration_of(spec: PodSpec, taint: TaintLike) -> PodSpec:
    """Append a toleration that matches only this taint, unless the pod tolerates the taint already."""
    if any(tolerates(each, taint) for each in spec.tolerations or ()):
        return spec
    return add_tolerations(spec, (toleration_of(taint),))


def requires_label(spec: PodSpec, key: str, value: str) -> bool:
    """Return whether the pod can only be placed on nodes with the label, by node selector or required node affinity."""
    if (spec.node_selector or {}).get(key) == value:
        return True
    required = spec.node_affinity.required
    if required is None:
        return False
    return all(_requires(term, key, value) for term in required.node_selector_terms or ())


def require_label(spec: PodSpec, key: str, value: str) -> PodSpec:
    """Add the label to the required node affinity, unless the pod requires it already.

    The terms of a node affinity are alternatives, so the label is added to each of them.
    """
    if requires_label(spec, key, value):
        return spec
    label = Requirement(key=key, operator=IN, values=(value,))
    present = spec.node_affinity
    if present.required is None:
        terms: tuple[NodeTerm, ...] = (NodeTerm(match_expressions=(label,)),)
    else:
        terms = tuple(
            term
            if _requires(term, key, value)
            else replace(term, match_expressions=(*(term.match_expressions or ()), label))
            for term in present.required.node_selector_terms or ()
        )
    affinity = replace(spec.affinity or Affinity(), node_affinity=replace(present, required=RequiredTerms(terms)))
    return replace(spec, affinity=affinity)


def _requires(term: NodeTerm, key: str, value: str) -> bool:
    """Return whether a term matches only nodes with the label. A term without requirements matches no node."""
    if not term.match_expressions and not term.match_fields:
        return True
    return any(
        each.key == key and each.operator == IN and each.values == (value,) for each in term.match_expressions or ()
    )
