"""Amounts of resources (core/v1 ``ValidateContainerResourceRequirements``, ``ValidateResourceQuantityValue``; v1.36).

Left aside: that what cannot be overcommitted needs a limit (a request alone says all that planners ask), and that huge
pages are whole pages (old pods may have others, and the API server lets them).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from trimtab.kube.rules.quantity import MAX_AMOUNT, QuantityError, cpu_millis, resource_amount
from trimtab.kube.rules.selector_syntax import is_label_key
from trimtab.kube.wire.fields import FieldError, keyed
from trimtab.kube.wire.validation.checks import Check, at_key, below, shown

_HUGE_PAGES: Final = "hugepages-"
_CACHED: Final = 1024


class _Names(Struct, frozen=True):
    """Which resources a list may name: those known, in words ``allowed``."""

    known: Callable[[str], bool]
    allowed: str


def _native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def _extended(name: str) -> bool:
    """Whether this is a resource that somebody else counts, in whole units (``IsExtendedResourceName``)."""
    return not _native(name) and not name.startswith("requests.") and is_label_key(f"requests.{name}")


@lru_cache(_CACHED)
def _counted_whole(name: str) -> bool:
    return name == "pods" or _extended(name)


@lru_cache(_CACHED)
def _in_container(name: str) -> bool:
    if "/" not in name:
        return name in {"cpu", "memory", "ephemeral-storage"} or (name.startswith(_HUGE_PAGES) and is_label_key(name))
    return is_label_key(name) and (_native(name) or _extended(name))


def _in_pod(name: str) -> bool:
    return name in {"cpu", "memory"} or name.startswith(_HUGE_PAGES)


_CONTAINER: Final = _Names(
    _in_container, "cpu, memory, ephemeral-storage, hugepages-<size> and names with a domain such as example.com/gpu"
)
_POD: Final = _Names(_in_pod, "cpu, memory and hugepages-<size>")
_ANY: Final = _Names(bool, "all names but the empty one")


def _amount(name: str, quantity: Any) -> int:
    try:
        amount = resource_amount(name, quantity)
    except QuantityError as error:
        raise FieldError("", str(error)) from None
    if amount < 0:
        raise FieldError("", f"must not be negative: {quantity}")
    if _counted_whole(name):
        millis = cpu_millis(quantity)
        if millis % 1000 and millis != MAX_AMOUNT:
            raise FieldError("", f"must be an integer, not {shown(quantity)}: {name} is counted in whole units")
    return amount


def _amounts(quantities: Mapping[str, Any], names: _Names) -> dict[str, int]:
    amounts = {}
    for name, quantity in quantities.items():
        if not names.known(name):
            raise FieldError("", f"{shown(name)} is no resource that may stand here: allowed are {names.allowed}")
        try:
            amounts[name] = _amount(name, quantity)
        except FieldError as error:
            raise at_key(name, error) from None
    return amounts


def _resource_list(names: _Names) -> Check:
    def check(quantities: Mapping[str, Any]) -> None:
        _amounts(quantities, names)

    return check


def _requirements(names: _Names) -> Check:
    """Requests and limits: each for itself, and requests within the limits."""

    def amounts(field: str, quantities: Mapping[str, Any]) -> dict[str, int]:
        try:
            return _amounts(quantities, names)
        except FieldError as error:
            raise below(field, error) from None

    def check(message: Any) -> None:
        limits = amounts("limits", message.limits) if message.limits else {}
        requests = amounts("requests", message.requests) if message.requests else {}
        for name, requested in requests.items():
            limit = limits.get(name, requested)
            if requested == limit:
                continue
            limited = f"the limit of {message.limits[name]}, not {shown(message.requests[name])}"
            if requested > limit:
                raise FieldError(keyed("requests", name), f"must not be above {limited}")
            if not _native(name) or name.startswith(_HUGE_PAGES):
                raise FieldError(keyed("requests", name), f"must be {limited}: {name} cannot be overcommitted")

    return check


CONTAINER_RESOURCES: Final = _requirements(_CONTAINER)
"""``resources`` of a container."""

POD_RESOURCES: Final = _requirements(_POD)
"""``spec.resources`` of a pod."""

OVERHEAD: Final = _resource_list(_CONTAINER)
"""``spec.overhead`` of a pod: what a container may ask for."""

AMOUNTS: Final = _resource_list(_ANY)
"""Capacities and what is allocated: resources of any name."""
