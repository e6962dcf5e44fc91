"""The verbs of the API, as functions on :class:`~trimtab.kube.api.Api`.

They add to a request what every caller would write alike: paths, content types, the field manager, paging.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from trimtab.kube.api import Api, Gone
from trimtab.kube.resources import Resource

FIELD_MANAGER: Final = "trimtab"
"""Whose fields these are, in ``metadata.managedFields``."""

PAGE: Final = 500
"""Objects a page, as kubectl and client-go ask for: small enough for the server to keep others waiting shortly."""

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
"""Server-side apply. JSON is YAML, so the body stays JSON."""

STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
"""Lists of core types are merged by their keys: conditions by type. Custom resources know it not."""

METADATA: Final = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"
"""The form of an answer that costs the server least, for who looks at no more than whether there is one."""


class ObjectList(Struct, frozen=True):
    """A whole collection at one resource version."""

    items: list[dict[str, Any]]
    resource_version: str


async def get(api: Api, resource: Resource, name: str, *, namespace: str = "", timeout: float = 30.0) -> dict[str, Any]:
    """One object.

    Raises:
        NotFound: there is none of that name.
    """
    answer: dict[str, Any] = await api.request("GET", resource.path(name, namespace=namespace), timeout=timeout)
    return answer


async def list_objects(
    api: Api,
    resource: Resource,
    *,
    namespace: str = "",
    label_selector: str = "",
    field_selector: str = "",
    limit: int = PAGE,
    timeout: float = 60.0,
) -> ObjectList:
    """A whole collection, read in pages.

    A page token lives five minutes; when it is gone midway, the rest would belong to another moment than the beginning.
    The list is then begun anew, unpaged: that cannot expire (client-go's pager does the same).

    Args:
        api: the API server.
        resource: the kind.
        namespace: ``""`` for all.
        label_selector: as kubectl's ``-l``.
        field_selector: as kubectl's ``--field-selector``.
        limit: objects a page; 0 for all at once.
        timeout: seconds a page.
    """
    wanted = {"labelSelector": label_selector, "fieldSelector": field_selector}
    params = {key: value for key, value in wanted.items() if value}
    path = resource.path(namespace=namespace)
    items: list[dict[str, Any]] = []
    token = ""
    while True:
        paging = ({"limit": str(limit)} if limit else {}) | ({"continue": token} if token else {})
        try:
            page = await api.request("GET", path, params=params | paging, timeout=timeout)
        except Gone:
            if not token:
                raise
            items, token, limit = [], "", 0
            continue
        items += page.get("items") or []
        token = page["metadata"].get("continue") or ""
        if not token:
            return ObjectList(items=items, resource_version=page["metadata"].get("resourceVersion", ""))


async def create(
    api: Api, resource: Resource, body: Mapping[str, Any], *, namespace: str = "", timeout: float = 30.0
) -> dict[str, Any]:
    """Create an object and return it as the server stored it.

    Raises:
        Conflict: the name exists (reason ``AlreadyExists``).
        Invalid: the object is not valid.
    """
    answer: dict[str, Any] = await api.request(
        "POST",
        resource.path(namespace=namespace),
        params={"fieldManager": FIELD_MANAGER},
        body=_typed(resource, body),
        timeout=timeout,
    )
    return answer


async def replace(
    api: Api,
    resource: Resource,
    name: str,
    body: Mapping[str, Any],
    *,
    namespace: str = "",
    subresource: str = "",
    timeout: float = 30.0,
) -> dict[str, Any]:
    """Write a whole object. With ``metadata.resourceVersion`` in it, only if nobody wrote in between.

    Raises:
        Conflict: somebody wrote in between.
        NotFound: there is none of that name.
    """
    answer: dict[str, Any] = await api.request(
        "PUT",
        resource.path(name, namespace=namespace, subresource=subresource),
        params={"fieldManager": FIELD_MANAGER},
        body=_typed(resource, body),
        timeout=timeout,
    )
    return answer


async def merge_patch(
    api: Api,
    resource: Resource,
    name: str,
    patch: Mapping[str, Any],
    *,
    namespace: str = "",
    subresource: str = "",
    timeout: float = 30.0,
) -> dict[str, Any]:
    """Merge these fields into an object (RFC 7386): ``None`` removes a field, lists are replaced whole.

    A ``metadata.resourceVersion`` in the patch makes it conditional. ``subresource="status"`` writes the status.
    """
    return await _patch(api, resource, name, patch, MERGE_PATCH, namespace, subresource, timeout)


async def json_patch(
    api: Api,
    resource: Resource,
    name: str,
    operations: Sequence[Mapping[str, Any]],
    *,
    namespace: str = "",
    subresource: str = "",
    timeout: float = 30.0,
) -> dict[str, Any]:
    """Apply RFC 6902 operations, all or none; a failed ``test`` raises :class:`~trimtab.kube.api.Invalid`."""
    return await _patch(api, resource, name, list(operations), JSON_PATCH, namespace, subresource, timeout)


async def apply(
    api: Api,
    resource: Resource,
    name: str,
    fields: Mapping[str, Any],
    *,
    namespace: str = "",
    subresource: str = "",
    force: bool = True,
    field_manager: str = FIELD_MANAGER,
    timeout: float = 30.0,
) -> dict[str, Any]:
    """Server-side apply: these fields are ours and shall be so; what we applied before and left out now goes.

    Args:
        api: the API server.
        resource: the kind.
        name: of the object; it is created if need be.
        fields: all that this field manager wants to own; kind, apiVersion and name are filled in.
        namespace: of the object.
        subresource: ``status`` or ``""``.
        force: take fields over from other managers, as a controller must; else they are a ``Conflict``.
        field_manager: two owners of different fields of one object need two names.
        timeout: seconds.
    """
    body = _typed(resource, fields)
    identity = {"name": name} | ({"namespace": namespace} if namespace else {})
    body["metadata"] = {**body.get("metadata", {}), **identity}
    answer: dict[str, Any] = await api.request(
        "PATCH",
        resource.path(name, namespace=namespace, subresource=subresource),
        params={"fieldManager": field_manager, "force": "true" if force else "false"},
        body=body,
        content_type=APPLY_PATCH,
        timeout=timeout,
    )
    return answer


async def delete(
    api: Api,
    resource: Resource,
    name: str,
    *,
    namespace: str = "",
    uid: str = "",
    grace_period: int | None = None,
    propagation: str = "",
    accept: str = "",
    timeout: float = 30.0,
) -> None:
    """Delete an object.

    Args:
        api: the API server.
        resource: the kind.
        name: of the object.
        namespace: of the object.
        uid: only this very object, not one that has taken its name.
        grace_period: seconds; ``None`` for the object's own.
        propagation: ``Background``, ``Foreground`` or ``Orphan``; ``""`` for the kind's default.
        accept: the form of the answer, which is not looked at; :data:`METADATA` where there are many.
        timeout: seconds.

    Raises:
        NotFound: there is none of that name.
        Conflict: another object has the name by now.
    """
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if uid:
        options["preconditions"] = {"uid": uid}
    if grace_period is not None:
        options["gracePeriodSeconds"] = grace_period
    if propagation:
        options["propagationPolicy"] = propagation
    path = resource.path(name, namespace=namespace)
    await api.request("DELETE", path, body=options, accept=accept, timeout=timeout)


async def _patch(
    api: Api,
    resource: Resource,
    name: str,
    body: Any,
    content_type: str,
    namespace: str,
    subresource: str,
    timeout: float,
) -> dict[str, Any]:
    answer: dict[str, Any] = await api.request(
        "PATCH",
        resource.path(name, namespace=namespace, subresource=subresource),
        params={"fieldManager": FIELD_MANAGER},
        body=body,
        content_type=content_type,
        timeout=timeout,
    )
    return answer


def _typed(resource: Resource, body: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}
