"""Node groups of kwok's node templates: ConfigMaps, and created and deleted nodes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.api import FakeApi
from tests.fakes.caches import Caches
from tests.fakes.node_provider import remove_machines
from tests.fixtures.golden import Golden
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.external.kwok.source import SECONDS_UNTIL_SHOWN, Kwok, KwokProvider, NodeLedger
from trimtab.autoscaling.external.kwok.templates import KwokConfig, new_name, new_node, read_config, read_templates
from trimtab.autoscaling.groups import ExternalGroup, Groups, build_groups
from trimtab.autoscaling.providers import ScaleFailure
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.api import ApiError, Forbidden, Unreachable
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Node
from trimtab.kube.wire.decode import decode_object

NOW = 1_795_176_000.0  # 2026-11-20T12:00:00Z
SPEC = ClusterAutoscalerSpec()
MAPS = "/api/v1/namespaces/kwok/configmaps"
CONFIG = """
apiVersion: v1alpha1
readNodesFrom: configmap
nodegroups: {fromNodeLabelKey: pool}
configmap: {name: kwok-provider-templates}
"""
TEMPLATES = """
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata:
    name: small-template
    uid: gone
    annotations: {cluster-autoscaler.kwok.nodegroup/max-count: "5"}
    labels: {pool: small, kubernetes.io/hostname: small-template}
  spec: {podCIDR: 10.0.0.0/24, providerID: "kind://x", taints: [{key: team, value: x, effect: NoSchedule}]}
  status:
    allocatable: {cpu: "4", memory: 16Gi, pods: "110"}
    capacity: {cpu: "4", memory: 16Gi, pods: "110"}
    addresses: [{type: InternalIP, address: 10.0.0.1}]
- apiVersion: v1
  kind: Node
  metadata:
    name: large-template
    annotations: {cluster-autoscaler.kwok.nodegroup/min-count: "1", cluster-autoscaler.kwok.nodegroup/name: Large_1}
    labels: {pool: large}
  status: {capacity: {cpu: "16", memory: 64Gi, pods: "110"}}
