"""The benchmark reads real sockets, so a small one is an end-to-end test of readings over TLS."""

from __future__ import annotations

import pytest

from benchmarks import node_pressure
from tests.fixtures.waiting import patiently


async def test_all_nodes_are_read_and_planned_in_each_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_pressure, "INTERVAL", patiently(2.0))
    with node_pressure.serving(120, 1) as (pid, first_port, ca):
        found = await node_pressure.run(120, 2, pid, first_port, ca)
    assert [(each.read, each.unread, each.met) for each in found] == [(119, 1, 1)] * 2  # one of them hangs
