"""Sets what admission sets when a pod is created: its priority, its default requests, and the fields of its runtime.

The rules are those of Kubernetes' admission plugins Priority, LimitRanger and RuntimeClass (k8s.io/kubernetes v1.36).
Pods that are read from a cluster have these fields already. Templates and handwritten pods do not have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import FrozenMap, ResourceList
from trimtab.kube.objects import (
    SYSTEM_CLASSES,
    Container,
    KubeObject,
    LimitRange,
    Pod,
    PodSpec,
    PriorityClass,
    RuntimeClass,
)
from trimtab.kube.rules.pod_requests import with_totals

_READ: Final = (PriorityClass, LimitRange, RuntimeClass)


def with_priorities(objects: Iterable[KubeObject]) -> Iterator[KubeObject]:
    """Yield the objects. A pod without a numeric priority gets the priority of its PriorityClass.

    Handwritten pods often have only the name of a class. The system classes need not be among the objects.
    """
    objects = tuple(objects)
    defaults = PodDefaults(each for each in objects if isinstance(each, PriorityClass))
    for each in objects:
        yield defaults.with_priority(each) if isinstance(each, Pod) else each


class PodDefaults:
    """Sets the fields of new pods. Specs that are shared by pods of a namespace stay shared.

    Args:
        objects: the PriorityClasses, LimitRanges and RuntimeClasses; others are ignored. If several PriorityClasses are
            the global default, the API server uses the lowest. If several LimitRanges of a namespace state a default,
            it uses that of the first LimitRange, here by name.
    """

    def __init__(self, objects: Iterable[KubeObject]) -> None:
        found = tuple(objects)
        classes = [each for each in found if isinstance(each, PriorityClass)]
        self._priorities = SYSTEM_CLASSES | {each.name: each.value for each in classes}
        self._default = min((each.value for each in classes if each.global_default), default=None)
        self._runtimes = {each.name: each for each in found if isinstance(each, RuntimeClass)}
        self._ranges: dict[str, list[LimitRange]] = {}
        ranges = (each for each in found if isinstance(each, LimitRange))
        for limits in sorted(ranges, key=lambda each: each.key):
            self._ranges.setdefault(limits.namespace, []).append(limits)
        self._known: dict[tuple[str, int], tuple[PodSpec, PodSpec]] = {}
        self._known_priorities: dict[int, tuple[PodSpec, PodSpec]] = {}

    @classmethod
    def of(cls, snapshot: Snapshot) -> PodDefaults:
        """Return the defaults of a cluster."""
        return cls(each for kind in _READ for each in snapshot.objects.of(kind).values())

    def with_priority(self, pod: Pod) -> Pod:
        """Return the pod with a numeric priority, if it names a class or there is a default."""
        if pod.spec.priority is not None:
            return pod
        known = self._known_priorities.get(id(pod.spec))
        if known is None:  # it keeps the spec alive, so that its id is not reused
            known = self._known_priorities[id(pod.spec)] = (pod.spec, self._prioritized(pod.spec))
        return pod if known[1] is pod.spec else replace(pod, spec=known[1])

    def created(self, pod: Pod) -> Pod:
        """Return a pod of a template as the API server stores it."""
        known = self._known.get((pod.namespace, id(pod.spec)))
        if known is None:
            spec = self._with_requests(pod.namespace, self._with_runtime(self._prioritized(pod.spec)))
            known = self._known[pod.namespace, id(pod.spec)] = (pod.spec, spec)
        return pod if known[1] is pod.spec else replace(pod, spec=known[1])

    def _prioritized(self, spec: PodSpec) -> PodSpec:
        if spec.priority is not None:
            return spec
        name = spec.priority_class_name
        value = self._priorities.get(name) if name else self._default
        return spec if value is None else replace(spec, priority=value)

    def _with_runtime(self, spec: PodSpec) -> PodSpec:
        """Return the spec with the overhead, the node labels and the tolerations of its RuntimeClass."""
        runtime = self._runtimes.get(spec.runtime_class_name) if spec.runtime_class_name else None
        if runtime is None or spec.complexity:
            return spec
        added = tuple(each for each in runtime.tolerations if each not in spec.tolerations)
        changed = replace(
            spec,
            overhead=spec.overhead or runtime.overhead,
            node_selector=FrozenMap({**spec.node_selector, **runtime.node_selector}),
            tolerations=(*spec.tolerations, *added),
        )
        return with_totals(changed)

    def _with_requests(self, namespace: str, spec: PodSpec) -> PodSpec:
        """Return the spec with the default requests and limits of the namespace's LimitRanges."""
        ranges = self._ranges.get(namespace)
        if not ranges or spec.complexity:
            return spec
        for limits in ranges:
            containers = tuple(_with_limit_range(each, limits) for each in spec.containers)
            init_containers = tuple(_with_limit_range(each, limits) for each in spec.init_containers)
            spec = replace(spec, containers=containers, init_containers=init_containers)
        return with_totals(spec)


def _with_limit_range(container: Container, defaults: LimitRange) -> Container:
    return replace(
        container,
        requests=_merged(defaults.requests, container.requests),
        limits=_merged(defaults.limits, container.limits),
    )


def _merged(defaults: ResourceList, stated: ResourceList) -> ResourceList:
    return stated if defaults.keys() <= stated.keys() else FrozenMap({**defaults, **stated})
