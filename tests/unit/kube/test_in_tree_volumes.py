"""In-tree volumes as CSI drivers know them."""

from __future__ import annotations

import pytest

from trimtab.kube.frozen import Labels
from trimtab.kube.objects import LabelRequirement, NodeSelector, NodeSelectorTerm, PersistentVolume
from trimtab.kube.rules.in_tree_volumes import (
    BETA_REGION,
    BETA_ZONE,
    REGION,
    ZONE,
    TranslationError,
    driver_of,
    handle_of,
    translated_affinity,
)

DRIVERS = "topology.ebs.csi.aws.com/zone"


def has(key: str, *values: str) -> LabelRequirement:
    return LabelRequirement(key, "In", values)


def one(*requirements: LabelRequirement) -> NodeSelector:
    return NodeSelector((NodeSelectorTerm(requirements),))


@pytest.mark.parametrize(
    ("affinity", "labels", "expected"),
    [
        pytest.param(None, {}, None, id="nothing-known"),
        pytest.param(one(has("disk", "ssd")), {}, one(has("disk", "ssd")), id="no-zone"),
        pytest.param(one(has(ZONE, "a")), {}, one(has(DRIVERS, "a")), id="zone"),
        pytest.param(one(has(ZONE, "a")), {ZONE: "b"}, one(has(DRIVERS, "a")), id="affinity-before-label"),
        pytest.param(one(has(BETA_ZONE, "a")), {}, one(has(DRIVERS, "a")), id="beta-zone"),
        pytest.param(
            one(has(BETA_ZONE, "a"), has(ZONE, "b")), {}, one(has(BETA_ZONE, "a"), has(DRIVERS, "b")), id="both-zones"
        ),
        pytest.param(
            one(has(BETA_ZONE, "a"), has(BETA_REGION, "r")), {}, one(has(DRIVERS, "a"), has(REGION, "r")), id="region"
        ),
        pytest.param(
            one(has(ZONE, "a"), has(BETA_REGION, "r")),
            {},
            one(has(DRIVERS, "a"), has(BETA_REGION, "r")),
            id="beta-region-beside-current-zone",
        ),
        pytest.param(None, {ZONE: "b__a"}, one(has(DRIVERS, "a", "b")), id="zones-of-label"),
        pytest.param(None, {BETA_ZONE: "a"}, one(has(DRIVERS, "a")), id="zone-of-beta-label"),
        pytest.param(None, {BETA_ZONE: "a", ZONE: "b"}, one(has(DRIVERS, "b")), id="current-label-before-beta"),
        pytest.param(None, {ZONE: " "}, None, id="label-without-a-zone"),
        pytest.param(NodeSelector(), {ZONE: "a"}, one(has(DRIVERS, "a")), id="no-terms"),
        pytest.param(
            NodeSelector((NodeSelectorTerm((has("disk", "ssd"),)), NodeSelectorTerm((has("disk", "hdd"),)))),
            {ZONE: "a"},
            NodeSelector(
                (
                    NodeSelectorTerm((has("disk", "ssd"), has(DRIVERS, "a"))),
                    NodeSelectorTerm((has("disk", "hdd"), has(DRIVERS, "a"))),
                )
            ),
            id="every-term-gets-the-zone",
        ),
    ],
)
def test_zones_are_stated_as_the_driver_does(
    affinity: NodeSelector | None, labels: dict[str, str], expected: NodeSelector | None
) -> None:
    volume = PersistentVolume(name="v", labels=Labels(labels), node_affinity=affinity, source="awsElasticBlockStore")
    assert translated_affinity(volume, DRIVERS) == expected


@pytest.mark.parametrize(
    ("source", "disk", "label", "handle"),
    [
        pytest.param("awsElasticBlockStore", "anything", "", "anything", id="bare"),
        pytest.param("awsElasticBlockStore", "aws://a/vol-1", "", "vol-1", id="with-zone"),
        pytest.param("awsElasticBlockStore", "aws:///vol-1", "", "vol-1", id="with-empty-zone"),
        pytest.param("gcePersistentDisk", "pd", "", "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/pd", id="no-zone"),
        pytest.param("gcePersistentDisk", "pd", "a", "projects/UNSPECIFIED/zones/a/disks/pd", id="zone"),
        pytest.param(
            "gcePersistentDisk", "pd", "eu-w1-a__eu-w1-b", "projects/UNSPECIFIED/regions/eu-w1/disks/pd", id="region"
        ),
        pytest.param("cinder", "id", "a__b", "id", id="cinder"),
    ],
)
def test_a_disk_has_the_handle_of_its_driver(source: str, disk: str, label: str, handle: str) -> None:
    assert handle_of(source, disk, Labels({ZONE: label})) == handle
    assert handle_of(source, disk, Labels({BETA_ZONE: label, ZONE: "x__y"} if label else {})) == handle


@pytest.mark.parametrize(
    ("source", "disk"), [("awsElasticBlockStore", "aws://a/b/vol-1"), ("awsElasticBlockStore", "aws://vol-1")]
)
def test_disk_of_unknown_form_cannot_be_translated(source: str, disk: str) -> None:
    with pytest.raises(TranslationError, match=disk):
        handle_of(source, disk)


@pytest.mark.parametrize(
    ("provisioner", "driver"),
    [
        ("disk.example.com", "disk.example.com"),
        ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
        ("kubernetes.io/azure-file", ""),
        ("kubernetes.io/vsphere-volume", ""),
        ("kubernetes.io/no-provisioner", "kubernetes.io/no-provisioner"),
    ],
)
def test_in_tree_provisioner_maps_to_its_csi_driver(provisioner: str, driver: str) -> None:
    assert driver_of(provisioner) == driver
