"""Finds all permissions that the user lacks, so that an error names them at once and not one kind per attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from trimtab.cluster.kinds import REQUIRED
from trimtab.kube.api import Api, ApiError, Unreachable
from trimtab.kube.permissions import Permission, Subject, is_permitted

CONCURRENT: Final = 8
"""Number of access reviews that are sent at the same time."""


async def missing_permissions(
    api: Api, needed: Sequence[Permission], *, subject: Subject | None = None
) -> list[Permission]:
    """Return the permissions that an account lacks, in the given order, according to access reviews of the API server.

    Args:
        api: the API server.
        needed: the permissions to check.
        subject: the account; ``None`` for the user.

    Raises:
        ApiError: the API server refuses a review.
        Unreachable: there was no response.
    """
    slots = asyncio.Semaphore(CONCURRENT)

    async def permitted(permission: Permission) -> bool:
        async with slots:
            return await is_permitted(api, permission, subject=subject)

    allowed = await asyncio.gather(*map(permitted, needed))
    return [each for each, granted in zip(needed, allowed, strict=True) if not granted]


async def forbidden_actions(api: Api, refused: str) -> tuple[str, ...]:
    """Return what the user lacks to read a cluster, according to access reviews of the API server.

    Args:
        api: the API server.
        refused: the action that the API server refused, such as ``list pods``.

    Returns:
        The refused action and then the other forbidden ones, or only the refused one if the reviews fail.
    """
    try:
        missing = await missing_permissions(api, [Permission("list", resource) for resource in REQUIRED])
    except (ApiError, Unreachable):
        return (refused,)
    return tuple(dict.fromkeys([refused, *(each.text for each in missing)]))
