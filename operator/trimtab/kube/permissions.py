"""Asks the API server what an account may do: access reviews of single permissions, and the rules of an account.

await is_permitted(api, Permission("create", PODS, "eviction"))                    # this process
await is_permitted(api, Permission("list", NODES), subject=Subject.service_account("trimtab", "trimtab"))
await granted_rules(api, "default")                                                # to notice changes
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from trimtab.kube.api import Api
from trimtab.kube.resources import SUBJECT_ACCESS_REVIEWS, Resource
from trimtab.kube.verbs import create

SELF_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
RULES_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", namespaced=False
)

_RULE_FIELDS: Final = ("verbs", "apiGroups", "resources", "resourceNames")


class Permission(Struct, frozen=True):
    """A verb on a resource, as RBAC rules grant it.

    Attributes:
        verb: ``get``, ``patch``, …
        resource: the resource.
        subresource: ``status``, ``eviction``, …, or ``""`` for the object itself.
        namespace: the namespace, or ``""`` for all namespaces.
        name: the name of a single object, or ``""`` for all objects.
    """

    verb: str
    resource: Resource
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def text(self) -> str:
        """Return the permission as text, such as ``get leases.coordination.k8s.io in kube-node-lease``."""
        resource = self.resource.name + (f"/{self.subresource}" if self.subresource else "")
        named = f" {self.name}" if self.name else ""
        return f"{self.verb} {resource}{named}" + (f" in {self.namespace}" if self.namespace else "")


class Subject(Struct, frozen=True):
    """The user of a SubjectAccessReview.

    Attributes:
        user: name of the user.
        groups: the groups of the user.
    """

    user: str
    groups: tuple[str, ...] = ()

    @classmethod
    def service_account(cls, namespace: str, name: str) -> Subject:
        """Return a service account, with the groups that the API server gives it."""
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        return cls(f"system:serviceaccount:{namespace}:{name}", groups)


async def is_permitted(
    api: Api, permission: Permission, *, subject: Subject | None = None, timeout: float = 10.0
) -> bool:
    """Return whether an account has a permission, according to an access review of the API server.

    The result includes all authorizers and not only RBAC. Every authenticated account may create the review of its own
    permissions (ClusterRole ``system:basic-user``).

    Args:
        api: the API server.
        permission: the permission.
        subject: the account; ``None`` for the account of this process. The review of another account needs the
            permission to create SubjectAccessReviews.
        timeout: timeout of the request in seconds.

    Raises:
        ApiError: the server responded with an error.
        Unreachable: there was no response.
    """
    attributes = {
        "verb": permission.verb,
        "group": permission.resource.group,
        "version": permission.resource.version,
        "resource": permission.resource.plural,
        "subresource": permission.subresource,
        "namespace": permission.namespace,
        "name": permission.name,
    }
    spec: dict[str, object] = {"resourceAttributes": {key: value for key, value in attributes.items() if value}}
    reviews = SELF_REVIEWS
    if subject is not None:
        reviews = SUBJECT_ACCESS_REVIEWS
        spec |= {"user": subject.user, "groups": list(subject.groups)}
    answer = await create(api, reviews, {"spec": spec}, timeout=timeout)
    return bool((answer.get("status") or {}).get("allowed"))


class GrantedRules(Struct, frozen=True):
    """The rules of an account in one namespace, those of ClusterRoles included.

    Attributes:
        rules: the rules in a comparable form.
        complete: whether they include the rules of all authorizers.
    """

    rules: frozenset[str]
    complete: bool


async def granted_rules(api: Api, namespace: str, *, timeout: float = 10.0) -> GrantedRules:
    """Return the rules of this process's account, to notice changes with a single request.

    Access reviews decide what is permitted: the rules are incomplete if the API server has an authorizer that cannot
    list its rules, such as a webhook. The API server returns the rules in varying order, so the result is a set.

    Raises:
        ApiError: the server responded with an error.
        Unreachable: there was no response.
    """
    answer = await create(api, RULES_REVIEWS, {"spec": {"namespace": namespace}}, timeout=timeout)
    status = answer.get("status") or {}
    rules = status.get("resourceRules") or ()
    found = frozenset(repr([sorted(rule.get(field) or ()) for field in _RULE_FIELDS]) for rule in rules)
    return GrantedRules(found, not status.get("incomplete"))
