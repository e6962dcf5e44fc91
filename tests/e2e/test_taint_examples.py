"""Dedicated nodes and special hardware with the real scheduler: node groups scale up for the pods that tolerate them.

The examples' files as they stand; only the namespaces are the test's own, so that what it makes goes away with it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tests.e2e.conftest import Start
from tests.fixtures.autoscaling import Fleet
from tests.taint_examples import DEDICATED, HARDWARE, documents
from trimtab.kube.resources import (
    CLUSTER_AUTOSCALERS,
    DEPLOYMENTS,
    MACHINE_AUTOSCALERS,
    MACHINE_SETS,
)
from trimtab_local.install import apply

RESOURCES = {each.kind: each for each in (CLUSTER_AUTOSCALERS, MACHINE_AUTOSCALERS, MACHINE_SETS, DEPLOYMENTS)}


def submit(fleet: Fleet, *paths: Path) -> None:
    for each in documents(*paths):
        resource = RESOURCES.get(each["kind"])
        if resource is None:
            continue
        machines = resource in (MACHINE_AUTOSCALERS, MACHINE_SETS)
        namespace = fleet.namespace if machines else fleet.pods_namespace
        if resource.namespaced:
            each["metadata"]["namespace"] = namespace
        apply(fleet.client, resource.path(namespace=namespace) if resource.namespaced else resource.path(), each)


def set_of(node: dict[str, Any]) -> str:
    """The MachineSet of a node, found by its Machine."""
    return str(node["metadata"]["annotations"]["machine.openshift.io/machine"]).rpartition("/")[2].rpartition("-")[0]


def homes(fleet: Fleet, app: str) -> Counter[str]:
    """The number of a Deployment's pods by MachineSet of their nodes."""
    nodes = fleet.all_nodes()
    found: Counter[str] = Counter()
    for name, count in fleet.where(app).items():
        found[set_of(nodes[name])] += count
    return found


def nodes_of(fleet: Fleet) -> Counter[str]:
    return Counter(map(set_of, fleet.all_nodes().values()))


def taints(fleet: Fleet, name: str) -> set[tuple[str, str, str]]:
    """The taints of each node of a MachineSet, without those of Kubernetes' controllers."""
    return {
        (each["key"], each.get("value", ""), each["effect"])
        for node in fleet.all_nodes().values()
        if set_of(node) == name
        for each in node["spec"].get("taints", ())
        if not each["key"].startswith(("node.kubernetes.io/", "DeletionCandidate"))
    }


def test_only_pods_of_the_team_run_on_its_nodes(fleet: Fleet, operate: Start) -> None:
    submit(fleet, DEDICATED / "machine-sets.yaml", DEDICATED / "autoscalers.yaml")
    operate()

    submit(fleet, DEDICATED / "workloads.yaml")

    fleet.until_running("api", 6)
    fleet.until_running("web", 6)
    assert homes(fleet, "api") == {"team-a": 6}
    assert homes(fleet, "web") == {"workers": 6}
    assert nodes_of(fleet) == {"team-a": 2, "workers": 2}
    assert taints(fleet, "team-a") == {("dedicated", "team-a", "NoSchedule")}
    assert not taints(fleet, "workers")
    assert max(fleet.audit.scales("team-a")) == max(fleet.audit.scales("workers")) == 2


def test_only_pods_that_request_special_hardware_run_on_it(fleet: Fleet, operate: Start) -> None:
    submit(fleet, HARDWARE / "machine-sets.yaml", HARDWARE / "autoscalers.yaml")
    operate()

    submit(fleet, HARDWARE / "workloads.yaml")
    fleet.until_running("train", 2)
    fleet.until_running("web", 6)
    submit(fleet, HARDWARE / "database.yaml")
    fleet.until_running("database", 3)

    assert {app: homes(fleet, app) for app in ("train", "database", "web")} == {
        "train": {"gpu": 2},
        "database": {"ssd": 3},
        "web": {"workers": 6},
    }
    assert nodes_of(fleet) == {"gpu": 2, "ssd": 1, "workers": 2}
    assert taints(fleet, "gpu") == {("nvidia.com/gpu", "present", "NoSchedule")}
    assert taints(fleet, "ssd") == {("disktype", "ssd", "PreferNoSchedule")}

    fleet.resize("web", 12)  # nine have room on three ordinary nodes, the most there may be

    fleet.until_running("web", 12)
    assert homes(fleet, "web") == {"workers": 9, "ssd": 3}
    assert nodes_of(fleet) == {"gpu": 2, "ssd": 2, "workers": 3}


TAINT = {"key": "dedicated", "value": "team-a", "effect": "NoSchedule"}


def test_taint_removed_from_a_machine_set_is_not_expected_on_new_nodes(fleet: Fleet, operate: Start) -> None:
    """Existing nodes keep the taint, as in OpenShift, and do not mislead the autoscaler."""
    fleet.group("only", replicas=1, maximum=3, taints=[TAINT])
    fleet.autoscale()
    operate()
    fleet.patch("only", {"spec": {"template": {"spec": {"taints": []}}}})
    [first] = fleet.nodes("only")

    fleet.deploy("web", 4)

    fleet.until_running("web", 4)
    assert len(fleet.where("web")) == 2
    assert first not in fleet.where("web")
    assert TAINT in fleet.all_nodes()[first]["spec"]["taints"]
