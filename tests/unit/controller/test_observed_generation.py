"""After a change of the spec, every condition of every kind has the new generation, as ``kubectl wait`` requires.

``tests/unit/descheduling/test_controller.py`` covers the DeschedulerPolicy, whose status has no single builder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.autoscaling.iteration_reports import group, report
from tests.unit.tainting.reporting import seen
from trimtab.admission.report import Health, Unreported
from trimtab.admission.report import build_status as placement_status
from trimtab.api import reasons
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.conditions import DEGRADED, READY, find_condition
from trimtab.api.node_pressure_policy import NodePressurePolicyStatus, PressureCounts
from trimtab.api.placement_admission import PlacementAdmission, PlacementAdmissionSpec, PlacementAdmissionStatus
from trimtab.api.scheduler_policy import SchedulerPolicyStatus, SchedulingCounts
from trimtab.api.state import with_state
from trimtab.api.taint_manager import PodCounts, TaintManagerStatus
from trimtab.autoscaling.report.status import build_status as autoscaler_status
from trimtab.controller.reporter import invalid_conditions, next_status
from trimtab.kube.wire.validation import FieldError
from trimtab.pressure.report import Observation as PressureObservation
from trimtab.pressure.report import build_status as pressure_status
from trimtab.scheduling.policy_status import PolicyObservation
from trimtab.scheduling.policy_status import build_status as scheduler_status
from trimtab.tainting.report.status import build_status as taint_manager_status

NOW = 1_800_000_000.0


def invalid(previous: Any, generation: int, reason: str) -> Any:
    return next_status(previous, invalid_conditions(reason, "wrong", ""), generation=generation, now=NOW)


def autoscaler(previous: Any, generation: int, *, valid: bool) -> Any:
    if not valid:
        return invalid(previous, generation, reasons.INVALID_AUTOSCALER)
    return autoscaler_status(report(group(), generation=generation), previous)


def taint_manager(previous: Any, generation: int, *, valid: bool) -> Any:
    if not valid:
        return invalid(previous, generation, reasons.INVALID_TAINT_MANAGER)
    return taint_manager_status(seen(generation=generation), previous, base=PodCounts())


def scheduler_policy(previous: Any, generation: int, *, valid: bool) -> Any:
    if not valid:
        return invalid(previous, generation, reasons.INVALID_POLICY)
    observed = PolicyObservation(now=NOW, generation=generation, scheduler="packing")
    return scheduler_status(observed, previous, base=SchedulingCounts())


def node_pressure_policy(previous: Any, generation: int, *, valid: bool) -> Any:
    if not valid:
        return invalid(previous, generation, reasons.INVALID_POLICY)
    observed = PressureObservation(now=NOW, generation=generation, mode="Act")
    return pressure_status(observed, previous, base=PressureCounts())


def placement_admission(previous: Any, generation: int, *, valid: bool) -> Any:
    return placement_status(
        previous,
        PlacementAdmission(spec=PlacementAdmissionSpec()),
        () if valid else (FieldError("spec", "is wrong"),),
        unreported=Unreported.empty(),
        replica="a",
        health=Health(registered=True),
        generation=generation,
        now=NOW,
    )


Build = Callable[..., Any]


@pytest.mark.parametrize(
    ("build", "empty"),
    [
        pytest.param(autoscaler, ClusterAutoscalerStatus(), id="ClusterAutoscaler"),
        pytest.param(taint_manager, TaintManagerStatus(), id="TaintManager"),
        pytest.param(scheduler_policy, SchedulerPolicyStatus(), id="SchedulerPolicy"),
        pytest.param(node_pressure_policy, NodePressurePolicyStatus(), id="NodePressurePolicy"),
        pytest.param(placement_admission, PlacementAdmissionStatus(), id="PlacementAdmission"),
    ],
)
def test_all_conditions_have_the_generation_of_the_spec(build: Build, empty: Any) -> None:
    status = empty
    for generation, valid in enumerate((True, False, True), start=1):
        status = build(status, generation, valid=valid)
        assert status.observed_generation == generation
        checked = [each for each in status.conditions if valid or each.type in (READY, DEGRADED)]
        assert {each.observed_generation for each in checked} == {generation}
        ready = find_condition(status.conditions, READY)
        assert ready is not None
        assert (ready.status, with_state(status).state == "Invalid") == (("True", False) if valid else ("False", True))
