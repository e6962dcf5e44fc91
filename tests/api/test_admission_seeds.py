"""The admission configurations that OpenShift's documentation prints, converted and applied, with the printed pods."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from tests.admission_samples import HELLO_POD, PROJECT, PROJECTS_FILE, PROJECTS_REFERENCE, SAMPLES
from tests.fixtures.custom_resources import served
from tests.fixtures.placement_admission import AdmissionCluster, pod
from tests.fixtures.users import MERGE, User, denial
from tests.fixtures.waiting import eventually, wait_for
from trimtab.cli.main import cli
from trimtab.kube.api import Forbidden
from trimtab.kube.resources import NAMESPACES, NODES, PODS
from trimtab_local.nodes import node, ready

BY_NAME = "node selection by nodeName is prohibited by policy for your role"
CONFLICT = "pod node label selector conflicts with its namespace node label selector"
NOT_LISTED = "pod node label selector labels conflict with its namespace whitelist"
SELECTOR = "scheduler.alpha.kubernetes.io/node-selector"

REGIONS = {
    "us-east": "us",
    "us-central": "us",
    "us-west": "us",
    "apac-east": "apac",
    "apac-west": "apac",
}
"""The five data centers of the documentation, and their superregions."""


def by_label(*keys: str) -> str:
    return f"node selection by label(s) [{' '.join(keys)}] is prohibited by policy for your role"


def printed(text: str) -> dict[str, Any]:
    """Decode a printed object, without the numbers that refer to footnotes."""
    found: dict[str, Any] = msgspec.yaml.decode(re.sub(r" \d$", "", text, flags=re.MULTILINE))
    return found


def convert(directory: Path, *texts: str) -> dict[str, Any]:
    """Return the spec that ``trimtab convert`` writes for these files."""
    files = [directory / f"{number}.yaml" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    result = CliRunner().invoke(cli, ["convert", *map(str, files)], prog_name="trimtab", catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = msgspec.yaml.decode(result.stdout)["spec"]
    return found


def enforce(cluster: AdmissionCluster, spec: dict[str, Any]) -> None:
    """Apply a converted spec, which has mode Warn, with mode Enforce."""
    assert spec["mode"] == "Warn"
    cluster.enforce(**{**spec, "mode": "Enforce"})


def refusal(user: User, namespace: str, manifest: dict[str, Any]) -> str:
    with pytest.raises(Forbidden) as refused:
        user.create(PODS, manifest, namespace=namespace)
    return denial(refused.value)


@pytest.fixture
def ns1(admission_cluster: AdmissionCluster) -> Iterator[str]:
    """The printed project, which other tests create as well."""
    project = printed(PROJECT.replace("metadata\n", "metadata:\n").replace("{},", "{}"))
    name = project["metadata"]["name"]
    client, path = admission_cluster.client, NAMESPACES.path(name)
    eventually(lambda: not served(client, path), what="the project of another test to be gone")
    yield admission_cluster.namespace(name, annotations=project["metadata"]["annotations"])
    client.request("DELETE", path)
    eventually(lambda: not served(client, path), what="the project to be gone")


def test_node_name_of_a_pod_is_reserved_for_users_who_may_bind(
    admission_cluster: AdmissionCluster, tmp_path: Path
) -> None:
    cluster = admission_cluster
    enforce(cluster, convert(tmp_path, SAMPLES["node name"][0]))
    name = cluster.namespace()

    assert refusal(cluster.dev, name, pod(nodeName="node-1")) == BY_NAME
    cluster.binder.create(PODS, pod(nodeName="node-1"), namespace=name, dry_run=True)
    cluster.dev.create(PODS, pod(nodeSelector={"region": "us-east"}), namespace=name, dry_run=True)


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param([SAMPLES["projects"][0]], id="master-config.yaml"),
        pytest.param([PROJECTS_REFERENCE, PROJECTS_FILE], id="file and its reference"),
    ],
)
def test_hello_pod_gets_the_printed_node_selector(
    admission_cluster: AdmissionCluster, ns1: str, tmp_path: Path, texts: list[str]
) -> None:
    cluster, hello = admission_cluster, printed(HELLO_POD)
    enforce(cluster, convert(tmp_path, *texts))
    plain = cluster.namespace()

    made = cluster.dev.create(PODS, hello, namespace=ns1).object
    assert made["spec"]["nodeSelector"] == {"env": "test", "infra": "fedora", "os": "fedora"}
    # A project without node selectors gets the default one.
    made = cluster.dev.create(PODS, hello, namespace=plain, dry_run=True).object
    assert made["spec"]["nodeSelector"] == {"env": "test", "os": "fedora", "k3": "v3"}
    for selector, message in (
        ({"env": "production", "infra": "fedora", "os": "fedora"}, CONFLICT),
        ({"env": "test", "os": "windows"}, NOT_LISTED),
    ):
        hello["spec"]["nodeSelector"] = selector
        assert refusal(cluster.dev, ns1, hello) == message


def test_hello_pod_tolerates_outages_as_printed(admission_cluster: AdmissionCluster, tmp_path: Path) -> None:
    cluster = admission_cluster
    enforce(cluster, convert(tmp_path, SAMPLES["toleration seconds"][0]))
    hello = printed(HELLO_POD)
    del hello["spec"]["nodeSelector"]
    made = cluster.dev.create(PODS, hello, namespace=cluster.namespace()).object

    described = {
        f"{each['key']}={each.get('value', '')}:{each['operator']}:{each['effect']} for {each['tolerationSeconds']}s"
        for each in made["spec"]["tolerations"]
    }
    assert described == {
        "node.kubernetes.io/not-ready=:Exists:NoExecute for 300s",
        "node.kubernetes.io/unreachable=:Exists:NoExecute for 300s",
    }


def test_every_rule_of_the_complete_file_applies(admission_cluster: AdmissionCluster, tmp_path: Path) -> None:
    cluster = admission_cluster
    enforce(cluster, convert(tmp_path, SAMPLES["complete file"][0]))
    name = cluster.namespace()
    container = {"name": "main", "image": "none", "resources": {"limits": {"example.com/gpu": "1"}}}
    spec = cluster.dev.create(PODS, pod(containers=[container]), namespace=name, dry_run=True).object["spec"]

    assert spec["nodeSelector"] == {"node-role.kubernetes.io/compute": "true"}
    assert {each["key"]: each.get("tolerationSeconds") for each in spec["tolerations"]} == {
        "example.com/gpu": None,
        "node.kubernetes.io/not-ready": 60,
        "node.kubernetes.io/unreachable": 300,
    }
    assert refusal(cluster.dev, name, pod(nodeSelector={"region": "us-east"})) == by_label("region")


@pytest.fixture
def data_centers(admission_cluster: AdmissionCluster) -> Iterator[None]:
    """A ready node in each data center."""
    client = admission_cluster.client
    for region, superregion in REGIONS.items():
        labels = {"region": region, "superregion": superregion}
        client.request("POST", NODES.path(), node(region, zone="a", labels=labels))
    wait_for(lambda: all(ready(client.request("GET", NODES.path(each))) for each in REGIONS), "the data centers")
    yield
    for region in REGIONS:
        client.request("DELETE", NODES.path(region))


@pytest.mark.usefixtures("data_centers")
def test_developers_reach_the_regions_of_their_superregion_and_select_none(
    admission_cluster: AdmissionCluster, tmp_path: Path
) -> None:
    cluster = admission_cluster
    enforce(
        cluster, convert(tmp_path, SAMPLES["node selector"][0].replace("<label>", "region")) | {"podNodeSelector": {}}
    )
    name = cluster.namespace(annotations={SELECTOR: "superregion=us"})

    def placed(pod_name: str) -> str:
        path = PODS.path(pod_name, namespace=name)
        return str(eventually(lambda: cluster.client.request("GET", path)["spec"].get("nodeName"), what="the binding"))

    # 1. The pods of a developer in the U.S. run in the U.S.
    for number in range(6):
        cluster.dev.create(PODS, pod(f"web-{number}"), namespace=name)
    assert {REGIONS[placed(f"web-{number}")] for number in range(6)} == {"us"}

    # 2. A pod that targets a region, or a host, is refused.
    assert refusal(cluster.dev, name, pod(nodeSelector={"region": "us-east"})) == by_label("region")
    hostname = {"kubernetes.io/hostname": "us-east"}
    assert refusal(cluster.dev, name, pod(nodeSelector=hostname)) == by_label("kubernetes.io/hostname")
    assert refusal(cluster.dev, name, pod(nodeSelector={"superregion": "apac"})) == CONFLICT

    # 3. Without the node selector, it can still be placed in that region.
    for region in ("us-central", "us-west"):
        cluster.client.request("PATCH", NODES.path(region), {"spec": {"unschedulable": True}}, content_type=MERGE)
    cluster.dev.create(PODS, pod("again"), namespace=name)
    assert placed("again") == "us-east"
    cluster.client.request("DELETE", PODS.path(namespace=name), {"gracePeriodSeconds": 0})
