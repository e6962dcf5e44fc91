"""Volumes, claims and what storage.k8s.io says of them, as values."""

import pytest

from tests.builders import (
    ZONE,
    attachment,
    capacity,
    csi_driver,
    csi_node,
    expression,
    node,
    pod,
    pv,
    pvc,
    storage_class,
)
from tests.fixtures.golden import Golden
from trimtab.kube.errors import InputError
from trimtab.kube.objects import (
    LabelRequirement,
    LabelSelector,
    NodeDriver,
    NodeSelector,
    NodeSelectorTerm,
    TopologyRequirement,
    Volume,
)
from trimtab.kube.wire.decode import decode_object
from trimtab.kube.wire.intern import Interner

OLDER_CLASS = {"volume.beta.kubernetes.io/storage-class": "old"}


def test_a_volumes_fields_are_read():
    value = (
        pv("volume-1")
        .labels({ZONE: "a", "team": "shop"})
        .csi("csi.example", "vol-1")
        .of_class("fast")
        .capacity("10Gi")
        .access("ReadWriteOnce", "ReadOnlyMany")
        .claimed_by("data", "shop", uid="u")
        .where(expression(ZONE, "In", "a"))
        .merge(metadata={"resourceVersion": "7"}, spec={"volumeAttributesClassName": "gold"})
        .build()
    )
    assert (value.key, value.uid, value.resource_version) == ("volume-1", "persistentvolume--volume-1", "7")
    assert (value.source, value.driver, value.handle, value.disk) == ("csi", "csi.example", "vol-1", ())
    assert (value.capacity, value.access_modes) == (10 << 30, ("ReadWriteOnce", "ReadOnlyMany"))
    assert (value.storage_class, value.attributes_class, value.volume_mode) == ("fast", "gold", "Filesystem")
    assert (value.claim, value.claim_uid, value.phase) == ("shop/data", "u", "Bound")
    assert value.labels == {ZONE: "a", "team": "shop"}
    assert value.node_affinity == NodeSelector((NodeSelectorTerm((LabelRequirement(ZONE, "In", ("a",)),)),))


def test_a_free_volume_belongs_to_no_claim():
    value = pv().build()
    assert (value.claim, value.claim_uid, value.node_affinity, value.attributes_class) == ("", "", None, None)
    assert value.phase == "Available"


def test_a_volume_reserved_by_hand_names_no_uid():
    value = pv().claimed_by("data", uid="").build()
    assert (value.claim, value.claim_uid, value.phase) == ("shop/data", "", "Available")


def test_a_node_affinity_without_required_terms_is_none():
    assert pv().merge(spec={"nodeAffinity": {}}).build().node_affinity is None


def test_the_older_annotation_names_the_class():
    assert pv().of_class("new").annotations(OLDER_CLASS).build().storage_class == "old"
    assert pvc().of_class("new").annotations(OLDER_CLASS).build().storage_class == "old"


DISKS = {
    "gcePersistentDisk": ({"pdName": "pd", "readOnly": True}, ("pd",)),
    "awsElasticBlockStore": ({"volumeID": "vol-1", "readOnly": True}, ("vol-1",)),
    "cinder": ({"volumeID": "c-1", "readOnly": True}, ("c-1",)),
    "portworxVolume": ({"volumeID": "p-1", "readOnly": True}, ("p-1",)),
    "azureDisk": ({"diskName": "d", "diskURI": "/x", "kind": "Managed", "readOnly": True}, ("/x", "Managed")),
}
INLINE_DISKS = DISKS | {
    "iscsi": ({"targetPortal": "t", "iqn": "iqn.x", "lun": 1, "readOnly": True}, ("iqn.x",)),
    "rbd": ({"monitors": ["m2", "m1"], "image": "i", "pool": "p", "readOnly": True}, ("p", "i", "m2", "m1")),
}


@pytest.mark.parametrize(("kind", "source", "disk"), [(kind, *each) for kind, each in DISKS.items()], ids=DISKS)
def test_the_disk_of_a_migrated_volume_is_kept(kind, source, disk):
    value = pv().source(kind, **source).build()
    assert (value.source, value.disk, value.driver, value.handle) == (kind, disk, "", "")


@pytest.mark.parametrize(
    ("kind", "source", "disk"), [(kind, *each) for kind, each in INLINE_DISKS.items()], ids=INLINE_DISKS
)
def test_the_disk_of_an_inline_volume_is_kept(kind, source, disk):
    assert pod().volume(kind, **source).build().spec.volumes == (Volume(kind, read_only=True, disk=disk),)


@pytest.mark.parametrize(
    ("kind", "source", "disk"),
    [("azureDisk", {"diskURI": "/x"}, ("/x", "Shared")), ("rbd", {"monitors": ["m"], "image": "i"}, ("rbd", "i", "m"))],
    ids=["azureDisk", "rbd"],
)
def test_inline_volumes_get_the_defaults_of_the_api_server(kind, source, disk):
    assert pod().volume(kind, **source).build().spec.volumes == (Volume(kind, disk=disk),)


def test_of_an_image_volume_the_reference_is_kept():
    volumes = pod().volume("image", reference="registry.example/data:1").build().spec.volumes
    assert volumes == (Volume("image", disk=("registry.example/data:1",)),)


@pytest.mark.parametrize("kind", ["local", "hostPath", "nfs", "fc", "scaleIO"])
def test_of_other_volumes_the_kind_is_kept(kind):
    value = pv().source(kind).build()
    assert (value.source, value.disk) == (kind, ())


