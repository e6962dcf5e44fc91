"""`trimtab convert` and `trimtab plan` with what people keep: packages, workloads, and lists with other objects."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.builders import node

POLICY = """\
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: default
  plugins: {balance: {enabled: [RemoveDuplicates]}}
"""
VALUES: dict[str, Any] = {
    "schedule": "0 4 * * *",
    "deschedulerPolicy": {"profiles": yaml.safe_load(POLICY)["profiles"]},
}
OTHERS = [
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": "-"}},
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "descheduler"}},
    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "descheduler"}},
]


def config_map(name: str = "policy", text: str = POLICY) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"policy.yaml": text}}


def pod_spec(*flags: str, config_map: str = "policy") -> dict[str, Any]:
    return {
        "containers": [
            {
                "name": "descheduler",
                "image": "registry.k8s.io/descheduler/descheduler:v0.33.0",
                "command": ["/bin/descheduler"],
                "args": ["--policy-config-file=/policy-dir/policy.yaml", *flags],
            }
        ],
        "volumes": [{"name": "policy", "configMap": {"name": config_map}}],
    }


def cron_job(*flags: str, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"template": {"spec": pod_spec(*flags)}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "descheduler", "namespace": "kube-system"},
        "spec": {"schedule": "0 4 * * *", **spec, "jobTemplate": template},
    }


def deployment(*flags: str, config_map: str = "policy", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "descheduler", "namespace": "kube-system"},
        "spec": {**spec, "template": {"spec": pod_spec(*flags, config_map=config_map)}},
    }


def job(*flags: str) -> dict[str, Any]:
    return {**deployment(*flags), "apiVersion": "batch/v1", "kind": "Job"}


PACKAGES: dict[str, dict[str, Any]] = {
    "values": VALUES,
    "values of an umbrella chart": {"descheduler": VALUES, "metrics-server": {"enabled": True}},
    "HelmRelease": {
        "apiVersion": "helm.toolkit.fluxcd.io/v2",
        "kind": "HelmRelease",
        "metadata": {"name": "descheduler"},
        "spec": {"chart": {"spec": {"chart": "descheduler", "version": "0.33.0"}}, "values": VALUES},
    },
    "HelmRelease with an OCI repository": {
        "apiVersion": "helm.toolkit.fluxcd.io/v2",
        "kind": "HelmRelease",
        "metadata": {"name": "descheduler"},
        "spec": {"chartRef": {"kind": "OCIRepository", "name": "descheduler"}, "values": VALUES},
    },
    "Application with several sources": {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": "descheduler"},
        "spec": {
            "sources": [
                {"repoURL": "https://example.com/charts", "chart": "descheduler", "helm": {"valuesObject": VALUES}},
                {"repoURL": "https://example.com/values.git", "path": "descheduler", "ref": "values"},
            ]
        },
    },
    "Application": {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": "descheduler"},
        "spec": {
            "source": {
                "chart": "descheduler",
                "helm": {
                    "values": yaml.safe_dump(VALUES),
                    "parameters": [{"name": "schedule", "value": "0 4 * * *"}],
                },
            }
        },
    },
}


@pytest.fixture
def bundle(tmp_path):
    """Write documents to a file, and return its path."""

    def write_all(*documents: dict[str, Any]) -> str:
        path = tmp_path / "bundle.yaml"
        path.write_text(yaml.safe_dump_all(documents, sort_keys=False))
        return str(path)

    return write_all


def spec_of(result: Any) -> dict[str, Any]:
    assert result.exit_code == 0, result.stderr
    (document,) = yaml.safe_load_all(result.stdout)
    spec = document["spec"]
    assert isinstance(spec, dict)
    return spec


@pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES)
def test_package_is_converted_and_planned(run, bundle, write, package) -> None:
    path = bundle(package)
    assert spec_of(run("convert", path)) == {
        "mode": "Simulate",
        "schedule": {"cron": "0 4 * * *"},
        "strategies": {"RemoveDuplicates": {"enabled": True}},
    }
    plan = run("plan", "--policy", path, "--cluster", write("c.json", node("n1")), "--now", "2026-11-20T12:00:00Z")
    assert plan.exit_code == 0


def test_values_in_other_files_are_a_severe_difference(run, bundle) -> None:
    source = {"chart": "descheduler", "helm": {"valueFiles": ["$values/descheduler.yaml"], "valuesObject": VALUES}}
    metadata = {"name": "descheduler"}
    result = run(
        "convert",
        bundle(
            {
                "apiVersion": "argoproj.io/v1alpha1",
                "kind": "Application",
                "metadata": metadata,
                "spec": {"source": source},
            }
        ),
    )
    assert spec_of(result)["schedule"] == {"cron": "0 4 * * *"}
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("trimtab: warning (high)")]
    assert "spec.source.helm.valueFiles: $values/descheduler.yaml: not read" in line


def test_other_objects_are_skipped_and_counted(run, bundle) -> None:
    result = run("convert", bundle(*OTHERS, config_map(), cron_job()))

    assert spec_of(result)["schedule"] == {"cron": "0 4 * * *"}
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("trimtab: skipped")]
    assert line.endswith("3 other objects: 1 ClusterRole, 1 ConfigMap, 1 ServiceAccount")


def test_list_of_config_maps_is_read(run, bundle) -> None:
    path = bundle({"apiVersion": "v1", "kind": "List", "items": [OTHERS[0], config_map()]})
    assert "RemoveDuplicates" in spec_of(run("convert", path))["strategies"]


def test_invalid_policy_is_an_error_beside_a_valid_one(run, bundle) -> None:
    broken = config_map("broken", POLICY.replace("plugins", "plugin"))
    assert run("convert", bundle(config_map(), broken)).exit_code == 2


def test_unknown_version_of_a_policy_is_not_skipped(run, bundle) -> None:
    newer = {"apiVersion": "descheduler/v1beta1", "kind": "DeschedulerPolicy"}
    assert run("convert", bundle(config_map(), newer)).exit_code == 2


@pytest.mark.parametrize("skip", [(), ("--skip-invalid",)])
def test_objects_without_any_policy_are_an_error(run, bundle, skip) -> None:
    assert run("convert", bundle(*OTHERS), *skip).exit_code == 2


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        pytest.param(
            cron_job(timeZone="Europe/Berlin", suspend=True),
            {"schedule": {"cron": "0 4 * * *", "timeZone": "Europe/Berlin"}, "suspend": True},
            id="CronJob",
        ),
        pytest.param(
            cron_job(schedule="CRON_TZ=Europe/Berlin @daily"),
            {"schedule": {"cron": "0 0 * * *", "timeZone": "Europe/Berlin"}},
            id="time zone in the schedule",
        ),
        pytest.param(cron_job(schedule="@every 90m"), {"interval": "1h30m"}, id="@every"),
        pytest.param(cron_job("--descheduling-interval=10m"), {"interval": "10m"}, id="CronJob with an interval"),
        pytest.param(deployment("--descheduling-interval", "10m"), {"interval": "10m"}, id="Deployment"),
        pytest.param(
            deployment("--descheduling-interval=10m", replicas=0),
            {"interval": "10m", "suspend": True},
            id="Deployment without replicas",
        ),
        pytest.param(
            deployment("--descheduling-interval=10m", "--max-pods-to-evict-per-node=7", "--v=3", "--dry-run"),
            {"interval": "10m", "limits": {"perNode": 7}},
            id="limit",
        ),
        pytest.param(
            deployment("--descheduling-interval=10m", "--evict-local-storage-pods", "--node-selector", "a=b"),
            {
                "interval": "10m",
                "protections": {"disabled": ["PodsWithLocalStorage"]},
                "nodeSelector": {"matchLabels": {"a": "b"}},
            },
            id="local storage and node selector",
        ),
        pytest.param(job(), {"suspend": True}, id="Job"),
    ],
)
def test_workload_says_when_its_policy_runs(run, bundle, workload, expected) -> None:
    spec = spec_of(run("convert", bundle(workload, config_map())))
    assert {key: value for key, value in spec.items() if key not in ("mode", "strategies")} == expected


def test_workloads_apply_to_the_policies_that_they_mount(run, bundle) -> None:
    old = POLICY.replace("default", "hourly")
    first = deployment("--descheduling-interval=1h", config_map="hourly")
    result = run("convert", bundle(config_map(), config_map("hourly", old), first, cron_job()))

    specs = {each["metadata"]["name"]: each["spec"] for each in yaml.safe_load_all(result.stdout)}
    assert (specs["hourly"]["interval"], specs["default"]["schedule"]["cron"]) == ("1h", "0 4 * * *")


def test_workload_applies_to_a_policy_file_beside_it(run, bundle) -> None:
    result = run("convert", bundle(yaml.safe_load(POLICY), cron_job()))
    assert spec_of(result)["schedule"] == {"cron": "0 4 * * *"}


def test_workload_without_its_policy_is_an_error_that_names_the_config_map(run, bundle) -> None:
    result = run("convert", bundle(cron_job()))
    assert result.exit_code == 2
    assert "CronJob/descheduler" in result.stderr
    assert "ConfigMap policy" in result.stderr


def test_invalid_flag_is_an_error_of_the_workload(run, bundle) -> None:
    result = run("convert", bundle(config_map(), deployment("--descheduling-interval=often")))
    assert result.exit_code == 2
    assert "Deployment/descheduler: spec.template.spec.containers[0].args" in result.stderr


def test_operator_of_deschedulers_is_no_descheduler(run, bundle) -> None:
    operator = deployment()
    container = operator["spec"]["template"]["spec"]["containers"][0]
    container |= {"image": "example.com/descheduler-operator", "command": ["/descheduler-operator"], "args": []}
    result = run("convert", bundle(config_map(), operator))
    assert spec_of(result).keys() == {"mode", "strategies"}
    assert "1 Deployment" in result.stderr


def test_plan_does_not_ask_for_an_interval(run, bundle, write) -> None:
    arguments = ["--cluster", write("c.json", node("n1")), "--now", "2026-11-20T12:00:00Z"]
    assert run("plan", "--policy", bundle(config_map()), *arguments).stderr == ""


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_report_has_differences_by_severity_and_skipped_objects(run, bundle, tmp_path, form) -> None:
    path = tmp_path / "report"
    workload = deployment("--leader-elect", "--no-such-flag=1", "--descheduling-interval=10m")
    result = run("convert", bundle(config_map(), workload, *OTHERS), "--report", str(path), "-o", form)

    report = yaml.safe_load(path.read_text())
    assert report["converted"] == ["DeschedulerPolicy/default"]
    assert [each["severity"] for each in report["differences"]] == ["high", "low", "low"]
    assert report["summary"] == {"high": 1, "medium": 0, "low": 2}
    assert all(each["field"].startswith("Deployment/descheduler") for each in report["differences"])
    assert report["skipped"] == {"ClusterRole": 1, "ConfigMap": 1, "ServiceAccount": 1}
    assert len(result.stderr.splitlines()) == 4


def test_own_policy_needs_no_interval(run, bundle) -> None:
    own = {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "DeschedulerPolicy",
        "metadata": {"name": "own"},
        "spec": {"strategies": {"RemoveDuplicates": {"enabled": True}}},
    }
    assert run("convert", bundle(own)).stderr == ""
