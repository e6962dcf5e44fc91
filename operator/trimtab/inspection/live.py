"""Reads from the API server what inspections need in addition to the snapshot: policies and the recorded actions.

Unlike the other modules of this package, it sends requests. The command line and the operator's inspection API share
it, so that both read the same.

Example::

    manifests = await list_manifests(api, POLICY_KINDS, on_forbidden=lambda resource, error: None)
    policies = policy_set(manifests)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from trimtab.inspection.cluster import PolicySet
from trimtab.kube.api import Api, ApiError, Forbidden, NotFound, Unreachable
from trimtab.kube.errors import InputError
from trimtab.kube.resources import (
    CLUSTER_AUTOSCALERS,
    DESCHEDULER_POLICIES,
    DESCHEDULING_RUNS,
    HISTORY_RECORDS,
    MACHINE_AUTOSCALERS,
    NODE_PRESSURE_POLICIES,
    PLACEMENT_ADMISSIONS,
    SCHEDULER_POLICIES,
    TAINT_MANAGERS,
    Resource,
)
from trimtab.kube.verbs import list_objects

if TYPE_CHECKING:
    from trimtab.api.descheduler_policy import DeschedulerPolicy
    from trimtab.descheduling.policy_conflicts import Scoring

POLICY_KINDS: Final[tuple[Resource, ...]] = (
    DESCHEDULER_POLICIES,
    CLUSTER_AUTOSCALERS,
    MACHINE_AUTOSCALERS,
    TAINT_MANAGERS,
    SCHEDULER_POLICIES,
    PLACEMENT_ADMISSIONS,
    NODE_PRESSURE_POLICIES,
)
"""The kinds that configure trimtab."""

HISTORY_KINDS: Final[tuple[Resource, ...]] = (HISTORY_RECORDS, DESCHEDULING_RUNS)
"""The kinds with recorded actions."""

OnForbidden = Callable[[Resource, Forbidden], None]
"""Called with each kind that is treated as empty because the user may not list it."""


async def list_manifests(
    api: Api, resources: Sequence[Resource], *, on_forbidden: OnForbidden | None = None
) -> list[dict[str, Any]]:
    """List objects of several kinds concurrently, and return them in the order of the kinds.

    Kinds that the API server does not serve have no objects.

    Args:
        api: the API server.
        resources: the kinds.
        on_forbidden: called for each kind that the user may not list, and which is treated as empty; ``None`` to fail.

    Raises:
        LoadFailed: a kind could not be listed.
    """
    read = [asyncio.create_task(_list(api, each, on_forbidden), name=f"list {each.plural}") for each in resources]
    try:
        return [manifest for each in read for manifest in await each]
    finally:
        for each in read:
            each.cancel()
        await asyncio.gather(*read, return_exceptions=True)


async def _list(api: Api, resource: Resource, on_forbidden: OnForbidden | None) -> list[dict[str, Any]]:
    try:
        listed = await list_objects(api, resource)
    except NotFound:
        return []  # its CustomResourceDefinition is not installed
    except (ApiError, Unreachable) as error:
        if isinstance(error, Forbidden) and on_forbidden is not None:
            on_forbidden(resource, error)
            return []
        from trimtab.cluster.loader import LoadFailed  # it imports numpy

        raise LoadFailed(resource, error) from error
    return [{**item, "apiVersion": resource.api_version, "kind": resource.kind} for item in listed.items]


def policy_set(manifests: Iterable[Mapping[str, Any]], *, scoring: Scoring | None = None) -> PolicySet:
    """Return the policies among custom resources of a cluster.

    Args:
        manifests: objects of :data:`POLICY_KINDS`.
        scoring: the scheduler's scoring strategy, for the check for conflicts.

    Raises:
        InputError: an object is invalid, or two policies would undo each other. The command line reports such errors
            in detail.
    """
    from trimtab.api import decode
    from trimtab.descheduling.policy_conflicts import conflicts

    decoders: Mapping[str, Callable[[object], Any]] = {
        DESCHEDULER_POLICIES.kind: decode.decode_policy,
        CLUSTER_AUTOSCALERS.kind: decode.decode_cluster_autoscaler,
        MACHINE_AUTOSCALERS.kind: decode.decode_machine_autoscaler,
        TAINT_MANAGERS.kind: decode.decode_taint_manager,
        SCHEDULER_POLICIES.kind: decode.decode_scheduler_policy,
        PLACEMENT_ADMISSIONS.kind: decode.decode_placement_admission,
        NODE_PRESSURE_POLICIES.kind: decode.decode_node_pressure_policy,
    }
    found: dict[str, list[Any]] = {kind: [] for kind in decoders}
    for manifest in manifests:
        kind = str(manifest.get("kind"))
        if kind in decoders:
            found[kind].append(decoders[kind](manifest))
    descheduler: tuple[DeschedulerPolicy, ...] = tuple(sorted(found[DESCHEDULER_POLICIES.kind], key=_name))
    for conflict in conflicts(descheduler, scoring=scoring):
        raise InputError(conflict.message, object=f"{DESCHEDULER_POLICIES.kind}/{conflict.first}")
    return PolicySet(
        descheduler=descheduler,
        cluster_autoscaler=_only(CLUSTER_AUTOSCALERS, found),
        machine_autoscalers=tuple(sorted(found[MACHINE_AUTOSCALERS.kind], key=lambda each: str(each.key))),
        taint_manager=_only(TAINT_MANAGERS, found),
        schedulers=tuple(found[SCHEDULER_POLICIES.kind]),
        pressure=tuple(found[NODE_PRESSURE_POLICIES.kind]),
        admission=_only(PLACEMENT_ADMISSIONS, found),
    )


def _name(policy: Any) -> str:
    return str(policy.name)


def _only(resource: Resource, found: Mapping[str, Sequence[Any]]) -> Any:
    """Return the object of a kind of which a cluster has at most one; ``None`` if there is none."""
    objects = found[resource.kind]
    if len(objects) > 1:
        names = ", ".join(sorted(map(_name, objects)))
        raise InputError(f"only one object of this kind may exist; there are: {names}", object=resource.kind)
    return objects[0] if objects else None
