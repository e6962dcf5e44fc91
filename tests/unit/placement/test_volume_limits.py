"""NodeVolumeLimits: volumes attached to a node, by driver, against its CSINode's limits."""

from __future__ import annotations

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
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import KubeObject, Pod, Volume, VolumeAttachment
from trimtab.placement.filters.node_affinity import NodeAffinity
from trimtab.placement.filters.node_volume_limits import NodeVolumeLimits
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
def test_a_node_without_a_limit_takes_any_number(limit: int | None, expected: bool) -> None:
    assert full(*pair("b"), pod=using("b"), limit=limit) is expected


def test_a_driver_beyond_its_limit_stops_only_pods_that_need_more_of_it() -> None:
    objects = [*pair("a"), *pair("b"), using("a", "b", name="other", on="n1")]
    assert not full(*objects, pod=using("b"))
    assert full(*objects, *pair("c"), pod=using("b", "c"))


def test_a_node_without_a_csinode_has_no_limit() -> None:
    objects = [node("n1"), node("n2"), csi_node("n2", disk=0), *pair("b")]
    assert reasons(NodeVolumeLimits, objects, using("b")) == {"n2": FULL}


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


def test_pods_placed_one_after_the_other_see_what_is_attached() -> None:
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
def test_a_node_is_in_error_where_a_pods_ephemeral_volume_has_the_claim_of_another(
    objects: list[KubeObject], pod: Pod, expected: dict[str, Any]
) -> None:
    there = [*TWO, *pair("b"), FOREIGN_CLAIM, with_ephemeral("o"), *objects]
    assert reasons(NodeVolumeLimits, there, pod) == expected


def test_the_scheduler_gives_up_on_the_pod_when_it_comes_to_a_node_in_error() -> None:
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
    assert placer.why_not(pod) == f'running "NodeVolumeLimits" filter plugin: {FOREIGN}'
    elsewhere = msgspec.structs.replace(pod.spec, node_selector=Labels({ZONE: "a"}))
    kept_off = msgspec.structs.replace(pod, spec=elsewhere)
    assert placer.feasible(kept_off).sum() == 2
    many = [node(f"m{number:03}") for number in range(150)]
    assert Placer(Snapshot([*objects, *many]), Profile(filters, ())).feasible(pod).sum() == 153
