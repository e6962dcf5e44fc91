"""Defines eviction requests and the API server's responses. Only :mod:`.eviction_api` sends the requests.

Usage::

    request = EvictionRequest(namespace="shop", pod="web-1", uid=uid, requester=Requester("descheduler", "spread"))
    found = evictor.admit(request, pod)
"""

from __future__ import annotations

import enum
from typing import Final, Literal

from msgspec import Struct

from trimtab.cluster.disruption_signals import DISRUPTION_TARGET
from trimtab.cluster.workloads.owners import OwnerKey
from trimtab.disruption.limits import ALL, LimitScope, scopes

EVICTION_CONDITION: Final = (DISRUPTION_TARGET, "EvictionByEvictionAPI")
"""Type and reason of the condition that the API server sets on a pod when it grants the pod's eviction."""

BUDGET_REFUSER: Final = "PodDisruptionBudget"
"""The value of ``refuser`` if a PodDisruptionBudget refuses an eviction."""

DESCHEDULER: Final = "descheduler"
AUTOSCALER: Final = "autoscaler"
TAINTING: Final = "tainting"
SCHEDULING: Final = "scheduling"
PRESSURE: Final = "pressure"

CONTROLLERS: Final = (DESCHEDULER, AUTOSCALER, TAINTING, SCHEDULING, PRESSURE)
"""The controllers that evict pods."""

Way = Literal["Evict", "Delete", "Surge"]


class Requester(Struct, frozen=True):
    """The object on whose behalf a pod is evicted.

    Attributes:
        controller: one of :data:`CONTROLLERS`.
        name: name of the DeschedulerPolicy, the node group, the scheduler or the NodePressurePolicy, or ``cluster`` for
            the taint manager.
        strategy: name of the policy's strategy; ``""`` if the requester is not a policy.
    """

    controller: str
    name: str
    strategy: str = ""

    def __str__(self) -> str:
        return f"{self.controller} {self.name}"

    def same_object(self, other: Requester) -> bool:
        """Return whether the other requester is the same object, possibly with another strategy."""
        return (self.controller, self.name) == (other.controller, other.name)


class EvictionRequest(Struct, frozen=True, kw_only=True):
    """A request to evict or delete one pod.

    Attributes:
        namespace: namespace of the pod.
        pod: name of the pod.
        uid: UID of the pod, which is the precondition of the request.
        requester: the object on whose behalf the pod is evicted.
        node: the pod's node.
        owner: the pod's controller; ``None`` if the pod has none, or if the eviction does not cost the controller a
            running pod.
        how: ``Evict`` (PodDisruptionBudgets decide), ``Delete`` (they are ignored), ``Surge`` (its Deployment is
            restarted).
        reason: the reason code from :mod:`trimtab.api.reasons` for the eviction.
        message: why the pod is evicted, with the values that were compared, for the history.
        target: the node on which capacity for the replacement is reserved; ``""`` if there is none.
        grace_period: termination grace period in seconds; ``None`` for the pod's ``terminationGracePeriodSeconds``.
        settle: whether to wait until the owner has recovered from its last eviction by any requester.
        deadline: time by which the pod must leave its node because of a taint or a preemption, in seconds since the
            epoch; ``None`` for a voluntary eviction. Of the limits, a request with a deadline waits only for that on
            concurrent requests.
        overdue: whether ``maximumWait`` has passed. If so, the request does not wait for outstanding disruptions, and
            the API server decides.
    """

    namespace: str
    pod: str
    uid: str
    requester: Requester
    node: str = ""
    owner: OwnerKey | None = None
    how: Way = "Evict"
    reason: str = ""
    message: str = ""
    target: str = ""
    grace_period: int | None = None
    settle: bool = False
    deadline: float | None = None
    overdue: bool = False

    @property
    def workload(self) -> OwnerKey | None:
        """Return the owner without its UID, by which all requesters wait for it; ``None`` if the pod has none."""
        return None if self.owner is None else self.owner.without_uid

    @property
    def scopes(self) -> tuple[LimitScope, ...]:
        """Return the scopes whose limits the eviction counts toward."""
        return (ALL, *scopes(self.node, self.namespace, self.workload))

    @property
    def key(self) -> str:
        """Return the pod's key, ``namespace/name``."""
        return f"{self.namespace}/{self.pod}"


class ResponseCode(enum.Enum):
    """The meaning of the API server's response."""

    GRANTED = "Granted"  # the pod is being deleted
    GONE = "Gone"  # the pod no longer exists, or a new pod has the same name: nothing was evicted
    BUDGET = "Budget"  # a PodDisruptionBudget allows no disruption now
    SEVERAL_BUDGETS = "SeveralBudgets"  # several PodDisruptionBudgets select the pod: the Eviction API refuses
    REFUSED = "Refused"  # an admission webhook or policy refused, or could not be called; see ``refuser``
    BACKGROUND = "Background"  # a webhook carries out the eviction in the background
    REJECTED = "Rejected"  # the API server itself refused: no permission, or an invalid request
    CONFLICT = "Conflict"  # a concurrent write, possibly by this request: the pod may or may not have been evicted
    OVERLOADED = "Overloaded"  # API priority and fairness rejected the request for now
    UNAUTHORIZED = "Unauthorized"  # invalid or expired credentials
    IN_DOUBT = "InDoubt"  # no response, or a server error: the pod may or may not have been evicted
    NOT_SENT = "NotSent"  # another process may be the leader


DOUBTFUL: Final = frozenset({ResponseCode.IN_DOUBT, ResponseCode.CONFLICT})
"""After these responses, the pod must be read before the eviction is sent again."""


class EvictionResponse(Struct, frozen=True):
    """The API server's response to one eviction request.

    Attributes:
        code: meaning of the response.
        message: the API server's message; ``""`` if the request was granted.
        refuser: name of the webhook or admission policy that refused the request, or :data:`BUDGET_REFUSER`; ``""`` if
            none of these refused it.
        retry_after: seconds to wait, as requested by the API server; ``None`` if it requested nothing.
        transient: whether the same request may succeed later without a configuration change.
        lacks_permission: whether an authorizer denied the request.
    """

    code: ResponseCode
    message: str = ""
    refuser: str = ""
    retry_after: float | None = None
    transient: bool = False
    lacks_permission: bool = False

    @property
    def granted(self) -> bool:
        """Return whether the request has evicted or deleted the pod."""
        return self.code is ResponseCode.GRANTED
