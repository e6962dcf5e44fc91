"""The example files for dedicated nodes and special hardware scale up the intended groups."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.builders import (
    cluster_machine_set,
    expression,
    machine_deployment,
    machine_pool,
    machine_set,
    pod,
)
from tests.taint_examples import DEDICATED, HARDWARE, documents, of_kind, pods_of
from trimtab.api.decode import decode_cluster_autoscaler, decode_machine_autoscaler
from trimtab.autoscaling.groups import build_groups
from trimtab.autoscaling.scale_up import PlanInputs, ScaleUpPlan, scale_up
from trimtab.autoscaling.template import Templates, build_templates
from trimtab.cli.main import cli
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.wire.decode import decode_object
from trimtab.placement.placer import Placer
from trimtab_local.machines.machine import LiveObject, node_of
from trimtab_local.machines.sets import plan_set

NOW = 1_795_176_000.0  # 2026-11-20T12:00:00Z
BELONGS = {
    DEDICATED: {"api": "team-a", "web": "workers"},
    HARDWARE: {"train": "gpu", "database": "ssd", "web": "workers"},
}
"""Which set's nodes the pods of each Deployment belong on."""
GROWS = {
    DEDICATED: {"team-a": 2, "workers": 2},
    HARDWARE: {"gpu": 2, "ssd": 1, "workers": 2},
}
EXAMPLES = pytest.mark.parametrize("folder", [DEDICATED, HARDWARE], ids=lambda folder: folder.name)


def snapshot(objects: Iterable[Any]) -> Snapshot:
    return Snapshot([found for each in objects if (found := decode_object(copy.deepcopy(each))) is not None])


def pods(folder: Path) -> list[dict[str, Any]]:
    return [pod for each in of_kind("Deployment", folder).values() for pod in pods_of(each)]


def sets(folder: Path) -> list[dict[str, Any]]:
    return [
        each | {"metadata": each["metadata"] | {"uid": name}} for name, each in of_kind("MachineSet", folder).items()
    ]


def nodes(folder: Path, numbers: dict[str, int]) -> list[dict[str, Any]]:
    """Machines and settled nodes as the local machine controller creates them."""
    made = []
    for each in sets(folder):
        each["spec"]["replicas"] = numbers.get(each["metadata"]["name"], 0)
        for number, birth in enumerate(plan_set(LiveObject(each), [], now=NOW).to_create):
            name = f"{each['metadata']['name']}-{number}"
            birth["metadata"] |= {"name": name, "uid": f"machine-{name}", "creationTimestamp": "2026-11-20T11:00:00Z"}
            node = node_of(LiveObject(birth), LiveObject(each))
            node["metadata"] |= {"uid": f"node-{name}", "creationTimestamp": "2026-11-20T11:00:00Z"}
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-20T11:00:00Z"}
            node["status"]["conditions"] = [ready]
            birth["status"] = {"phase": "Running", "nodeRef": {"kind": "Node", "name": name, "uid": f"node-{name}"}}
            made += [birth, node]
    return made


def resized(folder: Path, numbers: dict[str, int]) -> list[dict[str, Any]]:
    found = sets(folder)
    for each in found:
        each["spec"] = each["spec"] | {"replicas": numbers.get(each["metadata"]["name"], 0)}
    return found


def inputs(folder: Path) -> PlanInputs:
    [spec] = [decode_cluster_autoscaler(each).spec for each in of_kind("ClusterAutoscaler", folder).values()]
    limits = tuple(decode_machine_autoscaler(each) for each in of_kind("MachineAutoscaler", folder).values())
    return PlanInputs(spec, NOW, machine_autoscalers=limits)


def planned(folder: Path, objects: Iterable[Any]) -> ScaleUpPlan:
    return scale_up(snapshot(objects), inputs(folder))


def growth(made: ScaleUpPlan) -> dict[str, int]:
    return {each.machine_set.partition("/")[2]: each.to - each.from_ for each in made.actions}


def homes(made: ScaleUpPlan) -> set[tuple[str, str]]:
    """The Deployments whose pods the new nodes of each group are for."""
    return {(pod.name.rpartition("-")[0], each.group.rpartition("/")[2]) for each in made.nodes for pod in each.pods}


