"""Filters about volumes: limits of drivers, disks and claims in use, zones."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from tests.unit.placement.volume_worlds import (
    ZONE,
    bound,
    bound_claim,
    claim,
    csi_node,
    dynamic,
    node,
    owner,
    reasons,
    using,
    volume,
    waiting,
    with_volumes,
)
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels, ResourceList
from trimtab.kube.objects import CSIDriver, KubeObject, Pod, StorageClass, Volume, VolumeAttachment
from trimtab.kube.wire.decode import decode_object
from trimtab.placement.filters import legacy
from trimtab.placement.filters.nodes import NodeAffinity
from trimtab.placement.filters.volumes import DISK, IN_USE, NodeVolumeLimits, VolumeRestrictions, VolumeZone
from trimtab.placement.placer import Placer
from trimtab.placement.registry import Profile

FULL = ("node(s) exceed max volume count",)
EBS = Volume("awsElasticBlockStore", disk=("vol-1",))


def pair(name: str, **fields: Any) -> list[KubeObject]:
    """A claim and the volume that it is bound to."""
    return [bound(name, **fields), bound_claim(name)]


def attachment(name: str, volume: str, *, attacher: str = "disk.example.com") -> VolumeAttachment:
    return VolumeAttachment(name=name, attacher=attacher, node="n1", volume=volume)


def full(*objects: KubeObject, pod: Pod, limit: int | None = 1) -> bool:
    """Whether the node ``n1`` cannot attach the pod's volumes."""
    found = reasons(NodeVolumeLimits, [node("n1"), csi_node("n1", disk=limit, ebs=limit), *objects], pod)
    assert found in ({}, {"n1": FULL})
    return bool(found)


OTHER = using("a", name="other", on="n1")


def with_ephemeral(name: str, on: str = "n1") -> Pod:
    """A pod with an ephemeral volume; its claim is ``<name>-v``."""
    return with_volumes(Volume("ephemeral", name="v"), name=name, on=on)


