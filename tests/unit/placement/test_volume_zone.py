"""VolumeZone: zone and region labels of bound volumes against those of nodes."""

from __future__ import annotations

import pytest

from tests.unit.placement.volume_worlds import (
    ZONE,
    bound,
    bound_claim,
    claim,
    dynamic,
    node,
    reasons,
    using,
    with_volumes,
)
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import KubeObject, Pod, StorageClass, Volume
from trimtab.placement.filters.volume_zone import VolumeZone

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


def test_verdicts_follow_nodes_and_volumes() -> None:
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
def test_a_pod_is_refused_where_the_zones_cannot_be_known(objects: list[KubeObject], text: str | None) -> None:
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
def test_it_concerns_claims_of_volumes_with_zones(pod: Pod, concerned: bool) -> None:
    zoned = Labels({ZONE: "a"})
    objects: list[KubeObject] = [
        bound("c", labels=zoned),
        bound_claim("c"),
        bound("d"),
        bound_claim("d"),
        bound("c-v", labels=zoned),
    ]
    assert VolumeZone(Snapshot([*objects, bound_claim("c-v")])).concerns(pod) is concerned