@EXAMPLES
@pytest.mark.parametrize("there", [False, True], ids=["from zero", "learned from full nodes"])
def test_each_group_is_scaled_up_for_its_pods(folder: Path, there: bool) -> None:
    numbers = dict.fromkeys(GROWS[folder], 1) if there else {}
    full = [_filler(each["metadata"]["name"]) for each in nodes(folder, numbers) if each["kind"] == "Node"]

    made = planned(folder, [*resized(folder, numbers), *nodes(folder, numbers), *full, *pods(folder)])

    assert growth(made) == GROWS[folder]
    assert homes(made) == set(BELONGS[folder].items())
    assert not made.kept


def _filler(node: str) -> dict[str, Any]:
    """A pod that fills its node."""
    resources = {"requests": {"cpu": "3500m" if "gpu" not in node else "7500m"}}
    containers = [{"name": "main", "image": "none", "resources": resources}]
    metadata = {"name": f"full-{node}", "namespace": "default", "uid": f"full-{node}"}
    spec = {"nodeName": node, "containers": containers, "tolerations": [{"operator": "Exists"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


@EXAMPLES
def test_cli_plan_of_the_files_is_equal(folder: Path, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.json"
    items = [*of_kind("MachineSet", folder).values(), *pods(folder)]
    cluster.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    given = ["--cluster", str(cluster), "--policy", str(folder / "autoscalers.yaml"), "-o", "json"]

    result = CliRunner().invoke(cli, ["plan", *given, "--now", "2026-11-20T12:00:00Z"], prog_name="trimtab")

    assert result.exit_code == 0, result.output
    actions = json.loads(result.stdout)["actions"]
    assert {each["machineSet"].rpartition("/")[2]: each["to"] for each in actions} == GROWS[folder]


@EXAMPLES
def test_with_free_capacity_pods_run_on_their_nodes(folder: Path) -> None:
    """The scheduler prefers nodes without a PreferNoSchedule taint."""
    there = snapshot([*sets(folder), *nodes(folder, dict.fromkeys(GROWS[folder], 3)), *pods(folder)])
    waiting = [pod for pod in there.pods.values() if not pod.node]

    placed = Placer(there).place(waiting)

    found = {(each.pod.name.rpartition("-")[0], each.pod.node.rpartition("-")[0]) for each in placed}
    assert found == set(BELONGS[folder].items())


@EXAMPLES
def test_dedicated_pods_fit_only_their_nodes_and_tainted_nodes_take_no_others(folder: Path) -> None:
    closed = {name for name, each in of_kind("MachineSet", folder).items() if _effect(each) == "NoSchedule"}
    for name in GROWS[folder]:
        there = snapshot([*sets(folder), *nodes(folder, {name: 3}), *pods(folder)])
        for one in there.pods.values():
            app = one.name.rpartition("-")[0]
            fits = bool(Placer(there).feasible(one).any())
            own = BELONGS[folder][app] == name
            assert fits == (own or (app == "web" and name not in closed)), f"{app} on {name}"


def _effect(machine_set: dict[str, Any]) -> str:
    taints = machine_set["spec"]["template"]["spec"].get("taints") or [{"effect": ""}]
    return str(taints[0]["effect"])


@EXAMPLES
def test_template_has_the_taints_and_labels_of_real_nodes(folder: Path) -> None:
    numbers = dict.fromkeys(GROWS[folder], 1)

    def made(objects: Iterable[Any]) -> Templates:
        there = snapshot(objects)
        return build_templates(there, build_groups(there, inputs(folder).machine_autoscalers).all, now=NOW)

    empty, learned = made(sets(folder)), made([*resized(folder, numbers), *nodes(folder, numbers)])

    for id_, template in learned.of_group.items():
        name = id_.rpartition("/")[2]
        [given] = [each["spec"]["template"]["spec"] for each in sets(folder) if each["metadata"]["name"] == name]
        wanted = [(each["key"], each["value"], each["effect"]) for each in given.get("taints", ())]
        for each in (template.node, empty.of_group[id_].node):
            assert [(taint.key, taint.value, taint.effect) for taint in each.taints] == wanted
            assert given["metadata"]["labels"].items() <= each.labels.items()
        assert template.sample == f"{name}-0"
        for resource in ("cpu", "memory", "nvidia.com/gpu"):
            assert template.node.allocatable.get(resource) == empty.of_group[id_].node.allocatable.get(resource)


def altered(folder: Path, app: str, **changes: Any) -> list[dict[str, Any]]:
    """The Deployment's pods with fields of their spec removed (``None``) or changed."""
    deployment = copy.deepcopy(of_kind("Deployment", folder)[app])
    spec = deployment["spec"]["template"]["spec"]
    for key, value in changes.items():
        spec.pop(key) if value is None else spec.update({key: value})
    return list(pods_of(deployment))


def test_toleration_alone_allows_dedicated_and_other_nodes() -> None:
    guests = altered(DEDICATED, "api", affinity=None)
    there = nodes(DEDICATED, {"workers": 1, "team-a": 1})

    placed = Placer(snapshot([*there, *guests])).place([decode_object(each) for each in guests])  # type: ignore[misc]

    assert {each.pod.node for each in placed} == {"workers-0", "team-a-0"}


@pytest.mark.parametrize(
    ("folder", "app"), [(DEDICATED, "api"), (HARDWARE, "train")], ids=["dedicated", "special hardware"]
)
def test_affinity_alone_leaves_pods_pending_with_a_reason(folder: Path, app: str) -> None:
    made = planned(folder, [*sets(folder), *altered(folder, app, tolerations=None)])

    assert growth(made) == {}
    assert {each.reason for each in made.kept} == {"NoGroupFits"}
    assert all("untolerated taint" in each.message for each in made.kept)


def test_without_gpu_annotations_no_group_has_gpus() -> None:
    """The reason for the annotation gpu-count in the example."""
    found = sets(HARDWARE)
    for each in found:
        annotations = each["metadata"]["annotations"]
        each["metadata"]["annotations"] = {key: value for key, value in annotations.items() if "gpu" not in key}

    made = planned(HARDWARE, [*found, *altered(HARDWARE, "train")])

    assert growth(made) == {}
    assert all("Insufficient nvidia.com/gpu" in each.message for each in made.kept)


def test_fast_disks_are_used_by_all_pods_if_needed() -> None:
    """At most three ordinary nodes fit nine pods; the other pods get nodes that are kept free otherwise."""
    made = planned(HARDWARE, [*sets(HARDWARE), *pods_of(of_kind("Deployment", HARDWARE)["web"], 12)])

    assert growth(made) == {"workers": 3, "ssd": 1}


def test_toleration_of_another_team_does_not_help() -> None:
    toleration = {"key": "dedicated", "operator": "Equal", "value": "team-b", "effect": "NoSchedule"}
    made = planned(DEDICATED, [*sets(DEDICATED), *altered(DEDICATED, "api", affinity=None, tolerations=[toleration])])

    assert growth(made) == {"workers": 2}


LABEL = "node.cluster.x-k8s.io/dedicated"


@pytest.mark.parametrize(
    "kind", [machine_set, cluster_machine_set, machine_deployment, machine_pool], ids=lambda kind: kind.__name__
)
def test_groups_of_both_machine_apis_can_be_dedicated(kind: Any) -> None:
    def one(name: str) -> Any:
        reserve = {"trimtab.dev/reserved": "cpu=0,memory=0"}
        return kind(name, "machines").limits(0, 9).capacity(cpu="4", memory="16Gi").annotations(reserve)

    team = one("team-a").node_labels({LABEL: "team-a"}).node_taint("dedicated", "team-a")
    own = [
        pod(f"api-{each}").cpu("2").tolerates("dedicated", "team-a").node_affinity(expression(LABEL, "In", "team-a"))
        for each in range(4)
    ]
    others = [pod(f"web-{each}").cpu("2") for each in range(6)]
    built = [team, one("workers"), *(each.unschedulable() for each in (*own, *others))]

    made = scale_up(Snapshot([each.build() for each in built]), inputs(DEDICATED))

    assert growth(made) == {"team-a": 2, "workers": 3}
    assert homes(made) == {("api", "team-a"), ("web", "workers")}


@EXAMPLES
def test_references_between_example_files_are_valid(folder: Path) -> None:
    targets = {each["spec"]["scaleTargetRef"]["name"] for each in of_kind("MachineAutoscaler", folder).values()}
    namespaces = {each["metadata"]["namespace"] for each in of_kind("Deployment", folder).values()}

    assert targets == set(of_kind("MachineSet", folder)) == set(GROWS[folder])
    assert namespaces == set(of_kind("Namespace", folder))
    assert {each["kind"] for each in documents(folder)} >= {"ClusterAutoscaler", "Deployment"}