@pytest.mark.parametrize(
    ("objects", "pod", "expected"),
    [
        pytest.param([*pair("a"), *pair("b"), OTHER], using("b"), True, id="one-more-than-the-limit"),
        pytest.param([*pair("b")], using("b"), False, id="up-to-the-limit"),
        pytest.param([*pair("a"), OTHER], using("a"), False, id="same-volume-again"),
        pytest.param([*pair("a"), *pair("b"), OTHER], using("a", "b"), True, id="one-shared-one-new"),
        pytest.param(
            [*pair("a"), *pair("b", driver="other.example.com"), OTHER], using("b"), False, id="driver-without-limit"
        ),
        pytest.param([*pair("a"), *pair("b", source="nfs"), OTHER], using("b"), False, id="not-a-csi-volume"),
        pytest.param([*pair("a"), bound_claim("b", "gone"), dynamic(), OTHER], using("b"), True, id="volume-is-gone"),
        pytest.param([*pair("a"), claim("b"), dynamic(), OTHER], using("b"), True, id="to-be-provisioned"),
        pytest.param([*pair("a"), claim("b"), waiting(), OTHER], using("b"), False, id="no-provisioner"),
        pytest.param([*pair("a"), claim("b"), OTHER], using("b"), False, id="class-is-gone"),
        pytest.param([*pair("a"), claim("b", storage_class=None), OTHER], using("b"), False, id="no-class"),
        pytest.param(
            [*pair("a"), claim("b"), dynamic(provisioner="kubernetes.io/azure-file"), OTHER],
            using("b"),
            False,
            id="provisioner-not-migrated",
        ),
        pytest.param([*pair("b"), using("gone", name="other", on="n1")], using("b"), False, id="claim-of-other-gone"),
        pytest.param([EBS_POD := with_volumes(EBS, name="other", on="n1")], with_volumes(EBS), False, id="same-ebs"),
        pytest.param(
            [EBS_POD], with_volumes(msgspec.structs.replace(EBS, disk=("vol-2",))), True, id="inline-migrated"
        ),
        pytest.param(
            [EBS_POD, *pair("b", source="awsElasticBlockStore", driver="", handle="", disk=("vol-2",))],
            using("b"),
            True,
            id="in-tree-volume-migrated",
        ),
        pytest.param(
            [EBS_POD, claim("b"), dynamic(provisioner="kubernetes.io/aws-ebs")],
            using("b"),
            True,
            id="in-tree-provisioner-migrated",
        ),
        pytest.param([*pair("a"), OTHER], with_volumes(Volume("emptyDir")), False, id="nothing-to-attach"),
        pytest.param(
            [*pair("a"), OTHER, bound("p-v"), bound_claim("p-v", owners=owner("p"))],
            with_volumes(Volume("ephemeral", name="v")),
            True,
            id="ephemeral",
        ),
        pytest.param(
            [*pair("b"), bound("o-v"), bound_claim("o-v", owners=owner("o")), with_ephemeral("o")],
            using("b"),
            True,
            id="ephemeral-of-other",
        ),
        pytest.param([*pair("a"), *pair("b"), attachment("x", "a")], using("b"), True, id="attachment-left-behind"),
        pytest.param([*pair("a"), attachment("x", "a")], using("a"), True, id="own-volume-attached-counts-twice"),
        pytest.param([*pair("a"), OTHER, attachment("x", "a")], using("a"), False, id="attachment-of-a-pod-there"),
        pytest.param([*pair("b"), attachment("x", "gone")], using("b"), False, id="attachment-of-unknown-volume"),
        pytest.param([*pair("b"), attachment("x", "")], using("b"), False, id="attachment-without-volume"),
        pytest.param([*pair("b"), volume("v"), attachment("x", "v", attacher="")], using("b"), False, id="no-attacher"),
        pytest.param(
            [*pair("b"), volume("v", source="nfs"), attachment("x", "v")], using("b"), False, id="attachment-not-csi"
        ),
        pytest.param(
            [*pair("b"), volume("v"), attachment("x", "v", attacher="other.example.com")],
            using("b"),
            False,
            id="attached-by-another-driver",
        ),
    ],
)
def test_volumes_are_counted_by_driver(objects: list[KubeObject], pod: Pod, expected: bool) -> None:
    assert full(*objects, pod=pod) is expected


@pytest.mark.parametrize(("limit", "expected"), [(None, False), (0, True), (1, False)])
def test_node_without_limit_accepts_any_number(limit: int | None, expected: bool) -> None:
    assert full(*pair("b"), pod=using("b"), limit=limit) is expected


def test_driver_above_its_limit_rejects_only_pods_needing_more() -> None:
    objects = [*pair("a"), *pair("b"), using("a", "b", name="other", on="n1")]
    assert not full(*objects, pod=using("b"))
    assert full(*objects, *pair("c"), pod=using("b", "c"))


def test_a_node_without_a_csinode_has_no_limit() -> None:
    objects = [node("n1"), node("n2"), csi_node("n2", disk=0), *pair("b")]
    assert reasons(NodeVolumeLimits, objects, using("b")) == {"n2": FULL}


def test_required_driver_must_be_installed() -> None:
    """``preventPodSchedulingIfMissing`` of a CSIDriver (Kubernetes 1.37)."""
    objects: list[KubeObject] = [node("n1"), node("n2"), node("n3"), csi_node("n1", disk=None), csi_node("n2", ebs=5)]
    objects += pair("b")
    driver = CSIDriver("disk.example.com", required=True)
    missing = ("disk.example.com CSI driver is not installed on the node",)
    assert reasons(NodeVolumeLimits, objects, using("b")) == {}
    assert reasons(NodeVolumeLimits, [*objects, driver], using("b")) == {"n2": missing, "n3": missing}
    assert reasons(NodeVolumeLimits, [*objects, CSIDriver("other")], using("b")) == {}

    snapshot = Snapshot([*objects, driver])
    snapshot.put(csi_node("n3", disk=None))
    assert reasons(NodeVolumeLimits, snapshot, using("b")) == {"n2": missing}
    assert driver == decode_object(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver",
            "metadata": {"name": "disk.example.com"},
            "spec": {"preventPodSchedulingIfMissing": True},
        }
    )


