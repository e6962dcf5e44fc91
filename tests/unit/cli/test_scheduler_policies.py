"""SchedulerPolicies on the command line: convert, plan and explain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders import cluster, node, pod
from tests.fixtures.golden import Golden
from tests.scheduler_samples import DEFAULT, REGION_ZONE_RACK
from tests.unit.cli.conftest import Run

POLICY = """apiVersion: trimtab.dev/v1alpha1
kind: SchedulerPolicy
metadata: {name: packing}
spec:
  schedulerName: packing
  profile:
    scoringStrategy: {type: MostAllocated}
    scores: [{name: NodeResourcesBalancedAllocation, weight: 0}]
"""


def sized(name: str) -> Any:
    return node(name).merge(status={"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}})


def of(scheduler: str, name: str, cpu: str, priority: int = 0) -> Any:
    made = pod(name).cpu(cpu).memory("1Gi").priority(priority).labels(app=name)
    return made.merge(spec={"schedulerName": scheduler})


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "policy.yaml").write_text(POLICY)
    there = [of("packing", "there", "2").on("busy"), of("packing", "alone", "1", 1).on("empty")]
    pending = [of("packing", "first", "1", 5), of("packing", "last", "4", 9), of("other", "foreign", "1")]
    manifest = cluster(sized("busy"), sized("empty"), *there, *pending)
    (tmp_path / "cluster.json").write_text(json.dumps(manifest))
    return tmp_path


def plan(run: Run, files: Path, *arguments: str) -> dict[str, Any]:
    result = run(
        "plan", "--cluster", files / "cluster.json", "--policy", files / "policy.yaml",
        "--now", "2026-11-22T00:00:00Z", "-o", "json", *arguments,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def test_plan_binds_and_preempts_for_the_pods_of_the_scheduler(run: Run, files: Path) -> None:
    document = plan(run, files)
    actions = [(each["action"], each["pod"], each["node"], each.get("for")) for each in document["actions"]]
    assert actions == [("Preempt", "there", "busy", "shop/last"), ("Bind", "first", "empty", None)]
    kept = {each["name"]: (each["reason"], each["node"]) for each in document["kept"]}
    assert kept == {
        "last": ("Nominated", "busy"),
        "there": ("OtherNodePreferred", "busy"),
        "alone": ("OtherNodePreferred", "empty"),
    }
    assert document["summary"] == {"Bind": 1, "Evict": 0, "Preempt": 1, "kept": 3}


def test_plan_does_not_depend_on_the_order_of_the_objects(run: Run, files: Path) -> None:
    before = plan(run, files)
    manifest = json.loads((files / "cluster.json").read_text())
    manifest["items"].reverse()
    (files / "cluster.json").write_text(json.dumps(manifest))
    assert plan(run, files) == before


def test_two_policies_for_one_scheduler_name_are_refused(run: Run, files: Path) -> None:
    (files / "second.yaml").write_text(POLICY.replace("name: packing}", "name: second}"))
    arguments = ("--policy", files / "policy.yaml", "--policy", files / "second.yaml")
    result = run("plan", "--cluster", files / "cluster.json", *arguments)
    assert result.exit_code == 2
    assert "SchedulerPolicy/second" in result.stderr


def test_html_is_refused(run: Run, files: Path) -> None:
    arguments = ("--cluster", files / "cluster.json", "--policy", files / "policy.yaml", "-o", "html")
    assert run("plan", *arguments).exit_code == 2


def test_explain_evaluates_the_policy(run: Run, files: Path) -> None:
    arguments = ("explain", "pod", "shop/first", "--cluster", files / "cluster.json", "-o", "json")
    default = json.loads(run(*arguments).stdout)
    packed = json.loads(run(*arguments, "--policy", files / "policy.yaml").stdout)
    assert (default["likely"], packed["likely"]) == (["empty"], ["busy"])
    assert "NodeResourcesBalancedAllocation" not in packed["nodes"][0]["score"]


def test_explain_needs_a_policy_for_the_scheduler_of_the_pod(run: Run, files: Path) -> None:
    (files / "policy.yaml").write_text(f"{POLICY}---\n{POLICY.replace('packing', 'second')}")
    arguments = ("--cluster", files / "cluster.json", "--policy", files / "policy.yaml")
    assert run("explain", "pod", "shop/first", *arguments).exit_code == 0
    assert run("explain", "pod", "shop/foreign", *arguments).exit_code == 2


def test_convert_writes_policies_that_plan_reads(run: Run, files: Path) -> None:
    legacy = {"kind": "Policy", "apiVersion": "v1", "priorities": [{"name": "MostRequestedPriority", "weight": 1}]}
    (files / "scheduler.json").write_text(json.dumps(legacy))
    result = run("convert", files / "scheduler.json")
    assert result.exit_code == 0, result.output
    (files / "policy.yaml").write_text(result.stdout.replace("default-scheduler", "packing"))
    assert plan(run, files)["summary"]["Bind"] == 1


LEGACY = """{
  "kind" : "Policy",
  "apiVersion" : "v1",
  "predicates" : [
    ...
\u00a0   {"name" : "PodFitsResources"}
  ]
}
"""


def test_repairs_of_a_legacy_policy_are_reported(run: Run, tmp_path: Path) -> None:
    (tmp_path / "scheduler.json").write_text(LEGACY, encoding="utf-8")
    result = run("convert", tmp_path / "scheduler.json", "-o", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["spec"]["policy"]["predicates"] == [{"name": "PodFitsResources"}]
    assert result.stderr.count("trimtab: warning: ") >= 2


def test_legacy_policy_that_is_not_utf_8_is_an_input_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "scheduler.json").write_bytes(LEGACY.encode() + b"\xff")
    result = run("convert", tmp_path / "scheduler.json")
    assert result.exit_code == 2
    assert "scheduler.json" in result.stderr


def test_plan_warns_of_settings_that_are_ignored(run: Run, files: Path) -> None:
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "parallelism": 4,
        "profiles": [{"schedulerName": "packing"}],
    }
    (files / "policy.yaml").write_text(json.dumps(configuration))
    result = run("plan", "--cluster", files / "cluster.json", "--policy", files / "policy.yaml", "-o", "json")
    assert result.exit_code == 0, result.output
    [warning] = result.stderr.splitlines()
    assert warning.startswith(f"trimtab: warning: {files / 'policy.yaml'}")
    assert "parallelism: is ignored" in warning
    assert json.loads(result.stdout)["summary"]["Bind"] == 1


@pytest.mark.parametrize("command", ["plan", "convert"])
def test_malformed_scheduler_configuration_is_an_input_error_with_its_field(
    run: Run, files: Path, command: str, golden: Golden
) -> None:
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"score": {"disabled": ["ImageLocality"]}}}],
    }
    (files / "policy.yaml").write_text(json.dumps(configuration))
    options = ["--cluster", files / "cluster.json", "--policy"] if command == "plan" else []
    result = run(command, *options, files / "policy.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    [line] = result.stderr.splitlines()
    assert " profiles[0].plugins.score.disabled[0]: " in line
    golden(line.replace(str(files), "folder"))


def config_map(**data: str) -> str:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "scheduler"}, "data": data}
    return json.dumps(manifest)


CONFIGURATION = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: packing}, {schedulerName: spreading}]
"""