- {apiVersion: v1, kind: Node, metadata: {name: no-group}}
"""


class TestConfigMaps:
    """Decoding of the ConfigMaps."""

    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("nodegroups: {fromNodeLabelKey: pool}", KwokConfig(label="pool")),
            ("nodegroups: {fromNodeAnnotationKey: a/b}", KwokConfig(annotation="a/b")),
            ("nodegroups: {fromNodeAnnotation: a/b}\nkwok: {}", KwokConfig(annotation="a/b")),
            (
                "nodegroups: {fromNodeLabelKey: pool}\nnodes: {skipTaint: true}\nconfigmap: {name: mine, key: x}",
                KwokConfig(label="pool", skip_taint=True, templates="mine"),
            ),
        ],
        ids=["label", "annotation", "documented name", "all"],
    )
    def test_configuration_is_read(self, text: str, found: KwokConfig) -> None:
        assert read_config({"config": text}) == found

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            ({}, "data: must have the key config"),
            ({"config": "nodegroups: ["}, "data[config]"),
            ({"config": "{}"}, "data[config].nodegroups: must have one of fromNodeLabelKey and fromNodeAnnotationKey"),
            (
                {"config": "nodegroups: {fromNodeLabelKey: a, fromNodeAnnotationKey: b}"},
                "data[config].nodegroups: must have one of",
            ),
            ({"config": "readNodesFrom: cluster"}, "data[config].readNodesFrom: must be configmap, not 'cluster'"),
        ],
        ids=["empty", "no YAML", "no groups", "both", "from the cluster"],
    )
    def test_invalid_configuration_is_rejected(self, data: dict[str, str], message: str) -> None:
        with pytest.raises(InputError) as refused:
            read_config(data)
        assert message in str(refused.value)

    def test_templates_become_groups(self) -> None:
        found, wrong = read_templates({"templates": TEMPLATES}, KwokConfig(label="pool"))
        assert wrong == ()
        assert [(each.group, each.minimum, each.maximum) for each in found] == [("Large_1", 1, 200), ("small", 0, 5)]
        assert found[1].node.allocatable["cpu"] == 4000
        assert {taint.key for taint in found[1].node.taints} == {"team", "kwok-provider"}

    def test_taint_can_be_left_out(self) -> None:
        config = KwokConfig(label="pool", skip_taint=True)
        found, _ = read_templates({"templates": TEMPLATES}, config)
        assert [taint.key for taint in found[1].node.taints] == ["team"]

    @pytest.mark.parametrize(
        ("annotations", "message"),
        [
            ({"min-count": "-1"}, "min-count must be a whole number from 0 on, not '-1'"),
            ({"max-count": "many"}, "max-count must be a whole number from 0 on, not 'many'"),
            ({"min-count": "3", "max-count": "2"}, "2 is less than 3"),
        ],
        ids=["negative", "no number", "max below min"],
    )
    def test_invalid_template_does_not_affect_others(self, annotations: dict[str, str], message: str) -> None:
        lines = "".join(
            f'      cluster-autoscaler.kwok.nodegroup/{key}: "{text}"\n' for key, text in annotations.items()
        )
        bad = "- kind: Node\n  metadata:\n    name: bad\n    labels: {pool: bad}\n    annotations:\n" + lines
        found, wrong = read_templates({"templates": TEMPLATES + bad}, KwokConfig(label="pool"))
        assert [each.group for each in found] == ["Large_1", "small"]
        (observed,) = wrong
        assert observed.startswith("data[templates].items[3]: ")
        assert message in observed

    def test_text_without_nodes_is_rejected(self, golden: Golden) -> None:
        with pytest.raises(InputError) as raised:
            read_templates({}, KwokConfig(label="pool"))
        golden(str(raised.value))
        with pytest.raises(InputError, match=r"data\[templates\]"):
            read_templates({"templates": "a: ["}, KwokConfig(label="pool"))

    def test_new_node_has_no_fields_of_the_template_itself(self) -> None:
        found, _ = read_templates({"templates": TEMPLATES}, KwokConfig(label="pool"))
        made = new_node(found[1], "small-1", KwokConfig(label="pool"))
        assert made["metadata"] == {
            "name": "small-1",
            "labels": {"pool": "small", "kubernetes.io/hostname": "small-1"},
            "annotations": {
                "cluster-autoscaler.kwok.nodegroup/max-count": "5",
                "cluster-autoscaler.kwok.nodegroup/name": "small",
                "kwok.x-k8s.io/node": "fake",
                "metrics.k8s.io/resource-metrics-path": "/metrics/nodes/small-1/metrics/resource",
            },
        }
        assert made["spec"] == {
            "providerID": "kwok:small-1",
            "taints": [
                {"key": "team", "value": "x", "effect": "NoSchedule"},
                {"key": "kwok-provider", "value": "true", "effect": "NoSchedule"},
            ],
        }
        assert set(made["status"]) == {"allocatable", "capacity", "nodeInfo"}
        assert found[1].manifest["metadata"]["name"] == "small-template"

    @pytest.mark.parametrize(
        ("group", "name"),
        [("Large_1", "large-1-x"), ("_", "x"), ("a" * 80, "a" * 50 + "-x"), ("pool.b/c", "pool-b-c-x")],
    )
    def test_node_name_is_valid_for_any_group_name(self, group: str, name: str) -> None:
        assert new_name(group, "x") == name


class World:
    """An API server with the ConfigMaps, and caches that are updated by `look`."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.put("kwok-provider-config", config=CONFIG)
        self.put("kwok-provider-templates", templates=TEMPLATES)
        self.snapshot = Snapshot([])
        self.caches = Caches()
        self.time = 0.0
        numbers = iter(range(100))
        ledger = NodeLedger(self.caches.lister, monotonic=lambda: self.time)
        self.provider = KwokProvider(self.api, ledger, suffix=lambda: str(next(numbers)))
        self.source = Kwok(self.api, "kwok", ledger, self.provider)

    def put(self, name: str, **data: str) -> None:
        self.api.put(f"{MAPS}/{name}", {"kind": "ConfigMap", "metadata": {"name": name}, "data": data})

    def look(self) -> None:
        nodes = [obj for path, obj in self.api.objects.items() if path.startswith("/api/v1/nodes/")]
        found = [decode_object({**each, "apiVersion": "v1", "kind": "Node"}) for each in nodes]
        self.caches.nodes.replace(each for each in found if isinstance(each, Node))
        self.snapshot = Snapshot(list(self.caches.nodes))

    async def observed(self) -> dict[str, ExternalGroup]:
        return {each.name: each for each in (await self.source.observe(SPEC)).groups}

    async def groups(self) -> Groups:
        return build_groups(self.snapshot, external=await self.source.observe(SPEC))

    @property
    def names(self) -> list[str]:
        return sorted(path.rpartition("/")[2] for path in self.api.objects if path.startswith("/api/v1/nodes/"))


@pytest.fixture
def world() -> World:
    return World()


