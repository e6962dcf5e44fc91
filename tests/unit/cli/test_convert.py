"""`trimtab convert`: other deschedulers' policies as DeschedulerPolicies."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.builders import node, pod
from tests.fixtures.golden import Golden
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


def test_the_output_is_policies_ready_to_apply(run, file, golden: Golden) -> None:
    result = run("convert", file(OLD))

    (warning,) = result.stderr.splitlines()
    assert (result.exit_code, "set spec.interval" in warning) == (0, True)
    assert yaml.safe_load(result.stdout)["spec"] == {
        "mode": "Simulate",
        "strategies": {
            "RemoveDuplicates": {"enabled": True},
            "RemovePodsHavingTooManyRestarts": {"enabled": True, "params": {"podRestartThreshold": 100}},
        },
    }
    golden(result.stdout)


def test_profiles_become_documents_with_warnings_on_stderr(run, file, golden: Golden) -> None:
    path = file(NEW)
    result = run("convert", path)

    assert result.exit_code == 0
    documents = list(yaml.safe_load_all(result.stdout))
    assert [document["metadata"]["name"] for document in documents] == ["balance", "old-pods"]
    assert [document["spec"]["limits"] for document in documents] == [{"perNode": 5}, {"perNode": 5}]
    golden(result.stderr.replace(path, "policy.yaml"))


def test_json_is_one_object_or_a_list(run, file) -> None:
    one = json.loads(run("convert", file(OLD), "-o", "json").stdout)
    several = json.loads(run("convert", file(NEW), "-o", "json").stdout)

    assert (one["kind"], several["kind"], len(several["items"])) == ("DeschedulerPolicy", "List", 2)
    for document in (one, *several["items"]):
        assert decode_policy(document).spec.mode == "Simulate"


def test_several_files_documents_and_own_policies_are_converted(run, file) -> None:
    result = run("convert", file(OLD + "---\n" + OURS, "a.yaml"), file(NEW, "b.yaml"))

    documents = list(yaml.safe_load_all(result.stdout))
    assert [document["metadata"]["name"] for document in documents] == ["default", "ours", "balance", "old-pods"]
    assert "status" not in documents[1]
    assert documents[1]["spec"]["mode"] == "Act"


def test_config_map_is_converted(run, write, file) -> None:
    inner = {"policy.yaml": NEW, "other.txt": "nothing: here"}
    path = write(
        "map.yaml", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "descheduler"}, "data": inner}
    )
    result = run("convert", path)

    assert result.exit_code == 0
    assert result.stdout == run("convert", file(NEW)).stdout
    assert result.stderr.startswith(
        f"trimtab: warning (medium): {path} (items[0]): data[policy.yaml]: profiles[0].pluginConfig[0]"
    )

    inner["policy.yaml"] = json.dumps(yaml.safe_load(NEW))
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}, "data": inner}))
    assert run("convert", path).stdout == result.stdout

    inner["policy.yaml"] = NEW.replace("name: Balance", "names: Balance")
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}, "data": inner}))
    slip = run("convert", path)

    assert slip.exit_code == 0
    warning = f"trimtab: warning (high): {path}: data[policy.yaml]: profiles[0].names: is ignored"
    assert any(line.startswith(warning) for line in slip.stderr.splitlines())


def test_kube_descheduler_is_converted_with_its_mode(run, write) -> None:
    spec = {"profiles": ["AffinityAndTaints"], "mode": "Automatic", "deschedulingIntervalSeconds": 3600}
    manifest = {"apiVersion": "operator.openshift.io/v1", "kind": "KubeDescheduler", "metadata": {"name": "cluster"}}
    result = run("convert", write("cr.yaml", {**manifest, "spec": spec}))

    assert (result.exit_code, result.stderr) == (0, "")
    (document,) = yaml.safe_load_all(result.stdout)
    assert (document["spec"]["mode"], document["spec"]["interval"]) == ("Act", "1h")


def test_standard_input_is_read(run) -> None:
    result = run("convert", "-", stdin=NEW.encode())

    assert result.exit_code == 0
    assert result.stderr.startswith("trimtab: warning (medium): -: profiles[0]")


def test_converted_policy_has_the_same_plan(run, write, file) -> None:
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


def test_misplaced_keys_are_reported_one_per_line(run, file, golden: Golden) -> None:
    path = file(NEW.replace("- name: Balance", "- name: Balance\n  nodeFit: true").replace("minReplicas", "minReplica"))
    result = run("convert", path)

    assert (result.exit_code, result.stdout) == (2, "")
    assert [line.split(": ")[:4] for line in result.stderr.splitlines()] == [
        ["trimtab", path, "DeschedulerPolicy", field]
        for field in ("profiles[0].nodeFit", "profiles[0].pluginConfig[0].args.minReplica")
    ]
    golden(result.stderr.replace(path, "policy.yaml"))


def test_invalid_documents_can_be_skipped(run, file) -> None:
    result = run("convert", "--skip-invalid", file(NEW.replace("profiles:", "profile:") + "---\n" + OLD))

    assert result.exit_code == 0
    assert "name: default" in result.stdout
    assert result.stderr.startswith("trimtab: skipped: ")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param((), "Missing argument", id="no file"),
        pytest.param(("nowhere.yaml",), "nowhere.yaml: cannot be read", id="a missing file"),
        pytest.param(("-", "-"), "standard input (-) can be given only once", id="standard input twice"),
    ],
)
def test_unreadable_input_is_an_input_error(run, arguments, expected) -> None:
    result = run("convert", *arguments)

    assert result.exit_code == 2
    assert expected in result.stderr


ADMISSION = """\
apiVersion: trimtab.dev/v1alpha1
kind: PlacementAdmission
metadata: {name: default}
spec:
  podTolerationRestriction: {}
  dedicatedNodes:
    pools: [{name: a, namespaces: [team-a], taint: {key: dedicated, value: a}}]
