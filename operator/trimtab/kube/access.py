"""Asking the API server what we may do, before we are refused.

Every account may ask that of itself (ClusterRole ``system:basic-user``), and the answer is that of whoever authorizes
here, RBAC or not.
"""

from __future__ import annotations

from msgspec import Struct

from trimtab.kube.api import Api
from trimtab.kube.resources import Resource
from trimtab.kube.verbs import create

SELF_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)


class Right(Struct, frozen=True):
    """Something that somebody may do or not.

    Attributes:
        verb: ``get``, ``patch``, …
        resource: of what kind.
        subresource: ``status``, ``eviction``; ``""`` for the object itself.
        namespace: in which; ``""`` for all.
        name: of one object; ``""`` for all.
    """

    verb: str
    resource: Resource
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def words(self) -> str:
        """``patch nodes/status``, ``get leases.coordination.k8s.io in kube-node-lease``."""
        resource = self.resource.name + (f"/{self.subresource}" if self.subresource else "")
        named = f" {self.name}" if self.name else ""
        return f"{self.verb} {resource}{named}" + (f" in {self.namespace}" if self.namespace else "")


async def allowed(api: Api, right: Right, *, timeout: float = 10.0) -> bool:
    """Whether we have a right.

    Raises:
        ApiError: the server answered otherwise.
        Unreachable: no answer came.
    """
    attributes = {
        "verb": right.verb,
        "group": right.resource.group,
        "version": right.resource.version,
        "resource": right.resource.plural,
        "subresource": right.subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    given = {key: value for key, value in attributes.items() if value}
    answer = await create(api, SELF_REVIEWS, {"spec": {"resourceAttributes": given}}, timeout=timeout)
    return bool((answer.get("status") or {}).get("allowed"))
