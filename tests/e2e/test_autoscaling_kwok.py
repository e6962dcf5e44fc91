"""The cluster autoscaler over kwok's node templates, under the rights that the chart gives for that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from examples.demo.install import NAMESPACE, apply, install
from tests.e2e.conftest import Start
from tests.fixtures.autoscaling import VALUES, Fleet
from tests.unit.autoscaling.external.test_kwok import CONFIG, TEMPLATES

MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
TOLERATIONS = [
    {"key": "kwok-provider", "operator": "Exists"},
    {"key": "team", "operator": "Exists"},
]


@pytest.fixture
def templates(fleet: Fleet) -> Iterator[None]:
    """The ConfigMaps, and the rights to make nodes; both gone afterwards."""
    install(fleet.cluster, *VALUES, "cloudProvider.kwok.enabled=true")
    texts = {"kwok-provider-config": {"config": CONFIG}, "kwok-provider-templates": {"templates": TEMPLATES}}
    for name, data in texts.items():
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        apply(fleet.client, MAPS, manifest)
    yield
    for name in texts:
        fleet.client.request("DELETE", f"{MAPS}/{name}")
    install(fleet.cluster, *VALUES)


def test_nodes_are_made_of_a_template_for_pods_that_tolerate_them_and_unmade_after_them(
    fleet: Fleet, operate: Start, templates: None
) -> None:
    fleet.autoscale()
    operator = operate(f"--kwok-templates-namespace={NAMESPACE}")

    fleet.deploy("web", 6, tolerations=TOLERATIONS, nodeSelector={"pool": "small"})
    fleet.deploy("other", 1, nodeSelector={"pool": "small"})
    fleet.until_running("web", 6)
    assert fleet.pools("web") == {"small": 6}
    assert len(fleet.all_nodes()) == 3
    fleet.until(
        lambda: any(each["pod"].startswith("other-") for each in fleet.status().get("pending", ())),
        "who does not tolerate them is told",
    )

    operator.stop()
    operate(f"--kwok-templates-namespace={NAMESPACE}")
    fleet.resize("web", 2)
    fleet.until(lambda: len(fleet.all_nodes()) == 1, "one node is left", seconds=120)
    fleet.until_running("web", 2)
    fleet.resize("web", 0)
    fleet.until(lambda: not fleet.all_nodes(), "none is left", seconds=120)
    assert not fleet.audit.ours("pods", verbs=("delete", "deletecollection"))
