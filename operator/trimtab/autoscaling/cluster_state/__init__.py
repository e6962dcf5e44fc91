"""The state that the autoscaler keeps between iterations, like cluster-autoscaler's ``clusterstate``.

This package does no I/O and reads no clock. A new process reads the state from the ClusterAutoscaler's status
(:func:`state_from_status`). Each iteration

1. computes the readiness of all nodes (:func:`readiness_by_node`),
2. compares the state with the cluster (:func:`advance`),
3. evaluates the health of the cluster and of its groups (:func:`assess_health`),
4. plans with the result (:func:`inputs_with_state`),
5. records its own requests (:func:`record_scale_up_request`, :func:`record_scale_up_result`,
   :func:`record_target_decrease`), and
6. writes the state to the status (:func:`status_with_state`).
"""

from trimtab.autoscaling.cluster_state.advance import advance, inputs_from_status, inputs_with_state, provision_seconds
from trimtab.autoscaling.cluster_state.backoff import backoff_messages
from trimtab.autoscaling.cluster_state.group_state import (
    record_scale_up_request,
    record_scale_up_result,
    record_target_decrease,
)
from trimtab.autoscaling.cluster_state.readiness import (
    ClusterHealth,
    HealthSettings,
    Readiness,
    assess_health,
    count_by_readiness,
    count_upcoming,
    readiness_by_node,
)
from trimtab.autoscaling.cluster_state.state import (
    AutoscalerState,
    GroupError,
    GroupFinding,
    GroupFindings,
    GroupRecord,
    OpenScaleUp,
    state_from_status,
    status_with_state,
)

__all__ = [
    "AutoscalerState",
    "ClusterHealth",
    "GroupError",
    "GroupFinding",
    "GroupFindings",
    "GroupRecord",
    "HealthSettings",
    "OpenScaleUp",
    "Readiness",
    "advance",
    "assess_health",
    "backoff_messages",
    "count_by_readiness",
    "count_upcoming",
    "inputs_from_status",
    "inputs_with_state",
    "provision_seconds",
    "readiness_by_node",
    "record_scale_up_request",
    "record_scale_up_result",
    "record_target_decrease",
    "state_from_status",
    "status_with_state",
]
