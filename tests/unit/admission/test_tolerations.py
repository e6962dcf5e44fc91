"""Comparison of tolerations (Kubernetes' own cases), and additions of tolerations and node labels to pod specs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.admission_requests import pod_spec, request, toleration, tolerations
from trimtab.admission.requests import Toleration
from trimtab.admission.rules import Refusal
from trimtab.admission.tolerations import (
    MAX_TOLERATIONS,
    add_toleration_of,
    add_tolerations,
    is_covered,
    is_superset,
    merge_tolerations,
    new_tolerations,
    require_label,
    requires_label,
    tolerations_for,
)
from trimtab.api.placement_admission import NodeTaint
from trimtab.kube.rules.taints import tolerates

NAMED = {
    "all": "*",
    "all-nosched": "*:NoSchedule",
    "all-noexec": "*:NoExecute",
    "foo": "foo",
    "foo-bar": "foo=bar",
    "foo-nosched": "foo:NoSchedule",
    "foo-bar-nosched": "foo=bar:NoSchedule",
    "foo-baz-nosched": "foo=baz:NoSchedule",
    "faz-nosched": "faz:NoSchedule",
    "faz-baz-nosched": "faz=baz:NoSchedule",
    "foo-prefnosched": "foo:PreferNoSchedule",
    "foo-noexec": "foo:NoExecute",
    "foo-bar-noexec": "foo=bar:NoExecute",
    "foo-noexec-10": "foo:NoExecute@10",
    "foo-noexec-0": "foo:NoExecute@0",
    "foo-bar-noexec-10": "foo=bar:NoExecute@10",
}
"""The tolerations of upstream's tests (kubernetes v1.36.3, pkg/util/tolerations)."""

SUPERSETS = {
    "all": set(NAMED),
    "all-nosched": {"foo-nosched", "foo-bar-nosched", "foo-baz-nosched", "faz-nosched", "faz-baz-nosched"},
    "all-noexec": {"foo-noexec", "foo-bar-noexec", "foo-noexec-10", "foo-noexec-0", "foo-bar-noexec-10"},
    "foo": {
        "foo-bar",
        "foo-nosched",
        "foo-bar-nosched",
        "foo-baz-nosched",
        "foo-prefnosched",
        "foo-noexec",
        "foo-bar-noexec",
        "foo-noexec-10",
        "foo-noexec-0",
        "foo-bar-noexec-10",
    },
    "foo-bar": {"foo-bar-nosched", "foo-bar-noexec", "foo-bar-noexec-10"},
    "foo-nosched": {"foo-bar-nosched", "foo-baz-nosched"},
    "foo-bar-nosched": set(),
    "faz-nosched": {"faz-baz-nosched"},
    "faz-baz-nosched": set(),
    "foo-prefnosched": set(),
    "foo-noexec": {"foo-bar-noexec", "foo-noexec-10", "foo-noexec-0", "foo-bar-noexec-10"},
    "foo-bar-noexec": {"foo-bar-noexec-10"},
    "foo-noexec-10": {"foo-noexec-0", "foo-bar-noexec-10"},
    "foo-noexec-0": set(),
    "foo-bar-noexec-10": set(),
}
"""All 15 cases of TestIsSuperset, each compared with all 16 tolerations.

Upstream's case "foo-prenosched" names no toleration of its list, so that it compares an empty one. Here it is the one
that its author meant.
"""

VERIFY = {
    "equal": ("foo-bar-nosched foo-baz-nosched", "foo-bar-nosched foo-baz-nosched", True),
    "duplicate allowed": ("foo-bar-nosched foo-bar-nosched", "foo-bar-nosched foo-baz-nosched", True),
    "allow all": ("foo-bar-nosched foo-bar-nosched", "all", True),
    "duplicate forbidden": ("foo-bar-nosched foo-bar-nosched", "foo-baz-nosched", False),
    "value mismatch": ("foo-bar-nosched foo-baz-nosched", "foo-baz-nosched", False),
    "not in whitelist": ("foo-bar-nosched", "foo-baz-nosched", False),
    "disjoint": ("foo-bar", "foo-nosched", False),
    "empty input": ("", "foo-bar", True),
}
"""The cases of TestVerifyAgainstWhitelist, except the empty whitelist, which is a case of the rule."""

MERGE = {
    "disjoint": (
        "foo-bar-nosched faz-baz-nosched foo-noexec-10",
        "foo-prefnosched foo-baz-nosched",
        "foo-bar-nosched faz-baz-nosched foo-noexec-10 foo-prefnosched foo-baz-nosched",
    ),
    "duplicate": (
        "foo-bar-nosched faz-baz-nosched foo-noexec-10",
        "foo-bar-nosched faz-baz-nosched foo-noexec-10",
        "foo-bar-nosched faz-baz-nosched foo-noexec-10",
    ),
    "merge redundant": (
        "foo-bar-nosched foo-baz-nosched",
        "foo-nosched faz-baz-nosched",
        "foo-nosched faz-baz-nosched",
    ),
    "merge all": ("foo-bar-nosched foo-baz-nosched foo-noexec-10", "all", "all"),
    "merge into all": ("all", "foo-bar-nosched foo-baz-nosched foo-noexec-10", "all"),
}
"""All 5 cases of TestMergeTolerations."""