class TestGroups:
    """Groups of ConfigMaps and nodes, and changes of these groups."""

    async def test_size_is_the_number_of_nodes_and_survives_a_restart(self, world: World) -> None:
        found = await world.groups()
        assert [(each.id, each.minimum, each.maximum, each.target) for each in found.all] == [
            ("kwok/Large_1", 1, 200, 0),
            ("kwok/small", 0, 5, 0),
        ]
        assert (await world.provider.increase(found.by_id["kwok/small"], 3)).done
        assert world.names == ["small-0", "small-1", "small-2"]
        world.look()
        restarted = NodeLedger(world.caches.lister, monotonic=lambda: 0.0)
        source = Kwok(world.api, "kwok", restarted, KwokProvider(world.api, restarted))
        made = build_groups(world.snapshot, external=await source.observe(SPEC)).by_id["kwok/small"]
        assert (made.target, made.nodes, made.upcoming) == (3, ("small-0", "small-1", "small-2"), 0)

    async def test_nodes_missing_in_the_cache_are_not_created_twice(self, world: World) -> None:
        group = (await world.groups()).by_id["kwok/small"]
        assert (await world.provider.increase(group, 2)).done
        again = (await world.groups()).by_id["kwok/small"]
        assert (again.target, again.upcoming) == (2, 2)
        conflict = await world.provider.increase(group, 2)
        assert (conflict.failure, len(world.names)) == (ScaleFailure.CONFLICT, 2)

    async def test_node_that_never_appears_stops_counting(self, world: World) -> None:
        group = (await world.groups()).by_id["kwok/small"]
        await world.provider.increase(group, 2)
        world.time = SECONDS_UNTIL_SHOWN + 1
        assert (await world.groups()).by_id["kwok/small"].target == 0

    async def test_deleted_nodes_in_the_cache_do_not_count(self, world: World) -> None:
        await world.provider.increase((await world.groups()).by_id["kwok/small"], 3)
        world.look()
        group = (await world.groups()).by_id["kwok/small"]
        removal = await remove_machines(world.provider, group, group.machines[:2], now=NOW)
        assert (removal.done, removal.machines) == (True, ("kwok:small-0", "kwok:small-1"))
        assert (world.names, removal.others) == (["small-2"], ("kwok:small-2",))
        assert world.api.sent("DELETE")[0].body["preconditions"]["uid"]
        assert (await world.groups()).by_id["kwok/small"].target == 1

    async def test_created_nodes_stay_and_failures_are_reported(self, world: World) -> None:
        group = (await world.groups()).by_id["kwok/small"]
        world.api.fail(ApiError("no", status=403, reason="Forbidden"), times=2, method="POST")
        scaled = await world.provider.increase(group, 3)
        assert (scaled.failure, scaled.doubt, len(world.names)) == (ScaleFailure.REFUSED, True, 1)
        assert scaled.message.startswith("2 of 3 requests failed: ")
        assert (await world.groups()).by_id["kwok/small"].target == 1

    async def test_missing_permission_is_not_a_refusal(self, world: World) -> None:
        group = (await world.groups()).by_id["kwok/small"]
        message = 'nodes is forbidden: User "system:serviceaccount:a:b" cannot create resource "nodes" in API group ""'
        world.api.fail(Forbidden(message, status=403, reason="Forbidden"), times=2, method="POST")
        scaled = await world.provider.increase(group, 2)
        assert (scaled.failure, scaled.doubt) == (ScaleFailure.FORBIDDEN, False)

    async def test_limits_are_respected(self, world: World, golden: Golden) -> None:
        large = (await world.groups()).by_id["kwok/Large_1"]
        assert (await world.provider.increase(large, 1)).done
        world.look()
        large = (await world.groups()).by_id["kwok/Large_1"]
        golden((await remove_machines(world.provider, large, large.machines, now=NOW)).message)
        assert (await world.provider.increase(large, 201)).failure is ScaleFailure.REFUSED
        assert (await world.provider.lower(large, 0)).failure is ScaleFailure.REFUSED

    async def test_nodes_of_other_origin_are_never_deleted(self, world: World) -> None:
        foreign: dict[str, Any] = {
            "metadata": {
                "name": "real",
                "uid": "u",
                "annotations": {"cluster-autoscaler.kwok.nodegroup/name": "small"},
            },
            "spec": {"providerID": "aws:///x"},
        }
        world.api.put("/api/v1/nodes/real", foreign)
        world.look()
        assert (await world.groups()).by_id["kwok/small"].target == 0

    async def test_problems_of_the_config_maps_are_reported(self, world: World, golden: Golden) -> None:
        world.put("kwok-provider-config", config="{}")
        observed = await world.source.observe(SPEC)
        assert observed.groups == ()
        (problem,) = observed.problems
        assert (problem.kind, problem.name, problem.reason) == (
            "ConfigMap",
            "kwok-provider-config",
            "InvalidProviderConfig",
        )
        del world.api.objects[f"{MAPS}/kwok-provider-config"]
        (problem,) = (await world.source.observe(SPEC)).problems
        golden(problem.message)

    async def test_groups_are_paused_while_the_api_server_is_down(self, world: World, golden: Golden) -> None:
        assert len((await world.source.observe(SPEC)).groups) == 2
        world.api.fail(Unreachable("no route"))
        observed = await world.source.observe(SPEC)
        assert len(observed.groups) == 2
        for each in observed.groups:
            golden(each.paused)
        assert [each.reason for each in observed.problems] == ["ProviderUnreachable"]
        assert not any(each.paused for each in (await world.source.observe(SPEC)).groups)

    async def test_group_without_template_is_not_scaled_up(self, world: World) -> None:
        group = (await world.groups()).by_id["kwok/small"]
        world.put("kwok-provider-templates", templates="{apiVersion: v1, kind: List, items: []}")
        assert await world.observed() == {}
        assert (await world.provider.increase(group, 1)).failure is ScaleFailure.NOT_FOUND
