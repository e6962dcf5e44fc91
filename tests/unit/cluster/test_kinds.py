"""The kinds of the picture agree, wherever they are listed."""

import pytest

from trimtab.cluster.kinds import AUTOSCALING, EVERYTHING, KINDS, MAY_LACK, OPTIONAL, TAINTING, versions
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import TYPES
from trimtab.kube.wire.decode import decode_object
from trimtab.kube.wire.head import GROUPS


def test_what_is_read_of_a_server_is_what_can_be_decoded():
    assert {resource.type_name: resource.group for resource in (*EVERYTHING, *TAINTING)} == GROUPS
    assert set(GROUPS) == set(TYPES)
    assert set(KINDS) > MAY_LACK
    assert set(EVERYTHING) == {*KINDS, *AUTOSCALING}
    assert not set(KINDS) & OPTIONAL


@pytest.mark.parametrize("resource", EVERYTHING, ids=lambda resource: resource.name)
def test_every_version_that_is_asked_for_is_decoded(resource):
    for version in versions(resource):
        value = decode_object({"apiVersion": version.api_version, "kind": version.kind, "metadata": {"name": "a"}})
        assert type(value) is TYPES[resource.type_name]


@pytest.mark.parametrize("resource", EVERYTHING, ids=lambda resource: resource.name)
def test_objects_are_keyed_as_the_server_names_them(resource):
    value = decode_object({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "a"}})
    assert type(value) is TYPES[resource.type_name]
    assert value.key == ("default/a" if resource.namespaced else "a")


@pytest.mark.parametrize("resource", EVERYTHING, ids=lambda resource: resource.name)
def test_every_kind_finds_a_place_in_the_snapshot_and_leaves_it(resource):
    value = decode_object({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "a"}})
    snapshot = Snapshot([value])
    found = {"Pod": snapshot.pods, "Node": snapshot.nodes.slot_of}
    shelf = found.get(resource.kind, snapshot.shelves.of(TYPES[resource.type_name]))
    assert value.key in shelf
    snapshot.remove(value)
    assert value.key not in shelf
