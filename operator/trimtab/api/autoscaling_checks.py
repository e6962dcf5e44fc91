"""What ClusterAutoscalers and MachineAutoscalers must satisfy beyond their schemas: the CEL rules in Python."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trimtab.api.check import FieldError, attempt
from trimtab.api.cluster_autoscaler import (
    NAME,
    THRESHOLD_HELP,
    THRESHOLD_PATTERN,
    ClusterAutoscaler,
    ScaleDown,
)
from trimtab.api.cluster_limits import GPULimit, ResourceRange
from trimtab.api.go_durations import parse_go_duration
from trimtab.api.machine_autoscaler import (
    CLUSTER_API_KINDS,
    CLUSTER_API_PREFIX,
    MACHINE_API_VERSION,
    TARGETS_HELP,
    MachineAutoscaler,
    ScaleTargetRef,
)

Errors = Iterator[FieldError]


def check_cluster_autoscaler(autoscaler: ClusterAutoscaler) -> tuple[FieldError, ...]:
    """Everything about a ClusterAutoscaler that does not make sense."""
    return tuple(_cluster_autoscaler(autoscaler))


def check_machine_autoscaler(autoscaler: MachineAutoscaler) -> tuple[FieldError, ...]:
    """Everything about a MachineAutoscaler that does not make sense by itself."""
    return tuple(_machine_autoscaler(autoscaler))


def _cluster_autoscaler(autoscaler: ClusterAutoscaler) -> Errors:
    if autoscaler.metadata.name != NAME:
        message = f"must be {NAME}: there is one ClusterAutoscaler for the whole cluster"
        yield FieldError("metadata.name", f"{message}; not {autoscaler.metadata.name or 'empty'}")
    spec = autoscaler.spec
    limits = spec.resource_limits
    yield from _range("spec.resourceLimits.cores", limits.cores)
    yield from _range("spec.resourceLimits.memory", limits.memory)
    seen: set[str] = set()
    for index, gpu in enumerate(limits.gpus):
        place = f"spec.resourceLimits.gpus[{index}]"
        yield from _range(place, gpu)
        if gpu.type in seen:
            yield FieldError(f"{place}.type", f"must not be given twice: {gpu.type}")
        seen.add(gpu.type)
    yield from attempt("spec.scaleUp.newPodScaleUpDelay", parse_go_duration, spec.scale_up.new_pod_scale_up_delay)
    yield from attempt("spec.maxNodeProvisionTime", parse_go_duration, spec.max_node_provision_time)
    if spec.scale_down is not None:
        yield from _scale_down(spec.scale_down)


def _range(place: str, limit: ResourceRange | GPULimit | None) -> Errors:
    if limit is not None and limit.max < limit.min:
        yield FieldError(f"{place}.max", f"must be at least min: {limit.max} is less than {limit.min}")


def _scale_down(spec: ScaleDown) -> Errors:
    for name, text in (
        ("delayAfterAdd", spec.delay_after_add),
        ("delayAfterDelete", spec.delay_after_delete),
        ("delayAfterFailure", spec.delay_after_failure),
        ("unneededTime", spec.unneeded_time),
        ("unreadyTime", spec.unready_time),
    ):
        yield from attempt(f"spec.scaleDown.{name}", parse_go_duration, text)
    for name, text in (
        ("utilizationThreshold", spec.utilization_threshold),
        ("gpuUtilizationThreshold", spec.gpu_utilization_threshold),
    ):
        yield from attempt(f"spec.scaleDown.{name}", _threshold, text)


def _threshold(text: str) -> None:
    if not re.fullmatch(THRESHOLD_PATTERN[1:-1], text) or float(text) <= 0:
        raise ValueError(f"must be {THRESHOLD_HELP}; not {text!r}")


def _machine_autoscaler(autoscaler: MachineAutoscaler) -> Errors:
    spec = autoscaler.spec
    if spec.max_replicas < spec.min_replicas:
        message = f"must be at least minReplicas: {spec.max_replicas} is less than {spec.min_replicas}"
        yield FieldError("spec.maxReplicas", message)
    if not can_be_scaled(spec.scale_target_ref):
        target = spec.scale_target_ref
        yield FieldError("spec.scaleTargetRef", f"{TARGETS_HELP}; not a {target.kind} of {target.api_version or 'v1'}")


def can_be_scaled(target: ScaleTargetRef) -> bool:
    """Whether trimtab scales objects of that kind."""
    if target.api_version == MACHINE_API_VERSION:
        return target.kind == "MachineSet"
    versions = (f"{CLUSTER_API_PREFIX}v1beta1", f"{CLUSTER_API_PREFIX}v1beta2")
    return target.api_version in versions and target.kind in CLUSTER_API_KINDS
