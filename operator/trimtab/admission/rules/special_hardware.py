"""SpecialHardware: adds tolerations to pods that use special hardware, and keeps other pods off its nodes.

A pod uses a class of hardware if it requests one of its resources, or carries all of its labels. That depends only on
the pod, so the rule does not depend on the user. Tenants write the labels of their pods, so ``podLabels`` restrict no
tenant: they only keep pods without the labels off the nodes.

The rule changes pods when they are created. Of the pod templates, it changes only those of DaemonSets, because the
DaemonSet controller compares the template with the taints of nodes before it creates pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from trimtab.admission.pod_resources import requested_resources
from trimtab.admission.requests import CREATE, DAEMON_SET, Attributes, PodSpec, PodTemplate
from trimtab.admission.rules import Refusal, RuleDefaults
from trimtab.admission.rules.dedicated_nodes import NODE_NAME_BYPASSES_TAINTS
from trimtab.admission.tolerations import (
    add_toleration_of,
    has_too_many,
    new_tolerations,
    require_label,
    tolerations_for,
)
from trimtab.admission.users import is_node, is_workload_controller
from trimtab.api.placement_admission import SPECIAL_HARDWARE, FailurePolicy, HardwareClass, RuleName, SpecialHardware
from trimtab.kube.rules.taints import NO_SCHEDULE, format_taint


class SpecialHardwareRule(RuleDefaults):
    """Adds tolerations to pods that use hardware, and refuses others that tolerate the taints of exclusive classes."""

    def __init__(self, block: SpecialHardware) -> None:
        self._classes = block.classes
        self._exclusive = tuple(each for each in block.classes if each.exclusive)
        self._resources = frozenset(chain.from_iterable(each.resources for each in block.classes))
        self.name: RuleName = SPECIAL_HARDWARE
        self.failure_policy: FailurePolicy = block.failure_policy

    def mutate(self, request: Attributes, spec: PodSpec) -> PodSpec:
        """Add tolerations of the taints, and required node affinity for the labels, of the hardware that the pod uses.

        The DaemonSet controller creates each pod for one node, so its pods are not changed.
        """
        if not _is_changed(request) or has_too_many(spec):
            return spec
        used = self._used_by(request.pod)
        for hardware in self._classes:
            if hardware in used:
                spec = add_toleration_of(spec, hardware.taint)
                if hardware.node_label is not None:
                    spec = require_label(spec, hardware.node_label.key, hardware.node_label.value)
        return spec

    def validate(self, request: Attributes) -> Iterator[Refusal]:
        """Check that the final pod or template tolerates no taint of an exclusive class that it does not use."""
        if request.subresource or request.same_template or is_node(request.user):
            return
        controller = is_workload_controller(request.user)
        if controller and request.of_daemon_set:
            return
        used = self._used_by(request.pod)
        others = [hardware for hardware in self._exclusive if hardware not in used]
        if not others:
            return
        try:
            tolerations = new_tolerations(request)
        except Refusal as refusal:
            yield refusal
            return
        for hardware in others:
            if tolerations_for(tolerations, hardware.taint):
                taint = format_taint(hardware.taint)
                reserved = f'which is reserved for pods that use "{hardware.name}"'
                message = f"{request.subject} tolerates the taint {taint}, {reserved}"
                yield Refusal(message, unless_may_bind=request.kind == DAEMON_SET)
        created = not request.is_pod or request.operation == CREATE
        bypassed = any(hardware.taint.effect == NO_SCHEDULE for hardware in others)
        if created and bypassed and request.pod.spec.node_name and not controller:
            yield Refusal(NODE_NAME_BYPASSES_TAINTS, unless_may_bind=True)

    def _used_by(self, pod: PodTemplate) -> list[HardwareClass]:
        """Return the classes whose hardware a pod uses: it requests more than 0, or carries all labels of the class."""
        requested = requested_resources(pod.spec, self._resources)
        labels = (pod.metadata.labels or {}).items()
        return [
            each
            for each in self._classes
            if not requested.isdisjoint(each.resources) or (each.pod_labels and each.pod_labels.items() <= labels)
        ]


def _is_changed(request: Attributes) -> bool:
    if request.subresource or request.same_template or is_node(request.user):
        return False
    if request.is_pod:
        return request.operation == CREATE and not (is_workload_controller(request.user) and request.of_daemon_set)
    return request.kind == DAEMON_SET
