"""What ``trimtab uninstall --check`` reports, and the command that removes it."""

from __future__ import annotations

from typing import Any

import pytest

from trimtab.api.crds import DEFINITIONS
from trimtab.inspection.leftovers import (
    CLUSTER_SERVICE_VERSIONS,
    SUBSCRIPTIONS,
    Found,
    Leftover,
    leftovers,
    leftovers_document,
)
from trimtab.kube.resources import (
    API_SERVICES,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    DEPLOYMENTS,
    LEASES,
    MACHINE_SETS,
    MACHINES,
    NAMESPACES,
    SERVICES,
    Resource,
)

PRICE = "trimtab.dev/price"
CHART = {"app.kubernetes.io/name": "trimtab", "helm.sh/chart": "trimtab-0.1.0"}
RELEASE = {"meta.helm.sh/release-name": "mine", "meta.helm.sh/release-namespace": "ops"}


def meta(name: str, namespace: str = "", *, manager: str = "", written: tuple[str, ...] = (), **more: Any) -> Any:
    """Metadata of an object, of which a manager wrote the given annotations."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **more}
    if manager:
        fields = {"f:metadata": {"f:annotations": {f"f:{key}": {} for key in written}}}
        metadata["managedFields"] = [{"manager": manager, "fieldsV1": fields}]
    return metadata


def found_in(resource: Resource, *metadata: Any, **more: Any) -> list[Leftover]:
    return leftovers(Found(metadata={resource: metadata}, **more))


def node(name: str = "n1", *, annotations: dict[str, str] | None = None, **spec: Any) -> Any:
    return {"metadata": {"name": name, "annotations": annotations or {}}, "spec": spec}


def test_clean_cluster_has_nothing_left() -> None:
    assert leftovers(Found()) == []
    assert leftovers_document([], {})["clean"]


def test_what_could_not_be_listed_is_not_clean() -> None:
    document = leftovers_document([], {"secrets": "forbidden"})
    assert not document["clean"]
    assert [each["resource"] for each in document["unchecked"]] == ["secrets"]


@pytest.mark.parametrize(
    ("resource", "metadata", "command"),
    [
        (CLUSTER_ROLES, meta("r", labels=CHART), "kubectl delete clusterroles.rbac.authorization.k8s.io r"),
        (SERVICES, meta("s", "ops", labels={"app.kubernetes.io/name": "trimtab-admission"}),
         "kubectl delete services s --namespace ops"),
        (SERVICES, meta("s", "ops", labels={"app.kubernetes.io/name": "mine", "helm.sh/chart": "trimtab-0.1.0"}),
         "kubectl delete services s --namespace ops"),
        (API_SERVICES, meta("v1alpha1.inspection.trimtab.dev"),
         "kubectl delete apiservices.apiregistration.k8s.io v1alpha1.inspection.trimtab.dev"),
        (LEASES, meta("trimtab", "ops", manager="trimtab"),
         "kubectl delete leases.coordination.k8s.io trimtab --namespace ops"),
        (CONFIG_MAPS, meta("trimtab-taint-manager", "ops", manager="trimtab"),
         "kubectl delete configmaps trimtab-taint-manager --namespace ops"),
        (CLUSTER_SERVICE_VERSIONS, meta("trimtab.v0.1.0", "ops"),
         "kubectl delete clusterserviceversions.operators.coreos.com trimtab.v0.1.0 --namespace ops"),
        (SUBSCRIPTIONS, meta("mine", "ops", labels={"operators.coreos.com/trimtab.ops": ""}),
         "kubectl delete subscriptions.operators.coreos.com mine --namespace ops"),
        (NAMESPACES, meta("trimtab-system", labels={"app.kubernetes.io/name": "trimtab"}),
         "kubectl delete namespaces trimtab-system"),
    ],
)  # fmt: skip
def test_object_of_trimtab_is_reported(resource: Resource, metadata: Any, command: str) -> None:
    [left] = found_in(resource, metadata)
    assert (left.kind, left.what, left.command) == (resource.kind, "object", command)


@pytest.mark.parametrize(
    ("resource", "metadata"),
    [
        (SERVICES, meta("s", "ops", labels={"app.kubernetes.io/name": "other", "helm.sh/chart": "other-0.1.0"})),
        (API_SERVICES, meta("v1beta1.metrics.k8s.io")),
        (LEASES, meta("other", "ops", manager="other-operator")),
        (LEASES, meta("unknown", "ops")),
        (CONFIG_MAPS, meta("cluster-autoscaler-status", "kube-system", manager="cluster-autoscaler")),
        (CLUSTER_SERVICE_VERSIONS, meta("other.v0.1.0", "ops")),
        (MACHINE_SETS, meta("w", "m", annotations={PRICE: "1"}, manager="kubectl", written=(PRICE,))),
    ],
)  # fmt: skip
def test_object_of_another_program_is_not_reported(resource: Resource, metadata: Any) -> None:
    assert found_in(resource, metadata) == []


def test_objects_of_a_stored_release_are_removed_by_helm() -> None:
    metadata = meta("s", "ops", labels=CHART, annotations=RELEASE)
    [left] = found_in(SERVICES, metadata, releases=frozenset({("ops", "mine")}))
    assert left.command == "helm uninstall mine --namespace ops"
    [left] = found_in(SERVICES, metadata, releases=frozenset({("ops", "other")}))
    assert left.command == "kubectl delete services s --namespace ops"


NODE_ANNOTATIONS = {
    "trimtab.dev/removing": "17",
    "trimtab.dev/unneeded-since": "2026-01-01T00:00:00Z",
    "trimtab.dev/cordoned-by": "cluster-autoscaler",
    "pressure.trimtab.dev/state": "{}",
    "example.com/other": "x",
}
TAINTS = [
    {"key": "ToBeDeletedByClusterAutoscaler", "value": "17", "effect": "NoSchedule"},
    {"key": "DeletionCandidateOfClusterAutoscaler", "value": "1", "effect": "PreferNoSchedule"},
    {"key": "pressure.trimtab.dev/memory", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
]
CONDITION_PATCH = '{"status": {"conditions": [{"type": "pressure.trimtab.dev/MemoryPressure", "$patch": "delete"}]}}'


def test_every_field_of_a_node_is_reported_and_the_annotations_last() -> None:
    marked = node(annotations=NODE_ANNOTATIONS, taints=TAINTS, unschedulable=True)
    marked["status"] = {"conditions": [{"type": "Ready"}, {"type": "pressure.trimtab.dev/MemoryPressure"}]}
    assert [(each.what, each.command) for each in leftovers(Found(nodes=[marked]))] == [
        (
            "taint ToBeDeletedByClusterAutoscaler:NoSchedule",
            "kubectl taint nodes n1 ToBeDeletedByClusterAutoscaler:NoSchedule-",
        ),
        (
            "taint DeletionCandidateOfClusterAutoscaler:PreferNoSchedule",
            "kubectl taint nodes n1 DeletionCandidateOfClusterAutoscaler:PreferNoSchedule-",
        ),
        (
            "taint pressure.trimtab.dev/memory:NoSchedule",
            "kubectl taint nodes n1 pressure.trimtab.dev/memory:NoSchedule-",
        ),
        ("cordon", "kubectl uncordon n1"),
        (
            "condition pressure.trimtab.dev/MemoryPressure",
            f"kubectl patch nodes n1 --subresource=status -p '{CONDITION_PATCH}'",
        ),
        ("annotation pressure.trimtab.dev/state", "kubectl annotate nodes n1 pressure.trimtab.dev/state-"),
        ("annotation trimtab.dev/cordoned-by", "kubectl annotate nodes n1 trimtab.dev/cordoned-by-"),
        ("annotation trimtab.dev/removing", "kubectl annotate nodes n1 trimtab.dev/removing-"),
        ("annotation trimtab.dev/unneeded-since", "kubectl annotate nodes n1 trimtab.dev/unneeded-since-"),
    ]


def test_taints_and_cordon_of_others_are_not_reported() -> None:
    others = [each for each in TAINTS if not each["key"].startswith("pressure.")]
    assert leftovers(Found(nodes=[node(taints=others, unschedulable=True)])) == []
    stale = node(annotations={"trimtab.dev/removing": "16"}, taints=others)
    assert [each.what for each in leftovers(Found(nodes=[stale]))] == ["annotation trimtab.dev/removing"]


def test_annotations_that_the_operator_wrote_are_reported_whatever_their_key() -> None:
    keys = ("trimtab.dev/learned-node", "machine.openshift.io/delete-machine", "gone")
    annotations = {
        "trimtab.dev/learned-node": "{}",
        "machine.openshift.io/delete-machine": "x",
        "trimtab.dev/price": "1",
    }
    metadata = meta("w", "m", annotations=annotations, manager="trimtab", written=keys)
    assert [each.what for each in found_in(MACHINES, metadata)] == [
        "annotation machine.openshift.io/delete-machine",
        "annotation trimtab.dev/learned-node",
    ]


POLICY = "deschedulerpolicies.trimtab.dev"
OURS, FOREIGN = "trimtab.dev/finalizer", "example.com/finalizer"


def test_finalizers_are_reported_only_without_an_operator() -> None:
    custom = {POLICY: [meta("p", finalizers=[OURS, FOREIGN])]}
    crds = {POLICY: meta(POLICY)}
    left = leftovers(Found(custom=custom, crds=crds))
    assert [(each.kind, each.what, each.command) for each in left] == [
        (
            "DeschedulerPolicy",
            f"finalizer {OURS}",
            f'kubectl patch {POLICY} p --type=merge -p \'{{"metadata": {{"finalizers": ["{FOREIGN}"]}}}}\'',
        ),
        ("DeschedulerPolicy", "object", f"kubectl delete {POLICY} p"),
        (
            "CustomResourceDefinition",
            "object",
            f"kubectl delete customresourcedefinitions.apiextensions.k8s.io {POLICY}",
        ),
    ]
    running = {DEPLOYMENTS: [meta("trimtab", "ops", labels=CHART)]}
    left = leftovers(Found(custom=custom, crds=crds, metadata=running))
    assert [(each.kind, each.what) for each in left] == [
        ("DeschedulerPolicy", "object"),
        ("Deployment", "object"),
        ("CustomResourceDefinition", "object"),
    ]


def test_records_of_the_operator_are_one_entry() -> None:
    kind = "historyrecords.trimtab.dev"
    left = leftovers(Found(custom={kind: [meta("a"), meta("b")]}))
    assert [(each.name, each.command) for each in left] == [("*", f"kubectl delete {kind} --all")]


def test_crds_and_objects_of_openshift_are_not_reported() -> None:
    name = "machineautoscalers.autoscaling.openshift.io"
    platform = meta(name, annotations={"include.release.openshift.io/self-managed-high-availability": "true"})
    openshifts = meta("w", "m", finalizers=["machinetarget.autoscaling.openshift.io"])
    assert leftovers(Found(custom={name: [openshifts]}, crds={name: platform})) == []
    ours = meta("w", "m", finalizers=[OURS])
    assert [each.what for each in leftovers(Found(custom={name: [ours]}, crds={name: platform}))] == [
        f"finalizer {OURS}"
    ]


def test_every_crd_is_checked() -> None:
    crds = {each.name: meta(each.name) for each in DEFINITIONS}
    assert [each.name for each in leftovers(Found(crds=crds))] == [each.name for each in DEFINITIONS]
