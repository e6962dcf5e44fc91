"""JSON patches for differences between pod specs."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.admission_requests import toleration
from tests.json_patch import apply_patch
from trimtab.admission.patch import json_patch
from trimtab.admission.requests import (
    Affinity,
    NodeAffinity,
    NodeTerm,
    PodSpec,
    RequiredTerms,
    Requirement,
    Toleration,
)
from trimtab.admission.tolerations import require_label

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
UNKNOWN = "field-of-a-later-version"

KEYS = st.sampled_from(["a", "b", "example.com/gpu", "a~b", ""])
SECONDS = st.none() | st.integers(0, 2)
TOLERATIONS = st.builds(
    Toleration, key=KEYS, operator=st.sampled_from(["", "Exists", "Equal"]), toleration_seconds=SECONDS
)
REQUIREMENTS = st.builds(Requirement, key=KEYS, operator=st.just("In"), values=st.just(("x",)))
TERMS = st.builds(
    NodeTerm,
    match_expressions=st.none() | st.lists(REQUIREMENTS, max_size=2).map(tuple),
    match_fields=st.none() | st.lists(REQUIREMENTS, max_size=1).map(tuple),
)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


AFFINITIES = optional(
    st.builds(
        Affinity,
        node_affinity=optional(
            st.builds(
                NodeAffinity,
                required=optional(
                    st.builds(RequiredTerms, node_selector_terms=optional(st.lists(TERMS, max_size=3).map(tuple)))
                ),
            )
        ),
    )
)
SPECS = st.builds(
    PodSpec,
    node_selector=optional(st.dictionaries(KEYS, st.sampled_from(["x", "y"]), max_size=3)),
    tolerations=optional(st.lists(TOLERATIONS, max_size=5).map(tuple)),
    affinity=AFFINITIES,
)


def encoded(spec: PodSpec, *, explicit_nulls: bool = False) -> dict[str, Any]:
    """The pod spec as JSON, with fields that are not decoded everywhere."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(spec))
    found = {name: value for name, value in found.items() if value is not None or explicit_nulls}
    found["hostNetwork"] = True
    for each in found.get("tolerations") or ():
        each[UNKNOWN] = 1
    for each in nested(found):
        each[UNKNOWN] = 2
    return found


def nested(spec: dict[str, Any]) -> list[dict[str, Any]]:
    affinity = spec.get("affinity")
    found = [affinity] if affinity is not None else []
    if affinity and affinity.get("nodeAffinity") is not None:
        found.append(affinity["nodeAffinity"])
        required = affinity["nodeAffinity"].get(REQUIRED)
        for term in (required or {}).get("nodeSelectorTerms") or ():
            found.append(term)
            found.extend(term.get("matchExpressions") or ())
    return found


def normalized(spec: PodSpec) -> PodSpec:
    """Empty lists and maps are the same as missing ones."""
    affinity = spec.node_affinity.required
    terms = tuple(
        NodeTerm(match_expressions=each.match_expressions or None, match_fields=each.match_fields or None)
        for each in (affinity and affinity.node_selector_terms) or ()
    )
    return PodSpec(
        node_selector=spec.node_selector or None,
        tolerations=spec.tolerations or None,
        affinity=Affinity(NodeAffinity(required=RequiredTerms(terms))),
    )


@given(before=SPECS, after=SPECS, nulls=st.booleans())
def test_patch_produces_the_new_spec(before: PodSpec, after: PodSpec, nulls: bool) -> None:
    raw = {"spec": encoded(before, explicit_nulls=nulls)}
    patched = apply_patch(raw, json_patch(before, after))
    found = msgspec.convert(patched["spec"], PodSpec)
    assert normalized(found) == normalized(after)
    assert patched["spec"]["hostNetwork"] is True
    assert not json_patch(before, before)


@given(before=SPECS, added=st.lists(TOLERATIONS, max_size=3), seconds=st.integers(10, 20))
def test_fields_that_are_not_decoded_survive(before: PodSpec, added: list[Toleration], seconds: int) -> None:
    present = tuple(dict.fromkeys(before.tolerations or ()))
    before = replace(before, tolerations=present)
    added = [replace(each, key="new") for each in added]
    changed = tuple(replace(each, toleration_seconds=seconds) if not i else each for i, each in enumerate(present))
    after = require_label(replace(before, tolerations=(*changed, *added)), "pool", "team-a")
    raw = {"spec": encoded(before)}
    found = apply_patch(raw, json_patch(before, after))["spec"]
    assert msgspec.convert(found, PodSpec).tolerations == after.tolerations or not after.tolerations
    for each in (found.get("tolerations") or ())[: len(present)]:
        assert each[UNKNOWN] == 1
    kept = [each for each in nested(found) if UNKNOWN in each]
    assert len(kept) == len(nested(raw["spec"]))


ANY = toleration("a:NoSchedule")
OTHER = toleration("b:NoSchedule")


@pytest.mark.parametrize(
    ("before", "after", "operations"),
    [
        (None, (ANY,), [("add", "/spec/tolerations")]),
        ((), (ANY,), [("add", "/spec/tolerations/-")]),
        ((ANY,), (ANY, OTHER), [("add", "/spec/tolerations/-")]),
        ((ANY, OTHER), (OTHER,), [("remove", "/spec/tolerations/0")]),
        ((OTHER,), (ANY, OTHER), [("add", "/spec/tolerations/0")]),
        (
            (OTHER, toleration("a:NoExecute@300")),
            (OTHER, toleration("a:NoExecute@60")),
            [("add", "/spec/tolerations/1/tolerationSeconds")],
        ),
        ((toleration("a@3"),), (toleration("a"),), [("remove", "/spec/tolerations/0/tolerationSeconds")]),
    ],
)
def test_smallest_patch_of_tolerations(before: Any, after: Any, operations: list[tuple[str, str]]) -> None:
    patch = json_patch(PodSpec(tolerations=before), PodSpec(tolerations=after))
    assert [(each.op, each.path) for each in patch] == operations


def test_patch_of_a_template() -> None:
    raw = {"spec": {"template": {"spec": {"nodeSelector": {"a/b": "1", "c": "1"}}}}}
    before = PodSpec(node_selector={"a/b": "1", "c": "1"})
    after = PodSpec(node_selector={"a/b": "2", "d~": "1"})
    patch = json_patch(before, after, path="/spec/template")
    untouched = copy.deepcopy(raw)
    assert apply_patch(raw, patch)["spec"]["template"]["spec"] == {"nodeSelector": {"a/b": "2", "d~": "1"}}
    assert raw == untouched
    assert {each.path for each in patch} == {
        "/spec/template/spec/nodeSelector/c",
        "/spec/template/spec/nodeSelector/a~1b",
        "/spec/template/spec/nodeSelector/d~0",
    }


def test_patch_of_many_tolerations_takes_linear_time() -> None:
    many = tuple(toleration(f"key-{number}") for number in range(50_000))
    assert len(json_patch(PodSpec(tolerations=many), PodSpec(tolerations=many[1:]))) == 1
    assert len(json_patch(PodSpec(tolerations=many[:20_000]), PodSpec(tolerations=many[20_000:]))) == 50_000