def test_counts_follow_pods_claims_volumes_attachments_and_nodes() -> None:
    snapshot = Snapshot([node("n1"), csi_node("n1", disk=1), *pair("a"), *pair("b")])

    def is_full() -> bool:
        return bool(reasons(NodeVolumeLimits, snapshot, using("b")))

    assert not is_full()
    steps: list[tuple[KubeObject, bool]] = [
        (using("a", name="other", on="n1"), True),
        (bound("a", source="nfs"), False),
        (bound("a"), True),
        (bound_claim("a", "gone"), False),
        (dynamic(), True),
        (waiting(), False),
        (attachment("x", "a"), True),
        (msgspec.structs.replace(attachment("x", "a"), node="n2"), False),
        (bound_claim("a"), True),
        (csi_node("n1", disk=2), False),
        (csi_node("n1", disk=1), True),
    ]
    for changed, expected in steps:
        snapshot.put(changed)
        assert is_full() is expected, changed
    with snapshot.fork():
        snapshot.remove(using("a", name="other"))
        assert not is_full()
    assert is_full()
    with snapshot.fork():
        snapshot.remove(node("n1"))
        snapshot.put(node("n3"))
        snapshot.put(csi_node("n3", disk=1))
        assert not is_full()
    assert is_full()


def test_successive_pods_see_attached_volumes() -> None:
    claims = [each for name in "abc" for each in pair(name)]
    snapshot = Snapshot([node("n1"), node("n2"), csi_node("n1", disk=1), csi_node("n2", disk=1), *claims])
    snapshot.move(using("a", name="first"), "n1")
    assert reasons(NodeVolumeLimits, snapshot, using("b")) == {"n1": FULL}
    snapshot.move(using("b", name="second"), "n2")
    assert reasons(NodeVolumeLimits, snapshot, using("c")) == {"n1": FULL, "n2": FULL}


# --- errors --------------------------------------------------------------------------------------------------------

FOREIGN = "PVC default/o-v was not created for pod default/o (pod is not owner)"
FOREIGN_CLAIM = bound_claim("o-v", owners=owner("x"))
TWO = [node("n1"), node("n2"), csi_node("n1", disk=9), csi_node("n2", disk=9)]


@pytest.mark.parametrize(
    ("objects", "pod", "expected"),
    [
        pytest.param([], using("b"), {"n1": (FOREIGN,)}, id="on-the-node-of-that-pod"),
        pytest.param([csi_node("n1", disk=None)], using("b"), {}, id="node-without-limits"),
        pytest.param([bound("b", source="nfs")], using("b"), {}, id="nothing-to-attach"),
        pytest.param([bound_claim("o-v", owners=owner("o"))], using("b"), {}, id="its-own"),
        pytest.param([csi_node("n2", disk=0)], using("b"), {"n1": (FOREIGN,), "n2": FULL}, id="other-node-full"),
    ],
)
def test_foreign_claim_of_an_ephemeral_volume_is_an_error(
    objects: list[KubeObject], pod: Pod, expected: dict[str, Any]
) -> None:
    there = [*TWO, *pair("b"), FOREIGN_CLAIM, with_ephemeral("o"), *objects]
    assert reasons(NodeVolumeLimits, there, pod) == expected


