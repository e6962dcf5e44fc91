"""The kinds of the picture agree, wherever they are listed."""

import pytest

from trimtab.cluster.kinds import KINDS, MAY_LACK
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import TYPES
from trimtab.kube.wire.decode import GROUPS, decode_object


def test_what_is_read_of_a_server_is_what_can_be_decoded():
    assert {resource.kind: resource.group for resource in KINDS} == GROUPS
    assert set(GROUPS) == set(TYPES)
    assert set(KINDS) > MAY_LACK


@pytest.mark.parametrize("resource", KINDS, ids=[resource.plural for resource in KINDS])
def test_objects_are_keyed_as_the_server_names_them(resource):
    value = decode_object({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "a"}})
    assert type(value) is TYPES[resource.kind]
    assert value.key == ("default/a" if resource.namespaced else "a")


@pytest.mark.parametrize("resource", KINDS, ids=[resource.plural for resource in KINDS])
def test_every_kind_finds_a_place_in_the_snapshot_and_leaves_it(resource):
    value = decode_object({"kind": resource.kind, "metadata": {"name": "a"}})
    snapshot = Snapshot([value])
    found = {"Pod": snapshot.pods, "Node": snapshot.nodes.slot_of}
    shelf = found.get(resource.kind, snapshot.shelves.of(TYPES[resource.kind]))
    assert value.key in shelf
    snapshot.remove(value)
    assert value.key not in shelf