"""


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_placement_admission_becomes_admission_policies(run, policy, form, golden: Golden) -> None:
    path = policy(ADMISSION)
    result = run("convert", "--to", "admission-policy", path, "-o", form)
    assert result.exit_code == 0
    documents = list(yaml.safe_load_all(result.stdout)) if form == "yaml" else json.loads(result.stdout)["items"]
    assert [each["kind"] for each in documents] == [
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ]
    golden(result.stderr.replace(str(path), "policy.yaml"))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (ADMISSION.partition("  dedicatedNodes")[0], "has no rule that can be converted"),
        (ADMISSION.replace("namespaces: [team-a], ", ""), "spec.dedicatedNodes.pools[0]"),
    ],
)
def test_admission_policies_need_rules_that_can_be_converted(run, policy, text, error) -> None:
    result = run("convert", "--to", "admission-policy", policy(text))
    assert (result.exit_code, result.stdout) == (2, "")
    assert error in result.stderr


def test_only_a_placement_admission_becomes_admission_policies(run, policy) -> None:
    text = "apiVersion: trimtab.dev/v1alpha1\nkind: DeschedulerPolicy\nmetadata: {name: a}\n"
    text += "spec: {strategies: {RemoveDuplicates: {}}}\n"
    result = run("convert", "--to", "admission-policy", policy(text))
    assert (result.exit_code, result.stdout) == (2, "")


NODE_CONFIG = "kubeletArguments:\n  eviction-hard: \n    - memory.available<500Mi\n"


def test_kubelet_settings_become_a_node_pressure_policy(run, file) -> None:
    path = file(NODE_CONFIG)
    result = run("convert", path)

    assert result.exit_code == 0
    assert yaml.safe_load(result.stdout) == {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "NodePressurePolicy",
        "metadata": {"name": "default"},
        "spec": {
            "mode": "Simulate",
            "evictionHard": {"memory.available": "500Mi"},
            "kubeletEvictionHard": {"memory.available": "500Mi"},
        },
    }
    warnings = [line.removeprefix(f"trimtab: warning: {path}: ") for line in result.stderr.splitlines()]
    assert [line.partition(": ")[0] for line in warnings] == ["nodeSelector", "kubeletArguments.eviction-hard"]


def test_two_kubelets_need_two_names(run, file, golden: Golden) -> None:
    path = file(f"{NODE_CONFIG}---\n{NODE_CONFIG}")
    result = run("convert", path)

    assert result.exit_code == 2
    golden(result.stderr.replace(path, "kubelet.yaml"))
