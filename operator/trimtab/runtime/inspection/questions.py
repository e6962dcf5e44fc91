"""The resources of the inspection API, their discovery documents, and the questions that paths stand for.

/apis/inspection.trimtab.dev/v1alpha1/namespaces/shop/pods/web-1/explanation?node=n1
-> Question(pods/explanation, namespace="shop", name="web-1", params={"node": ("n1",)})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from msgspec import Struct

from trimtab.inspection.cluster import ClusterInput
from trimtab.inspection.live import HISTORY_KINDS, POLICY_KINDS
from trimtab.kube.errors import InputError
from trimtab.kube.resources import BUDGETS, NODE_METRICS, NODES, POD_METRICS, PODS, Resource
from trimtab.runtime.http.authorizer import AccessCheck

GROUP: Final = "inspection.trimtab.dev"
VERSION: Final = "v1alpha1"
PREFIX: Final = f"/apis/{GROUP}/{VERSION}"
CURRENT: Final = "current"
"""The name of the only object of resources that describe the whole cluster."""

MAX_PATH: Final = 1024
MAX_NAME: Final = 253
MAX_PARAMS: Final = 64
"""Maximum length of a path with its query, and of a name, and maximum number of query parameters."""

Params = Mapping[str, tuple[str, ...]]
Answer = Callable[[ClusterInput, "Question"], Any]


class NotServed(Exception):
    """The operator cannot answer a question from its memory.

    Attributes:
        status: the HTTP status.
        reason: the reason of the metav1.Status.
    """

    def __init__(self, message: str, *, status: int = 503, reason: str = "ServiceUnavailable") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class InspectedResource(Struct, frozen=True, kw_only=True):
    """A resource of the inspection API.

    Attributes:
        resource: the plural.
        kind: the kind in the discovery document.
        answer: computes the document.
        subresource: the subresource; empty for resources of which there is only :data:`CURRENT`.
        namespaced: whether objects have a namespace.
        plans: whether the answer depends on the measured usage and the stats of nodes, which the operator may lack.
        history: whether the answer depends on the recorded actions.
        managed_fields: the resource whose object's managedFields the answer depends on.
        params: the allowed query parameters.
    """

    resource: str
    kind: str
    answer: Answer
    subresource: str = ""
    namespaced: bool = False
    plans: bool = False
    history: bool = False
    managed_fields: Resource | None = None
    params: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Return the name in RBAC rules and discovery documents."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class Question(Struct, frozen=True):
    """A request for a document.

    Attributes:
        resource: the name of the resource, such as ``pods/explanation``.
        namespace: the namespace of the object; empty for objects without a namespace.
        name: the name of the object.
        params: the query parameters, ordered by name.
    """

    resource: str
    namespace: str
    name: str
    params: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def values(self, param: str) -> tuple[str, ...]:
        """Return the values of a query parameter."""
        return dict(self.params).get(param, ())

    def value(self, param: str) -> str | None:
        """Return the only value of a query parameter; ``None`` if it is not given.

        Raises:
            NotServed: it is given several times.
        """
        values = self.values(param)
        if len(values) > 1:
            raise NotServed(f"parameter {param} is given several times", status=400, reason="BadRequest")
        return values[0] if values else None


def _explain_node(cluster: ClusterInput, question: Question) -> Any:
    from trimtab.inspection.node import explain_node

    if question.name not in cluster.snapshot.nodes.slot_of:
        raise not_found(NODES, question.name)
    if cluster.policies.pressure and question.name not in cluster.stats.readings(cluster.snapshot, now=cluster.now):
        raise NotServed(f"the operator reads no stats of node {question.name}")  # the command finds other stats
    return explain_node(cluster, question.name)


def _explain_pod(cluster: ClusterInput, question: Question) -> Any:
    from trimtab.inspection.pod import explain_pod

    document = explain_pod(cluster, question.namespace, question.name)  # a pod that is gone is in the history
    if document is None:
        raise not_found(PODS, question.name)
    return document


def _explain_pdb(cluster: ClusterInput, question: Question) -> Any:
    from trimtab.inspection.budget import explain_pdb

    if f"{question.namespace}/{question.name}" not in cluster.snapshot.budgets:
        raise not_found(BUDGETS, question.name)
    return explain_pdb(cluster, question.namespace, question.name)


def _explain_pdbs(cluster: ClusterInput, question: Question) -> Any:
    from trimtab.inspection.budget import explain_pdbs

    return explain_pdbs(cluster, namespace=question.value("namespace"))


def _explain_protections(cluster: ClusterInput, question: Question) -> Any:
    from trimtab.inspection.protections import explain_protections

    return explain_protections(cluster, namespace=question.value("namespace"))


def _explain_node_group(cluster: ClusterInput, question: Question) -> Any:
    from trimtab.inspection.node_group import explain_node_group, find_node_groups, node_group_ids

    ids, id_ = node_group_ids(cluster), question.value("id")
    found = [id_] if id_ in ids else []
    if id_ is None:
        found = find_node_groups(ids, question.name, namespace=question.value("namespace") or "")
    return explain_node_group(cluster, _only(found, "nodegroups", question.name, "id"))


def _explain_node_groups(cluster: ClusterInput, _question: Question) -> Any:
    from trimtab.inspection.node_group import explain_node_groups

    return explain_node_groups(cluster)


def _explain_policy(cluster: ClusterInput, question: Question) -> Any:
    from trimtab.inspection.policy import explain_policy, policy_names

    wanted = question.value("kind")
    kinds = [kind for kind, name in policy_names(cluster) if name == question.name and wanted in (None, kind)]
    return explain_policy(cluster, _only(kinds, "policies", question.name, "kind"), question.name)


def _status(cluster: ClusterInput, _question: Question) -> Any:
    from trimtab.inspection.status import status_document

    return status_document(cluster.policies, now=cluster.now, history=cluster.history)


def _only(found: Sequence[str], resource: str, name: str, param: str) -> str:
    """Return the only object that a question can mean.

    Raises:
        NotServed: there is none, or there are several.
    """
    if not found:
        raise NotServed(f'{resource} "{name}" not found', status=404, reason="NotFound")
    if len(found) > 1:
        values = ", ".join(sorted(found))
        raise NotServed(
            f'{resource} "{name}": give parameter {param}, one of {values}', status=400, reason="BadRequest"
        )
    return found[0]


def _plan(cluster: ClusterInput, _question: Question) -> Any:
    from trimtab.inspection.planning import joint_plan

    policies = cluster.policies
    others = (policies.descheduler, policies.schedulers, policies.taint_manager, policies.pressure)
    if policies.autoscaled and policies.cluster_autoscaler is None:
        raise NotServed("there are MachineAutoscalers, but no ClusterAutoscaler")  # the command line warns
    if not policies.autoscaled and not any(others):
        raise NotServed("there are no policies")
    return joint_plan(cluster).document()


def not_found(resource: Resource, name: str) -> NotServed:
    """Return the error for an object that does not exist."""
    return NotServed(f'{resource.name} "{name}" not found', status=404, reason="NotFound")


RESOURCES: Final[Mapping[str, InspectedResource]] = {
    each.name: each
    for each in (
        InspectedResource(
            resource="nodes",
            subresource="explanation",
            kind="NodeExplanation",
            answer=_explain_node,
            plans=True,
            history=True,
            managed_fields=NODES,
        ),
        InspectedResource(
            resource="pods",
            subresource="explanation",
            kind="PodExplanation",
            answer=_explain_pod,
            namespaced=True,
            plans=True,
            history=True,
        ),
        InspectedResource(
            resource="poddisruptionbudgets",
            subresource="explanation",
            kind="PodDisruptionBudgetExplanation",
            answer=_explain_pdb,
            namespaced=True,
            plans=True,
        ),
        InspectedResource(
            resource="disruptionbudgets",  # with the name of the built-in resource, kubectl could mean either
            kind="DisruptionBudgetList",
            answer=_explain_pdbs,
            plans=True,
            params=frozenset({"namespace"}),
        ),
        InspectedResource(
            resource="nodegroups",
            subresource="explanation",
            kind="NodeGroupExplanation",
            answer=_explain_node_group,
            params=frozenset({"namespace", "id"}),
        ),
        InspectedResource(resource="nodegroups", kind="NodeGroupList", answer=_explain_node_groups),
        InspectedResource(
            resource="policies",
            subresource="explanation",
            kind="PolicyExplanation",
            answer=_explain_policy,
            plans=True,
            history=True,
            params=frozenset({"kind"}),
        ),
        InspectedResource(
            resource="protections",
            kind="ProtectionList",
            answer=_explain_protections,
            plans=True,
            params=frozenset({"namespace"}),
        ),
        InspectedResource(resource="plans", kind="Plan", answer=_plan, plans=True),
        InspectedResource(resource="statuses", kind="OperatorStatus", answer=_status, history=True),
    )
}
"""The resources by their names."""


def parse_question(path: str, query: str) -> Question | None:
    """Return the question of a request; ``None`` if the path is not one of this API.

    Args:
        path: the path, percent-encoded.
        query: the query string, percent-encoded.

    Raises:
        InputError: a name or a parameter is invalid.
    """
    if len(path) + len(query) > MAX_PATH:
        raise InputError(f"is longer than {MAX_PATH} characters", object="path")
    if not path.startswith(f"{PREFIX}/"):
        return None
    parts = [unquote(part) for part in path[len(PREFIX) + 1 :].split("/")]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
        if not namespace:
            return None
    resource, name, subresource = (*parts, "", "")[:3]
    found = RESOURCES.get(f"{resource}/{subresource}" if subresource else resource)
    if found is None or len(parts) != (3 if subresource else 2) or bool(namespace) != found.namespaced:
        return None
    if not found.subresource and name != CURRENT:
        return None
    for each in (namespace, name):
        if len(each) > MAX_NAME or not each.isprintable():
            raise InputError(f"is not a name of at most {MAX_NAME} characters", object="path")
    return Question(found.name, namespace, name, _params(found, query))


def _params(resource: InspectedResource, query: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    try:
        found = parse_qs(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=MAX_PARAMS)
    except ValueError as error:
        raise InputError(f"is invalid: {error}", object="query") from None
    unknown = sorted(set(found) - resource.params)
    if unknown:
        allowed = ", ".join(sorted(resource.params)) or "none"
        raise InputError(f"unknown parameter {unknown[0]!r}; allowed are: {allowed}", object="query")
    return tuple(sorted((name, tuple(values)) for name, values in found.items()))


# --- discovery ------------------------------------------------------------------------------------------------------


def discovery(path: str) -> dict[str, Any] | None:
    """Return the discovery document at a path; ``None`` if there is none."""
    version = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
    group = {"name": GROUP, "versions": [version], "preferredVersion": version}
    documents: Mapping[str, dict[str, Any]] = {
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]},
        f"/apis/{GROUP}": {"kind": "APIGroup", "apiVersion": "v1", **group},
        PREFIX: {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{GROUP}/{VERSION}",
            "resources": [
                {
                    "name": each.name,
                    "singularName": "",
                    "namespaced": each.namespaced,
                    "kind": each.kind,
                    "verbs": ["get"],
                }
                for each in RESOURCES.values()
            ],
        },
    }
    return documents.get(path)


# --- permissions ----------------------------------------------------------------------------------------------------


def access_check(question: Question, kinds: Sequence[Resource]) -> AccessCheck:
    """Return the permissions that a question needs: the resource itself, and to list all that documents may show.

    The permissions are cluster-wide also for a question about one namespace, because a document about a pod shows nodes
    and pods of other namespaces. What the operator has read from kubelets says as much as metrics.k8s.io.

    Args:
        question: the question.
        kinds: the kinds in the snapshot.
    """
    resource = RESOURCES[question.resource]
    own = {
        "group": GROUP,
        "version": VERSION,
        "verb": "get",
        "resource": resource.resource,
        "subresource": resource.subresource,
    }
    measured = (NODE_METRICS, POD_METRICS) if resource.plans else ()
    listed = dict.fromkeys((NODES, PODS, *kinds, *POLICY_KINDS, *HISTORY_KINDS, *measured))
    return AccessCheck(
        question.resource,
        (
            {"resourceAttributes": own},
            *(
                {
                    "resourceAttributes": {
                        "group": each.group,
                        "version": each.version,
                        "verb": "list",
                        "resource": each.plural,
                    }
                }
                for each in listed
            ),
        ),
    )
