"""The benchmark runs the operator on real sockets, so a small one is an end-to-end test of readings over TLS."""

from __future__ import annotations

import ctypes
import ssl
from collections.abc import Callable

import pytest

from benchmarks import kubelets, node_pressure
from trimtab.pressure.kubelet_connections import KubeletConnections

KUBELETS = 120


def test_all_nodes_are_read_and_planned_in_each_interval() -> None:
    found = list(node_pressure.measure(nodes=KUBELETS, intervals=4, hanging=1, interval=5.0))
    last = found[-1]
    assert (last.read, last.under_pressure) == (KUBELETS - 1, 1)  # of the two nodes under pressure, one hangs
    assert last.evicted >= 1
    assert last.peak_rss_mb < 150


async def test_connection_needs_little_memory_after_its_first_response() -> None:
    allocated = _allocated_bytes()
    if allocated is None:
        pytest.skip("the C library is not glibc")
    with node_pressure.serving(KUBELETS, 0) as (_, first_port, ca):
        context = ssl.create_default_context(cafile=ca)
        connections = KubeletConnections(context, user_agent="test", loopback=True)
        before = allocated()
        for number in range(KUBELETS):
            host, port = kubelets.address_of(number, first_port)
            await connections.get(host, port, "/stats/summary", authorization=f"Bearer {kubelets.TOKEN}")
        used = allocated() - before
        assert len(connections) == KUBELETS
        connections.close()
    assert used < KUBELETS * 28 * 2**10  # a buffer of OpenSSL has 16 KiB


def _allocated_bytes() -> Callable[[], int] | None:
    """Return a function that returns the bytes that this process has allocated from the C library's heap."""

    class Statistics(ctypes.Structure):  # struct mallinfo2 of malloc.h
        _fields_ = [(name, ctypes.c_size_t) for name in ("a", "b", "c", "d", "e", "f", "g", "used", "free", "kept")]

    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return None
    mallinfo2.restype = Statistics
    return lambda: int(mallinfo2().used)
