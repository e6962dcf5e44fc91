"""Sets what the API server sets when a pod is created, for pods from files that no API server has seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.protections import SYSTEM_CLASSES
from trimtab.kube.objects import KubeObject, Pod, PodSpec, PriorityClass


def with_admission_defaults(objects: Iterable[KubeObject]) -> Iterator[KubeObject]:
    """Yield the objects. A pod without a numeric priority gets the priority of its PriorityClass.

    The admission plugin Priority does the same in a cluster.

    Handwritten pods often have only the name of a class. The system classes need not be among the objects.
    """
    objects = tuple(objects)
    priorities = PodPriorities(each for each in objects if isinstance(each, PriorityClass))
    for each in objects:
        yield priorities.resolved(each) if isinstance(each, Pod) else each


class PodPriorities:
    """Resolves the PriorityClasses of pods.

    Args:
        classes: the PriorityClasses. If several are the global default, the API server uses the lowest.
    """

    def __init__(self, classes: Iterable[PriorityClass]) -> None:
        found = tuple(classes)
        self._values = SYSTEM_CLASSES | {each.name: each.value for each in found}
        self._default = min((each.value for each in found if each.global_default), default=None)
        self._known: dict[int, tuple[PodSpec, PodSpec]] = {}

    @classmethod
    def of(cls, snapshot: Snapshot) -> PodPriorities:
        """Return the priorities of a snapshot's PriorityClasses."""
        return cls(snapshot.priority_classes.values())

    def resolved(self, pod: Pod) -> Pod:
        """Return the pod with a numeric priority, if it names a class or there is a default. Specs stay shared."""
        if pod.spec.priority is not None:
            return pod
        known = self._known.get(id(pod.spec))
        if known is None:
            name = pod.spec.priority_class_name
            value = self._values.get(name) if name else self._default
            spec = pod.spec if value is None else replace(pod.spec, priority=value)
            known = self._known[id(pod.spec)] = (pod.spec, spec)  # keeps the spec alive, so that its id is not reused
        return pod if known[1] is pod.spec else replace(pod, spec=known[1])
