"""What an API server can do by its version, where asking for it would not tell."""

from __future__ import annotations

from typing import Final

from trimtab.kube.api import Api, ApiError

STREAMS_LISTS: Final = (1, 33)
"""From here on servers write lists object by object (StreamingCollectionEncodingToProtobuf, KEP-5116)."""


async def streams_lists(api: Api, *, timeout: float = 30.0) -> bool:
    """Whether the server writes a list as it goes, so that a whole one is no burden on its memory.

    It is then the cheapest way to all objects: a watch that begins with them (WatchList) costs the server four times
    the CPU, for it flushes and encrypts event by event. A server that does not tell its version counts as an old one.

    Args:
        api: the server.
        timeout: seconds to wait for an answer.

    Raises:
        Unreachable: no answer came.
    """
    try:
        told = await api.request("GET", "/version", timeout=timeout)
        found = [int(str(told[part]).rstrip("+")) for part in ("major", "minor")]  # "33+" where a cloud has patched it
    except (ApiError, TypeError, KeyError, ValueError):
        return False
    return tuple(found) >= STREAMS_LISTS
