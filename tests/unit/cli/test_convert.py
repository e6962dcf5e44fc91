"""`trimtab convert`: other deschedulers' policies as DeschedulerPolicies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.builders import node, pod
from trimtab.api.decode import decode_policy

OLD = """\
apiVersion: descheduler/v1alpha1
kind: DeschedulerPolicy
strategies:
  RemoveDuplicates: {enabled: true}
  RemovePodsHavingTooManyRestarts:
    enabled: true
    params:
      podsHavingTooManyRestarts: {podRestartThreshold: 100}
"""

NEW = """\
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
maxNoOfPodsToEvictPerNode: 5
profiles:
- name: Balance
  pluginConfig:
  - name: DefaultEvictor
    args:
      nodeFit: false
      minReplicas: 2
  plugins:
    balance:
      enabled: [RemoveDuplicates]
- name: Old Pods
  pluginConfig:
  - name: PodLifeTime
    args: {maxPodLifeTimeSeconds: 86400}
  plugins:
    deschedule:
      enabled: [PodLifeTime]
"""

OURS = """\
apiVersion: trimtab.dev/v1alpha1
kind: DeschedulerPolicy
metadata: {name: ours}
spec:
  mode: Act
  strategies: {RemoveDuplicates: {}}
status: {evicted: 3}
"""


@pytest.fixture
def file(tmp_path: Path):
    def write(text: str, name: str = "policy.yaml") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def test_the_output_is_policies_ready_to_apply(run, file) -> None:
    result = run("convert", file(OLD))

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "apiVersion: trimtab.dev/v1alpha1\n"
        "kind: DeschedulerPolicy\n"
        "metadata:\n"
        "  name: default\n"
        "spec:\n"
        "  mode: Simulate\n"
        "  strategies:\n"
        "    RemoveDuplicates:\n"
        "      enabled: true\n"
        "    RemovePodsHavingTooManyRestarts:\n"
        "      enabled: true\n"
        "      params:\n"
        "        podRestartThreshold: 100\n"
    )


def test_profiles_become_documents_and_what_is_done_otherwise_is_told_on_stderr(run, file) -> None:
    path = file(NEW)
    result = run("convert", path)

    assert result.exit_code == 0
    documents = list(yaml.safe_load_all(result.stdout))
    assert [document["metadata"]["name"] for document in documents] == ["balance", "old-pods"]
    assert [document["spec"]["limits"] for document in documents] == [{"perNode": 5}, {"perNode": 5}]
    assert result.stderr == (
        f"trimtab: warning: {path}: profiles[0].pluginConfig[0].args.nodeFit: has no effect: a pod is moved only if a "
        "node was found for it and its place reserved, always\n"
    )


def test_json_is_one_object_or_a_list(run, file) -> None:
    one = json.loads(run("convert", file(OLD), "-o", "json").stdout)
    several = json.loads(run("convert", file(NEW), "-o", "json").stdout)

    assert (one["kind"], several["kind"], len(several["items"])) == ("DeschedulerPolicy", "List", 2)
    for document in (one, *several["items"]):
        assert decode_policy(document).spec.mode == "Simulate"


def test_several_files_and_documents_and_our_own_policies_go_through(run, file) -> None:
    result = run("convert", file(OLD + "---\n" + OURS, "a.yaml"), file(NEW, "b.yaml"))

    documents = list(yaml.safe_load_all(result.stdout))
    assert [document["metadata"]["name"] for document in documents] == ["default", "ours", "balance", "old-pods"]
    assert "status" not in documents[1]
    assert documents[1]["spec"]["mode"] == "Act"


def test_a_config_map_is_opened(run, write, file) -> None:
    inner = {"policy.yaml": NEW, "other.txt": "nothing: here"}
    path = write(
        "map.yaml", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "descheduler"}, "data": inner}
    )
    result = run("convert", path)

    assert result.exit_code == 0
    assert result.stdout == run("convert", file(NEW)).stdout
    assert result.stderr.startswith(
        f"trimtab: warning: {path} (items[0]): data[policy.yaml]: profiles[0].pluginConfig[0]"
    )

    inner["policy.yaml"] = json.dumps(yaml.safe_load(NEW))
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}, "data": inner}))
    assert run("convert", path).stdout == result.stdout

    inner["policy.yaml"] = NEW.replace("name: Balance", "names: Balance")
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}, "data": inner}))
    slip = run("convert", path)

    assert slip.exit_code == 2
    assert slip.stderr.startswith(f"trimtab: {path} (data[policy.yaml]): DeschedulerPolicy: profiles[0].names: unknown")


def test_openshifts_resource_is_taken_with_its_mode(run, write) -> None:
    spec = {"profiles": ["AffinityAndTaints"], "mode": "Automatic", "deschedulingIntervalSeconds": 3600}
    manifest = {"apiVersion": "operator.openshift.io/v1", "kind": "KubeDescheduler", "metadata": {"name": "cluster"}}
    result = run("convert", write("cr.yaml", {**manifest, "spec": spec}))

    assert (result.exit_code, result.stderr) == (0, "")
    (document,) = yaml.safe_load_all(result.stdout)
    assert (document["spec"]["mode"], document["spec"]["interval"]) == ("Act", "1h")


def test_standard_input_is_read(run) -> None:
    result = run("convert", "-", stdin=NEW.encode())

    assert result.exit_code == 0
    assert result.stderr.startswith("trimtab: warning: -: profiles[0]")


def test_what_was_converted_plans_as_the_original_does(run, write, file) -> None:
    cluster = write(
        "c.json", node("n1"), node("n2"), *(pod(name).owned_by("ReplicaSet", "web").on("n1").ready() for name in "abc")
    )
    now = ("--now", "2026-11-20T12:00:00Z", "-o", "json")
    original = run("plan", "--cluster", cluster, "--policy", file(NEW, "new.yaml"), *now)
    converted = file(run("convert", file(NEW)).stdout, "converted.yaml")

    again = run("plan", "--cluster", cluster, "--policy", converted, *now)

    assert (original.exit_code, again.exit_code) == (0, 0)
    assert again.stdout == original.stdout
    assert [action["strategy"] for action in json.loads(again.stdout)["actions"]] == ["RemoveDuplicates"]


def test_every_slip_is_a_line_that_says_where_the_key_belongs(run, file) -> None:
    path = file(NEW.replace("- name: Balance", "- name: Balance\n  nodeFit: true").replace("minReplicas", "minReplica"))
    result = run("convert", path)

    assert (result.exit_code, result.stdout) == (2, "")
    first, second = result.stderr.splitlines()
    assert first.startswith(
        f"trimtab: {path}: DeschedulerPolicy: profiles[0].nodeFit: unknown field here; nodeFit belongs"
    )
    assert second.startswith(
        f"trimtab: {path}: DeschedulerPolicy: profiles[0].pluginConfig[0].args.minReplica: unknown"
    )


def test_bad_documents_can_be_skipped(run, file) -> None:
    result = run("convert", "--skip-invalid", file(NEW.replace("profiles:", "profile:") + "---\n" + OLD))

    assert result.exit_code == 0
    assert "name: default" in result.stdout
    assert result.stderr.startswith("trimtab: skipped: ")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param((), "Missing argument", id="no file"),
        pytest.param(("nowhere.yaml",), "nowhere.yaml: cannot be read", id="a missing file"),
        pytest.param(("-", "-"), "standard input (-) can be read once", id="standard input twice"),
    ],
)
def test_what_cannot_be_read_is_bad_input(run, arguments, told) -> None:
    result = run("convert", *arguments)

    assert result.exit_code == 2
    assert told in result.stderr
