"""A missing permission is no failure of a node group: the group is not in backoff."""

from __future__ import annotations

import pytest

from trimtab.autoscaling.cluster_state import AutoscalerState, record_scale_up_result
from trimtab.autoscaling.cluster_state.backoff import is_backing_off
from trimtab.autoscaling.providers import ScaleFailure, ScaleResult
from trimtab.kube.api import Forbidden

GROUP = "MachineSet/x/workers-a"


@pytest.mark.parametrize(
    ("failure", "backs_off"), [(ScaleFailure.FORBIDDEN, False), (ScaleFailure.REFUSED, True)], ids=str
)
def test_missing_permission_causes_no_backoff(failure: ScaleFailure, *, backs_off: bool) -> None:
    result = ScaleResult(GROUP, 1, 2, failure=failure, message="no", calls=1)
    state = record_scale_up_result(AutoscalerState(), result, now=100.0, seconds=900.0)
    assert is_backing_off(state.record(GROUP), 101.0) is backs_off


@pytest.mark.parametrize(
    ("message", "lacks"),
    [
        (
            'machinesets "a" is forbidden: User "system:serviceaccount:t:t" cannot patch resource "machinesets/scale"',
            True,
        ),
        ('admission webhook "a.b" denied the request: no', False),
        ('pods "a" is forbidden: exceeded quota: q', False),
    ],
)
def test_refusal_of_an_authorizer_is_told_from_that_of_a_webhook(message: str, *, lacks: bool) -> None:
    assert Forbidden(message, status=403).lacks_permission is lacks