def test_node_error_aborts_scheduling_of_the_pod() -> None:
    objects = [
        *(node(f"n{number}", zone="ab"[number % 2]) for number in range(4)),
        *(csi_node(f"n{number}", disk=9) for number in range(4)),
        *pair("b"),
        FOREIGN_CLAIM,
        with_ephemeral("o"),
    ]
    filters = (NodeAffinity, NodeVolumeLimits)
    pod = using("b")
    placer = Placer(Snapshot(objects), Profile(filters, ()))
    assert not placer.feasible(pod).any()
    assert placer.unschedulable_message(pod) == f'running "NodeVolumeLimits" filter plugin: {FOREIGN}'
    other_nodes = msgspec.structs.replace(pod.spec, node_selector=Labels({ZONE: "a"}))
    kept_off = msgspec.structs.replace(pod, spec=other_nodes)
    assert placer.feasible(kept_off).sum() == 2
    many = [node(f"m{number:03}") for number in range(150)]
    assert Placer(Snapshot([*objects, *many]), Profile(filters, ())).feasible(pod).sum() == 153


NODES = [node("n1"), node("n2")]
RWOP = ("ReadWriteOncePod",)


def gce(disk: str, *, read_only: bool = False) -> Volume:
    return Volume("gcePersistentDisk", disk=(disk,), read_only=read_only)


def ebs(disk: str, *, read_only: bool = False) -> Volume:
    return Volume("awsElasticBlockStore", disk=(disk,), read_only=read_only)


def iscsi(iqn: str, *, read_only: bool = False) -> Volume:
    return Volume("iscsi", disk=(iqn,), read_only=read_only)


def rbd(*monitors: str, pool: str = "rbd", image: str = "i", read_only: bool = False) -> Volume:
    return Volume("rbd", disk=(pool, image, *monitors), read_only=read_only)


@pytest.mark.parametrize(
    ("wanted", "there", "conflict"),
    [
        pytest.param(gce("a"), gce("a"), True, id="gce-same-disk"),
        pytest.param(gce("a"), gce("b"), False, id="gce-other-disk"),
        pytest.param(gce("a", read_only=True), gce("a", read_only=True), False, id="gce-both-read-only"),
        pytest.param(gce("a", read_only=True), gce("a"), True, id="gce-one-read-only"),
        pytest.param(ebs("a"), ebs("a"), True, id="ebs-same-volume"),
        pytest.param(ebs("a", read_only=True), ebs("a", read_only=True), True, id="ebs-even-read-only"),
        pytest.param(ebs("a"), ebs("b"), False, id="ebs-other-volume"),
        pytest.param(iscsi("a"), iscsi("a"), True, id="iscsi-same-iqn"),
        pytest.param(iscsi("a", read_only=True), iscsi("a", read_only=True), False, id="iscsi-both-read-only"),
        pytest.param(iscsi("a"), iscsi("b"), False, id="iscsi-other-iqn"),
        pytest.param(rbd("m1", "m2"), rbd("m2", "m3"), True, id="rbd-one-monitor-in-common"),
        pytest.param(rbd("m1"), rbd("m2"), False, id="rbd-no-monitor-in-common"),
        pytest.param(rbd("m1", image="j"), rbd("m1"), False, id="rbd-other-image"),
        pytest.param(rbd("m1", pool="q"), rbd("m1"), False, id="rbd-other-pool"),
        pytest.param(rbd("m1", read_only=True), rbd("m1", read_only=True), False, id="rbd-both-read-only"),
        pytest.param(rbd("m1", read_only=True), rbd("m1"), True, id="rbd-one-read-only"),
        pytest.param(gce("a"), ebs("a"), False, id="kinds-apart"),
        pytest.param(Volume("hostPath"), Volume("hostPath"), False, id="other-kinds-never"),
    ],
)
def test_disk_in_use_conflicts_on_the_node(wanted: Volume, there: Volume, conflict: bool) -> None:
    objects = [*NODES, with_volumes(there, name="other", on="n1")]
    assert reasons(VolumeRestrictions, objects, with_volumes(wanted)) == ({"n1": (DISK,)} if conflict else {})


def test_disk_is_released_with_its_pod_and_undo_restores_it() -> None:
    first = with_volumes(gce("a"), name="first", on="n1")
    second = with_volumes(gce("a", read_only=True), name="second", on="n1")
    snapshot = Snapshot([*NODES, first, second])
    asking = with_volumes(gce("a", read_only=True))
    assert reasons(VolumeRestrictions, snapshot, asking) == {"n1": (DISK,)}
    with snapshot.fork():
        snapshot.remove(first)
        assert reasons(VolumeRestrictions, snapshot, asking) == {}
    assert reasons(VolumeRestrictions, snapshot, asking) == {"n1": (DISK,)}


