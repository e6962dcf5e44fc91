"""The autoscaler's loop with external groups and an external expander."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.fakes.fleet import M
from tests.unit.autoscaling.external.test_kwok import CONFIG, MAPS, TEMPLATES
from tests.unit.autoscaling.running_autoscaler import NODES, PODS, Desk
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.controller import AutoscalerController
from trimtab.autoscaling.external import ExternalSources
from trimtab.autoscaling.external.expander import Advisor
from trimtab.autoscaling.external.grpc_channel import CallFailed
from trimtab.autoscaling.external.kwok import kwok
from trimtab.autoscaling.groups import ExternalGroups, ObjectProblem
from trimtab.autoscaling.scale_up.expanders.advice import ExpanderQuestion

pytestmark = [pytest.mark.looptime(start=0), pytest.mark.usefixtures("no_threads")]

OURS = {"namespaces": [M]}


class Server(Advisor):
    """A server that prefers the group with this suffix, or does not answer."""

    def __init__(self, likes: str) -> None:
        super().__init__(None)
        self._likes = likes
        self.calls = 0

    async def _ask_server(self, question: ExpanderQuestion) -> tuple[str, ...]:
        self.calls += 1
        if not self._likes:
            raise CallFailed("UNAVAILABLE", "no route")
        return tuple(offer.group for offer in question.offers if offer.group.endswith(self._likes))


def desk_with(*sources: Any, advisor: Advisor | None = None, desk: Desk | None = None) -> Desk:
    """An operator with these providers in addition to the machine APIs."""
    desk = desk or Desk()
    found = ExternalSources(sources, advisor)
    providers = {**desk.dependencies.providers, **found.providers}
    desk.dependencies = replace(desk.dependencies, sources=found, providers=providers)
    desk.controller = AutoscalerController(desk.dependencies)
    return desk


def kwok_desk() -> Desk:
    desk = Desk()
    for name, data in (
        ("kwok-provider-config", {"config": CONFIG + "nodes: {skipTaint: true}\n"}),
        (
            "kwok-provider-templates",
            {"templates": TEMPLATES.replace("[{key: team, value: x, effect: NoSchedule}]", "[]")},
        ),
    ):
        desk.fleet.put(f"{MAPS}/{name}", {"kind": "ConfigMap", "metadata": {"name": name}, "data": data})
    return desk_with(kwok(desk.fleet, "kwok", lister=desk.fleet.caches.lister), desk=desk)


def made(desk: Desk) -> list[str]:
    return [name for name in desk.fleet.nodes() if name.startswith(("small-", "large-"))]


async def test_pending_pods_create_nodes_of_templates() -> None:
    desk = kwok_desk()
    desk.fleet.binds = False
    desk.write(scaleDown={"enabled": False})
    async with desk.running():
        desk.wants(6, cpu="2")
        await desk.until(lambda: len(made(desk)) == 3, seconds=15)
        await desk.until(lambda: any(each["reason"] == "TriggeredScaleUp" for each in desk.recorder.events), seconds=15)
    groups = {each["id"]: each for each in desk.status["nodeGroups"]}
    assert set(groups) == {"kwok/Large_1", "kwok/small"}
    assert (groups["kwok/small"]["minSize"], groups["kwok/small"]["maxSize"]) == (0, 5)


async def test_unneeded_nodes_of_templates_are_deleted() -> None:
    desk = kwok_desk()
    desk.fleet.binds = False
    desk.write()
    async with desk.running():
        desk.wants(6, cpu="2")
        await desk.until(lambda: len(made(desk)) == 3, seconds=15)
        for name in made(desk):  # as kwok does
            node = desk.fleet.objects[f"{NODES}/{name}"]
            ready = [{"type": "Ready", "status": "True"}]
            desk.fleet.edit(f"{NODES}/{name}", status={**node["status"], "conditions": ready})
        for index in range(6):
            desk.fleet.drop(f"{PODS}/wait-{index}")
        await desk.until(lambda: not made(desk), seconds=120)
    assert desk.fleet.traces() == {}


class Silent:
    """A provider that has never answered."""

    name = "external"
    provider: Any = None

    async def observe(self, spec: ClusterAutoscalerSpec) -> ExternalGroups:
        del spec
        problem = ObjectProblem("CloudProvider", "", "external", "ProviderUnreachable", "no answer")
        return ExternalGroups(problems=(problem,))

    async def close(self) -> None:
        return None


async def test_unreachable_provider_is_in_the_status_and_the_loop_continues() -> None:
    desk = desk_with(Silent())
    desk.fleet.group("a", "a1", unneeded=False)
    desk.fleet.binds = False
    desk.write(nodeGroupAutoDiscovery=OURS)
    async with desk.running():
        desk.wants(10)
        await desk.until(lambda: desk.fleet.replicas("a") > 1, seconds=15)
        await desk.until(lambda: "ProviderUnreachable" in str(desk.status), seconds=30)


async def test_provider_that_has_never_answered_leaves_the_groups_of_tenants_unconfirmed() -> None:
    """No node names a machine, and the nodes could all belong to the provider."""
    desk = desk_with(Silent())
    desk.fleet.group("a", "a1", unneeded=False)
    desk.fleet.binds = False
    desk.write()
    async with desk.running():
        desk.wants(10)
        await desk.until(lambda: "NodeGroupNotConfirmed" in str(desk.status.get("conditions")), seconds=30)
    assert desk.fleet.replicas("a") == 1
    assert not desk.status.get("nodeGroups")


@pytest.mark.parametrize(("likes", "grown"), [("b", "b"), ("", "a")], ids=["answers", "does not answer"])
async def test_server_chooses_among_groups_else_the_next_expander(likes: str, grown: str) -> None:
    server = Server(likes)
    desk = desk_with(advisor=server)
    for name in ("a", "b"):
        desk.fleet.group(name, f"{name}1", unneeded=False)
    desk.fleet.binds = False
    desk.write(expanders=["Grpc"])
    async with desk.running():
        desk.wants(12)
        await desk.until(lambda: desk.fleet.replicas(grown) == 2, seconds=15)
        await desk.until(lambda: bool(likes) or "the expander Grpc did not answer" in str(desk.status), seconds=30)
    assert server.calls
    other = {"a": "b", "b": "a"}[grown]
    assert desk.fleet.replicas(other) == 1


async def test_defect_in_a_provider_pauses_its_groups_only(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = kwok_desk()
    desk.fleet.binds = False
    desk.fleet.group("a", "a1", unneeded=False)
    desk.write(scaleDown={"enabled": False}, nodeGroupAutoDiscovery=OURS)

    async def observe(spec: ClusterAutoscalerSpec) -> ExternalGroups:
        raise KeyError("an unexpected defect")

    async with desk.running():
        await desk.until(lambda: "kwok/small" in str(desk.status.get("nodeGroups")), seconds=15)
        monkeypatch.setattr(desk.dependencies.sources._sources[0], "observe", observe)
        desk.wants(6, cpu="2")
        await desk.until(lambda: desk.fleet.replicas("a") > 1, seconds=15)
        await desk.until(lambda: "an unexpected defect" in str(desk.status["conditions"]), seconds=70)
    assert made(desk) == []
