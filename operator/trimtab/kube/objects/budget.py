"""Pod disruption budgets (policy/v1)."""

from __future__ import annotations

from msgspec import Struct

from trimtab.kube.frozen import NO_LABELS, Labels
from trimtab.kube.objects.selector import LabelSelector


class PodDisruptionBudget(Struct, frozen=True, gc=False):
    """A budget with what the disruption controller last said of it.

    ``disrupted_pods`` names pods whose eviction was granted and whose deletion the controller has not seen yet.
    The status is stale while ``observed_generation`` < ``generation``: the API server then refuses evictions.
    """

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    labels: Labels = NO_LABELS
    generation: int = 0
    observed_generation: int = 0
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = ""
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    disrupted_pods: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"
