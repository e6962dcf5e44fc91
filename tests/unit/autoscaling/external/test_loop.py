"""The autoscaler's whole loop over groups that no machine API has, and with a server that chooses among groups."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.autoscaling.external.test_kwok import CONFIG, MAPS, TEMPLATES
from tests.unit.autoscaling.running_autoscaler import NODES, PODS, Desk
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.controller import AutoscalerController
from trimtab.autoscaling.external import Sources
from trimtab.autoscaling.external.expander import Advisor
from trimtab.autoscaling.external.grpc_channel import CallFailed
from trimtab.autoscaling.external.kwok import kwok
from trimtab.autoscaling.groups import ExternalGroups
from trimtab.autoscaling.scale_up.expanders.advice import Question

pytestmark = [pytest.mark.looptime(start=0), pytest.mark.usefixtures("no_threads")]


class Server(Advisor):
    """Names the group whose id ends so, or does not answer."""

    def __init__(self, likes: str) -> None:
        super().__init__(None)
        self._likes = likes
        self.asked = 0

    async def _ask(self, question: Question) -> tuple[str, ...]:
        self.asked += 1
        if not self._likes:
            raise CallFailed("UNAVAILABLE", "no route")
        return tuple(offer.group for offer in question.offers if offer.group.endswith(self._likes))


def desk_with(*sources: Any, advisor: Advisor | None = None, desk: Desk | None = None) -> Desk:
    """A process with these providers beside machine APIs."""
    desk = desk or Desk()
    found = Sources(sources, advisor)
    providers = {**desk.services.providers, **found.providers}
    desk.services = replace(desk.services, sources=found, providers=providers)
    desk.controller = AutoscalerController(desk.services)
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
    return desk_with(kwok(desk.fleet, "kwok", snapshot=lambda: desk.fleet.live.present), desk=desk)


def made(desk: Desk) -> list[str]:
    return [name for name in desk.fleet.nodes() if name.startswith(("small-", "large-"))]


async def test_pods_that_wait_make_nodes_of_templates() -> None:
    desk = kwok_desk()
    desk.fleet.binds = False
    desk.write(scaleDown={"enabled": False})
    async with desk.running():
        desk.wants(6, cpu="2")
        await desk.until(lambda: len(made(desk)) == 3, seconds=15)
        await desk.until(lambda: any(each["reason"] == "TriggeredScaleUp" for each in desk.recorder.events), seconds=15)
    told = {each["id"]: each for each in desk.status["nodeGroups"]}
    assert set(told) == {"kwok/Large_1", "kwok/small"}
    assert (told["kwok/small"]["minSize"], told["kwok/small"]["maxSize"]) == (0, 5)


async def test_nodes_of_templates_go_once_nobody_needs_them() -> None:
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


async def test_a_provider_that_is_silent_is_told_in_the_status_and_the_loop_goes_on() -> None:
    class Silent:
        name = "external"
        provider: Any = None

        async def observe(self, spec: ClusterAutoscalerSpec) -> ExternalGroups:
            del spec
            from trimtab.autoscaling.groups import Problem

            problem = Problem("CloudProvider", "", "external", "ProviderUnreachable", "nobody answers")
            return ExternalGroups(problems=(problem,))

        async def close(self) -> None:
            return None

    desk = desk_with(Silent())
    desk.fleet.group("a", "a1", unneeded=False)
    desk.fleet.binds = False
    desk.write()
    async with desk.running():
        desk.wants(10)
        await desk.until(lambda: desk.fleet.replicas("a") > 1, seconds=15)
        await desk.until(lambda: "ProviderUnreachable" in str(desk.status), seconds=30)


@pytest.mark.parametrize(("likes", "grown"), [("b", "b"), ("", "a")], ids=["answers", "does not answer"])
async def test_a_server_chooses_among_groups_and_without_it_the_next_expander(likes: str, grown: str) -> None:
    server = Server(likes)
    desk = desk_with(advisor=server)
    for name in ("a", "b"):
        desk.fleet.group(name, f"{name}1", unneeded=False)
    desk.fleet.binds = False
    desk.write(expanders=["Grpc"])
    async with desk.running():
        desk.wants(12)
        await desk.until(lambda: desk.fleet.replicas(grown) == 2, seconds=15)
        await desk.until(lambda: bool(likes) or "the expander Grpc is not heard" in str(desk.status), seconds=30)
    assert server.asked
    other = {"a": "b", "b": "a"}[grown]
    assert desk.fleet.replicas(other) == 1


async def test_a_defect_in_a_provider_pauses_its_groups_and_stops_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = kwok_desk()
    desk.fleet.binds = False
    desk.fleet.group("a", "a1", unneeded=False)
    desk.write(scaleDown={"enabled": False})

    async def observe(spec: ClusterAutoscalerSpec) -> ExternalGroups:
        raise KeyError("what nobody has foreseen")

    async with desk.running():
        await desk.until(lambda: "kwok/small" in str(desk.status.get("nodeGroups")), seconds=15)
        monkeypatch.setattr(desk.services.sources._sources[0], "observe", observe)
        desk.wants(6, cpu="2")
        await desk.until(lambda: desk.fleet.replicas("a") > 1, seconds=15)
        await desk.until(lambda: "what nobody has foreseen" in str(desk.status["conditions"]), seconds=70)
    assert made(desk) == []
