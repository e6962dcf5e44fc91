"""The kinds of the picture agree, wherever they are listed."""

import pytest

from trimtab.cluster.kinds import (
    ABSENT_ON_OLD_SERVERS,
    ADDITIONAL,
    AUTOSCALING,
    KINDS,
    OPTIONAL,
    REQUIRED,
    SNAPSHOT_KINDS,
    TAINTING,
    versions,
)
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import TYPES
from trimtab.kube.wire.decode import decode_object
from trimtab.kube.wire.identity import GROUPS


def test_all_watched_kinds_can_be_decoded():
    assert {resource.type_name: resource.group for resource in (*SNAPSHOT_KINDS, *TAINTING)} == GROUPS
    assert set(GROUPS) == set(TYPES)
    assert set(KINDS) > ABSENT_ON_OLD_SERVERS
    assert set(SNAPSHOT_KINDS) == {*KINDS, *AUTOSCALING}
    assert set(KINDS) & OPTIONAL == set(ADDITIONAL)
    assert set(KINDS) - OPTIONAL == set(REQUIRED)


def test_every_requested_version_is_decoded():
    for resource in SNAPSHOT_KINDS:
        for version in versions(resource):
            value = decode_object({"apiVersion": version.api_version, "kind": version.kind, "metadata": {"name": "a"}})
            assert type(value) is TYPES[resource.type_name], version


def test_keys_of_namespaced_objects_contain_the_namespace():
    for resource in SNAPSHOT_KINDS:
        value = decode_object({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "a"}})
        assert value.key == ("default/a" if resource.namespaced else "a"), resource.name


@pytest.mark.parametrize("resource", SNAPSHOT_KINDS, ids=lambda resource: resource.name)
def test_every_kind_can_be_added_to_and_removed_from_the_snapshot(resource):
    value = decode_object({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "a"}})
    snapshot = Snapshot([value])
    found = {"Pod": snapshot.pods, "Node": snapshot.nodes.slot_of}
    shelf = found.get(resource.kind, snapshot.objects.of(TYPES[resource.type_name]))
    assert value.key in shelf
    snapshot.remove(value)
    assert value.key not in shelf
