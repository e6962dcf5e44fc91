"""Expensive nodes are replaced by cheaper ones, which register first, also if the process is killed in between."""

from __future__ import annotations

import signal

from tests.e2e.conftest import Start
from tests.fixtures.audit import broken_budgets, pods_lost, require_none
from tests.fixtures.autoscaling import SHORT, TO_BE_DELETED, Fleet, marks

REPLACE = {**SHORT, "replace": "Enabled"}


def dear_and_cheap(fleet: Fleet, boot: str = "500ms") -> None:
    """An expensive node with five pods above the utilization threshold; two cheap nodes would hold them."""
    fleet.group("big", replicas=1, maximum=3, cpu="8", annotations={"trimtab.dev/price": "0.8"})
    fleet.group("small", maximum=5, cpu="4", boot=boot, annotations={"trimtab.dev/price": "0.3"})
    fleet.deploy("web", 5, cpu="1100m")
    fleet.until_running("web", 5)
    assert fleet.pools("web") == {"big": 5}


def test_expensive_node_is_removed_after_cheaper_ones_registered(fleet: Fleet, operate: Start) -> None:
    dear_and_cheap(fleet)
    fleet.autoscale(scaleDown=REPLACE)
    operate()

    fleet.until_sizes(small=2, big=0, seconds=90)

    fleet.until_running("web", 5)
    assert fleet.pools("web") == {"small": 5}
    (grown,) = fleet.events("ScaledUpGroup")
    assert "small" in grown["note"]
    fleet.until(lambda: not fleet.status().get("replacements"), "the replacement is done")
    assert fleet.audit.scales("small") == [2]
    assert fleet.audit.scales("big") == [0]
    assert not pods_lost(fleet.audit, fleet.pods_namespace)
    for _ in range(3):
        fleet.iterate_twice()
    assert fleet.sizes("small", "big") == {"small": 2, "big": 0}, "nothing is replaced back"
    assert not any(TO_BE_DELETED in each for each in fleet.leftovers().values())


def test_replacement_resumes_after_two_kills(fleet: Fleet, operate: Start) -> None:
    dear_and_cheap(fleet, boot="4s")
    fleet.budget("web", maxUnavailable=5)
    fleet.autoscale(scaleDown=REPLACE)
    first = operate()
    fleet.until(lambda: fleet.status().get("replacements"), "a replacement is written down")
    first.stop(signal.SIGKILL)

    second = operate()
    (old,) = fleet.nodes("big")
    fleet.until(lambda: TO_BE_DELETED in marks(fleet.all_nodes()[old]), "the old node is being removed", seconds=90)
    second.stop(signal.SIGKILL)
    operate()

    fleet.until_sizes(small=2, big=0, seconds=90)
    fleet.until_running("web", 5)
    fleet.until(lambda: not fleet.status().get("replacements"), "the replacement is done")
    assert fleet.audit.scales("small") == [2], "asked for once"
    require_none(broken_budgets(fleet.audit, fleet.pods_namespace))
    assert not any(TO_BE_DELETED in each for each in fleet.leftovers().values())
