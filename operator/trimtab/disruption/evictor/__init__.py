"""The evictor: admits and records the eviction requests of all controllers, and sends most of them.

:mod:`.requests` defines the request and the API server's response, :mod:`.eviction_api` sends the request,
:mod:`.evictor` admits it, :mod:`.operator_limits` enforces limits, :mod:`.waiting_requests` orders the requests that
wait, and :mod:`.evictions_in_progress`, :mod:`.outstanding_disruptions` and :mod:`.owner_recovery` track the effects of
recent evictions.

A requester calls :meth:`Evictor.evict` if one attempt decides, and :meth:`Evictor.send` if it retries until the pod no
longer exists. The executor, which waits for replacements between evictions, sends the requests itself, between
:meth:`Evictor.begin` and :meth:`Evictor.conclude`.
"""

from trimtab.disruption.evictor.cluster_view import ClusterView
from trimtab.disruption.evictor.evictions_in_progress import Permit
from trimtab.disruption.evictor.evictor import Evictor
from trimtab.disruption.evictor.waiting_requests import PendingEviction

__all__ = ["ClusterView", "Evictor", "PendingEviction", "Permit"]
