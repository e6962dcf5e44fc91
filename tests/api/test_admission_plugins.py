"""Placement admission next to the API server's own plugins, whose rules come first: neither undoes the other's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.conftest import MakeCluster
from tests.fixtures.placement_admission import AdmissionCluster, pod
from tests.fixtures.users import denial
from trimtab.kube.api import ApiError, Forbidden
from trimtab.kube.resources import PODS
from trimtab_local.components import Settings

pytestmark = pytest.mark.live

SELECTOR = "scheduler.alpha.kubernetes.io/node-selector"
DEFAULTS = "scheduler.alpha.kubernetes.io/defaultTolerations"
WHITELIST = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
OUTAGE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")

RULES: dict[str, Any] = {
    "podNodeSelector": {"clusterDefaultNodeSelector": "k3=v3"},
    "podTolerationRestriction": {},
    "extendedResourceToleration": {},
    "defaultTolerationSeconds": {"notReadyTolerationSeconds": 30, "unreachableTolerationSeconds": 60},
}
"""Every rule that a plugin of the API server implements as well."""


@pytest.fixture(scope="module")
def doubled(
    make_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[AdmissionCluster]:
    """A control plane whose API server runs the in-tree plugins, too."""
    if request.config.getoption("--cluster") != "local":
        pytest.skip("this test sets flags of a local control plane's API server")
    directory = tmp_path_factory.mktemp("plugins")
    plugins = "PodNodeSelector,PodTolerationRestriction,ExtendedResourceToleration"
    configuration = directory / "admission.yaml"
    selector = {"podNodeSelectorPluginConfig": {"clusterDefaultNodeSelector": "k3=v3"}}
    (directory / "selector.yaml").write_text(json.dumps(selector))
    restriction = {
        "apiVersion": "podtolerationrestriction.admission.k8s.io/v1alpha1",
        "kind": "Configuration",
    }
    configuration.write_text(
        json.dumps(
            {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "AdmissionConfiguration",
                "plugins": [
                    {"name": "PodNodeSelector", "path": str(directory / "selector.yaml")},
                    {"name": "PodTolerationRestriction", "configuration": restriction},
                ],
            }
        )
    )
    arguments = (f"--enable-admission-plugins={plugins}", f"--admission-control-config-file={configuration}")
    cluster = make_cluster(Settings(apiserver_args=arguments), nodes=1)
    with ExitStack() as stack:
        found = AdmissionCluster(cluster, directory, stack)
        found.start()
        found.enforce(**RULES)
        yield found
    cluster.down()


def tolerations(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds of the tolerations by key, and check that no key occurs twice."""
    keys = [each["key"] for each in spec["tolerations"]]
    assert len(keys) == len(set(keys)), keys
    return {each["key"]: each.get("tolerationSeconds") for each in spec["tolerations"]}


def test_pod_is_changed_once(doubled: AdmissionCluster) -> None:
    default = [{"key": "team", "operator": "Exists", "effect": "NoSchedule"}]
    listed = [
        *({"key": key, "operator": "Exists"} for key in OUTAGE),
        {"key": "team", "operator": "Exists"},
        {"key": "example.com/gpu", "operator": "Exists"},
        {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"},
    ]
    name = doubled.namespace(
        annotations={SELECTOR: "env=test", DEFAULTS: json.dumps(default), WHITELIST: json.dumps(listed)}
    )
    resources = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
    container = {"name": "main", "image": "none", "resources": resources}
    spec = doubled.dev.create(PODS, pod(containers=[container]), namespace=name).object["spec"]

    assert spec["nodeSelector"] == {"env": "test"}
    found = tolerations(spec)
    assert found.pop(OUTAGE[0]) == 30
    assert found.pop(OUTAGE[1]) == 60
    assert found.pop("node.kubernetes.io/memory-pressure", None) is None
    assert found == {"team": None, "example.com/gpu": None}

    gated = pod("applied", containers=[container], schedulingGates=[{"name": "example.com/wait"}])
    applied = doubled.dev.apply(PODS, gated, namespace=name).object
    again = doubled.dev.apply(PODS, gated, namespace=name).object
    assert applied["spec"] == again["spec"]
    doubled.dev.patch(PODS, "web", {"metadata": {"labels": {"a": "b"}}}, namespace=name)


def test_default_of_both_configurations_is_merged_once(doubled: AdmissionCluster) -> None:
    name = doubled.namespace()
    spec = doubled.dev.create(PODS, pod(nodeSelector={"a": "b"}), namespace=name).object["spec"]

    assert spec["nodeSelector"] == {"a": "b", "k3": "v3"}
    assert tolerations(spec) == {OUTAGE[0]: 30, OUTAGE[1]: 60}


@pytest.mark.parametrize(
    ("spec", "annotations", "message"),
    [
        (
            {"nodeSelector": {"env": "production"}},
            {SELECTOR: "env=test"},
            "pod node label selector conflicts with its namespace node label selector",
        ),
        (
            {"tolerations": [{"key": "other", "operator": "Exists"}]},
            {WHITELIST: json.dumps([{"key": key, "operator": "Exists"} for key in OUTAGE])},
            (
                "pod tolerations (possibly merged with namespace default tolerations) conflict with its "
                "namespace whitelist"
            ),
        ),
    ],
)
def test_rule_refuses_with_the_words_of_the_plugin(
    doubled: AdmissionCluster,
    admission_cluster: AdmissionCluster,
    spec: dict[str, Any],
    annotations: dict[str, str],
    message: str,
) -> None:
    """The plugin refuses first here; on a cluster without it, the rule refuses with the same words.

    The rule always answers 403. PodTolerationRestriction answers 500, as if the API server had failed.
    """
    name = doubled.namespace(annotations=annotations)
    with pytest.raises(ApiError) as by_plugin:
        doubled.dev.create(PODS, pod("web", **spec), namespace=name)
    assert "admission webhook" not in by_plugin.value.message
    assert by_plugin.value.message.endswith(message)

    admission_cluster.enforce(**RULES)
    other = admission_cluster.namespace(annotations=annotations)
    with pytest.raises(Forbidden) as by_rule:
        admission_cluster.dev.create(PODS, pod("web", **spec), namespace=other)
    assert denial(by_rule.value) == message
