"""An immutable, hashable mapping: labels, annotations, resource lists.

:class:`FrozenMap` is a ``dict`` subclass instead of ``types.MappingProxyType``, so that look-ups are as fast as in a
dict (selectors read labels hundreds of thousands of times per cycle). It is hashable, so that identical label sets and
pod specs can be interned.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn, TypeVar

V = TypeVar("V")


class FrozenMap(dict[str, V]):
    """An immutable ``dict`` with string keys.

    Its hash depends only on the content, regardless of the insertion order.
    """

    __slots__ = ("_hash",)

    def __hash__(self) -> int:  # type: ignore[override]
        try:
            return self._hash
        except AttributeError:
            self._hash: int = hash(frozenset(self.items()))
            return self._hash

    def _refuse(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is immutable")

    __setitem__ = _refuse
    __delitem__ = _refuse
    __ior__ = _refuse
    clear = _refuse
    pop = _refuse
    popitem = _refuse
    setdefault = _refuse
    update = _refuse

    def __reduce__(self) -> tuple[type[FrozenMap[V]], tuple[dict[str, V]]]:
        return type(self), (dict(self),)


Labels = FrozenMap[str]
"""Labels, annotations or a node selector."""

ResourceList = FrozenMap[int]
"""Amounts by resource name: ``cpu`` in millicores, ``memory`` and ``ephemeral-storage`` in bytes, others in units.

Amounts are rounded up as kube-scheduler's ``MilliValue()``/``Value()`` do (k8s.io/apimachinery resource.Quantity).
"""

NO_LABELS: Final[Labels] = FrozenMap()
NO_RESOURCES: Final[ResourceList] = FrozenMap()
