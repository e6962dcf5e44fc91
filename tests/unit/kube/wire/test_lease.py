"""Leases and nodes' heartbeats, as values."""

import msgspec
import pytest

from tests.builders import lease, node
from tests.protobuf import encode_object
from trimtab.kube.wire.decode import decode_json, decode_object
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.protobuf import decode_protobuf

RENEWED = "2026-11-20T12:00:07.123457Z"


def every_way(manifest):
    """The value from a mapping, from JSON and from protobuf."""
    kind = manifest["kind"]
    return (
        decode_object(manifest),
        decode_json(kind, msgspec.json.encode(manifest)),
        decode_protobuf(kind, encode_object(manifest), interner=Interner()),
    )


def test_a_lease_is_one_value_from_every_format_to_the_microsecond():
    values = every_way(lease("n1").renewed(RENEWED).manifest())
    assert len(set(values)) == 1
    [value] = set(values)
    assert (value.key, value.holder, value.duration, value.renewed) == (
        "kube-node-lease/n1",
        "n1",
        40,
        1795176007.123457,
    )


@pytest.mark.parametrize("spec", [{}, {"renewTime": None, "holderIdentity": None}], ids=["absent", "null"])
def test_a_lease_may_have_no_renew_time(spec):
    manifest = lease("n1").manifest() | {"spec": spec}
    assert decode_object(manifest).renewed is None
    assert decode_object(manifest).holder == ""


def test_a_node_has_the_heartbeat_of_its_ready_condition_from_every_format():
    values = every_way(
        node("n1")
        .condition("DiskPressure", "False", since="2026-11-20T11:00:00Z")
        .condition("Ready", "True", since="2026-11-20T12:00:00Z")
        .manifest()
    )
    assert {value.heartbeat for value in values} == {1795176000.0}
    assert len(set(values)) == 1


def test_a_node_without_a_status_has_no_heartbeat():
    manifest = node("n1").manifest()
    manifest["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "lastHeartbeatTime": None}]
    assert {value.heartbeat for value in every_way(manifest)} == {None}