def named(names: str) -> tuple[Toleration, ...]:
    return tolerations(*(NAMED[name] for name in names.split()))


@pytest.mark.parametrize(("wide", "narrow"), SUPERSETS.items(), ids=SUPERSETS)
def test_upstream_supersets(wide: str, narrow: set[str]) -> None:
    found = {name for name in NAMED if is_superset(toleration(NAMED[wide]), toleration(NAMED[name]))}
    assert found == narrow | {wide}


@pytest.mark.parametrize(("given_", "whitelist", "permitted"), VERIFY.values(), ids=VERIFY)
def test_upstream_whitelists(given_: str, whitelist: str, permitted: bool) -> None:
    assert all(is_covered(each, named(whitelist)) for each in named(given_)) is permitted


@pytest.mark.parametrize(("first", "second", "merged"), MERGE.values(), ids=MERGE)
def test_upstream_merges(first: str, second: str, merged: str) -> None:
    assert merge_tolerations(named(first), named(second)) == named(merged)


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        (Toleration("a", "", "v"), Toleration("a", "Equal", "v"), True),
        (Toleration("a", "Equal", "v"), Toleration("a", "", "v"), False),
        (Toleration("a", "", "v"), Toleration("a", "", "v"), True),
        (Toleration("a", "Gt", "5"), Toleration("a", "Gt", "5"), True),
        (Toleration("a", "Gt", "5"), Toleration("a", "Gt", "6"), False),
        (Toleration("a", "Gt", "5"), Toleration("a", "Equal", "5"), False),
        (Toleration("a", "Exists"), Toleration("a", "Lt", "5"), True),
        (Toleration("", "Equal", "v"), Toleration("a", "Equal", "v"), False),
        (Toleration("", "Exists", effect="NoSchedule"), Toleration("a", "Exists"), False),
    ],
)
def test_operators_of_supersets(wide: Toleration, narrow: Toleration, expected: bool) -> None:
    """The operator is not defaulted, and newer operators cover only themselves, as in upstream."""
    assert is_superset(wide, narrow) is expected


VALID = st.builds(
    lambda key, value, effect, seconds: toleration(
        key + value + effect + (f"@{seconds}" if seconds is not None and effect == ":NoExecute" else "")
    ),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["", "=x", "=y"]),
    st.sampled_from(["", ":NoSchedule", ":NoExecute", ":PreferNoSchedule"]),
    st.none() | st.integers(0, 3),
) | st.sampled_from(tolerations("*", "*:NoSchedule", "*:NoExecute@2"))
LISTS = st.lists(VALID, max_size=8)


@given(LISTS, LISTS)
def test_merged_tolerations_cover_both_lists(first: list[Toleration], second: list[Toleration]) -> None:
    """Upstream's TestFuzzed; and merging again changes nothing."""
    merged = merge_tolerations(first, second)
    assert all(is_covered(each, merged) for each in (*first, *second))
    assert set(merged) <= {*first, *second}
    assert merge_tolerations(merged, ()) == merged


@given(
    VALID,
    VALID,
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["", "x"]),
    st.sampled_from(["NoSchedule", "NoExecute"]),
)
def test_a_superset_tolerates_every_taint(
    wide: Toleration, narrow: Toleration, key: str, value: str, effect: str
) -> None:
    taint = NodeTaint(key=key, value=value, effect=effect)
    if is_superset(wide, narrow) and tolerates(narrow, taint):
        assert tolerates(wide, taint)


