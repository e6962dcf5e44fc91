"""Tracks the EvictionRequests of other components, which count as disruptions in progress.

Since Kubernetes 1.37, a component can ask for the eviction of a pod with an object of the kind EvictionRequest
(lifecycle.k8s.io/v1alpha1, KEP-4563). The pod's responders then move it, or else kube-controller-manager evicts it. An
:class:`~trimtab.disruption.evictor.requests.EvictionRequest` of trimtab has the same parts: a target with a UID, a
requester, and an intent, which :meth:`~trimtab.disruption.evictor.evictor.Evictor.withdraw` ends.

A request counts for 20 minutes at most. Users may create EvictionRequests in their namespaces, and must not be able to
keep their pods from being evicted forever.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from trimtab.disruption.evictor.requests import Requester
from trimtab.kube.objects import PodEvictionRequest

COUNTED: Final = 1200.0
"""Seconds after its creation for which an EvictionRequest counts.

It is the time after which Kubernetes skips a responder that reports no progress.
"""

OWN_PREFIX: Final = "trimtab.dev/"
"""The prefix of the requesters that are trimtab's own."""


class OtherRequests:
    """The EvictionRequests of other components. Their watch events must be passed to :meth:`changed`."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, PodEvictionRequest]] = {}

    def changed(self, old: PodEvictionRequest | None, new: PodEvictionRequest | None) -> None:
        """Process an added, changed or removed EvictionRequest."""
        if old is not None:
            found = self._by_namespace.get(old.namespace, {})
            found.pop(old.name, None)
            if not found:
                self._by_namespace.pop(old.namespace, None)
        if new is not None and new.active and not new.requester.startswith(OWN_PREFIX):
            self._by_namespace.setdefault(new.namespace, {})[new.name] = new

    def of_namespace(self, namespace: str, *, now: float) -> Collection[PodEvictionRequest]:
        """Return the requests in a namespace that count at ``now``, in seconds since the epoch."""
        requests = self._by_namespace.get(namespace)
        if requests is None:
            return ()
        return [each for each in requests.values() if each.created is not None and now - each.created < COUNTED]

    def of_pod(self, namespace: str, uid: str, *, now: float) -> PodEvictionRequest | None:
        """Return a request for the pod with this UID that counts at ``now``; ``None`` if there is none."""
        return next((each for each in self.of_namespace(namespace, now=now) if each.pod_uid == uid), None)


def requester_of(request: PodEvictionRequest) -> Requester:
    """Return the requester of an EvictionRequest."""
    return Requester("EvictionRequest", request.requester)
