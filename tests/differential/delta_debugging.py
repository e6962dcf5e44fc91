"""Delta debugging: removes as many objects as possible, in chunks of half, a quarter and so on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.differential.api_client import Manifest


def minimize(
    objects: Sequence[Manifest], removable: Callable[[Manifest], bool], reproduces: Callable[[list[Manifest]], bool]
) -> list[Manifest]:
    """Remove objects as long as the smaller case still reproduces the failure.

    Args:
        objects: the objects of the test case.
        droppable: whether an object may be removed.
        holds: whether a case with these objects still reproduces the failure.

    Returns:
        The remaining objects, in their order.
    """
    found = list(objects)
    size = max(1, sum(map(removable, found)) // 2)
    while size:
        start = 0
        while candidates := [each for each in found if removable(each)][start : start + size]:
            rest = [each for each in found if not any(each is deleted for deleted in candidates)]
            if reproduces(rest):
                found = rest
            else:
                start += size
        size //= 2
    return found