def test_read_write_once_pod_claim_in_use_rejects_all_nodes() -> None:
    objects = [*NODES, bound_claim("c", access_modes=RWOP), using("c", name="other", on="n1")]
    assert reasons(VolumeRestrictions, objects, using("c")) == {"n1": (IN_USE,), "n2": (IN_USE,)}


def test_disk_conflict_is_reported_before_the_claim() -> None:
    pod = with_volumes(gce("a"), Volume("persistentVolumeClaim", claim="c"))
    other = msgspec.structs.replace(pod, name="other", node="n1")
    objects = [*NODES, bound_claim("c", access_modes=RWOP), other]
    assert reasons(VolumeRestrictions, objects, pod) == {"n1": (DISK,), "n2": (IN_USE,)}


@pytest.mark.parametrize(
    ("modes", "other"),
    [
        pytest.param(RWOP, using("c", name="other"), id="other-pending"),
        pytest.param(RWOP, using("c", name="other", on="n1", phase="Succeeded"), id="other-terminal"),
        pytest.param(RWOP, using("c", name="other", on="gone"), id="node-of-the-other-gone"),
        pytest.param(RWOP, using("c", name="other", on="n1", namespace="elsewhere"), id="namespaces-apart"),
        pytest.param(("ReadWriteOnce",), using("c", name="other", on="n1"), id="other-access-mode"),
    ],
)
def test_shared_claim_can_be_used(modes: tuple[str, ...], other: Pod) -> None:
    assert reasons(VolumeRestrictions, [*NODES, bound_claim("c", access_modes=modes), other], using("c")) == {}


def test_a_claim_reserved_by_an_earlier_pod_is_in_use() -> None:
    snapshot = Snapshot([*NODES, bound_claim("c", access_modes=RWOP), using("c", name="first")])
    with snapshot.fork():
        snapshot.move(using("c", name="first"), "n2")
        assert reasons(VolumeRestrictions, snapshot, using("c")) == {"n1": (IN_USE,), "n2": (IN_USE,)}
    assert reasons(VolumeRestrictions, snapshot, using("c")) == {}


def test_missing_claim_rejects_the_pod() -> None:
    rule = VolumeRestrictions(Snapshot([*NODES, bound_claim("a")]))
    assert rule.refusal(using("a", "b", "c")) == 'persistentvolumeclaim "b" not found'
    assert rule.refusal(using("a", namespace="elsewhere")) == 'persistentvolumeclaim "a" not found'
    assert rule.refusal(with_volumes(Volume("ephemeral", name="v"))) is None


@pytest.mark.parametrize(
    ("volume", "concerned"),
    [
        pytest.param(Volume("persistentVolumeClaim", claim="c"), True, id="claim"),
        pytest.param(rbd("m"), True, id="disk"),
        pytest.param(Volume("emptyDir"), False, id="emptyDir"),
        pytest.param(Volume("ephemeral", name="v"), False, id="ephemeral"),
    ],
)
def test_volume_restrictions_affect_claims_and_disks(volume: Volume, concerned: bool) -> None:
    assert VolumeRestrictions(Snapshot(NODES)).concerns(with_volumes(volume)) is concerned


CONFLICT = ("node(s) had no available volume zone",)
REGION = "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"