def test_a_claims_fields_are_read():
    value = (
        pvc("data", "shop")
        .of_class("fast")
        .request("1500Mi")
        .access("ReadWriteOncePod")
        .block()
        .selecting(team="shop")
        .bound_to("volume-1")
        .selected_node("n1")
        .owned_by_pod("web-1")
        .merge(spec={"volumeAttributesClassName": "gold"})
        .build()
    )
    assert (value.key, value.volume, value.bind_completed, value.phase) == ("shop/data", "volume-1", True, "Bound")
    assert (value.storage_class, value.attributes_class, value.volume_mode) == ("fast", "gold", "Block")
    assert (value.request, value.access_modes) == (1500 << 20, ("ReadWriteOncePod",))
    assert value.selector == LabelSelector({"team": "shop"})
    assert value.selected_node == "n1"
    assert [(owner.kind, owner.name, owner.uid) for owner in value.owners] == [("Pod", "web-1", "pod-shop-web-1")]


def test_absent_fields_of_a_claim_stay_absent():
    value = decode_object({"kind": "PersistentVolumeClaim", "metadata": {"name": "data"}})
    assert (value.key, value.storage_class, value.request, value.selector) == ("default/data", None, None, None)
    assert (value.volume_mode, value.bind_completed, value.selected_node, value.phase) == (
        "Filesystem",
        False,
        None,
        "Pending",
    )


def test_an_empty_class_is_not_none_at_all():
    assert pvc().of_class("").build().storage_class == ""


def test_a_selected_node_may_be_empty_and_then_is_no_node():
    assert pvc().selected_node("").build().selected_node == ""


def test_a_storage_class_is_read():
    value = storage_class("fast", "csi.example").topology({ZONE: ("a", "b"), "disk": ("ssd",)}).topology({}).build()
    assert (value.key, value.provisioner, value.binding_mode) == ("fast", "csi.example", "WaitForFirstConsumer")
    assert value.allowed_topologies == (
        (TopologyRequirement(ZONE, ("a", "b")), TopologyRequirement("disk", ("ssd",))),
        (),
    )


def test_a_class_binds_immediately_by_default():
    manifest = storage_class().manifest()
    del manifest["volumeBindingMode"]
    assert decode_object(manifest).binding_mode == "Immediate"


def test_the_drivers_of_a_node_are_read():
    value = csi_node("n1").driver("a", 5).driver("b").driver("c", 0).migrated("x", "y").build()
    assert value.drivers == (NodeDriver("a", 5), NodeDriver("b"), NodeDriver("c", 0))
    assert (value.key, value.migrated) == ("n1", ("x", "y"))
    assert csi_node().build().migrated == ()


def test_nodes_share_equal_lists_of_drivers():
    interner = Interner()
    first, second = (decode_object(csi_node(name).driver("a", 5).manifest(), interner=interner) for name in "xy")
    assert first.drivers is second.drivers


def test_whether_a_drivers_capacity_counts_is_read():
    assert csi_driver(storage_capacity=True).build().storage_capacity
    assert not csi_driver().build().storage_capacity


def test_a_capacity_is_read():
    value = capacity("left", "storage", storage_class="fast", amount="100Gi").largest("1k").where(zone="a").build()
    assert (value.key, value.storage_class) == ("storage/left", "fast")
    assert (value.capacity, value.maximum_volume_size) == (100 << 30, 1000)
    assert value.node_topology == LabelSelector({"zone": "a"})


def test_an_absent_capacity_is_none():
    value = capacity(amount=None).build()
    assert (value.capacity, value.maximum_volume_size, value.node_topology) == (None, None, None)


def test_an_attachment_is_read():
    value = attachment("a", "volume-1", "n1", "csi.example").build()
    assert (value.key, value.volume, value.node, value.attacher) == ("a", "volume-1", "n1", "csi.example")


def test_an_attachment_of_an_inline_volume_names_no_volume():
    inline = attachment("a", "", "n1").merge(spec={"source": {"inlineVolumeSpec": {}}})
    assert inline.build().volume == ""


WRONG = {
    "a capacity": (pv().capacity("much"), "spec.capacity.storage"),
    "a request": (pvc().request("-1"), "spec.resources.requests.storage"),
    "what is left": (capacity(amount="x"), "capacity"),
    "the largest": (capacity().largest("-1"), "maximumVolumeSize"),
    "a limit": (csi_node().merge(spec={"drivers": [{"name": "a", "allocatable": {"count": "5"}}]}), "spec.drivers[0]"),
}


@pytest.mark.parametrize(("builder", "field"), WRONG.values(), ids=WRONG)
def test_errors_name_the_field(builder, field):
    with pytest.raises(InputError) as caught:
        builder.build()
    assert caught.value.field.startswith(field)
    assert caught.value.object.startswith(builder.manifest()["kind"])


@pytest.mark.parametrize(
    "manifest", [{"kind": kind, "metadata": {}} for kind in ("PersistentVolume", "CSINode", "VolumeAttachment")]
)
def test_a_name_is_required(manifest, golden: Golden):
    with pytest.raises(InputError) as raised:
        decode_object(manifest)
    golden(str(raised.value))


@pytest.mark.parametrize(
    ("kind", "version"),
    [("StorageClass", "storage.k8s.io/v1beta1"), ("CSIStorageCapacity", "storage.k8s.io/v1beta1")],
    ids=["class", "capacity"],
)
def test_older_versions_of_the_same_shape_are_read(kind, version):
    assert decode_object({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}}) is not None


def test_images_of_a_node_are_kept_by_every_name():
    value = node().image("a:1", "a@sha256:x", size=7).image("b:1", "a:1", size=8).build()
    assert value.images == {"a:1": 7, "a@sha256:x": 7, "b:1": 8}


def test_nodes_share_equal_images():
    interner = Interner()
    first, second = (decode_object(node(name).image("a:1", size=700).manifest(), interner=interner) for name in "xy")
    assert first.images is second.images
