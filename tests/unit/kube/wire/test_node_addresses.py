"""The addresses and the port of a node's kubelet."""

from __future__ import annotations

import pytest

from tests.builders import node
from tests.unit.kube.wire.test_lease import every_way


def addresses(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"type": kind, "address": address} for kind, address in pairs]


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        pytest.param((), (), id="none"),
        pytest.param(
            (("Hostname", "n1"), ("InternalDNS", "n1.local"), ("ExternalIP", "192.0.2.7"), ("InternalIP", "10.0.0.7")),
            ("10.0.0.7", "192.0.2.7", "n1"),
            id="in order of preference",
        ),
        pytest.param((("InternalIP", "10.0.0.7"), ("InternalIP", "fd00::7")), ("10.0.0.7",), id="the first family"),
        pytest.param((("InternalIP", ""), ("Hostname", "n" * 254)), (), id="empty and too long"),
    ],
)
def test_node_has_the_addresses_of_its_kubelet_from_every_format(
    reported: tuple[tuple[str, str], ...], expected: tuple[str, ...]
) -> None:
    manifest = node("n1").manifest()
    manifest["status"] |= {"addresses": addresses(*reported), "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}
    values = every_way(manifest)
    assert {(each.addresses, each.kubelet_port) for each in values} == {(expected, 10250)}


def test_port_of_a_node_without_endpoints_is_unknown() -> None:
    assert {each.kubelet_port for each in every_way(node("n1").manifest())} == {0}