@pytest.mark.parametrize(
    ("volume", "labels", "fits"),
    [
        pytest.param({ZONE: "a"}, {ZONE: "a"}, True, id="same-zone"),
        pytest.param({ZONE: "a"}, {ZONE: "b"}, False, id="other-zone"),
        pytest.param({ZONE: "a"}, {}, True, id="node-without-any-zone"),
        pytest.param({ZONE: "a"}, {REGION: "r"}, False, id="node-with-a-region-only"),
        pytest.param({ZONE: "a__b"}, {ZONE: "b"}, True, id="one-of-two-zones"),
        pytest.param({ZONE: "a__ b"}, {ZONE: "b"}, True, id="spaces-are-trimmed"),
        pytest.param({ZONE: "a__"}, {ZONE: "b"}, True, id="label-with-an-empty-zone-is-ignored"),
        pytest.param({ZONE: ""}, {ZONE: "b"}, True, id="empty-label-is-ignored"),
        pytest.param({BETA_ZONE: "a"}, {BETA_ZONE: "a", ZONE: "b"}, True, id="beta-before-current"),
        pytest.param({BETA_ZONE: "a"}, {ZONE: "a"}, True, id="beta-volume-current-node"),
        pytest.param({BETA_ZONE: "a"}, {ZONE: "b"}, False, id="beta-volume-other-current-node"),
        pytest.param({ZONE: "a"}, {BETA_ZONE: "a"}, False, id="current-volume-beta-node"),
        pytest.param({BETA_REGION: "r"}, {REGION: "r"}, True, id="beta-region"),
        pytest.param({ZONE: "a", REGION: "r"}, {ZONE: "a", REGION: "s"}, False, id="zone-fits-region-does-not"),
        pytest.param({ZONE: "a", REGION: "r"}, {ZONE: "a", REGION: "r"}, True, id="both-fit"),
        pytest.param({"zone": "a"}, {ZONE: "b"}, True, id="other-labels-are-not-read"),
    ],
)
def test_a_node_must_be_in_the_zones_of_the_volume(volume: dict[str, str], labels: dict[str, str], fits: bool) -> None:
    objects = [node("n1", **labels), bound("c", labels=Labels(volume)), bound_claim("c")]
    assert reasons(VolumeZone, objects, using("c")) == ({} if fits else {"n1": CONFLICT})


def test_all_volumes_must_fit() -> None:
    objects = [
        *(node(name, zone=name) for name in "ab"),
        bound("c", labels=Labels({ZONE: "a__b"})),
        bound_claim("c"),
        bound("d", labels=Labels({ZONE: "b"})),
        bound_claim("d"),
    ]
    assert reasons(VolumeZone, objects, using("c", "d")) == {"a": CONFLICT}
    assert reasons(VolumeZone, objects, using("c")) == {}


def test_verdicts_follow_node_and_volume_changes() -> None:
    snapshot = Snapshot([node("n1", zone="a"), bound("c", labels=Labels({ZONE: "a"})), bound_claim("c")])
    rule = VolumeZone(snapshot)

    def fits() -> bool:
        passing = rule.passing(using("c"))
        return passing is None or bool(passing[snapshot.nodes.slot_of["n1"]])

    assert fits()
    snapshot.put(node("n1", zone="b"))
    assert not fits()
    snapshot.put(bound("c", labels=Labels({ZONE: "b"})))
    assert fits()


@pytest.mark.parametrize(
    ("objects", "text"),
    [
        pytest.param([], 'persistentvolumeclaim "c" not found', id="no-claim"),
        pytest.param([bound_claim("c", "v")], 'persistentvolume "v" not found', id="no-volume"),
        pytest.param(
            [claim("c", storage_class=None)],
            "PersistentVolumeClaim had no pv name and storageClass name",
            id="unbound-without-class",
        ),
        pytest.param([claim("c")], 'storageclass.storage.k8s.io "wait" not found', id="no-class"),
        pytest.param([claim("c"), StorageClass("wait")], "PersistentVolume had no name", id="unbound-immediate"),
        pytest.param([claim("c"), dynamic()], None, id="unbound-waiting"),
        pytest.param([bound("c"), bound_claim("c")], None, id="bound"),
    ],
)
def test_pod_with_unknown_volume_zones_is_rejected(objects: list[KubeObject], text: str | None) -> None:
    assert VolumeZone(Snapshot(objects)).refusal(using("c")) == text


