"""Command lines and chart values of cluster-autoscaler, and the ClusterAutoscalers that they become."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trimtab.api.cluster_autoscaler import ClusterAutoscaler
from trimtab.api.decode import decode_cluster_autoscaler, decode_machine_autoscaler
from trimtab.autoscaling.imports import (
    ImportedAutoscaler,
    NodeGroupObject,
    convert_command_line,
    group_autoscaler,
    node_group_object,
    read_workload,
    target_autoscalers,
)
from trimtab.autoscaling.imports.arguments import CommandLine, image_version, parse_arguments
from trimtab.autoscaling.imports.chart import command_line, priorities, recognize
from trimtab.autoscaling.imports.flags import DEPRECATED, FLAGS, REMOVED
from trimtab.kube.errors import InputError
from trimtab.kube.wire.files.packages import ChartValues

UPSTREAM = Path(__file__).parents[2] / "fixtures/cluster-autoscaler-flags.json"
SIZES = "cluster-api-autoscaler-node-group"
QUIET = ("logtostderr", "stderrthreshold", "v")


def converted(*arguments: str, version: tuple[int, int] | None = (1, 37)) -> ImportedAutoscaler:
    return convert_command_line(parse_arguments(arguments, version=version))


def spec(*arguments: str, version: tuple[int, int] | None = (1, 37)) -> dict[str, Any]:
    found: dict[str, Any] = converted(*arguments, version=version).document["spec"]
    return found


def flags_of(imported: ImportedAutoscaler) -> list[str]:
    """The flags that the warnings concern, without those about defaults of the release."""
    defaults = ("--max-drain-parallelism", "--blocking-system-pod-distruption-timeout")
    return [each.field for each in imported.warnings if each.field not in defaults]


def chart(values: dict[str, Any], **more: str) -> CommandLine:
    return command_line(ChartValues(values=values, **more))


class TestFlags:
    def test_the_table_has_exactly_upstreams_flags_with_their_types_and_defaults(self) -> None:
        upstream = json.loads(UPSTREAM.read_text())["flags"]
        ours = {name: {"type": flag.type, "default": flag.default} for name, flag in FLAGS.items()}
        assert ours == upstream

    def test_each_flag_has_a_reason(self) -> None:
        assert [name for name, flag in (FLAGS | REMOVED).items() if not flag.note] == []

    def test_removed_flags_are_none_of_the_current_release(self) -> None:
        assert REMOVED.keys().isdisjoint(FLAGS)
        assert DEPRECATED.keys() <= FLAGS.keys()

    @pytest.mark.parametrize(
        ("argument", "severity"),
        [
            ("--skip-nodes-with-system-pods=false", "high"),
            ("--min-replica-count=3", "high"),
            ("--cloud-provider=aws", "high"),
            ("--node-group-auto-discovery=asg:tag=a", "high"),
            ("--expander=priority", "high"),
            ("--unknown", "high"),
            ("--max-drain-parallelism=2", "medium"),
            ("--scan-interval=1m", "medium"),
            ("--expander=random", "low"),
            ("--status-config-map-name=other", "low"),
        ],
    )
    def test_a_difference_is_rated_by_its_effect_on_nodes(self, argument: str, severity: str) -> None:
        imported = converted("--cloud-provider=clusterapi", argument)
        name = argument.partition("=")[0]
        assert [each.severity for each in imported.warnings if each.field == name] == [severity]

    def test_only_lost_flags_matter(self) -> None:
        rated = {name for name, flag in (FLAGS | REMOVED).items() if flag.severity != "low"}
        assert rated <= {name for name, flag in (FLAGS | REMOVED).items() if flag.fate == "lost"}

    @pytest.mark.parametrize("name", sorted(FLAGS | REMOVED))
    def test_each_flag_changes_the_result_or_is_reported_or_is_unnecessary(self, name: str) -> None:
        flag = (FLAGS | REMOVED)[name]
        plain = converted("--cloud-provider=clusterapi")
        given = converted("--cloud-provider=clusterapi", f"--{name}={_other_value(name)}")
        changed = (given.document, given.nodes) != (plain.document, plain.nodes)
        reported = f"--{name}" in {each.field for each in given.warnings}
        if flag.fate == "converted":
            assert changed
        elif flag.fate == "lost":
            assert not changed
            assert reported
            assert flag.severity in {each.severity for each in given.warnings if each.field == f"--{name}"}
        else:
            assert not changed
            assert reported == (name in DEPRECATED)
            listed = [each for each in given.warnings if each.field == "arguments" and f"--{name}" in each.message]
            assert [each.severity for each in listed] == ([] if name in QUIET else ["low"])


def _other_value(name: str) -> str:
    """A value other than the default."""
    special = {
        "cloud-provider": "aws",
        "cores-total": "1:10",
        "expander": "priority",
        "gpu-total": "nvidia.com/gpu:0:4",
        "memory-total": "1:10",
        "node-group-auto-discovery": "clusterapi:namespace=fleet",
        "nodes": "1:3:workers",
    }
    flag = (FLAGS | REMOVED)[name]
    if flag.type == "bool":
        return "false" if flag.default == "true" else "true"
    by_type = {"int": "7", "float": "0.25", "duration": "77s", "string": "other", "list": "other", "repeated": "other"}
    return special.get(name, by_type[flag.type])


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "value"),
        [
            (["--max-nodes-total=5"], 5),
            (["-max-nodes-total", "5"], 5),
            (["--max_nodes_total=5"], 5),
            (["--max-nodes-total=4", "--max-nodes-total=5"], 5),
            (["./cluster-autoscaler", "--skip-headers", "--max-nodes-total", "5"], 5),
            (["--max-nodes-total=5", "--", "--max-nodes-total=6"], 5),
        ],
    )
    def test_flags_are_read_as_go_does(self, arguments: list[str], value: int) -> None:
        assert spec(*arguments)["resourceLimits"]["maxNodesTotal"] == value

    def test_a_bool_does_not_take_the_next_argument(self) -> None:
        line = parse_arguments(["--balance-similar-node-groups", "false", "-v4"])
        assert line.values == {"balance-similar-node-groups": ("true",), "v": ("4",)}
        assert [note.field for note in line.notes] == ["false"]

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--max-nodes-total=many"],
            ["--max-nodes-total"],
            ["--scan-interval=10"],
            ["--expander=cheapest"],
            ["--expander=priority,priority"],
            ["--cores-total=10"],
            ["--cores-total=10:1"],
            ["--gpu-total=nvidia.com/gpu:1"],
            ["--scale-down-enabled=maybe"],
            ["--scale-down-utilization-threshold=half"],
        ],
    )
    def test_values_with_which_upstream_does_not_start_are_refused(self, arguments: list[str]) -> None:
        with pytest.raises(InputError) as caught:
            converted(*arguments)
        assert caught.value.field == arguments[0].partition("=")[0]

    def test_unknown_flags_are_named(self) -> None:
        assert flags_of(converted("--scale-down-unneded-time=5m")) == ["--scale-down-unneded-time"]

    @pytest.mark.parametrize(
        ("image", "version"),
        [
            ("registry.k8s.io/autoscaling/cluster-autoscaler:v1.33.0", (1, 33)),
            ("localhost:5000/cluster-autoscaler:1.29.1-gke.3", (1, 29)),
            ("quay.io/x/cluster-autoscaler:latest", None),
            ("quay.io/x/cluster-autoscaler@sha256:ab", None),
        ],
    )
    def test_the_release_is_that_of_the_image(self, image: str, version: tuple[int, int] | None) -> None:
        assert image_version(image) == version


class TestConversion:
    def test_defaults_of_the_current_release_are_kept(self) -> None:
        assert spec() == {
            "mode": "Simulate",
            "scaleDown": {
                "enabled": True,
                "delayAfterAdd": "10m",
                "delayAfterDelete": "0s",
                "delayAfterFailure": "3m",
                "unneededTime": "10m",
                "unreadyTime": "20m",
                "utilizationThreshold": "0.5",
                "gpuUtilizationThreshold": "0.5",
                "cordonNodeBeforeTerminating": "Enabled",
            },
            "maxPodGracePeriod": 600,
            "maxNodeProvisionTime": "15m",
            "podPriorityThreshold": -10,
            "balanceSimilarNodeGroups": False,
            "ignoreDaemonsetsUtilization": False,
            "ignoreMirrorPodsUtilization": False,
            "skipNodesWithLocalStorage": True,
            "enforceNodeGroupMinSize": "Disabled",
            "expanders": ["LeastWaste"],
        }

    @pytest.mark.parametrize(
        ("version", "expander", "cordon"),
        [
            ((1, 22), "Random", "Disabled"),
            ((1, 32), "Random", "Disabled"),
            ((1, 33), "LeastWaste", "Disabled"),
            ((1, 34), "LeastWaste", "Enabled"),
            ((1, 60), "LeastWaste", "Enabled"),
            (None, "LeastWaste", "Enabled"),
        ],
    )
    def test_defaults_of_older_releases_are_kept(self, version: Any, expander: str, cordon: str) -> None:
        found = spec(version=version)
        assert found["expanders"] == [expander]
        assert found["scaleDown"]["cordonNodeBeforeTerminating"] == cordon

    def test_an_unknown_release_is_reported(self) -> None:
        assert flags_of(converted(version=None)) == ["image"]

    @pytest.mark.parametrize(
        ("argument", "field", "value"),
        [
            ("--scale-down-enabled=false", "scaleDown", {"enabled": False}),
            ("--cores-total=4:100", "resourceLimits", {"cores": {"min": 4, "max": 100}}),
            ("--memory-total=16:640", "resourceLimits", {"memory": {"min": 16, "max": 640}}),
            (
                "--gpu-total=nvidia.com/gpu:0:8",
                "resourceLimits",
                {"gpus": [{"type": "nvidia.com/gpu", "min": 0, "max": 8}]},
            ),
            ("--expander=priority,least-nodes,price", "expanders", ["Priority", "LeastNodes", "Price"]),
            ("--startup-taint=a=b:NoSchedule", "startupTaints", ["a"]),
            ("--ignore-taint=a", "startupTaints", ["a"]),
            ("--balancing-ignore-label=rack", "balancingIgnoredLabels", ["rack"]),
            ("--bypassed-scheduler-names=a,b", "scaleUp", {"bypassedSchedulers": ["a", "b"]}),
            ("--expendable-pods-priority-cutoff=-5", "podPriorityThreshold", -5),
            (
                "--node-group-auto-discovery=clusterapi:namespace=fleet,clusterName=prod",
                "nodeGroupAutoDiscovery",
                {"clusterName": "prod", "namespaces": ["fleet"]},
            ),
        ],
    )
    def test_values_become_fields(self, argument: str, field: str, value: Any) -> None:
        assert spec(argument)[field] == value

    @pytest.mark.parametrize(("text", "threshold"), [("0", "0.000000001"), ("1", "0.999999999"), (".65", "0.65")])
    def test_thresholds_are_those_that_the_field_allows(self, text: str, threshold: str) -> None:
        assert spec(f"--scale-down-utilization-threshold={text}")["scaleDown"]["utilizationThreshold"] == threshold

    @pytest.mark.parametrize("name", sorted(name for name in FLAGS if FLAGS[name].default))
    def test_the_default_of_each_flag_is_accepted(self, name: str) -> None:
        assert converted(f"--{name}={FLAGS[name].default}").document

    def test_a_duration_of_a_field_has_the_bound_of_the_field(self) -> None:
        with pytest.raises(InputError):
            converted("--scale-down-unneeded-time=87600h")

    def test_a_lost_flag_with_its_default_is_not_reported(self) -> None:
        given = ("--scan-interval=0m10s", "--min-replica-count=0", "--max-total-unready-percentage=45.0")
        assert flags_of(converted("--cloud-provider=clusterapi", *given)) == []

    def test_a_disabled_scale_down_has_no_differences_in_drains(self) -> None:
        assert [each.field for each in converted("--scale-down-enabled=false").warnings] == ["--scale-down-enabled"]

    @pytest.mark.parametrize("arguments", [[], [f"--{name}={_other_value(name)}" for name in sorted(FLAGS)]])
    def test_the_result_is_valid(self, arguments: list[str]) -> None:
        document = converted(*arguments).document
        assert isinstance(decode_cluster_autoscaler(document), ClusterAutoscaler)


def workload(kind: str = "Deployment", **container: Any) -> dict[str, Any]:
    pod = {"containers": [{"name": "sidecar", "image": "busybox"}, {"name": "ca", **container}]}
    return {
        "apiVersion": "v1" if kind == "Pod" else "apps/v1",
        "kind": kind,
        "metadata": {"name": "cluster-autoscaler", "namespace": "kube-system"},
        "spec": pod if kind == "Pod" else {"template": {"spec": pod}},
    }


class TestWorkloads:
    @pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "Pod"])
    def test_the_container_is_found_by_its_image(self, kind: str) -> None:
        image = "registry.k8s.io/autoscaling/cluster-autoscaler-arm64:v1.31.2"
        line = read_workload(workload(kind, image=image, args=["--max-nodes-total=3"]))
        assert line is not None
        assert (line.version, line.namespace, line.last("max-nodes-total")) == ((1, 31), "kube-system", "3")

    def test_the_container_is_found_by_its_command(self) -> None:
        line = read_workload(workload(image="example.com/ca:v1.30.0", command=["/cluster-autoscaler", "--v=4"]))
        assert line is not None
        assert line.notes == ()

    def test_a_workload_without_replicas_is_reported(self) -> None:
        stopped = workload(image="cluster-autoscaler:v1.30.0")
        stopped["spec"]["replicas"] = 0
        line = read_workload(stopped)
        assert line is not None
        assert [(note.field, note.severity) for note in line.notes] == [("spec.replicas", "medium")]

    def test_a_shell_command_is_split(self) -> None:
        script = "exec ./cluster-autoscaler --expander='random' --nodes=1:3:a 1>>/var/log/ca.log 2>&1"
        line = read_workload(workload(image="x:v1.30.0", command=["/bin/sh", "-c", script]))
        assert line is not None
        assert line.values == {"expander": ("random",), "nodes": ("1:3:a",)}

    def test_environment_variables_are_inserted(self) -> None:
        image = "cluster-autoscaler:v1.30.0"
        env = [{"name": "MAX", "value": "9"}, {"name": "NAME", "valueFrom": {"fieldRef": {}}}]
        arguments = ["--max-nodes-total=$(MAX)", "--cluster-name=$(NAME)"]
        line = read_workload(workload(image=image, args=arguments, env=env))
        assert line is not None
        assert line.last("max-nodes-total") == "9"
        assert [note.field for note in line.notes] == ["--cluster-name"]

    @pytest.mark.parametrize(
        ("value", "architecture", "warned"),
        [("arm64", "arm64", False), ("mips", None, True), (None, None, False)],
    )
    def test_default_architecture_is_converted(self, value: str | None, architecture: str | None, warned: bool) -> None:
        name = "CAPI_SCALE_ZERO_DEFAULT_ARCH"
        env = [] if value is None else [{"name": name, "value": value}]
        line = read_workload(workload(image="cluster-autoscaler:v1.37.0", env=env))
        assert line is not None
        found = convert_command_line(line)
        assert found.document["spec"].get("scaleUp", {}).get("defaultArchitecture") == architecture
        assert (name in [each.field for each in found.warnings]) is warned

    @pytest.mark.parametrize(
        "container",
        [
            {"image": "quay.io/openshift/cluster-autoscaler-operator:v1"},
            {"image": "registry.k8s.io/cpa/cluster-proportional-autoscaler:v1.9.0"},
            {"image": "x", "command": ["/vertical-pod-autoscaler"]},
        ],
    )
    def test_other_programs_are_none(self, container: dict[str, Any]) -> None:
        assert read_workload(workload(**container)) is None


class TestChart:
    def test_values_become_the_arguments_of_the_template(self) -> None:
        line = chart(
            {
                "cloudProvider": "aws",
                "autoDiscovery": {"clusterName": "prod"},
                "autoscalingGroups": [{"name": "asg-a", "minSize": 1, "maxSize": 10.0}],
                "extraArgs": {"expander": "random", "balance-similar-node-groups": None, "startup-taint_1": "a"},
                "customArgs": ["--startup-taint=b"],
            }
        )
        assert line.values == {
            "cloud-provider": ("aws",),
            "nodes": ("1:10:asg-a",),
            "node-group-auto-discovery": ("asg:tag=k8s.io/cluster-autoscaler/enabled,k8s.io/cluster-autoscaler/prod",),
            "balance-similar-node-groups": ("true",),
            "expander": ("random",),
            "logtostderr": ("true",),
            "startup-taint": ("a", "b"),
            "stderrthreshold": ("info",),
            "v": ("4",),
        }
        assert line.notes == ()

    def test_values_that_are_not_converted_are_listed(self) -> None:
        line = chart({"cloudProvider": "aws", "awsRegion": "eu-1", "rbac": {}, "image": {"tag": "v1.30.0"}})
        assert [(note.field, note.severity) for note in line.notes] == [("awsRegion, rbac", "low")]

    def test_a_chart_without_replicas_is_reported(self) -> None:
        line = chart({"cloudProvider": "aws", "replicaCount": 0})
        assert [(note.field, note.severity) for note in line.notes] == [("replicaCount", "medium")]

    @pytest.mark.parametrize(
        ("discovery", "argument"),
        [
            ({"clusterName": "prod"}, "clusterapi:clusterName=prod"),
            ({"namespace": "fleet", "labels": [{"a": "b"}]}, "clusterapi:namespace=fleet,a=b"),
            ({}, None),
        ],
    )
    def test_cluster_api_is_discovered(self, discovery: dict[str, Any], argument: str | None) -> None:
        line = chart({"cloudProvider": "clusterapi", "autoDiscovery": discovery})
        assert line.last("node-group-auto-discovery") == argument

    @pytest.mark.parametrize(
        ("values", "version", "release"),
        [
            ({}, "", (1, 35)),
            ({}, "9.46.6", (1, 32)),
            ({}, "9.37.0", (1, 30)),
            ({"image": {"tag": "v1.29.3"}}, "9.46.6", (1, 29)),
            ({}, "9.x.x", None),
        ],
    )
    def test_the_release_is_that_of_the_chart(self, values: Any, version: str, release: Any) -> None:
        assert chart({"autoDiscovery": {}, **values}, version=version).version == release

    @pytest.mark.parametrize(
        ("expander", "given", "expected"),
        [
            ("priority,random", {10: [".*a'b.*"], 1: [".*"]}, "10:\n  - '.*a''b.*'\n1:\n  - '.*'\n"),
            ("priority", "10:\n  - x\n", "10:\n  - x\n"),
            ("random", {10: ["x"]}, None),
        ],
    )
    def test_priorities_become_a_config_map(self, expander: str, given: Any, expected: str | None) -> None:
        values = {"extraArgs": {"expander": expander}, "expanderPriorities": given}
        assert priorities(ChartValues(values=values)) == expected

    @pytest.mark.parametrize(
        ("values", "field"),
        [
            ({"extraArgs": ["--v=4"]}, "extraArgs"),
            ({"autoscalingGroups": {"a": 1}}, "autoscalingGroups"),
            ({"autoscalingGroups": [{"name": "a", "minSize": 1}]}, "autoscalingGroups[0].maxSize"),
        ],
    )
    def test_values_of_a_wrong_type_are_refused(self, values: dict[str, Any], field: str) -> None:
        with pytest.raises(InputError) as caught:
            chart(values)
        assert caught.value.field == field

    @pytest.mark.parametrize(
        ("values", "is_chart"),
        [
            ({"autoDiscovery": {}}, True),
            ({"cloudProvider": "azure", "extraArgs": {}}, True),
            ({"deschedulerPolicy": {}, "cmdOptions": {}}, False),
            ({"extraArgs": {}}, False),
        ],
    )
    def test_values_of_the_chart_are_recognized(self, values: dict[str, Any], is_chart: bool) -> None:
        assert recognize(values) is is_chart


def group(name: str, namespace: str = "fleet", kind: str = "MachineDeployment") -> NodeGroupObject:
    return NodeGroupObject("cluster.x-k8s.io/v1beta1", kind, namespace, name)


class TestNodeGroups:
    def test_annotations_become_a_machine_autoscaler(self) -> None:
        manifest = {
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "MachinePool",
            "metadata": {
                "name": "workers",
                "namespace": "fleet",
                "annotations": {
                    f"cluster.x-k8s.io/{SIZES}-min-size": "1",
                    f"cluster.x-k8s.io/{SIZES}-max-size": "5",
                },
            },
        }
        found = node_group_object(manifest)
        assert found is not None
        document, warnings = group_autoscaler(found)
        assert warnings == ()
        assert document is not None
        autoscaler = decode_machine_autoscaler(document)
        assert (autoscaler.key, autoscaler.spec.min_replicas, autoscaler.spec.max_replicas) == ("fleet/workers", 1, 5)
        assert autoscaler.spec.scale_target_ref.kind == "MachinePool"
        assert autoscaler.spec.scale_target_ref.api_version == "cluster.x-k8s.io/v1beta2"

    @pytest.mark.parametrize(
        "annotations",
        [{"min-size": "1"}, {"min-size": "x", "max-size": "5"}, {"min-size": "0", "max-size": "0"}],
        ids=["one", "invalid", "zero"],
    )
    def test_unusable_annotations_are_reported(self, annotations: dict[str, str]) -> None:
        keyed = {f"cluster.x-k8s.io/{SIZES}-{key}": value for key, value in annotations.items()}
        document, warnings = group_autoscaler(
            NodeGroupObject("cluster.x-k8s.io/v1beta1", "MachineDeployment", "fleet", "workers", keyed)
        )
        assert document is None
        assert len(warnings) == 1

    def test_groups_without_annotations_have_no_autoscaler(self) -> None:
        assert group_autoscaler(group("a")) == (None, ())

    @pytest.mark.parametrize("name", ["workers", "fleet/workers", "MachineDeployment/fleet/workers"])
    def test_nodes_name_a_group_of_the_input(self, name: str) -> None:
        [(target, document)], warnings = target_autoscalers([f"1:3:{name}"], "clusterapi", [group("workers")])
        assert (target, warnings) == (group("workers"), [])
        assert document["spec"] == {
            "minReplicas": 1,
            "maxReplicas": 3,
            "scaleTargetRef": {
                "apiVersion": "cluster.x-k8s.io/v1beta1",
                "kind": "MachineDeployment",
                "name": "workers",
            },
        }

    @pytest.mark.parametrize(
        ("text", "name"),
        [
            ("0:5:asg-Workers", "asg-workers"),
            ("0:5:https://www.googleapis.com/compute/v1/projects/p/zones/z/instanceGroups/mig_1", "mig-1"),
            ("1:10:CPX31:FSN1:pool1", "pool1"),
        ],
    )
    def test_groups_that_the_input_lacks_are_reported(self, text: str, name: str) -> None:
        [(target, document)], warnings = target_autoscalers([text], "aws", [])
        assert target.name == document["metadata"]["name"] == name
        assert [each.field for each in warnings] == ["--nodes"]
        decode_machine_autoscaler(document)

    def test_an_ambiguous_name_is_reported(self) -> None:
        _, warnings = target_autoscalers(["1:3:a"], "clusterapi", [group("a", "x"), group("a", "y")])
        assert len(warnings) == 1

    @pytest.mark.parametrize("text", ["workers", "1:workers", "3:1:workers", "a:b:c"])
    def test_other_formats_are_refused(self, text: str) -> None:
        with pytest.raises(InputError):
            target_autoscalers([text], "aws", [])
