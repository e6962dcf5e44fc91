"""Amounts of resources (core/v1 ``ValidateContainerResourceRequirements``, ``ValidateResourceQuantityValue``; v1.36).

Left aside: that what cannot be overcommitted needs a limit (a request alone says all that planners ask), and that huge
pages are whole pages (old pods may have others, and the API server lets them).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from trimtab.kube.rules.quantity import MAX_AMOUNT, QuantityError, cpu_millis, resource_amount
from trimtab.kube.rules.selector_syntax import is_label_key
from trimtab.kube.wire.fields import FieldError, keyed
from trimtab.kube.wire.validation.checks import Check, at_key, below, shown

_HUGE_PAGES: Final = "hugepages-"
_CACHED: Final = 8192


def _native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def _extended(name: str) -> bool:
    """Whether this is a resource that somebody else counts, in whole units (``IsExtendedResourceName``)."""
    return not _native(name) and not name.startswith("requests.") and is_label_key(f"requests.{name}")


@lru_cache(_CACHED)
def _in_container(name: str) -> bool:
    if "/" not in name:
        return name in {"cpu", "memory", "ephemeral-storage"} or (name.startswith(_HUGE_PAGES) and is_label_key(name))
    return is_label_key(name) and (_native(name) or _extended(name))


def _in_pod(name: str) -> bool:
    return name in {"cpu", "memory"} or name.startswith(_HUGE_PAGES)


def _read(name: str, quantity: Any) -> int:
    try:
        return resource_amount(name, quantity)
    except QuantityError as error:
        raise FieldError("", str(error)) from None


def quantities_alone(quantities: Mapping[str, Any]) -> None:
    """Check that amounts can be read, however little they are.

    No more is asked of what a claim requests besides storage: nobody counts it (``ValidatePersistentVolumeClaimSpec``).
    """
    for name, quantity in quantities.items():
        try:
            _read(name, quantity)
        except FieldError as error:
            raise at_key(name, error) from None


@lru_cache(_CACHED, typed=True)
def _amount(name: str, quantity: Any) -> int:
    """The amount of a resource; of 150,000 pods the same few amounts are read again and again."""
    amount = _read(name, quantity)
    if amount < 0:
        raise FieldError("", f"must not be negative: {quantity}")
    if name == "pods" or _extended(name):
        millis = cpu_millis(quantity)
        if millis % 1000 and millis != MAX_AMOUNT:
            raise FieldError("", f"must be an integer, not {shown(quantity)}: {name} is counted in whole units")
    return amount


class _ResourceList:
    """Resources and their amounts.

    Args:
        known: whether a resource may be in the list.
        allowed: which may, in words.
    """

    def __init__(self, known: Callable[[str], bool], allowed: str) -> None:
        self._known = known
        self._allowed = allowed

    def __call__(self, quantities: Mapping[str, Any]) -> None:
        """Check a list."""
        self.amounts(quantities)

    def amounts(self, quantities: Mapping[str, Any]) -> dict[str, int]:
        """Check a list and give its amounts."""
        amounts = {}
        for name, quantity in quantities.items():
            if not self._known(name):
                told = f"{shown(name)} is no resource that may stand here: allowed are {self._allowed}"
                raise FieldError("", told)
            try:
                amounts[name] = _amount(name, quantity)
            except FieldError as error:
                raise at_key(name, error) from None
        return amounts

    def amounts_in(self, field: str, quantities: Mapping[str, Any]) -> dict[str, int]:
        """Check the list in a field of a message and give its amounts."""
        try:
            return self.amounts(quantities)
        except FieldError as error:
            raise below(field, error) from None


def _requirements(resources: _ResourceList) -> Check:
    """Requests and limits: each for itself, and requests within the limits."""

    def check(message: Any) -> None:
        limits = resources.amounts_in("limits", message.limits) if message.limits else {}
        requests = resources.amounts_in("requests", message.requests) if message.requests else {}
        for name, requested in requests.items():
            limit = limits.get(name, requested)
            if requested == limit:
                continue
            if requested > limit or not _native(name) or name.startswith(_HUGE_PAGES):
                limited = f"the limit of {message.limits[name]}, not {shown(message.requests[name])}"
                told = (
                    f"not be above {limited}" if requested > limit else f"be {limited}: {name} cannot be overcommitted"
                )
                raise FieldError(keyed("requests", name), f"must {told}")

    return check


OVERHEAD: Final = _ResourceList(
    _in_container, "cpu, memory, ephemeral-storage, hugepages-<size> and names with a domain such as example.com/gpu"
)
"""``spec.overhead`` of a pod: what a container may ask for."""

AMOUNTS: Final = _ResourceList(bool, "all names but the empty one")
"""Capacities and what is allocated: resources of any name."""

CONTAINER_RESOURCES: Final = _requirements(OVERHEAD)
"""``resources`` of a container."""

POD_RESOURCES: Final = _requirements(_ResourceList(_in_pod, "cpu, memory and hugepages-<size>"))
"""``spec.resources`` of a pod."""
