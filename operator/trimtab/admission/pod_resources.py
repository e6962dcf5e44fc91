"""Resource requests of pods: which resources are extended, which requests are positive, and the QoS class."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set
from itertools import chain
from typing import Final

import msgspec

from trimtab.admission.requests import PodSpec, Resources
from trimtab.kube.rules.quantity import QuantityError, resource_amount

_QOS_RESOURCES: Final = frozenset({"cpu", "memory"})
_QUOTA_PREFIX: Final = "requests."
_NATIVE: Final = "kubernetes.io/"
_DOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME: Final = re.compile("[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def is_extended_resource(name: str) -> bool:
    """Return whether the resource is an extended one (``IsExtendedResourceName`` of ``pkg/apis/core/helper``).

    Its name has a domain other than kubernetes.io, and is still a qualified name with the prefix ``requests.``, which
    resource quotas add.
    """
    domain, slash, rest = name.partition("/")
    if not slash or _NATIVE in name or name.startswith(_QUOTA_PREFIX):
        return False
    if len(_QUOTA_PREFIX) + len(domain) > 253 or len(rest) > 63:
        return False
    return bool(_DOMAIN.fullmatch(domain) and _NAME.fullmatch(rest))


def is_best_effort(spec: PodSpec) -> bool:
    """Return whether the QoS class of the pod is BestEffort (``ComputePodQOS`` of ``pkg/apis/core/helper/qos``).

    Such a pod requests and limits neither CPU nor memory. Pod-level resources replace those of the containers.
    """
    stated: Iterable[Resources | None] = (spec.resources,)
    if spec.resources is None:
        stated = (each.resources for each in chain(spec.containers or (), spec.init_containers or ()))
    return next(_positive(stated, _QOS_RESOURCES), None) is None


def requested_resources(spec: PodSpec, among: Set[str]) -> set[str]:
    """Return which of the resources the pod, its containers and init containers request or limit to more than 0."""
    containers = chain(spec.containers or (), spec.init_containers or ())
    return set(_positive((spec.resources, *(each.resources for each in containers)), among))


def _positive(stated: Iterable[Resources | None], among: Set[str]) -> Iterator[str]:
    for resources in stated:
        if resources is not None:
            for amounts in (resources.requests or {}, resources.limits or {}):
                yield from (name for name in amounts.keys() & among if _is_positive(name, amounts[name]))


def _is_positive(name: str, quantity: msgspec.Raw) -> bool:
    """Return whether a quantity of a resource is more than 0. The API server refuses invalid quantities later."""
    try:
        return resource_amount(name, msgspec.json.decode(quantity)) > 0
    except (msgspec.DecodeError, QuantityError):
        return False
