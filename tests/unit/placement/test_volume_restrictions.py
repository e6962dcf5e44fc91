"""VolumeRestrictions: disks that two pods must not share, claims that one pod alone may use."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.placement.volume_worlds import bound_claim, node, reasons, using, with_volumes
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod, Volume
from trimtab.placement.filters.volume_restrictions import DISK, IN_USE, VolumeRestrictions

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
def test_disks_conflict_on_the_node_where_another_pod_has_them(wanted: Volume, there: Volume, conflict: bool) -> None:
    objects = [*NODES, with_volumes(there, name="other", on="n1")]
    assert reasons(VolumeRestrictions, objects, with_volumes(wanted)) == ({"n1": (DISK,)} if conflict else {})


def test_a_disk_is_free_again_when_its_pod_is_gone_and_taken_again_after_undo() -> None:
    first = with_volumes(gce("a"), name="first", on="n1")
    second = with_volumes(gce("a", read_only=True), name="second", on="n1")
    snapshot = Snapshot([*NODES, first, second])
    asking = with_volumes(gce("a", read_only=True))
    assert reasons(VolumeRestrictions, snapshot, asking) == {"n1": (DISK,)}
    with snapshot.fork():
        snapshot.remove(first)
        assert reasons(VolumeRestrictions, snapshot, asking) == {}
    assert reasons(VolumeRestrictions, snapshot, asking) == {"n1": (DISK,)}


def test_a_claim_for_one_pod_keeps_others_from_every_node() -> None:
    objects = [*NODES, bound_claim("c", access_modes=RWOP), using("c", name="other", on="n1")]
    assert reasons(VolumeRestrictions, objects, using("c")) == {"n1": (IN_USE,), "n2": (IN_USE,)}


def test_the_disk_is_told_before_the_claim() -> None:
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
def test_a_claim_can_be_used_where_no_placed_pod_has_it_to_itself(modes: tuple[str, ...], other: Pod) -> None:
    assert reasons(VolumeRestrictions, [*NODES, bound_claim("c", access_modes=modes), other], using("c")) == {}


def test_a_claim_reserved_by_an_earlier_pod_is_in_use() -> None:
    snapshot = Snapshot([*NODES, bound_claim("c", access_modes=RWOP), using("c", name="first")])
    with snapshot.fork():
        snapshot.move(using("c", name="first"), "n2")
        assert reasons(VolumeRestrictions, snapshot, using("c")) == {"n1": (IN_USE,), "n2": (IN_USE,)}
    assert reasons(VolumeRestrictions, snapshot, using("c")) == {}


def test_a_claim_that_does_not_exist_refuses_the_pod() -> None:
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
def test_it_concerns_claims_and_disks(volume: Volume, concerned: bool) -> None:
    assert VolumeRestrictions(Snapshot(NODES)).concerns(with_volumes(volume)) is concerned
