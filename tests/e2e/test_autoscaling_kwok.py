"""The autoscaler with kwok's node templates and the RBAC that the chart grants for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import Start
from tests.fixtures.autoscaling import VALUES, Fleet
from tests.unit.autoscaling.external.test_kwok import CONFIG, TEMPLATES
from trimtab_local.install import NAMESPACE, apply, install

MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
TOLERATIONS = [
    {"key": "kwok-provider", "operator": "Exists"},
    {"key": "team", "operator": "Exists"},
]


@pytest.fixture
def templates(fleet: Fleet) -> Iterator[None]:
    """The ConfigMaps and the permission to create nodes; both are deleted afterwards."""
    install(fleet.cluster, *VALUES, "cloudProvider.kwok.enabled=true")
    texts = {"kwok-provider-config": {"config": CONFIG}, "kwok-provider-templates": {"templates": TEMPLATES}}
    for name, data in texts.items():
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        apply(fleet.client, MAPS, manifest)
    yield
    for name in texts:
        fleet.client.request("DELETE", f"{MAPS}/{name}")
    install(fleet.cluster, *VALUES)


def test_kwok_nodes_are_created_from_a_template_and_removed(fleet: Fleet, operate: Start, templates: None) -> None:
    fleet.autoscale()
    operator = operate(f"--kwok-templates-namespace={NAMESPACE}")

    fleet.deploy("web", 6, tolerations=TOLERATIONS, nodeSelector={"pool": "small"})
    fleet.deploy("other", 1, nodeSelector={"pool": "small"})
    fleet.until_running("web", 6)
    assert fleet.pools("web") == {"small": 6}
    assert len(fleet.all_nodes()) == 3
    fleet.until(
        lambda: any(each["pod"].startswith("other-") for each in fleet.status().get("pending", ())),
        "who does not tolerate them is reported",
    )

    operator.stop()
    operate(f"--kwok-templates-namespace={NAMESPACE}")
    fleet.resize("web", 2)
    fleet.until(lambda: len(fleet.all_nodes()) == 1, "one node is left", seconds=120)
    fleet.until_running("web", 2)
    fleet.resize("web", 0)
    fleet.until(lambda: not fleet.all_nodes(), "none is left", seconds=120)
    assert not fleet.audit.ours("pods", verbs=("delete", "deletecollection"))
