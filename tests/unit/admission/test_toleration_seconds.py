"""DefaultTolerationSeconds: Kubernetes' own cases, and the adjustment of what kube-apiserver has added."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.admission_requests import mutate, pod_spec, refusals, request, tolerations
from trimtab.admission.rules.toleration_seconds import DefaultTolerationSecondsRule
from trimtab.api.placement_admission import DEFAULT_TOLERATION_SECONDS, DefaultTolerationSeconds

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
DEFAULTS = (f"{NOT_READY}:NoExecute@300", f"{UNREACHABLE}:NoExecute@300")

UPSTREAM: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "no tolerations": ((), DEFAULTS),
    "unrelated toleration": (("foo=bar:NoSchedule@700",), ("foo=bar:NoSchedule@700", *DEFAULTS)),
    "not-ready only": ((f"{NOT_READY}:NoExecute@700",), (f"{NOT_READY}:NoExecute@700", DEFAULTS[1])),
    "unreachable only": ((f"{UNREACHABLE}:NoExecute@700",), (f"{UNREACHABLE}:NoExecute@700", DEFAULTS[0])),
    "both": (
        (f"{NOT_READY}:NoExecute@700", f"{UNREACHABLE}:NoExecute@700"),
        (f"{NOT_READY}:NoExecute@700", f"{UNREACHABLE}:NoExecute@700"),
    ),
    "unreachable with any effect": ((f"{UNREACHABLE}@700",), (f"{UNREACHABLE}@700", DEFAULTS[0])),
    "wildcard": (("*@700",), ("*@700",)),
}
"""All 7 cases of TestForgivenessAdmission (kubernetes v1.36.3): the pod's tolerations before and after."""


def rule(**fields: Any) -> DefaultTolerationSecondsRule:
    return DefaultTolerationSecondsRule(DefaultTolerationSeconds(**fields))


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
@pytest.mark.parametrize(("before", "after"), UPSTREAM.values(), ids=UPSTREAM)
def test_upstream_cases(before: tuple[str, ...], after: tuple[str, ...], operation: str) -> None:
    spec = pod_spec(*before)
    asked = request(spec, old=spec) if operation == "UPDATE" else request(spec)
    assert mutate(rule(), asked).tolerations == tolerations(*after)
    assert not refusals(rule(), asked)


def test_only_pods_are_changed() -> None:
    """TestHandles: creations and updates; of pods and of no subresource."""
    for asked in (request(kind="Deployment"), request(subresource="status", old=pod_spec())):
        assert mutate(rule(), asked) is asked.pod.spec


@pytest.mark.parametrize(
    ("block", "before", "after"),
    [
        ({}, DEFAULTS, (f"{NOT_READY}:NoExecute@60", f"{UNREACHABLE}:NoExecute@0")),
        ({}, ("a", *DEFAULTS, "b"), ("a", f"{NOT_READY}:NoExecute@60", f"{UNREACHABLE}:NoExecute@0", "b")),
        ({}, (f"{NOT_READY}:NoExecute@700", DEFAULTS[1]), (f"{NOT_READY}:NoExecute@700", f"{UNREACHABLE}:NoExecute@0")),
        ({}, (f"{NOT_READY}@300", DEFAULTS[1]), (f"{NOT_READY}@300", f"{UNREACHABLE}:NoExecute@0")),
        ({}, (f"{NOT_READY}=:NoExecute@300", "*"), (f"{NOT_READY}=:NoExecute@300", "*")),
        ({"adjust_api_server_defaults": False}, DEFAULTS, DEFAULTS),
        ({"api_server_default_seconds": 120}, DEFAULTS, DEFAULTS),
        (
            {"api_server_default_seconds": 120},
            (f"{NOT_READY}:NoExecute@120", f"{UNREACHABLE}:NoExecute@120"),
            (f"{NOT_READY}:NoExecute@60", f"{UNREACHABLE}:NoExecute@0"),
        ),
    ],
)
def test_adjusts_what_kube_apiserver_added(
    block: dict[str, Any], before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    adjusting = rule(not_ready_toleration_seconds=60, unreachable_toleration_seconds=0, **block)
    assert mutate(adjusting, request(pod_spec(*before))).tolerations == tolerations(*after)


def test_updates_do_not_adjust_tolerations_that_the_pod_had() -> None:
    adjusting = rule(not_ready_toleration_seconds=60, unreachable_toleration_seconds=60)
    old = pod_spec(DEFAULTS[0])
    after = mutate(adjusting, request(pod_spec(*DEFAULTS), old=old)).tolerations
    assert after == tolerations(DEFAULTS[0], f"{UNREACHABLE}:NoExecute@60")


def test_a_client_that_sends_no_tolerations_in_an_update_keeps_the_adjusted_ones() -> None:
    """The in-tree plugin adds its defaults to such an update too, and the API server allows other seconds."""
    adjusting = rule(not_ready_toleration_seconds=60, unreachable_toleration_seconds=60)
    adjusted = tolerations(f"{NOT_READY}:NoExecute@60", f"{UNREACHABLE}:NoExecute@60")
    assert mutate(adjusting, request(pod_spec(*DEFAULTS), old=pod_spec(*adjusted))).tolerations == adjusted


KEYS = st.sampled_from(["*", "a", NOT_READY, UNREACHABLE, f"{NOT_READY}=x"])
EFFECTS = st.sampled_from(["", ":NoExecute", ":NoSchedule", ":NoExecute@300", ":NoExecute@60"])
SOME = st.lists(st.tuples(KEYS, EFFECTS).map("".join), max_size=6)


@given(SOME, st.none() | SOME, st.integers(0, 400), st.booleans())
def test_updates_stay_within_what_the_api_server_allows(
    texts: list[str], old: list[str] | None, seconds: int, adjust: bool
) -> None:
    """Tolerations are added, and tolerationSeconds of kube-apiserver's defaults change in place; nothing else does."""
    asked = request(pod_spec(*texts), old=None if old is None else pod_spec(*old))
    after = mutate(rule(not_ready_toleration_seconds=seconds, adjust_api_server_defaults=adjust), asked).tolerations
    assert after is not None
    before = tolerations(*texts)
    assert [(t.key, t.operator, t.value, t.effect) for t in after[: len(before)]] == [
        (t.key, t.operator, t.value, t.effect) for t in before
    ]
    for key in (NOT_READY, UNREACHABLE):
        assert any(t.key in ("", key) and t.effect in ("", "NoExecute") for t in after)


def test_name_and_failure_policy() -> None:
    assert (rule().name, rule().failure_policy) == (DEFAULT_TOLERATION_SECONDS, "Ignore")