@pytest.mark.parametrize(
    ("text", "tolerated"),
    [
        (Toleration("dedicated", "Equal", "5", "NoSchedule"), True),
        (Toleration("dedicated", "", "5", "NoSchedule"), True),
        (Toleration("dedicated", "Equal", "5"), True),
        (Toleration("dedicated", "Exists", "", "NoSchedule"), True),
        (Toleration("dedicated", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("", "Exists", "", "NoSchedule"), True),
        (Toleration("dedicated", "Gt", "4"), True),
        (Toleration("dedicated", "Lt", "6", "NoSchedule"), True),
        (Toleration("dedicated", "Lt", "5"), False),
        (Toleration("dedicated", "Equal", "6"), False),
        (Toleration("dedicated", "Exists", "", "NoExecute"), False),
        (Toleration("other", "Exists"), False),
        (Toleration("dedicated", "Regex", ".*"), False),
    ],
)
def test_forms_of_tolerations(text: Toleration, tolerated: bool) -> None:
    assert tolerations_for([text], NodeTaint(key="dedicated", value="5")) == ([text] if tolerated else [])


@pytest.mark.parametrize("seconds", [0, 1, 3600, None])
def test_tolerating_for_some_seconds_is_tolerating(seconds: int | None) -> None:
    found = Toleration("a", "Exists", "", "NoExecute", seconds)
    assert tolerations_for([found], NodeTaint(key="a", effect="NoExecute")) == [found]


@pytest.mark.parametrize(
    ("present", "after"),
    [
        ((), ("a=x:NoSchedule",)),
        (("b",), ("b", "a=x:NoSchedule")),
        (("a=y:NoSchedule",), ("a=y:NoSchedule", "a=x:NoSchedule")),
        (("a:NoExecute",), ("a:NoExecute", "a=x:NoSchedule")),
        (("a=x:NoSchedule",), ("a=x:NoSchedule",)),
        (("a=x",), ("a=x",)),
        (("a",), ("a",)),
        (("*:NoSchedule",), ("*:NoSchedule",)),
    ],
)
def test_adds_a_toleration_of_a_taint_once(present: tuple[str, ...], after: tuple[str, ...]) -> None:
    taint = NodeTaint(key="a", value="x")
    spec = add_toleration_of(pod_spec(*present), taint)
    assert spec.tolerations == tolerations(*after)
    assert add_toleration_of(spec, taint) is spec


def test_comparing_toleration_counts_as_tolerating() -> None:
    """The API server accepts Gt and Lt only if kube-scheduler may compare values."""
    spec, more = pod_spec(Toleration("a", "Gt", "4")), NodeTaint(key="a", value="4")
    assert add_toleration_of(spec, NodeTaint(key="a", value="5")) is spec
    assert add_toleration_of(spec, more).tolerations == (
        Toleration("a", "Gt", "4"),
        Toleration("a", "Equal", "4", "NoSchedule"),
    )


def test_the_same_toleration_with_other_seconds_is_replaced() -> None:
    spec = pod_spec("a:NoExecute@5", "b")
    assert add_tolerations(spec, tolerations("a:NoExecute@7", "c")).tolerations == tolerations(
        "a:NoExecute@7", "b", "c"
    )
    assert add_tolerations(spec, tolerations("b")) is spec


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def expressions(*each: tuple[str, str, list[str]]) -> dict[str, Any]:
    return {
        "matchExpressions": [{"key": key, "operator": operator, "values": values} for key, operator, values in each]
    }


POOL = ("pool", "In", ["a"])
ZONE = ("zone", "In", ["z"])
FIELDS = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"affinity": affinity(expressions(POOL))}),
        ({"affinity": {}}, {"affinity": affinity(expressions(POOL))}),
        ({"nodeSelector": {"pool": "a"}}, {"nodeSelector": {"pool": "a"}}),
        ({"nodeSelector": {"pool": "b"}}, {"nodeSelector": {"pool": "b"}, "affinity": affinity(expressions(POOL))}),
        ({"affinity": affinity(expressions(ZONE))}, {"affinity": affinity(expressions(ZONE, POOL))}),
        (
            {"affinity": affinity(expressions(ZONE), FIELDS)},
            {"affinity": affinity(expressions(ZONE, POOL), {**FIELDS, **expressions(POOL)})},
        ),
        (
            {"affinity": affinity(expressions(ZONE, POOL), expressions(ZONE))},
            {"affinity": affinity(expressions(ZONE, POOL), expressions(ZONE, POOL))},
        ),
        (
            {"affinity": affinity(expressions(("pool", "In", ["a", "b"])))},
            {"affinity": affinity(expressions(("pool", "In", ["a", "b"]), POOL))},
        ),
        (
            {"affinity": affinity(expressions(("pool", "NotIn", ["a"])))},
            {"affinity": affinity(expressions(("pool", "NotIn", ["a"]), POOL))},
        ),
        ({"affinity": affinity({}, expressions(ZONE))}, {"affinity": affinity({}, expressions(ZONE, POOL))}),
        ({"affinity": affinity({})}, {"affinity": affinity({})}),
    ],
)
def test_requires_a_label_in_every_term(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Terms are alternatives. A term without requirements matches no node, and must not begin to match some."""
    spec = require_label(pod_spec(**before), "pool", "a")
    assert spec == pod_spec(**after)
    assert requires_label(spec, "pool", "a")
    assert require_label(spec, "pool", "a") is spec


def test_preferred_node_affinity_is_kept() -> None:
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": expressions(ZONE)}]}
    spec = require_label(pod_spec(affinity={"nodeAffinity": preferred}), "pool", "a")
    assert spec.node_affinity.preferred == pod_spec(affinity={"nodeAffinity": preferred}).node_affinity.preferred


def test_new_tolerations_of_an_update() -> None:
    asked = request(pod_spec("a", "b:NoExecute@5", "c"), old=pod_spec("c", "a", "b:NoExecute@6"))
    assert new_tolerations(asked) == tolerations("b:NoExecute@5")
    template = request(pod_spec("a"), old=pod_spec("a"), kind="Deployment")
    assert new_tolerations(template) == tolerations("a")


def test_the_number_of_new_tolerations_is_limited() -> None:
    many = [f"k{number}" for number in range(MAX_TOLERATIONS + 1)]
    assert len(new_tolerations(request(pod_spec(*many[1:])))) == MAX_TOLERATIONS
    with pytest.raises(Refusal):
        new_tolerations(request(pod_spec(*many)))
    assert new_tolerations(request(pod_spec(*many), old=pod_spec(*many))) == ()
