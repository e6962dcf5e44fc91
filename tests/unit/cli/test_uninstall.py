"""``trimtab uninstall --check``, on an API server in memory."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import machine_set, node
from tests.fakes.cluster import FakeCluster
from trimtab.inspection.leftovers import CRDS
from trimtab.kube.api import Forbidden
from trimtab.kube.resources import (
    API_SERVICES,
    CONFIG_MAPS,
    DEPLOYMENTS,
    DESCHEDULER_POLICIES,
    LEASES,
    MACHINE_SETS,
    NODES,
    SECRETS,
    SERVICES,
)

CHART = {"app.kubernetes.io/name": "trimtab", "helm.sh/chart": "trimtab-0.1.0"}
RELEASE = {"meta.helm.sh/release-name": "mine", "meta.helm.sh/release-namespace": "ops"}
MINIMUM = "machine.openshift.io/cluster-api-autoscaler-node-group-min-size"
OURS = [{"manager": "trimtab"}]
FINALIZED = {"metadata": {"name": "nightly", "finalizers": ["trimtab.dev/finalizer"]}, "spec": {"strategies": {}}}


def named(name: str, namespace: str = "", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **({"namespace": namespace} if namespace else {}), **metadata}}


def add_custom_resources(server: FakeCluster) -> None:
    server.add(CRDS, named("deschedulerpolicies.trimtab.dev"))
    server.add(CRDS, named("widgets.example.com"))
    server.add(DESCHEDULER_POLICIES, FINALIZED)


def check(run, kubeconfig) -> tuple[int, dict[str, Any]]:
    result = run("uninstall", "--check", "--kubeconfig", kubeconfig, "-o", "json")
    return result.exit_code, msgspec.json.decode(result.stdout)


def test_cluster_that_never_had_trimtab_is_clean(run, server, kubeconfig) -> None:
    server.add(NODES, node("n1"))
    server.add(SERVICES, named("web", "shop", labels={"app.kubernetes.io/name": "web"}))
    server.add(LEASES, named("n1", "kube-node-lease", managedFields=OURS))

    code, document = check(run, kubeconfig)

    assert (code, document["left"], document["unchecked"]) == (0, [], [])
    assert run("uninstall", "--check", "--kubeconfig", kubeconfig).exit_code == 0
    assert {call.method for call in server.calls} == {"GET"}


def test_each_object_and_field_has_its_command(run, server, kubeconfig) -> None:
    add_custom_resources(server)
    server.add(SERVICES, named("trimtab", "ops", labels=CHART))
    server.add(API_SERVICES, named("v1alpha1.inspection.trimtab.dev"))
    server.add(LEASES, named("trimtab", "ops", managedFields=OURS))
    server.add(CONFIG_MAPS, named("record", "ops", managedFields=OURS))
    server.add(CONFIG_MAPS, named("chart", "ops", labels=CHART, managedFields=OURS))
    server.add(NODES, node("n1").taint("trimtab.dev/pressure"))

    code, document = check(run, kubeconfig)

    assert code == 1
    assert [(each["kind"], each["name"], each["what"]) for each in document["left"]] == [
        ("DeschedulerPolicy", "nightly", "finalizer trimtab.dev/finalizer"),
        ("DeschedulerPolicy", "nightly", "object"),
        ("APIService", "v1alpha1.inspection.trimtab.dev", "object"),
        ("Service", "trimtab", "object"),
        ("ConfigMap", "chart", "object"),
        ("CustomResourceDefinition", "deschedulerpolicies.trimtab.dev", "object"),
        ("Lease", "trimtab", "object"),
        ("ConfigMap", "chart", "object"),
        ("ConfigMap", "record", "object"),
        ("Node", "n1", "taint trimtab.dev/pressure:NoSchedule"),
    ]
    table = run("uninstall", "--check", "--kubeconfig", kubeconfig)
    assert table.exit_code == 1
    assert all(each["command"] in table.stdout for each in document["left"])


def test_objects_of_a_helm_release_are_removed_with_it(run, server, kubeconfig) -> None:
    server.add(DEPLOYMENTS, named("trimtab", "ops", labels=CHART, annotations=RELEASE))
    server.add(SECRETS, named("sh.helm.release.v1.mine.v1", "ops", labels={"owner": "helm", "name": "mine"}))

    _, document = check(run, kubeconfig)

    assert [each["command"] for each in document["left"]] == ["helm uninstall mine --namespace ops"]


def test_annotations_of_node_groups_are_found_where_they_are_served(run, server, kubeconfig) -> None:
    server.unserved = ("cluster.x-k8s.io",)
    fields = {
        "f:metadata": {"f:annotations": {"f:machine.openshift.io/cluster-api-autoscaler-node-group-min-size": {}}}
    }
    managed = [{"manager": "trimtab", "fieldsV1": fields}]
    server.add(MACHINE_SETS, machine_set("pool").limits(1, 5).merge(metadata={"managedFields": managed}))

    _, document = check(run, kubeconfig)

    assert [(each["kind"], each["what"]) for each in document["left"]] == [
        ("MachineSet", f"annotation {MINIMUM}"),
    ]


@pytest.mark.parametrize("form", ["json", "table"])
def test_resource_that_the_user_may_not_list_is_unchecked(run, server, kubeconfig, form: str) -> None:
    server.fail(Forbidden("may not list secrets", status=403), times=9, path="/secrets")

    result = run("uninstall", "--check", "--kubeconfig", kubeconfig, "-o", form)

    assert result.exit_code == 1
    assert "secrets" in result.stdout
    if form == "json":
        [unchecked] = msgspec.json.decode(result.stdout)["unchecked"]
        assert unchecked["resource"] == "secrets"


def test_without_check_nothing_is_asked(run, server, kubeconfig) -> None:
    assert run("uninstall", "--kubeconfig", kubeconfig).exit_code == 2
    assert server.calls == []
