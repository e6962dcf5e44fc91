"""Tracks the EvictionRequests of other components, which count as disruptions in progress.

Since Kubernetes 1.37, a component can ask for the eviction of a pod with an object of the kind EvictionRequest
(lifecycle.k8s.io/v1alpha1, KEP-4563). The pod's responders then move it, or else kube-controller-manager evicts it. An
:class:`~trimtab.disruption.evictor.requests.EvictionRequest` of trimtab has the same parts: a target with a UID, a
requester, and an intent, which :meth:`~trimtab.disruption.evictor.evictor.Evictor.withdraw` ends.

A request counts for 20 minutes at most. Users may create EvictionRequests in their namespaces, and must not be able to
keep their pods from being evicted forever.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from trimtab.disruption.evictor.requests import Requester
from trimtab.kube.objects import PodEvictionRequest

COUNTED: Final = 1200.0
"""Seconds after its creation for which an EvictionRequest counts.

It is the time after which Kubernetes skips a responder that reports no progress.
"""

MAX_PODS: Final = 200
"""Maximum number of pods of a namespace that :meth:`OtherRequests.of_namespace` checks.

It limits the time that a user can cost with EvictionRequests for pods that do not exist.
"""

OWN_PREFIX: Final = "trimtab.dev/"
"""The prefix of the requesters that are trimtab's own."""


class OtherRequests:
    """The EvictionRequests of other components. Their watch events must be passed to :meth:`changed`."""

    def __init__(self) -> None:
        self._requests: dict[str, dict[str, dict[str, PodEvictionRequest]]] = {}
        """The requests by namespace, UID of the pod, and name."""

    def changed(self, old: PodEvictionRequest | None, new: PodEvictionRequest | None) -> None:
        """Process an added, changed or removed EvictionRequest."""
        if old is not None:
            self._remove(old)
        if new is not None and new.active and not new.requester.startswith(OWN_PREFIX):
            self._requests.setdefault(new.namespace, {}).setdefault(new.pod_uid, {})[new.name] = new

    def of_pod(self, namespace: str, uid: str, *, now: float) -> PodEvictionRequest | None:
        """Return a request for the pod with this UID that counts at ``now``, in seconds since the epoch.

        The result is ``None`` if there is none. Requests that no longer count are dropped.
        """
        for each in tuple(self._requests.get(namespace, {}).get(uid, {}).values()):
            if each.created is not None and now - each.created < COUNTED:
                return each
            self._remove(each)
        return None

    def of_namespace(self, namespace: str, *, now: float) -> Iterator[PodEvictionRequest]:
        """Yield a request for each pod of a namespace that has one, up to :data:`MAX_PODS`. See :meth:`of_pod`."""
        for uid in tuple(islice(self._requests.get(namespace, ()), MAX_PODS)):
            found = self.of_pod(namespace, uid, now=now)
            if found is not None:
                yield found

    def _remove(self, request: PodEvictionRequest) -> None:
        pods = self._requests.get(request.namespace, {})
        requests = pods.get(request.pod_uid, {})
        requests.pop(request.name, None)
        if not requests:
            pods.pop(request.pod_uid, None)
        if not pods:
            self._requests.pop(request.namespace, None)


def requester_of(request: PodEvictionRequest) -> Requester:
    """Return the requester of an EvictionRequest."""
    return Requester("EvictionRequest", request.requester)
