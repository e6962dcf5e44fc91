"""Leaving out as many objects as can be: halves first, then quarters and so on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.differential.server import Manifest


def dropped(
    objects: Sequence[Manifest], droppable: Callable[[Manifest], bool], holds: Callable[[list[Manifest]], bool]
) -> list[Manifest]:
    """The objects without those that nothing depends on.

    Args:
        objects: of a case.
        droppable: which of them may be left out.
        holds: whether a case of fewer objects still shows what the case is about.
    """
    found = list(objects)
    size = max(1, sum(map(droppable, found)) // 2)
    while size:
        start = 0
        while candidates := [each for each in found if droppable(each)][start : start + size]:
            rest = [each for each in found if not any(each is gone for gone in candidates)]
            if holds(rest):
                found = rest
            else:
                start += size
        size //= 2
    return found
