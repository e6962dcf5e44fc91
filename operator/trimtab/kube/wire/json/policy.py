"""policy/v1 PodDisruptionBudget and scheduling.k8s.io/v1 PriorityClass."""

from __future__ import annotations

from typing import Any

from msgspec import field

from trimtab.kube.wire.json.base import Message
from trimtab.kube.wire.json.meta import LabelSelector, ObjectMeta


class PodDisruptionBudgetSpec(Message):
    """policy/v1 PodDisruptionBudgetSpec."""

    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class PodDisruptionBudgetStatus(Message):
    """policy/v1 PodDisruptionBudgetStatus."""

    observed_generation: int = 0
    disrupted_pods: dict[str, Any] = {}
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0


class PodDisruptionBudget(Message):
    """policy/v1 PodDisruptionBudget."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodDisruptionBudgetSpec = field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = field(default_factory=PodDisruptionBudgetStatus)


class PriorityClass(Message):
    """scheduling.k8s.io/v1 PriorityClass."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    value: int = 0
    global_default: bool = False
