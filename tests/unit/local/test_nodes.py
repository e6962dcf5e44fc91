from __future__ import annotations

import ipaddress

import pytest

from trimtab_local.machines.machine import running
from trimtab_local.nodes import as_ready, internal_ip, node, numbered


def test_nodes_of_a_group_have_addresses_of_their_own() -> None:
    found = [internal_ip(f"node-{number}") for number in range(1, 5001)]
    assert len(set(found)) == 5000
    network = ipaddress.ip_network("10.128.0.0/9")
    assert all(ipaddress.ip_address(address) in network for address in found)


def test_a_node_keeps_its_address_when_it_is_created_again() -> None:
    assert internal_ip("workers-a-x7b2f") == internal_ip("workers-a-x7b2f")
    assert internal_ip("workers-a-x7b2f") != internal_ip("workers-b-x7b2f")


@pytest.mark.parametrize("manifest", [numbered(1)[0], as_ready(node("node-1", zone="a"), version="v1", now="")])
def test_a_node_reports_an_internal_address_and_its_name(manifest) -> None:
    addresses = {each["type"]: each["address"] for each in manifest["status"]["addresses"]}
    assert addresses == {"InternalIP": internal_ip("node-1"), "Hostname": "node-1"}


def test_a_machine_reports_the_addresses_of_its_node() -> None:
    assert running("node-1", "u").patch["status"]["addresses"] == node("node-1", zone="a")["status"]["addresses"]
