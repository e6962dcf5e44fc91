"""Selectors for topology spread: selectors narrowed by ``matchLabelKeys``, and the default selectors of pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trimtab.cluster.object_store import ObjectStore
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

_MAX_SELECTORS: Final = 65_536
"""Maximum number of cached default selectors. Every rollout adds new labels."""

_SOURCES: Final = (Service, ReplicationController, ReplicaSet, StatefulSet)

LabelPair = tuple[str, str]


def narrow_selector(selector: LabelSelector, labels: Mapping[str, str]) -> LabelSelector:
    """Return a selector that matches the pods that ``selector`` matches and that also have all ``labels``.

    Equal arguments give equal results. If the selector and the labels require different values of a label, the result
    matches nothing.
    """
    fixed = selector.match_labels
    both = tuple(
        LabelRequirement(key, "In", (value,)) for key, value in labels.items() if fixed.get(key, value) != value
    )
    others = tuple(
        requirement
        for requirement in selector.match_expressions
        if requirement.operator != "In" or requirement.values != (labels.get(requirement.key),)
    )
    return LabelSelector(Labels({**labels, **fixed}), (*others, *both))


class DefaultSelectors:
    """Determines the selectors for default constraints: of pods that have no topology spread constraints of their own.

    Source: kube-scheduler v1.36 ``plugins/helper`` ``DefaultSelector``. The selectors of the services that select the
    pod are merged with that of its ReplicationController, ReplicaSet or StatefulSet. A controller that does not exist,
    or that has another kind or version, is ignored. Results are cached until an object of these kinds changes.

    Args:
        objects: the services and controllers.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._cache: dict[tuple[str, Labels, OwnerReference | None], LabelSelector | None] = {}
        self._revision = -1
        self._services: dict[tuple[str, LabelPair], list[Labels]] = {}
        self._services_revision = -1

    def clear(self) -> None:
        """Drop the cached selectors, whose keys are labels of pods."""
        self._cache.clear()

    def of(self, pod: Pod) -> LabelSelector | None:
        """Return the pod's default selector.

        ``None`` means that no service or controller selects the pod, so it is not spread.
        """
        revision = self._objects.revision(*_SOURCES)
        if self._revision != revision or len(self._cache) >= _MAX_SELECTORS:
            self._cache.clear()
            self._revision = revision
        key = (pod.namespace, pod.labels, pod.controller)
        try:
            return self._cache[key]
        except KeyError:
            found = self._cache[key] = self._deduce(*key)
            return found

    def _deduce(self, namespace: str, labels: Labels, controller: OwnerReference | None) -> LabelSelector | None:
        served = self._service_labels(namespace, labels)
        selector = LabelSelector(Labels(served))
        if controller is not None:
            key = f"{namespace}/{controller.name}"
            owner: ReplicaSet | StatefulSet | None = None
            match controller.api_version, controller.kind:
                case "v1", "ReplicationController":
                    found = self._objects.of(ReplicationController).get(key)
                    if found is not None and found.selector:
                        selector = LabelSelector(Labels({**served, **found.selector}))
                case "apps/v1", "ReplicaSet":
                    owner = self._objects.of(ReplicaSet).get(key)
                case "apps/v1", "StatefulSet":
                    owner = self._objects.of(StatefulSet).get(key)
            if owner is not None and owner.selector is not None and not label_selector_errors(owner.selector):
                selector = narrow_selector(owner.selector, served)
        return selector if selector.match_labels or selector.match_expressions else None

    def _service_labels(self, namespace: str, labels: Labels) -> dict[str, str]:
        """Return the labels that the selectors of a pod's services require, merged.

        All of them are labels that the pod has.
        """
        if self._services_revision != self._objects.revision(Service):
            self._index_services()
        served: dict[str, str] = {}
        for pair in labels.items():
            for selector in self._services.get((namespace, pair), ()):
                if selector.items() <= labels.items():
                    served.update(selector)
        return served

    def _index_services(self) -> None:
        """Index the services of a namespace by one label of their selectors.

        Matching each pod against all services would not scale.
        """
        self._services.clear()
        for service in self._objects.of(Service).values():
            if service.selector:  # a nil selector matches nothing; an empty one matches all pods without any label
                pair = next(iter(service.selector.items()))
                self._services.setdefault((service.namespace, pair), []).append(service.selector)
        self._services_revision = self._objects.revision(Service)