@pytest.mark.parametrize(
    ("pod", "concerned"),
    [
        pytest.param(using("c"), True, id="labelled-volume"),
        pytest.param(using("d"), False, id="volume-without-zone"),
        pytest.param(with_volumes(Volume("ephemeral", name="v"), name="c"), False, id="ephemeral-is-not-looked-at"),
        pytest.param(with_volumes(Volume("hostPath")), False, id="no-claim"),
    ],
)
def test_volume_zone_affects_claims_with_zones(pod: Pod, concerned: bool) -> None:
    zoned = Labels({ZONE: "a"})
    objects: list[KubeObject] = [
        bound("c", labels=zoned),
        bound_claim("c"),
        bound("d"),
        bound_claim("d"),
        bound("c-v", labels=zoned),
    ]
    assert VolumeZone(Snapshot([*objects, bound_claim("c-v")])).concerns(pod) is concerned


EBS_LIMIT = "attachable-volumes-aws-ebs"


def disks(kind: str, number: int, *, on: str = "", name: str = "p") -> Pod:
    return with_volumes(*(Volume(kind, disk=(f"vol-{name}-{each}", "")) for each in range(number)), name=name, on=on)


@pytest.mark.parametrize(
    ("predicate", "kind", "most"),
    [
        (legacy.MaxEBSVolumeCount, "awsElasticBlockStore", 39),
        (legacy.MaxGCEPDVolumeCount, "gcePersistentDisk", 16),
        (legacy.MaxAzureDiskVolumeCount, "azureDisk", 16),
    ],
)
def test_legacy_limit_counts_the_volumes_of_its_own_type(
    predicate: type[legacy.MaxVolumeCount], kind: str, most: int
) -> None:
    nodes = [node("n1"), node("n2"), disks(kind, most - 1, on="n1", name="there")]
    assert reasons(predicate, nodes, disks(kind, 1)) == {}
    assert reasons(predicate, nodes, disks(kind, 2)) == {"n1": FULL}
    others = {"awsElasticBlockStore", "gcePersistentDisk", "azureDisk"} - {kind}
    for other in others:
        assert reasons(predicate, nodes, disks(other, 60)) == {}
    nodes[2] = disks(min(others), 60, on="n1", name="there")
    assert reasons(predicate, nodes, disks(kind, most)) == {}
    assert reasons(predicate, nodes, disks(kind, most + 1)) == {"n1": FULL, "n2": FULL}


def test_legacy_limit_is_that_of_the_csi_driver_then_that_of_the_node() -> None:
    limited = msgspec.structs.replace(node("n2"), allocatable=ResourceList({EBS_LIMIT: 2}))
    objects = [node("n1"), csi_node("n1", ebs=1), limited, node("n3"), csi_node("n3", disk=1)]
    ebs = "awsElasticBlockStore"
    assert reasons(legacy.MaxEBSVolumeCount, objects, disks(ebs, 1)) == {}
    assert reasons(legacy.MaxEBSVolumeCount, objects, disks(ebs, 2)) == {"n1": FULL}
    assert reasons(legacy.MaxEBSVolumeCount, objects, disks(ebs, 3)) == {"n1": FULL, "n2": FULL}
    three = partial(legacy.MaxEBSVolumeCount, most=3)
    assert reasons(three, objects, disks(ebs, 3)) == {"n1": FULL, "n2": FULL}
    assert reasons(three, objects, disks(ebs, 4)) == {"n1": FULL, "n2": FULL, "n3": FULL}


def test_legacy_limit_counts_a_shared_volume_once_and_ignores_other_drivers() -> None:
    one = partial(legacy.MaxEBSVolumeCount, most=1)
    objects = [node("n1"), with_volumes(EBS, name="other", on="n1"), *pair("a"), *pair("b")]
    assert reasons(one, objects, with_volumes(EBS)) == {}
    assert reasons(one, objects, using("a", "b")) == {}
    assert reasons(one, objects, with_volumes(msgspec.structs.replace(EBS, disk=("vol-2",)))) == {"n1": FULL}
