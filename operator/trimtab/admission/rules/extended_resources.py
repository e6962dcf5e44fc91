"""ExtendedResourceToleration: adds a toleration for each extended resource that a pod requests.

Source: k8s.io/kubernetes v1.36, ``plugin/pkg/admission/extendedresourcetoleration``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from trimtab.admission.pod_resources import is_extended_resource
from trimtab.admission.requests import Attributes, PodSpec, Toleration
from trimtab.admission.rules import RuleDefaults
from trimtab.admission.tolerations import EXISTS, add_tolerations
from trimtab.api.placement_admission import (
    EXTENDED_RESOURCE_TOLERATION,
    ExtendedResourceToleration,
    FailurePolicy,
    RuleName,
)
from trimtab.kube.rules.taints import NO_SCHEDULE


class ExtendedResourceTolerationRule(RuleDefaults):
    """Adds a toleration for each extended resource in the requests of containers and init containers."""

    def __init__(self, block: ExtendedResourceToleration) -> None:
        self._ignored = frozenset(block.ignored_resources)
        self.name: RuleName = EXTENDED_RESOURCE_TOLERATION
        self.failure_policy: FailurePolicy = block.failure_policy

    def mutate(self, request: Attributes, spec: PodSpec) -> PodSpec:
        """Add the tolerations to pods, in creations and updates. Pod templates are not changed, as in-tree.

        The toleration is added even if a wider one covers it, and even if the requested amount is 0.
        """
        if not request.is_pod or request.subresource:
            return spec
        names = {name for name in _requested(spec) if name not in self._ignored and is_extended_resource(name)}
        if not names:
            return spec
        return add_tolerations(
            spec, (Toleration(key=name, operator=EXISTS, effect=NO_SCHEDULE) for name in sorted(names))
        )


def _requested(spec: PodSpec) -> Iterator[str]:
    for container in chain(spec.containers or (), spec.init_containers or ()):
        if container.resources is not None:
            yield from container.resources.requests or ()
