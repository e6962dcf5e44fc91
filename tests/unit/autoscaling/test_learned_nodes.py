"""Records of a group's nodes: when they are written, and templates that use them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import (
    cluster_machine_set,
    csi_node,
    daemon_set,
    machine_deployment,
    machine_pool,
    machine_set,
    node,
    pod,
)
from tests.fakes.api import FakeApi
from tests.fixtures.golden import Golden
from tests.machines import CAPACITY
from tests.unit.autoscaling.scale_up_helpers import pending_pod, planned, sizes
from trimtab.autoscaling.groups import NodeGroup, build_groups
from trimtab.autoscaling.template import NodeTemplate, TemplateOrigin, Templates, build_templates
from trimtab.autoscaling.template.learned_node import MAX_TEXT, LearnedNode, NodeOverhead, decode, encode
from trimtab.autoscaling.template.recording import LearnedNodePatch, LearnedNodeWriter, next_records, rules
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.api import Forbidden
from trimtab.kube.frozen import Labels, ResourceList
from trimtab.kube.objects import NodeDriver, Taint

NOW = 1_795_176_000.0  # 2026-11-20T12:00:00Z
LONG_AGO, RECENTLY, JUST_NOW = "2026-11-20T10:00:00Z", "2026-11-20T11:50:00Z", "2026-11-20T11:59:30Z"
KEY = "trimtab.dev/learned-node"
GIB = 1 << 30
SOON = 300


class World:
    """A cluster with one group and its record, over several iterations."""

    def __init__(self, owner: Any, *others: Any) -> None:
        self.owner = owner
        self.others = list(others)
        self.writes = 0

    def look(self, *, now: float = NOW) -> tuple[NodeGroup, Templates, Snapshot]:
        snapshot = Snapshot([each.build() for each in (self.owner, *self.others)])
        found = build_groups(snapshot)
        return found.all[0], build_templates(snapshot, found.all, now=now), snapshot

    def wanted(self, *, now: float = NOW, **options: Any) -> tuple[LearnedNodePatch, ...]:
        group, made, snapshot = self.look(now=now)
        return next_records([group], made, snapshot, now, **options)

    def record(self, *, now: float = NOW, **options: Any) -> bool:
        """Run one iteration; return whether it wrote a record."""
        for each in self.wanted(now=now, **options):
            self.owner.annotations({KEY: each.text})
            self.writes += 1
            return True
        return False

    @property
    def learned(self) -> LearnedNode:
        return decode(self.look()[0].template.annotations[KEY])

    def template(self) -> NodeTemplate:
        (made,) = self.look()[1].of_group.values()
        return made

    def problems(self) -> list[str]:
        return [each.reason for each in self.look()[1].problems]


def workers(kind: Any = machine_set) -> Any:
    return kind().limits(0, 9).replicas(1)


def settled(name: str = "n1", created: str = LONG_AGO, **amounts: str) -> Any:
    given: dict[str, str | int] = {"cpu": "3500m", "memory": "14Gi", **amounts}
    return node(name).created(created).condition("Ready", "True", since=created).allocatable(given)


def rent(owner: Any, size: str) -> None:
    owner._at("spec", "template", "spec").update(providerSpec={"value": {"instanceType": size}})


def recorded(owner: Any, *others: Any, **options: Any) -> World:
    """A cluster whose node was recorded and then deleted with its pods."""
    world = World(owner, owner.machine("m").on("n1"), *(others or (settled(),)))
    assert world.record(**options)
    world.others = []
    return world


class TestReadingBack:
    @pytest.mark.parametrize("kind", [machine_set, machine_deployment, machine_pool])
    def test_group_without_nodes_uses_its_record(self, kind: Any, golden: Golden) -> None:
        owner = workers(kind)
        sample = settled().labels(pool="x", disk="ssd").taint("dedicated", "db").capacity(cpu="4", memory="16Gi")
        drivers = csi_node("n1").driver("ebs", 25)

        world = World(owner, sample, drivers)
        if kind is machine_pool:
            owner._at("status")["nodeRefs"] = [{"name": "n1", "uid": "node--n1"}]
        else:
            world.others.append(owner.machine("m").on("n1"))
            if kind is machine_deployment:
                world = _of_deployment(owner, sample, drivers)
        before = world.template()
        assert before.origin is TemplateOrigin.LEARNED
        assert world.record()
        world.others = []
        owner._at("status").pop("nodeRefs", None)
        after = world.template()

        assert (after.origin, after.sample) == (TemplateOrigin.RECORDED, "n1")
        assert (after.node.labels, after.node.taints) == (before.node.labels, before.node.taints)
        assert (after.node.allocatable, after.node.capacity) == (before.node.allocatable, before.node.capacity)
        assert after.drivers is not None
        assert after.drivers.drivers == (NodeDriver("ebs", 25),)
        golden(after.assumptions[0])
        assert not world.problems()

    def test_record_is_preferred_to_capacity_annotations(self) -> None:
        world = recorded(workers().capacity(cpu="4", memory="16Gi"))

        assert world.template().node.allocatable["cpu"] == 3500
        assert world.template().origin is TemplateOrigin.RECORDED

    def test_record_is_preferred_to_an_unhealthy_node(self) -> None:
        world = recorded(workers())
        world.others = [world.owner.machine("m").on("n2"), settled("n2", cpu="1").not_ready()]

        assert world.template().node.allocatable["cpu"] == 3500

    def test_ready_node_is_preferred_to_the_record(self) -> None:
        world = recorded(workers())
        world.others = [world.owner.machine("m").on("n2"), settled("n2", cpu="1")]

        assert (world.template().origin, world.template().sample) == (TemplateOrigin.LEARNED, "n2")

    @pytest.mark.parametrize(
        "change",
        [
            lambda owner: rent(owner, "m5.large"),
            lambda owner: owner.annotations({f"{CAPACITY}/labels": "pool=new"}),
            lambda owner: owner.capacity(cpu="8", memory="16Gi"),
            lambda owner: owner.capacity(cpu="4", memory="32Gi"),
            lambda owner: owner.annotations({f"{CAPACITY}/gpu-count": "1", f"{CAPACITY}/gpu-type": "nvidia.com/gpu"}),
        ],
        ids=["machine type", "annotated labels", "cpu", "memory", "gpu"],
    )
    def test_changed_template_invalidates_the_record(self, change: Any) -> None:
        world = recorded(workers().capacity(cpu="4", memory="16Gi"), settled().capacity(cpu="4", memory="15500Mi"))
        assert world.template().origin is TemplateOrigin.RECORDED

        change(world.owner)

        assert world.template().origin is TemplateOrigin.ANNOTATIONS
        assert world.problems() == ["LearnedNodeOutdated"]

    def test_changed_labels_and_taints_count_at_once(self) -> None:
        """The procedure in OpenShift's documentation: change the MachineSet's taints, scale it to 0 and up again."""
        owner = workers().node_labels(pool="old", gone="x").node_taint("old").node_taint("dedicated", "db")
        machine = owner.machine("m").on("n1").node_labels(pool="old", gone="x")
        machine.node_taint("old").node_taint("dedicated", "db")
        sample = settled(cpu="7").labels(pool="old", gone="x", disk="ssd").taint("old").taint("dedicated", "db")
        world = World(owner, machine, sample.taint("by-kubelet"))
        assert world.record()
        world.others = []

        for each in ("labels", "taints"):
            where = ("spec", "template", "spec") if each == "taints" else ("spec", "template", "spec", "metadata")
            owner._at(*where).pop(each)
        owner.node_labels(pool="new").node_taint("dedicated", "web").node_taint("new")

        made = world.template()
        assert (made.origin, made.node.allocatable["cpu"]) == (TemplateOrigin.RECORDED, 7000)
        assert made.node.labels == {"pool": "new", "disk": "ssd"}
        assert [(each.key, each.value) for each in made.node.taints] == [
            ("by-kubelet", ""),
            ("dedicated", "web"),
            ("new", ""),
        ]
        assert not world.problems()
        assert not world.record(now=NOW + 7200)

    def test_changed_template_of_a_machine_pool_invalidates_the_record(self) -> None:
        owner = workers(machine_pool).capacity(cpu="4", memory="16Gi")
        owner._at("status")["nodeRefs"] = [{"name": "n1", "uid": "node--n1"}]
        world = World(owner, settled().capacity(cpu="4", memory="16Gi"))
        assert world.record()
        world.others = []

        owner.node_taint("new")

        assert world.template().origin is TemplateOrigin.ANNOTATIONS
        assert world.problems() == ["LearnedNodeOutdated"]

    @pytest.mark.parametrize(
        "change",
        [
            lambda owner: owner.capacity(cpu="4", memory="16Gi"),
            lambda owner: owner.annotations({"trimtab.dev/reserved": "cpu=1"}),
            lambda owner: owner.annotations({"trimtab.dev/price": "0.2"}),
            lambda owner: owner.limits(1, 3).replicas(2),
            lambda owner: owner._at("spec", "template", "spec").update(providerSpec={"value": {"ami": {"id": "a-2"}}}),
        ],
        ids=["matching annotations", "a reserve", "a price", "sizes", "an image"],
    )
    def test_irrelevant_change_keeps_the_record(self, change: Any) -> None:
        world = recorded(workers(), settled().capacity(cpu="4", memory="15500Mi"))

        change(world.owner)

        assert world.template().origin is TemplateOrigin.RECORDED
        assert not world.problems()

    @pytest.mark.parametrize(
        ("kind", "spec", "expected"),
        [
            (machine_set, {"providerSpec": {"value": {"vmSize": "D4", "image": "x"}}}, '{"vmSize":"D4"}'),
            (
                machine_set,
                {"providerSpec": {"value": {"memoryMiB": 8192, "numCPUs": 4}}},
                '{"memoryMiB":8192,"numCPUs":4}',
            ),
            (machine_deployment, {"infrastructureRef": {"name": "m5", "kind": "T"}}, '{"kind":"T","name":"m5"}'),
            (machine_pool, {"infrastructureRef": {"name": "m5"}}, '{"name":"m5"}'),
            (machine_set, {"providerSpec": None, "infrastructureRef": None}, ""),
            (machine_set, {"providerSpec": {"value": "free text"}}, ""),
            (machine_set, {"providerSpec": ["odd"], "infrastructureRef": 7}, ""),
            (machine_set, {}, ""),
        ],
        ids=["azure", "vsphere", "deployment", "pool", "nulls", "text", "odd", "nothing"],
    )
    def test_machine_type_is_read_for_each_provider(self, kind: Any, spec: Any, expected: str) -> None:
        owner = workers(kind)
        owner._at("spec", "template", "spec").update(spec)

        assert World(owner).look()[0].template.machine_type == expected

    def test_labels_of_the_template_override_the_record(self) -> None:
        world = recorded(workers().node_labels(pool="x"), settled().labels(pool="y", disk="ssd"))

        assert world.template().node.labels == {"pool": "x", "disk": "ssd"}

    @pytest.mark.parametrize("there", [True, False], ids=["still on the node", "removed from the node since"])
    def test_initial_taint_counts_as_on_the_recorded_node(self, there: bool) -> None:
        owner = workers(cluster_machine_set).node_taint("once", propagation="OnInitialization").node_taint("kept")
        machine, sample = owner.machine("m").on("n1").node_taint("once").node_taint("kept"), settled().taint("kept")
        world = World(owner, machine, sample.taint("once") if there else sample)
        assert world.record()
        world.others = []

        assert [each.key for each in world.template().node.taints] == ["kept", *(["once"] if there else [])]

    def test_labels_and_taints_of_a_former_template_are_not_recorded(self) -> None:
        owner = workers().node_labels(pool="new").node_taint("new")
        machine = owner.machine("m").on("n1").node_labels(pool="old", gone="x").node_taint("old")
        world = World(owner, machine, settled().labels(pool="old", gone="x").taint("old").taint("other"))
        assert world.record()
        world.others = []

        made = world.template().node
        assert (made.labels, [each.key for each in made.taints]) == ({"pool": "new"}, ["new", "other"])

    def test_static_and_daemon_set_pods_are_counted(self) -> None:
        static = pod("proxy-n1", "kube-system").on("n1").cpu("250m").mirror()
        agent = pod("agent-1").on("n1").cpu("100m").owned_by("DaemonSet", "agent")
        world = recorded(workers(), settled(), static, agent)
        alone = world.template()
        world.others = [
            daemon_set("agent").of_pods(pod().cpu("300m")),
            daemon_set("other").of_pods(pod().cpu("50m").node_selector(pool="none")),
        ]
        template = world.template()

        assert alone.node.allocatable["cpu"] - alone.free["cpu"] == 350
        assert (len(alone.pods), alone.free["pods"]) == (2, alone.node.allocatable["pods"] - 2)
        assert template.node.allocatable["cpu"] - template.free["cpu"] == 550

    def test_forged_static_pod_is_not_recorded(self) -> None:
        world = recorded(workers(), settled(), pod("x", "tenant").on("n1").cpu("250m").mirror().phase("Pending"))

        assert world.learned.static == NodeOverhead()

    def test_pods_are_planned_onto_a_recorded_node(self, golden: Golden) -> None:
        world = recorded(workers().replicas(1), settled(cpu="2").labels(disk="ssd"))
        world.owner.replicas(0)

        made = planned(world.owner, *(pending_pod(f"p{each}").node_selector(disk="ssd") for each in range(4)))

        assert sizes(made) == {"workers-a": (0, 2)}
        golden(made.actions[0].message)


def _of_deployment(owner: Any, *others: Any) -> World:
    between = cluster_machine_set("md-1").owned_by("MachineDeployment", "md")
    return World(owner, between, between.machine("m").on("n1"), *others)


def written(**changes: Any) -> dict[str, Any]:
    """A valid annotation as JSON, with changes; ``None`` removes a field."""
    good = {
        "v": 1,
        "at": "2026-11-20T10:00:00Z",
        "of": "0" * 16,
        "allocatable": {"cpu": "3500m", "memory": "14Gi", "pods": "110"},
        "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"},
    }
    return {key: value for key, value in {**good, **changes}.items() if value is not None}


class TestValidation:
    def test_valid_record_is_read(self) -> None:
        assert decode(json.dumps(written())).allocatable == {"cpu": 3500, "memory": 14 * GIB, "pods": 110}

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "is not JSON"),
            ("{", "is not JSON"),
            ("[]", "Expected `object`"),
            (" " * (MAX_TEXT + 1), "is too long: 8193 characters, and at most 8192"),
            (json.dumps(written(v=2)), "$.v"),
            (json.dumps(written(v=None)), "required field `v`"),
            (json.dumps(written(at="yesterday")), "$.at"),
            (json.dumps(written(at="2026-11-20T10:00:00")), "at must be an RFC 3339 time"),
            (json.dumps(written(at="1066-10-14T10:00:00Z")), "at must be an RFC 3339 time"),
            (json.dumps(written(at="9999-12-31T23:59:59-14:00")), "at must be an RFC 3339 time"),
            (json.dumps(written(allocatable=None)), "allocatable.cpu must be more than 0"),
            (json.dumps(written(allocatable={"cpu": "1", "memory": "1Gi"})), "allocatable.pods must be more than 0"),
            (json.dumps(written(allocatable={"cpu": "x"})), "allocatable.cpu: 'x' is not a quantity"),
            (json.dumps(written(allocatable={"cpu": "-1"})), "allocatable.cpu must be from 0 to 10k, not -1"),
            (json.dumps(written(allocatable={"cpu": "20k"})), "allocatable.cpu must be from 0 to 10k, not 20k"),
            (json.dumps(written(allocatable={"cpu": 1})), "Expected `str`"),
            (json.dumps(written(capacity={"cpu": "2"})), "allocatable.cpu must not be more than capacity.cpu"),
            (json.dumps(written(capacity={"memory": "2Ei"})), "capacity.memory must be from 0 to 1Pi"),
            (json.dumps(written(capacity={"a b": "1"})), "capacity.a b must be"),
            (json.dumps(written(labels={"pool": "a b"})), "labels: pool=a b cannot be"),
            (json.dumps(written(labels={"kubernetes.io/hostname": "n1"})), "cannot be a label of several nodes"),
            (json.dumps(written(labels={f"l{each}": "" for each in range(257)})), "$.labels"),
            (
                json.dumps(written(taints=["dedicated"])),
                "taints must have the form key=value:NoSchedule, not 'dedicated'",
            ),
            (json.dumps(written(taints=["a=b:Never"])), "taints must have the form"),
            (json.dumps(written(drivers={"ebs": -1})), "drivers.ebs must be at least 0"),
            (json.dumps(written(boot=-1)), "$.boot"),
            (json.dumps(written(boot=1e9)), "$.boot"),
            (json.dumps(written(static={"pods": 20000})), "$.static.pods"),
            (json.dumps(written(daemons={"requests": {"cpu": "-1"}})), "daemons.requests.cpu must be from 0"),
        ],
    )
    def test_impossible_record_is_rejected(self, text: str, words: str) -> None:
        with pytest.raises(ValueError) as raised:
            decode(text)

        assert words in str(raised.value)

    def test_invalid_record_is_reported_and_annotations_are_used(self) -> None:
        world = World(workers().capacity(cpu="4", memory="16Gi").annotations({KEY: "{"}))

        assert world.template().origin is TemplateOrigin.ANNOTATIONS
        assert world.problems() == ["InvalidLearnedNode"]
        assert not world.record()

    def test_invalid_record_is_replaced_once_a_node_exists(self) -> None:
        owner = workers().annotations({KEY: "{"})
        world = World(owner, owner.machine("m").on("n1"), settled())

        assert not world.problems()
        assert world.record()
        assert world.learned.node == "n1"

    def test_state_taints_in_a_record_are_ignored(self) -> None:
        found = decode(json.dumps(written(taints=["node.kubernetes.io/not-ready:NoExecute", "a=b:NoSchedule"])))

        assert found.taints == (Taint("a", "NoSchedule", "b"),)

    def test_unknown_fields_are_ignored(self) -> None:
        assert decode(json.dumps(written(later={"a": 1}))).known


NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
AMOUNTS = st.dictionaries(NAMES | st.just("example.com/gpu"), st.integers(0, 1 << 50), max_size=4)
TIMES = st.integers(0, 4_000_000_000).map(float)


@st.composite
def learned_nodes(draw: st.DrawFn) -> LearnedNode:
    capacity = {
        **draw(AMOUNTS),
        "cpu": draw(st.integers(1, 10_000_000)),
        "memory": draw(st.integers(1, 1 << 50)),
        "pods": draw(st.integers(1, 10_000)),
    }
    taints = draw(st.lists(st.tuples(NAMES, st.sampled_from(("NoSchedule", "NoExecute")), NAMES | st.just(""))))
    return LearnedNode(
        recorded_at=draw(TIMES),
        template_digest=draw(NAMES),
        capacity_digest=draw(NAMES | st.just("")),
        template_since=draw(st.none() | TIMES),
        node=draw(NAMES | st.just("")),
        allocatable=ResourceList({name: draw(st.integers(1, amount)) for name, amount in capacity.items() if amount}),
        capacity=ResourceList(capacity),
        labels=Labels(draw(st.dictionaries(NAMES, NAMES | st.just(""), max_size=5))),
        taints=tuple(Taint(*each) for each in taints[:10]),
        drivers=draw(
            st.none()
            | st.dictionaries(NAMES, st.none() | st.integers(0, 1000), max_size=3).map(
                lambda found: tuple(NodeDriver(name, found[name]) for name in sorted(found))
            )
        ),
        daemons=NodeOverhead(draw(st.integers(0, 110)), ResourceList(draw(AMOUNTS))),
        static=NodeOverhead(draw(st.integers(0, 110)), ResourceList(draw(AMOUNTS))),
        boot_seconds=draw(st.none() | st.integers(0, 864_000).map(lambda tenths: tenths / 10)),
    )


@given(learned_nodes())
def test_encoding_and_decoding_are_inverse(learned: LearnedNode) -> None:
    assert decode(encode(learned)) == learned
    assert encode(decode(encode(learned))) == encode(learned)


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), lambda each: st.lists(each)).map(json.dumps))
def test_any_text_is_decoded_or_reported(text: str) -> None:
    world = World(workers().capacity(cpu="4", memory="16Gi").annotations({KEY: text}))

    assert world.template().origin is TemplateOrigin.ANNOTATIONS
    assert world.problems() == (["InvalidLearnedNode"] if text else [])


class TestWriting:
    def test_nothing_is_written_without_a_change(self) -> None:
        owner = workers()
        world = World(owner, owner.machine("m").on("n1"), settled())

        assert [world.record(now=NOW + 10 * each) for each in range(5)] == [True, False, False, False, False]
        assert not world.record(now=NOW + 86_400)

    @pytest.mark.parametrize(
        ("sample", "after"),
        [
            (settled(cpu="3"), SOON),
            (settled(memory="15Gi"), SOON),
            (settled().labels(pool="x"), SOON),
            (settled().taint("dedicated"), SOON),
            (settled().allocatable({"example.com/gpu": "1"}), SOON),
            (settled(memory="14436Mi"), None),
            (settled().annotations({"trimtab.dev/x": "y"}), None),
        ],
        ids=["cpu", "memory", "label", "taint", "device", "a little memory", "annotation"],
    )
    def test_relevant_changes_are_written_soon(self, sample: Any, after: int | None) -> None:
        owner = workers()
        world = World(owner, owner.machine("m").on("n1"), settled())
        world.record()
        world.others[1] = sample

        times = [each for each in range(10, 7200, 10) if world.record(now=NOW + each)]

        assert times == ([] if after is None else [after])

    def test_overhead_is_written_once_an_hour(self) -> None:
        owner = workers()
        world = World(owner, owner.machine("m").on("n1"), settled())
        world.record()
        world.others.append(pod("agent-1").on("n1").cpu("100m").owned_by("DaemonSet", "agent"))

        times = [each for each in range(60, 7200, 60) if world.record(now=NOW + each)]

        assert times == [3600]
        assert world.learned.daemons == NodeOverhead(1, ResourceList(cpu=100))

    def test_boot_time_is_kept(self) -> None:
        owner = workers()
        world = World(owner, owner.machine("m").on("n1"), settled())
        id_ = "MachineSet/openshift-machine-api/workers-a"

        assert world.record(boots={id_: 95.0})
        assert not world.record(now=NOW + 7200, boots={id_: 100.0})
        assert not world.record(now=NOW + 7200, boots={id_: None})
        assert world.record(now=NOW + 7200, boots={id_: 200.0})
        assert world.learned.boot_seconds == 200

    @pytest.mark.parametrize(
        "sample",
        [
            settled().not_ready(),
            settled().cordoned(),
            settled(created=JUST_NOW),
            settled().taint("ToBeDeletedByClusterAutoscaler", "1"),
        ],
        ids=["not ready", "cordoned", "ready for too short", "deleting"],
    )
    def test_unsettled_node_is_not_recorded(self, sample: Any) -> None:
        owner = workers()

        assert not World(owner, owner.machine("m").on("n1"), sample).record()

    def test_labels_in_which_nodes_differ_are_left_out(self) -> None:
        owner = workers()
        world = World(owner)
        for each in range(3):
            world.others += [
                owner.machine(f"m{each}").on(f"n{each}"),
                settled(f"n{each}").labels(rack=f"r{each}", a="b"),
            ]

        assert world.record()
        assert world.learned.labels == {"a": "b"}
        world.others += [owner.machine("m9").on("n9"), settled("n9", created=RECENTLY).labels(rack="r9", a="b")]
        assert not world.record(now=NOW + 7200)

    def test_node_without_its_devices_is_not_recorded_yet(self) -> None:
        owner = workers()
        world = World(owner, owner.machine("m").on("n1"), settled().allocatable({"nvidia.com/gpu": "2"}))
        world.record()
        world.others = [owner.machine("m").on("n2"), settled("n2", created=RECENTLY)]

        assert not world.record(now=NOW + 600)
        assert world.learned.allocatable["nvidia.com/gpu"] == 2
        assert world.record(now=NOW + 1800)
        assert "nvidia.com/gpu" not in world.learned.allocatable

    def test_nodes_older_than_a_template_change_are_not_recorded(self) -> None:
        owner = workers()
        world = World(owner, owner.machine("m").on("n1"), settled().labels(pool="old"))
        world.record()
        rent(owner, "large")

        assert world.record(now=NOW + 10)
        assert not world.learned.known
        assert not world.record(now=NOW + 7200)

        world.others += [owner.machine("m2").on("n2"), settled("n2", created="2026-11-20T13:00:00Z", cpu="9")]
        assert world.record(now=NOW + 7200)
        assert (world.learned.node, world.learned.allocatable["cpu"]) == ("n2", 9000)

    def test_after_a_template_change_without_nodes_annotations_are_used(self) -> None:
        world = recorded(workers().capacity(cpu="4", memory="16Gi"), settled().capacity(cpu="4", memory="16Gi"))
        world.owner.capacity(cpu="8", memory="32Gi")
        assert world.problems() == ["LearnedNodeOutdated"]

        assert world.record()

        assert not world.problems()
        assert world.template().node.capacity["cpu"] == 8000
        assert not world.record(now=NOW + 86_400)

    def test_time_in_the_future_does_not_prevent_writing(self) -> None:
        owner = workers()
        world = World(owner, owner.machine("m").on("n1"), settled())
        world.record(now=NOW + 1e6)
        world.others[1] = settled(cpu="1")

        assert world.record()

    def test_too_long_record_is_not_written(self) -> None:
        owner = workers()
        sample = settled().labels({f"example.com/{'x' * 50}-{each}": "y" * 60 for each in range(200)})

        assert not World(owner, owner.machine("m").on("n1"), sample).record()

    def test_groups_without_an_object_are_skipped(self) -> None:
        owner = workers()
        group, made, snapshot = World(owner, owner.machine("m").on("n1"), settled()).look()

        assert not next_records([replace(group, api_version="external")], made, snapshot, NOW)
        assert not next_records([replace(group, uid="")], made, snapshot, NOW)


PATH = "/apis/machine.openshift.io/v1beta1/namespaces/openshift-machine-api/machinesets/workers-a"


def recording(uid: str = "u") -> LearnedNodePatch:
    owner = workers()
    world = World(owner, owner.machine("m").on("n1"), settled())
    (made,) = world.wanted()
    return replace(made, group=replace(made.group, uid=uid))


class TestPatches:
    async def test_patch_includes_the_uid(self) -> None:
        api = FakeApi()
        api.objects[PATH] = {"metadata": {"name": "workers-a", "uid": "u"}, "spec": {"replicas": 1}}
        record = recording()

        (done,) = await LearnedNodeWriter(api).write([record])

        assert not done.message
        assert api.objects[PATH]["metadata"]["annotations"] == {KEY: record.text}
        (call,) = api.calls
        assert (call.method, call.path, call.body["metadata"]["uid"]) == ("PATCH", PATH, "u")

    async def test_write_is_not_repeated_before_it_is_visible_and_failures_are_retried_later(self) -> None:
        api, times = FakeApi(), [0.0]
        learned = LearnedNodeWriter(api, clock=lambda: times[0])
        api.objects[PATH] = {"metadata": {"name": "workers-a", "uid": "u"}}
        tried = []
        for times[0] in (0, 10, 40, 100, 341):
            if times[0] == 40:
                api.fail(Forbidden("no", status=403, reason="Forbidden"))
            tried.append([each.message for each in await learned.write([recording()])])

        assert tried == [[""], [], ["no"], [], [""]]

    async def test_hanging_group_does_not_delay_others(self, golden: Golden) -> None:
        class Hanging(FakeApi):
            async def request(self, method: str, path: str, **more: Any) -> Any:
                if path == PATH:
                    await asyncio.sleep(3600)
                return await super().request(method, path, **more)

        api = Hanging()
        other = recording("v")
        other = replace(other, group=replace(other.group, name="b", id="b"))
        api.objects[PATH.replace("workers-a", "b")] = {"metadata": {"name": "b", "uid": "v"}}

        done = await LearnedNodeWriter(api, request_seconds=0.01).write([recording(), other])

        assert [each.message == "" for each in done] == [False, True]
        golden(done[0].message)

    def test_permissions_are_to_patch_group_objects(self) -> None:
        assert {(rule["apiGroups"][0], *rule["verbs"]) for rule in rules()} == {
            ("machine.openshift.io", "patch"),
            ("cluster.x-k8s.io", "patch"),
        }
