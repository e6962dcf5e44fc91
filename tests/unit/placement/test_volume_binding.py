"""VolumeBinding: bound claims, claims that wait for their first consumer, and what keeps a pod from all nodes."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import pytest

from tests.unit.placement.volume_worlds import (
    GIB,
    HOST,
    ZONE,
    affinity,
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
from trimtab.kube.objects import (
    CSIDriver,
    CSIStorageCapacity,
    KubeObject,
    LabelRequirement,
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    StorageClass,
    TopologyRequirement,
    Volume,
)
from trimtab.placement.filters.volumes import VolumeBinding
from trimtab.placement.volume_binding import binder_of, reserve_volumes
from trimtab.runtime.memory import forget_removed

AFFINITY = "node(s) didn't match PersistentVolume's node affinity"
BIND = "node(s) didn't find available persistent volumes to bind"
SPACE = "node(s) did not have enough free storage"
MISSING = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"

NODES = [node("n1", zone="a"), node("n2", zone="b")]
ON_1 = affinity(HOST, "n1")
ON_2 = affinity(HOST, "n2")
NOWHERE = {"n1": (BIND,), "n2": (BIND,)}
NAMED = NodeSelector((NodeSelectorTerm(match_fields=(LabelRequirement("metadata.name", "In", ("n1",)),)),))
NOT_NAMED = NodeSelector((NodeSelectorTerm(match_fields=(LabelRequirement("metadata.name", "NotIn", ("n1",)),)),))


def against(*objects: KubeObject, pod: Pod | None = None) -> dict[str, tuple[str, ...]]:
    """The reasons on the two nodes against a pod that uses the claim ``c``."""
    return reasons(VolumeBinding, [*NODES, *objects], pod or using("c"))


# --- bound claims --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        pytest.param(None, {}, id="no-affinity"),
        pytest.param(ON_1, {"n2": (AFFINITY,)}, id="hostname"),
        pytest.param(affinity(ZONE, "a", "b"), {}, id="one-of-two-zones"),
        pytest.param(NodeSelector((*ON_1.terms, *ON_2.terms)), {}, id="one-of-two-terms"),
        pytest.param(NodeSelector(), {"n1": (AFFINITY,), "n2": (AFFINITY,)}, id="no-terms"),
        pytest.param(NAMED, {"n1": (AFFINITY,), "n2": (AFFINITY,)}, id="named-node-is-never-matched"),
        pytest.param(NOT_NAMED, {}, id="other-than-a-named-node-always"),
        pytest.param(affinity("missing", "x"), {"n1": (AFFINITY,), "n2": (AFFINITY,)}, id="label-no-node-has"),
    ],
)
def test_bound_volume_must_match_the_node(where: NodeSelector | None, expected: dict[str, Any]) -> None:
    assert against(bound("c", node_affinity=where), bound_claim("c")) == expected


def test_missing_volume_is_reported_unless_an_earlier_claim_fails() -> None:
    objects = (bound("c", node_affinity=ON_1), bound_claim("c"), bound_claim("d", "gone"))
    assert against(*objects, pod=using("c", "d")) == {"n1": (MISSING,), "n2": (AFFINITY,)}
    assert against(*objects, pod=using("d", "c")) == {"n1": (MISSING,), "n2": (MISSING,)}


def test_reasons_for_bound_and_unbound_claims_are_combined() -> None:
    objects = (bound("c", node_affinity=ON_1), bound_claim("c"), claim("d"), waiting())
    assert against(*objects, pod=using("c", "d")) == {"n1": (BIND,), "n2": (AFFINITY, BIND)}
    assert against(bound_claim("c", "gone"), claim("d"), waiting(), pod=using("d", "c")) == {
        "n1": (BIND, MISSING),
        "n2": (BIND, MISSING),
    }


@pytest.mark.parametrize(
    ("fields", "labels", "migrated", "fits"),
    [
        pytest.param({"node_affinity": affinity(ZONE, "a")}, {"zone": "a"}, False, True, id="not-migrated-own-label"),
        pytest.param({"node_affinity": affinity(ZONE, "a")}, {"zone": "a"}, True, False, id="migrated-own-label"),
        pytest.param(
            {"node_affinity": affinity(ZONE, "a")},
            {"topology.ebs.csi.aws.com/zone": "a"},
            True,
            True,
            id="migrated-label-of-driver",
        ),
        pytest.param(
            {"labels": Labels({ZONE: "a__b"})},
            {"topology.ebs.csi.aws.com/zone": "b"},
            True,
            True,
            id="migrated-zones-of-volume-label",
        ),
        pytest.param({"labels": Labels({ZONE: "a"})}, {}, True, False, id="migrated-zone-of-volume-label-missing"),
        pytest.param({"labels": Labels({ZONE: "a"})}, {}, False, True, id="not-migrated-volume-label-is-not-read"),
        pytest.param({}, {}, True, True, id="migrated-without-zone"),
        pytest.param({"source": "csi", "node_affinity": affinity(ZONE, "a")}, {"zone": "a"}, True, True, id="csi"),
        pytest.param(
            {"source": "azureDisk", "node_affinity": affinity(ZONE, "a")}, {"zone": "a"}, True, True, id="azure"
        ),
    ],
)
def test_migrated_in_tree_volume_uses_the_affinity_of_its_driver(
    fields: dict[str, Any], labels: dict[str, str], migrated: bool, fits: bool
) -> None:
    plugins = ("kubernetes.io/aws-ebs", "kubernetes.io/azure-disk") if migrated else ()
    objects = [
        node("n1", **labels),
        csi_node("n1", migrated=plugins),
        bound("c", **({"source": "awsElasticBlockStore"} | fields)),
        bound_claim("c"),
    ]
    assert reasons(VolumeBinding, objects, using("c")) == ({} if fits else {"n1": (AFFINITY,)})


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        pytest.param({"labels": Labels({ZONE: "us-e1-a__us-e1-b"})}, None, id="two-zones-of-a-region"),
        pytest.param(
            {"labels": Labels({ZONE: "a__b"})},
            "failed to get region from zones: zone in unexpected format, expected: {locale}-{region}-{zone}, got: a",
            id="zones-that-name-no-region",
        ),
        pytest.param(
            {"labels": Labels({ZONE: "us-e1-a__eu-w2-a"})},
            "failed to get region from zones: multiple or no regions gotten from zones, got: map[eu-w2:{} us-e1:{}]",
            id="zones-of-two-regions",
        ),
        pytest.param({"source": "awsElasticBlockStore", "disk": ("aws://a/vol-1",)}, None, id="ebs-with-zone"),
        pytest.param(
            {"source": "awsElasticBlockStore", "disk": ("aws://a/1",)},
            "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://a/1)",
            id="ebs-of-unknown-form",
        ),
    ],
)
def test_untranslatable_volume_is_an_error_if_migrated(fields: dict[str, Any], text: str | None) -> None:
    given = {"source": "gcePersistentDisk", "disk": ("pd",)} | fields
    plugins = ("kubernetes.io/gce-pd", "kubernetes.io/aws-ebs")
    objects = (csi_node("n1", migrated=plugins), bound("c", **given), bound_claim("c"))
    snapshot = Snapshot([*NODES, *objects])
    if text is None:
        assert VolumeBinding(snapshot).errors(using("c")) == {}
        return
    recorded = f"could not translate pv: {text}"
    assert reasons(VolumeBinding, snapshot, using("c")) == {"n1": (recorded,)}
    assert VolumeBinding(snapshot).errors(using("c")) == {snapshot.nodes.slot_of["n1"]: recorded}
    # A claim before it that the node fails hides the error, and what else the node fails is hidden by it.
    snapshot.put(bound("b", node_affinity=ON_2))
    for changed in (bound_claim("b"), claim("d"), waiting()):
        snapshot.put(changed)
    assert reasons(VolumeBinding, snapshot, using("b", "c")) == {"n1": (AFFINITY,)}
    assert reasons(VolumeBinding, snapshot, using("c", "d")) == {"n1": (recorded,), "n2": (BIND,)}


# --- claims that wait: volumes that are there ----------------------------------------------------------------------

LABELLED = LabelSelector(Labels({"tier": "fast"}))


@pytest.mark.parametrize(
    ("wanted", "there", "found"),
    [
        pytest.param({}, {}, True, id="free"),
        pytest.param({}, {"capacity": 4 * GIB}, False, id="too-small"),
        pytest.param({}, {"capacity": 5 * GIB}, True, id="just-large-enough"),
        pytest.param({"request": None}, {"capacity": 0}, True, id="no-size-asked-for"),
        pytest.param({}, {"storage_class": "other"}, False, id="other-class"),
        pytest.param({}, {"phase": "Released"}, False, id="released"),
        pytest.param({}, {"phase": "Pending"}, False, id="pending"),
        pytest.param({}, {"deleted": 1.0}, False, id="being-deleted"),
        pytest.param({}, {"volume_mode": "Block"}, False, id="other-mode"),
        pytest.param({"volume_mode": "Block"}, {"volume_mode": "Block"}, True, id="same-mode"),
        pytest.param({"access_modes": ("ReadWriteMany",)}, {}, False, id="access-mode-missing"),
        pytest.param({}, {"access_modes": ("ReadWriteMany", "ReadWriteOnce")}, True, id="more-access-modes"),
        pytest.param({"attributes_class": "gold"}, {}, False, id="attributes-class-missing"),
        pytest.param({}, {"attributes_class": "gold"}, False, id="attributes-class-not-asked-for"),
        pytest.param({"attributes_class": ""}, {"attributes_class": None}, True, id="no-attributes-class"),
        pytest.param({"attributes_class": "gold"}, {"attributes_class": "gold"}, True, id="attributes-class"),
        pytest.param({"selector": LABELLED}, {}, False, id="selector-does-not-match"),
        pytest.param({"selector": LABELLED}, {"labels": Labels({"tier": "fast"})}, True, id="selector-matches"),
        pytest.param({}, {"claim": "default/other", "claim_uid": "x"}, False, id="reserved-for-another"),
        pytest.param({}, {"claim": "default/c"}, True, id="reserved-by-hand"),
        pytest.param({}, {"claim": "default/c", "claim_uid": "uid-c"}, True, id="reserved"),
        pytest.param({}, {"claim": "default/c", "claim_uid": "old"}, False, id="reserved-for-an-older-claim"),
        pytest.param(
            {"selector": LABELLED, "access_modes": ("ReadWriteMany",)},
            {"claim": "default/c", "phase": "Pending"},
            True,
            id="reserved-whatever-selector-modes-and-phase",
        ),
        pytest.param({}, {"claim": "default/c", "capacity": 1}, False, id="reserved-but-too-small"),
        pytest.param({}, {"claim": "default/c", "volume_mode": "Block"}, False, id="reserved-but-other-mode"),
        pytest.param({}, {"claim": "default/c", "deleted": 1.0}, False, id="reserved-but-being-deleted"),
        pytest.param({}, {"claim": "default/c", "storage_class": "other"}, False, id="reserved-but-other-class"),
    ],
)
def test_claim_is_bound_to_a_matching_volume(wanted: dict[str, Any], there: dict[str, Any], found: bool) -> None:
    assert against(waiting(), claim("c", **wanted), volume("v", **there)) == ({} if found else NOWHERE)


def test_volumes_are_matched_per_node() -> None:
    objects = (waiting(), claim("c"), volume("v", node_affinity=ON_1))
    assert against(*objects) == {"n2": (BIND,)}
    assert against(*objects, volume("w", node_affinity=affinity(ZONE, "b"))) == {}


def test_unreachable_reserved_volume_prevents_other_volumes() -> None:
    objects = (waiting(), claim("c"), volume("v", claim="default/c", node_affinity=ON_1), volume("w"))
    assert against(*objects) == {"n2": (BIND,)}


def test_smallest_claim_chooses_its_volume_first() -> None:
    small, large = claim("c", request=5 * GIB), claim("d", request=8 * GIB)
    objects = (
        waiting(),
        small,
        large,
        volume("v", capacity=8 * GIB),
        volume("w", capacity=9 * GIB, node_affinity=ON_1),
    )
    assert against(*objects, pod=using("d", "c")) == {"n2": (BIND,)}
    # The small claim takes the smallest that suits it, though only that one would suit the other.
    modes = ("ReadWriteOnce", "ReadWriteMany")
    picky = claim("d", request=8 * GIB, access_modes=("ReadWriteMany",))
    greedy_plan = (
        waiting(),
        small,
        picky,
        volume("v", capacity=8 * GIB, access_modes=modes),
        volume("w", capacity=9 * GIB),
    )
    assert against(*greedy_plan, pod=using("c", "d")) == NOWHERE


def test_claim_used_twice_needs_two_volumes() -> None:
    assert against(waiting(), claim("c"), volume("v"), pod=using("c", "c")) == NOWHERE
    assert against(waiting(), claim("c"), volume("v"), volume("w"), pod=using("c", "c")) == {}
    reserved = volume("v", claim="default/c")
    assert against(waiting(), claim("c"), reserved, pod=using("c", "c")) == NOWHERE
    assert against(waiting(), claim("c"), reserved, volume("w"), pod=using("c", "c")) == {}


def test_classes_do_not_share_volumes() -> None:
    objects = (waiting(), waiting("other"), claim("c"), claim("d", storage_class="other"), volume("v"))
    assert against(*objects, pod=using("c", "d")) == NOWHERE
    assert against(*objects, volume("w", storage_class="other"), pod=using("c", "d")) == {}


# --- claims that wait: volumes to be made --------------------------------------------------------------------------

IN_A = (TopologyRequirement(ZONE, ("a",)),)


@pytest.mark.parametrize(
    ("storage_class", "expected"),
    [
        pytest.param(waiting(), NOWHERE, id="no-provisioner"),
        pytest.param(dynamic(provisioner=""), NOWHERE, id="empty-provisioner"),
        pytest.param(dynamic(), {}, id="anywhere"),
        pytest.param(dynamic(allowed_topologies=(IN_A,)), {"n2": (BIND,)}, id="one-zone"),
        pytest.param(dynamic(allowed_topologies=(IN_A, (TopologyRequirement(ZONE, ("b",)),))), {}, id="either-zone"),
        pytest.param(dynamic(allowed_topologies=((TopologyRequirement(ZONE, ("a", "b")),),)), {}, id="two-values"),
        pytest.param(
            dynamic(allowed_topologies=((*IN_A, TopologyRequirement(HOST, ("n2",))),)), NOWHERE, id="both-labels"
        ),
        pytest.param(dynamic(allowed_topologies=((),)), NOWHERE, id="empty-term"),
        pytest.param(dynamic(allowed_topologies=((TopologyRequirement(ZONE),),)), NOWHERE, id="no-values"),
    ],
)
def test_volume_is_provisioned_in_allowed_topologies(storage_class: StorageClass, expected: dict[str, Any]) -> None:
    assert against(storage_class, claim("c")) == expected


def test_available_volume_prevents_provisioning() -> None:
    objects = (dynamic(allowed_topologies=(IN_A,)), claim("c"), volume("v", node_affinity=ON_2))
    assert against(*objects) == {}


def space(**fields: Any) -> CSIStorageCapacity:
    """Room for 5 GiB of the class on ``n1``."""
    given: dict[str, Any] = {"storage_class": "wait", "capacity": 5 * GIB}
    given["node_topology"] = LabelSelector(Labels({HOST: "n1"}))
    return CSIStorageCapacity("kube-system", "space", **(given | fields))


TRACKED = CSIDriver("disk.example.com", storage_capacity=True)
FULL = {"n1": (SPACE,), "n2": (SPACE,)}


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        pytest.param([], FULL, id="nothing-known"),
        pytest.param([space()], {"n2": (SPACE,)}, id="room-on-one-node"),
        pytest.param([space(capacity=5 * GIB - 1)], FULL, id="too-little"),
        pytest.param([space(capacity=None)], FULL, id="not-told"),
        pytest.param([space(maximum_volume_size=1)], FULL, id="largest-volume-too-small"),
        pytest.param([space(capacity=0, maximum_volume_size=5 * GIB)], {"n2": (SPACE,)}, id="largest-volume-counts"),
        pytest.param([space(storage_class="other")], FULL, id="other-class"),
        pytest.param([space(node_topology=None)], FULL, id="no-topology"),
        pytest.param([space(node_topology=LabelSelector())], {}, id="every-node"),
        pytest.param(
            [space(node_topology=LabelSelector(match_expressions=(LabelRequirement(ZONE, "NotIn", ("a",)),)))],
            {"n1": (SPACE,)},
            id="by-expression",
        ),
        pytest.param([CSIDriver("disk.example.com")], {}, id="driver-does-not-track"),
        pytest.param([claim("c", request=None)], {}, id="no-size-asked-for"),
        pytest.param([dynamic(provisioner="other.example.com")], {}, id="no-driver-object"),
        pytest.param([dynamic(allowed_topologies=(IN_A,))], {"n1": (SPACE,), "n2": (BIND,)}, id="topology-first"),
    ],
)
def test_storage_capacity_is_checked_if_tracked(objects: list[KubeObject], expected: dict[str, Any]) -> None:
    assert against(dynamic(), claim("c"), TRACKED, *objects) == expected


def test_first_unprovisionable_claim_is_reported() -> None:
    bad, full = claim("c", storage_class="static"), claim("d", request=6 * GIB)
    objects = (waiting("static"), dynamic(), TRACKED, bad, full)
    assert against(*objects, pod=using("d", "c")) == NOWHERE  # c asks for less
    larger = claim("c", storage_class="static", request=7 * GIB)
    assert against(*objects, larger, pod=using("c", "d")) == FULL


@pytest.mark.parametrize(
    ("fields", "storage_class", "expected"),
    [
        pytest.param({"selected_node": "n1"}, dynamic(), {"n2": (BIND,)}, id="being-made-for-n1"),
        pytest.param({"selected_node": "gone"}, dynamic(), NOWHERE, id="being-made-for-a-node-that-is-gone"),
        pytest.param({"selected_node": ""}, dynamic(), NOWHERE, id="being-made-for-no-node"),
        pytest.param({"selected_node": "n1"}, waiting(), NOWHERE, id="volumes-that-are-there-do-not-help"),
    ],
)
def test_claim_being_provisioned_restricts_the_pod_to_its_node(
    fields: dict[str, Any], storage_class: StorageClass, expected: dict[str, Any]
) -> None:
    assert against(storage_class, claim("c", **fields), volume("v")) == expected


def test_claim_provisioned_elsewhere_hides_other_reasons() -> None:
    objects = (dynamic(), TRACKED, claim("c", selected_node="n1"), claim("d", request=9 * GIB))
    assert against(*objects, pod=using("d", "c")) == {"n1": (SPACE,), "n2": (BIND,)}
    assert against(*objects, claim("d", selected_node="n2"), pod=using("c", "d")) == NOWHERE


# --- refusals ------------------------------------------------------------------------------------------------------

EPHEMERAL = with_volumes(Volume("ephemeral", name="v"))


@pytest.mark.parametrize(
    ("objects", "pod", "text"),
    [
        pytest.param([], using("c"), 'persistentvolumeclaim "c" not found', id="no-claim"),
        pytest.param(
            [],
            EPHEMERAL,
            'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v"',
            id="ephemeral-not-made-yet",
        ),
        pytest.param(
            [bound_claim("p-v", owners=owner("x"))],
            EPHEMERAL,
            "PVC default/p-v was not created for pod default/p (pod is not owner)",
            id="ephemeral-of-another",
        ),
        pytest.param([bound_claim("p-v", owners=owner("p"))], EPHEMERAL, None, id="ephemeral"),
        pytest.param(
            [bound_claim("c", "v", phase="Lost")],
            using("c"),
            'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"',
            id="lost",
        ),
        pytest.param(
            [bound_claim("c", deleted=1.0)], using("c"), 'persistentvolumeclaim "c" is being deleted', id="deleted"
        ),
        pytest.param(
            [bound_claim("c", "v", phase="Lost", deleted=1.0)],
            using("c"),
            'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"',
            id="lost-before-deleted",
        ),
        pytest.param(
            [claim("c"), StorageClass("wait")],
            using("c"),
            "pod has unbound immediate PersistentVolumeClaims",
            id="immediate",
        ),
        pytest.param(
            [claim("c")], using("c"), "pod has unbound immediate PersistentVolumeClaims", id="no-class-object"
        ),
        pytest.param(
            [claim("c", storage_class=None), waiting("")],
            using("c"),
            "pod has unbound immediate PersistentVolumeClaims",
            id="no-class",
        ),
        pytest.param(
            [claim("c", volume="v"), waiting()],
            using("c"),
            "pod has unbound immediate PersistentVolumeClaims",
            id="bound-by-hand-not-confirmed",
        ),
        pytest.param(
            [claim("c"), StorageClass("wait"), bound_claim("d", deleted=1.0)],
            using("c", "d"),
            'persistentvolumeclaim "d" is being deleted',
            id="unusable-before-unbound",
        ),
        pytest.param([claim("c"), waiting()], using("c"), None, id="waiting"),
        pytest.param([], with_volumes(Volume("hostPath")), None, id="no-claims"),
    ],
)
def test_pod_with_unusable_claims_is_rejected(objects: list[KubeObject], pod: Pod, text: str | None) -> None:
    assert VolumeBinding(Snapshot([*NODES, *objects])).refusal(pod) == text


def test_pods_without_claims_are_not_affected() -> None:
    rule = VolumeBinding(Snapshot(NODES))
    assert not rule.concerns(with_volumes(Volume("hostPath")))
    assert rule.passing(with_volumes(Volume("hostPath"))) is None
    assert rule.concerns(using("c"))


# --- reserving -----------------------------------------------------------------------------------------------------


def shelf(snapshot: Snapshot) -> tuple[dict[str, PersistentVolume], dict[str, PersistentVolumeClaim]]:
    return snapshot.objects.of(PersistentVolume), snapshot.objects.of(PersistentVolumeClaim)


def test_reserved_volume_is_unavailable_until_undone() -> None:
    snapshot = Snapshot([*NODES, waiting(), claim("c"), claim("d"), volume("v", node_affinity=ON_1), volume("w")])
    with snapshot.fork():
        reserve_volumes(snapshot, using("c"), "n1")
        volumes, claims = shelf(snapshot)
        assert volumes["v"].claim == "default/c"  # of equal volumes the first by name
        assert volumes["v"].claim_uid == "uid-c"
        assert claims["default/c"].selected_node is None
        assert reasons(VolumeBinding, snapshot, using("c")) == {"n2": (BIND,)}  # who shares the claim follows
        assert reasons(VolumeBinding, snapshot, using("d")) == {}
        reserve_volumes(snapshot, using("d"), "n2")
        assert shelf(snapshot)[0]["w"].claim == "default/d"
        assert reasons(VolumeBinding, snapshot, using("e")) == {}
        snapshot.put(claim("e"))
        assert reasons(VolumeBinding, snapshot, using("e")) == NOWHERE
    assert shelf(snapshot)[0]["v"].claim == ""
    assert reasons(VolumeBinding, snapshot, using("c")) == {}


def test_provisioned_claim_restricts_pods_sharing_it() -> None:
    snapshot = Snapshot([*NODES, dynamic(), claim("c"), claim("d")])
    with snapshot.fork():
        reserve_volumes(snapshot, using("c"), "n2")
        assert shelf(snapshot)[1]["default/c"].selected_node == "n2"
        assert reasons(VolumeBinding, snapshot, using("c")) == {"n1": (BIND,)}
        assert reasons(VolumeBinding, snapshot, using("d")) == {}
    assert reasons(VolumeBinding, snapshot, using("c")) == {}


def test_pod_gets_smallest_volumes_and_others_are_provisioned() -> None:
    claims = [claim("c", request=3 * GIB), claim("d", request=2 * GIB), claim("e", request=9 * GIB)]
    volumes = [volume("large"), volume("small", capacity=2 * GIB), volume("far", capacity=2 * GIB, node_affinity=ON_2)]
    snapshot = Snapshot([*NODES, dynamic(), *claims, *volumes])
    reserve_volumes(snapshot, using("c", "d", "e"), "n1")
    found, claimed = shelf(snapshot)
    assert {name: each.claim for name, each in found.items()} == {
        "small": "default/d",
        "large": "default/c",
        "far": "",
    }
    assert {name: each.selected_node for name, each in claimed.items()} == {
        "default/c": None,
        "default/d": None,
        "default/e": "n1",
    }


def test_unreachable_manually_reserved_volume_is_not_used() -> None:
    there = volume("v", claim="default/c", node_affinity=ON_1)
    snapshot = Snapshot([*NODES, dynamic(), claim("c"), there, volume("w")])
    reserve_volumes(snapshot, using("c"), "n2")
    found, claimed = shelf(snapshot)
    assert (found["v"], found["w"].claim, claimed["default/c"].selected_node) == (there, "", "n2")


def test_manually_reserved_volume_gets_the_uid_of_its_claim() -> None:
    snapshot = Snapshot([*NODES, waiting(), claim("c"), volume("v", claim="default/c"), volume("w", capacity=5 * GIB)])
    reserve_volumes(snapshot, using("c"), "n1")
    found, _ = shelf(snapshot)
    assert (found["v"].claim_uid, found["w"].claim) == ("uid-c", "")


@pytest.mark.parametrize(
    ("objects", "pod"),
    [
        pytest.param([bound("c"), bound_claim("c")], using("c"), id="bound"),
        pytest.param([waiting(), claim("c"), volume("v", node_affinity=ON_2)], using("c"), id="node-does-not-suit"),
        pytest.param([dynamic(), claim("c", selected_node="n1")], using("c"), id="being-made-already"),
        pytest.param([], with_volumes(Volume("hostPath")), id="no-claims"),
    ],
)
def test_nothing_is_reserved_without_unbound_claims(objects: list[KubeObject], pod: Pod) -> None:
    snapshot = Snapshot([*NODES, *objects])
    before = [dict(each) for each in shelf(snapshot)]
    reserve_volumes(snapshot, pod, "n1")
    assert [dict(each) for each in shelf(snapshot)] == before


def test_reserving_on_a_missing_node_raises() -> None:
    with pytest.raises(KeyError):
        reserve_volumes(Snapshot([waiting(), claim("c")]), using("c"), "gone")


def test_binder_is_released_with_its_snapshot() -> None:
    snapshot = Snapshot(NODES)
    assert binder_of(snapshot) is binder_of(snapshot)
    alive = weakref.ref(snapshot)
    del snapshot
    gc.collect()
    assert alive() is None


def test_nothing_is_kept_for_deleted_claims() -> None:
    """A tenant's claims can have large selectors."""
    selector = LabelSelector(Labels({"disk": "fast"}))
    before = sys.getrefcount(selector)
    wanted = claim("c", selector=selector)
    snapshot = Snapshot([*NODES, dynamic(), TRACKED, space(), wanted, volume("v", node_affinity=ON_1)])
    assert reasons(VolumeBinding, snapshot, using("c")) == {"n2": (SPACE,)}
    binder = binder_of(snapshot)
    assert len(binder._provisioning._capacities) == 1
    snapshot.remove(wanted)
    del wanted
    assert sys.getrefcount(selector) > before

    forget_removed(snapshot)

    assert sys.getrefcount(selector) == before
    assert not binder._provisioning._capacities
