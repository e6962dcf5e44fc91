"""Writing to nodes: one request where the picture is right, with a look at the node itself where it is not."""

from __future__ import annotations

from typing import Final

from trimtab.autoscaling.actuation.signs import Change, Seen
from trimtab.kube import verbs
from trimtab.kube.api import Api, Conflict, Invalid, NotFound
from trimtab.kube.resources import NODES

TRIES: Final = 4
"""Of one patch: a node that is written so often in between is left to the next try."""


async def write(api: Api, node: str, uid: str, change: Change, *, seen: Seen | None = None, timeout: float) -> bool:
    """Change a node, guarded so that nothing that somebody writes in between is lost.

    Args:
        api: the API server.
        node: its name.
        uid: only this very node, not one that has taken its name; empty for whichever has it.
        change: what to write, given what is there.
        seen: the node as the picture has it; ``None`` to read it first.
        timeout: seconds for each request.

    Returns:
        Whether the node is there; false where it is gone or another has its name.

    Raises:
        ApiError: the API server refuses, or somebody wrote in between each time.
        Unreachable: no answer came, and what was asked for may have been done.
    """
    for left in reversed(range(TRIES)):
        if seen is None:
            try:
                seen = Seen.read(await verbs.get(api, NODES, node, timeout=timeout))
            except NotFound:
                return False
            if uid and seen.uid != uid:
                return False
        operations = change(seen)
        if not operations:
            return True
        try:
            await verbs.json_patch(api, NODES, node, operations, timeout=timeout)
        except NotFound:
            return False
        except (Conflict, Invalid):
            if not left:
                raise
            seen = None
            continue
        return True
    raise AssertionError("the last try returns or raises")
