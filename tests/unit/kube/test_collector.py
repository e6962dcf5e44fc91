"""The garbage collector is paused in a block, and enabled afterwards only if it was enabled before."""

from __future__ import annotations

import gc

import pytest

from trimtab.kube.collector import collector_paused


@pytest.mark.parametrize("enabled", [True, False])
def test_collector_is_restored_after_the_block(*, enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with collector_paused():
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_inner_block_does_not_end_the_pause_of_the_outer_one() -> None:
    with collector_paused():
        with collector_paused():
            pass
        assert not gc.isenabled()
