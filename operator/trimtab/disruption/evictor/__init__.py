"""The evictor: admits, sends and records the eviction requests of all controllers.

:mod:`.requests` defines the request and the API server's response, :mod:`.eviction_api` sends the request,
:mod:`.evictor` admits it, :mod:`.operator_limits` enforces limits, :mod:`.waiting_requests` orders the requests that
wait, and :mod:`.evictions_in_progress`, :mod:`.outstanding_disruptions` and :mod:`.owner_recovery` track the effects of
recent evictions.

Of the methods that send, a requester calls :meth:`Evictor.evict` if one attempt decides, :meth:`Evictor.send` if it
retries until the pod no longer exists, and :meth:`Evictor.begin` with :meth:`Evictor.complete` if it awaits the
response in a task of its own.
"""

from trimtab.disruption.evictor.cluster_view import ClusterView
from trimtab.disruption.evictor.evictions_in_progress import Permit
from trimtab.disruption.evictor.evictor import EvictionRecord, Evictor
from trimtab.disruption.evictor.waiting_requests import PendingEviction

__all__ = ["ClusterView", "EvictionRecord", "Evictor", "PendingEviction", "Permit"]