@pytest.mark.parametrize(
    ("data", "names"),
    [
        pytest.param({"policy.cfg": DEFAULT}, ["default-scheduler"], id="Policy"),
        pytest.param({"policy.cfg": REGION_ZONE_RACK}, ["default-scheduler"], id="Policy as printed"),
        pytest.param({"config.yaml": CONFIGURATION}, ["packing", "spreading"], id="KubeSchedulerConfiguration"),
        pytest.param(
            {"a": CONFIGURATION, "b": "predicates: a word of another file"}, ["packing", "spreading"], id="two"
        ),
    ],
)
def test_scheduler_is_read_from_a_config_map(run: Run, tmp_path: Path, data: dict[str, str], names: list[str]) -> None:
    (tmp_path / "map.json").write_text(config_map(**data))

    result = run("convert", tmp_path / "map.json", "-o", "json")

    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    found = document["items"] if document["kind"] == "List" else [document]
    assert [each["spec"].get("schedulerName", "default-scheduler") for each in found] == names


def test_invalid_scheduler_in_a_config_map_names_the_key(run: Run, tmp_path: Path) -> None:
    (tmp_path / "map.json").write_text(config_map(**{"config.yaml": CONFIGURATION + "profiles: ["}))

    result = run("convert", tmp_path / "map.json")

    assert result.exit_code == 2
    assert "map.json (data[config.yaml])" in result.stderr


def test_config_map_of_something_else_configures_no_scheduler(run: Run, tmp_path: Path) -> None:
    (tmp_path / "map.json").write_text(config_map(**{"app.ini": "priorities: [1\nPolicy = {", "b": CONFIGURATION}))
    (tmp_path / "other.json").write_text(config_map(**{"app.yaml": "priorities: [1, 2]"}))

    assert run("convert", tmp_path / "map.json").exit_code == 0
    assert run("convert", tmp_path / "other.json").exit_code == 2
