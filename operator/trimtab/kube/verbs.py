"""Sends the API verbs (get, list, create, …) with their paths, content types, field manager and paging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from trimtab.kube.api import Api, Gone
from trimtab.kube.resources import Resource

FIELD_MANAGER: Final = "trimtab"
"""The field manager in ``metadata.managedFields``."""

PAGE_SIZE: Final = 500
"""Number of objects per page, as in kubectl and client-go. Pages of this size delay other requests only briefly."""

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
"""The content type of server-side apply. The body is JSON, which is valid YAML."""

STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
"""The content type of a patch that merges lists of core types by their keys, such as conditions by type. Custom
resources do not support it."""

METADATA_ONLY: Final = (
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"
)
"""The ``Accept`` header of the smallest response, for callers that only need to know whether the request succeeded."""

METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"
"""The ``Accept`` header for a response of which only the metadata are needed, for example the new resourceVersion."""

METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json"
"""The ``Accept`` header for lists of which only the metadata are needed."""


class ObjectList(Struct, frozen=True):
    """All objects of a collection at one resource version."""

    items: list[dict[str, Any]]
    resource_version: str


async def get(api: Api, resource: Resource, name: str, *, namespace: str = "", timeout: float = 30.0) -> dict[str, Any]:
    """Read one object.

    Raises:
        NotFound: the object does not exist.
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
    limit: int = PAGE_SIZE,
    timeout: float = 60.0,
    accept: str = "",
) -> ObjectList:
    """Read a complete collection in pages.

    A continue token is valid for five minutes. If it expires, the list is requested again from the start without pages,
    as in client-go's pager.

    Args:
        api: the API server.
        resource: the resource.
        namespace: the namespace, or ``""`` for all namespaces.
        label_selector: the label selector in the syntax of ``kubectl -l``.
        field_selector: the field selector in the syntax of ``kubectl --field-selector``.
        limit: the number of objects per page, or 0 to request all objects at once.
        timeout: the timeout of each page in seconds.
        accept: the media type of the response, or ``""`` for JSON.
    """
    wanted = {"labelSelector": label_selector, "fieldSelector": field_selector}
    params = {key: value for key, value in wanted.items() if value}
    path = resource.path(namespace=namespace)
    items: list[dict[str, Any]] = []
    token = ""
    while True:
        paging = ({"limit": str(limit)} if limit else {}) | ({"continue": token} if token else {})
        try:
            page = await api.request("GET", path, params=params | paging, accept=accept, timeout=timeout)
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
    api: Api,
    resource: Resource,
    body: Mapping[str, Any],
    *,
    namespace: str = "",
    accept: str = "",
    timeout: float = 30.0,
) -> dict[str, Any]:
    """Create an object and return it as the server stored it. ``accept`` is the media type, or ``""`` for JSON.

    Raises:
        Conflict: an object of this name exists (reason ``AlreadyExists``).
        Invalid: the object is invalid.
    """
    answer: dict[str, Any] = await api.request(
        "POST",
        resource.path(namespace=namespace),
        params={"fieldManager": FIELD_MANAGER},
        body=_typed(resource, body),
        accept=accept,
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
    """Replace an object (PUT). If the body has ``metadata.resourceVersion``, the object must not have changed since.

    Raises:
        Conflict: the object was changed.
        NotFound: the object does not exist.
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
    accept: str = "",
    timeout: float = 30.0,
) -> dict[str, Any]:
    """Apply a JSON merge patch (RFC 7386). ``None`` removes a field, and lists are replaced completely.

    If the patch contains ``metadata.resourceVersion``, it is applied only if the object was not changed since.
    ``subresource="status"`` changes the status. ``accept`` is the media type of the response, or ``""`` for JSON.
    """
    return await _patch(api, resource, name, patch, MERGE_PATCH, namespace, subresource, timeout, accept)


async def strategic_patch(
    api: Api,
    resource: Resource,
    name: str,
    patch: Mapping[str, Any],
    *,
    namespace: str = "",
    subresource: str = "",
    timeout: float = 30.0,
) -> dict[str, Any]:
    """Apply a strategic merge patch to a built-in object, which merges lists by their keys, such as conditions by type.

    The fields of ``patch`` are those of :func:`merge_patch`.
    """
    return await _patch(api, resource, name, patch, STRATEGIC_PATCH, namespace, subresource, timeout)


async def patch_conditions(
    api: Api,
    resource: Resource,
    name: str,
    conditions: Sequence[Mapping[str, Any]],
    *,
    namespace: str = "",
    uid: str,
    resource_version: str = "",
    timeout: float,
) -> None:
    """Add or update conditions in the status of a built-in object. A strategic merge patch keeps its other conditions.

    Args:
        api: the API server.
        resource: the resource of the object.
        name: name of the object.
        conditions: the conditions to add or update.
        namespace: namespace of the object; empty if it is cluster-scoped.
        uid: UID of the object. The API server refuses the patch of another object.
        resource_version: the version to which the patch applies; empty for any.
        timeout: the timeout of the request in seconds.
    """
    metadata = {"uid": uid} | ({"resourceVersion": resource_version} if resource_version else {})
    await api.request(
        "PATCH",
        resource.path(name, namespace=namespace, subresource="status"),
        params={"fieldManager": FIELD_MANAGER},
        body={"metadata": metadata, "status": {"conditions": list(conditions)}},
        content_type=STRATEGIC_PATCH,
        accept=METADATA_ONLY,
        timeout=timeout,
    )


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
    """Apply a JSON patch (RFC 6902) atomically. A failed ``test`` raises :class:`~trimtab.kube.api.Invalid`."""
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
    """Apply the fields that a field manager owns (server-side apply), and return the object.

    Fields that it applied before but omits now are removed.

    Args:
        api: the API server.
        resource: the resource.
        name: the name of the object, which is created if it does not exist.
        fields: all fields that the field manager owns, except kind, apiVersion and name, which are added.
        namespace: the namespace of the object.
        subresource: ``status`` or ``""``.
        force: whether to take over fields of other managers, as controllers do. If false, such fields cause a
            ``Conflict``.
        field_manager: the owner of the fields. Owners of different fields of one object need different names.
        timeout: the timeout in seconds.
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
        resource: the resource.
        name: the name of the object.
        namespace: the namespace of the object.
        uid: the UID of the object, as a precondition, or ``""`` for none.
        grace_period: the grace period in seconds, or ``None`` for the default of the object.
        propagation: the propagation policy (``Background``, ``Foreground`` or ``Orphan``), or ``""`` for the default of
            the resource.
        accept: the media type of the response, which is ignored. Use :data:`METADATA_ONLY` for many deletions.
        timeout: the timeout in seconds.

    Raises:
        NotFound: the object does not exist.
        Conflict: the object of this name has another UID.
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
    accept: str = "",
) -> dict[str, Any]:
    answer: dict[str, Any] = await api.request(
        "PATCH",
        resource.path(name, namespace=namespace, subresource=subresource),
        params={"fieldManager": FIELD_MANAGER},
        body=body,
        content_type=content_type,
        accept=accept,
        timeout=timeout,
    )
    return answer


def _typed(resource: Resource, body: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}
