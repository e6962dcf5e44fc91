"""The node lifecycle's requests, each guarded by what was seen; what came of them as values."""

from __future__ import annotations

import logging
from typing import Any, Final

from msgspec import Struct

from trimtab.kube import verbs
from trimtab.kube.api import Api, ApiError, Conflict, Invalid, NotFound, ServerError, Unreachable
from trimtab.kube.errors import InputError
from trimtab.kube.objects import NODE_LEASES, Lease, Node
from trimtab.kube.resources import LEASES, NODES, PODS
from trimtab.kube.wire.decode import decode_object
from trimtab.tainting.health import Answer, MarkPodNotReady, MarkUnknown
from trimtab.tainting.health.heard import stamp_of
from trimtab.tainting.patches import Outcome, TaintPatch

log = logging.getLogger(__name__)

TIMEOUT: Final = 10.0
"""Seconds of one request."""


class Written(Struct, frozen=True):
    """What came of a write.

    Attributes:
        outcome: in a word.
        certain: whether it is known that nothing was written; of no account where it was.
        version: the node's resource version after it; empty where none is known.
        error: what the API server said, or why there was no answer.
    """

    outcome: Outcome
    certain: bool = True
    version: str = ""
    error: str = ""


async def ask(api: Api, node: str, *, now: float) -> Answer | None:
    """Read a node and its Lease from the API server itself, past its watch cache and ours.

    Args:
        api: the API server.
        node: its name.
        now: the present: what our watches tell from here on is younger than the answer.

    Returns:
        What it says; ``None`` where there is no such node any more.

    Raises:
        ApiError: as the server answered.
        Unreachable: no answer came.
        InputError: the answer cannot be read.
    """
    try:
        found = decode_object(await verbs.get(api, NODES, node, timeout=TIMEOUT))
    except NotFound:
        return None
    try:
        lease = decode_object(await verbs.get(api, LEASES, node, namespace=NODE_LEASES, timeout=TIMEOUT))
    except NotFound:
        lease = None
    if not isinstance(found, Node) or not (lease is None or isinstance(lease, Lease)):
        raise InputError("is not what was asked for", object=f"Node/{node}")
    return Answer(found.uid, stamp_of(found, lease), now)


async def write_mark(api: Api, mark: MarkUnknown) -> Written:
    """Make a silent node's conditions Unknown."""
    return await _patch_node(api, mark.node, mark.operations, subresource="status")


async def write_taints(api: Api, patch: TaintPatch) -> Written:
    """Change a node's taints."""
    return await _patch_node(api, patch.node, patch.operations)


async def write_pod(api: Api, mark: MarkPodNotReady) -> None:
    """Say of a pod that it is not ready.

    Raises:
        ApiError: as the server answered; a ``Conflict`` where somebody has written to it since.
        Unreachable: no answer came.
    """
    await api.request(
        "PATCH",
        PODS.path(mark.pod, namespace=mark.namespace, subresource="status"),
        params={"fieldManager": verbs.FIELD_MANAGER},
        body=mark.body,
        content_type=verbs.STRATEGIC_PATCH,
        accept=verbs.METADATA,
        timeout=TIMEOUT,
    )


async def _patch_node(api: Api, node: str, operations: Any, *, subresource: str = "") -> Written:
    try:
        answer = await verbs.json_patch(api, NODES, node, operations, subresource=subresource, timeout=TIMEOUT)
    except (Conflict, Invalid) as error:
        return Written(Outcome.CONFLICT, error=str(error))
    except NotFound as error:
        return Written(Outcome.GONE, error=str(error))
    except (ApiError, Unreachable) as error:
        certain = isinstance(error, ApiError) and not isinstance(error, ServerError)
        return Written(Outcome.FAILED, certain, error=f"{type(error).__name__}: {error}")
    return Written(Outcome.WRITTEN, version=str((answer.get("metadata") or {}).get("resourceVersion", "")))
