"""The selectors that topology spread counts pods by: narrowed by a pod's labels, or deduced from what picks the pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trimtab.cluster.shelves import Shelves
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import (
    LabelRequirement,
    LabelSelector,
    OwnerReference,
    Pod,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from trimtab.kube.rules.selectors import label_selector_errors

_MOST: Final = 65_536
"""Deduced selectors that are kept; every rollout brings labels of its own."""

_SOURCES: Final = (Service, ReplicationController, ReplicaSet, StatefulSet)

Pair = tuple[str, str]


def narrowed(selector: LabelSelector, labels: Mapping[str, str]) -> LabelSelector:
    """The selector that asks for all of ``labels`` besides; for the same labels again it is the same value.

    Where both fix a label to different values it picks nothing, as both requirements stand.
    """
    fixed = selector.match_labels
    both = tuple(
        LabelRequirement(key, "In", (value,)) for key, value in labels.items() if fixed.get(key, value) != value
    )
    told = tuple(
        requirement
        for requirement in selector.match_expressions
        if requirement.operator != "In" or requirement.values != (labels.get(requirement.key),)
    )
    return LabelSelector(Labels({**labels, **fixed}), (*told, *both))


class DefaultSelectors:
    """Which pods belong together, for pods that state no spread: what their services and their controller pick.

    Source: kube-scheduler v1.36 ``plugins/helper`` ``DefaultSelector``. The services that pick the pod are joined, and
    so is the selector of the ReplicationController, ReplicaSet or StatefulSet that controls it; a controller of another
    kind or version, or one that is not there, adds nothing. Answers are kept until an object of these kinds changes.

    Args:
        shelves: where these objects are.
    """

    def __init__(self, shelves: Shelves) -> None:
        self._shelves = shelves
        self._known: dict[tuple[str, Labels, OwnerReference | None], LabelSelector | None] = {}
        self._revision = -1
        self._services: dict[tuple[str, Pair], list[Labels]] = {}
        self._services_revision = -1

    def of(self, pod: Pod) -> LabelSelector | None:
        """The pod's selector, ``None`` where nothing picks the pod: then it is not spread."""
        revision = self._shelves.revision(*_SOURCES)
        if self._revision != revision or len(self._known) >= _MOST:
            self._known.clear()
            self._revision = revision
        key = (pod.namespace, pod.labels, pod.controller)
        try:
            return self._known[key]
        except KeyError:
            found = self._known[key] = self._deduce(*key)
            return found

    def _deduce(self, namespace: str, labels: Labels, controller: OwnerReference | None) -> LabelSelector | None:
        served = self._served(namespace, labels)
        selector = LabelSelector(Labels(served))
        if controller is not None:
            key = f"{namespace}/{controller.name}"
            owner: ReplicaSet | StatefulSet | None = None
            match controller.api_version, controller.kind:
                case "v1", "ReplicationController":
                    found = self._shelves.of(ReplicationController).get(key)
                    if found is not None and found.selector:
                        selector = LabelSelector(Labels({**served, **found.selector}))
                case "apps/v1", "ReplicaSet":
                    owner = self._shelves.of(ReplicaSet).get(key)
                case "apps/v1", "StatefulSet":
                    owner = self._shelves.of(StatefulSet).get(key)
            if owner is not None and owner.selector is not None and not label_selector_errors(owner.selector):
                selector = narrowed(owner.selector, served)
        return selector if selector.match_labels or selector.match_expressions else None

    def _served(self, namespace: str, labels: Labels) -> dict[str, str]:
        """The labels that the services ask for which pick the pod; all of them are labels of the pod."""
        if self._services_revision != self._shelves.revision(Service):
            self._file_services()
        served: dict[str, str] = {}
        for pair in labels.items():
            for selector in self._services.get((namespace, pair), ()):
                if selector.items() <= labels.items():
                    served.update(selector)
        return served

    def _file_services(self) -> None:
        """File services under a label that they ask for: looking through all of them for each pod would not scale."""
        self._services.clear()
        for service in self._shelves.of(Service).values():
            if service.selector:  # a nil selector picks nothing; an empty one picks all pods and asks for no label
                pair = next(iter(service.selector.items()))
                self._services.setdefault((service.namespace, pair), []).append(service.selector)
        self._services_revision = self._shelves.revision(Service)
