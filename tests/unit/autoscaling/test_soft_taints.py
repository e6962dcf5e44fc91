"""Groups with PreferNoSchedule taints are scaled up for intolerant pods only if no other group fits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import HOSTNAME, ZONE, node, pod
from tests.unit.autoscaling.scale_up_helpers import group, pending_pod, planned, reasons, sizes

SOFT = "PreferNoSchedule"


def ssd(**more: Any) -> Any:
    """A group whose nodes would be preferred for every pod without the taint."""
    return group("ssd", cpu="2", memory="2Gi", **more).node_labels({ZONE: "x"}).node_taint("disktype", "ssd", SOFT)


def plain(**more: Any) -> Any:
    return group("plain", cpu="8", memory="64Gi", **more).node_labels({ZONE: "x"})


def web(number: int = 2, **more: Any) -> list[Any]:
    made = [pending_pod(f"web-{each}").labels(app="web") for each in range(number)]
    return [each.spread(ZONE) for each in made] if more.get("together") else made


TOGETHER = pytest.mark.parametrize("together", [False, True], ids=["countable", "coscheduled"])


@TOGETHER
def test_pods_that_do_not_tolerate_the_taint_get_nodes_without_it(together: bool) -> None:
    assert sizes(planned(ssd(), plain(), *web(together=together))) == {"plain": (0, 1)}


@TOGETHER
def test_pods_that_tolerate_the_taint_get_any_fitting_node(together: bool) -> None:
    pods = [each.tolerates("disktype", "ssd") for each in web(together=together)]

    assert sizes(planned(ssd(), plain(), *pods)) == {"ssd": (0, 1)}


@TOGETHER
@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([], {"ssd": (0, 4)}),
        ([plain(most=0)], {"ssd": (0, 4)}),
        ([plain(most=1).capacity(cpu="4")], {"plain": (0, 1), "ssd": (0, 2)}),
        ([plain().annotations({"cluster.x-k8s.io/paused": ""})], {"ssd": (0, 4)}),
    ],
    ids=["no other group", "other group at its maximum", "other group has some room", "other group paused"],
)
def test_tainted_group_is_scaled_up_if_no_other_fits(
    others: list[Any], expected: dict[str, Any], together: bool
) -> None:
    made = planned(ssd(), *others, *web(8, together=together))

    assert sizes(made) == expected
    assert not [name for name in reasons(made) if name.startswith("web")]


def test_group_with_the_fewest_taints_is_scaled_up() -> None:
    twice = ssd().node_taint("other", effect=SOFT)
    once = group("once", cpu="16", memory="64Gi").node_taint("disktype", "ssd", SOFT)

    assert sizes(planned(twice, once, *web())) == {"once": (0, 1)}


def test_each_class_of_pods_has_its_own_groups() -> None:
    wanting = [pod(f"db-{each}").cpu("1").memory("1Gi").unschedulable() for each in range(4)]
    db = [each.tolerates("disktype", "ssd").anti_affinity(HOSTNAME).labels(app="db") for each in wanting]

    assert sizes(planned(ssd(), plain(), *db, *web(8))) == {"ssd": (0, 4), "plain": (0, 1)}


def test_existing_tainted_nodes_are_used_as_the_scheduler_does() -> None:
    there = node("n1").taint("disktype", "ssd", SOFT)
    made = planned(ssd(), plain(), there, *web())

    assert sizes(made) == {}
    assert set(reasons(made).values()) == {"FitsOnNode"}


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.integers(0, 2), st.booleans())
def test_soft_taint_never_keeps_a_pod_pending(tolerates: list[bool], most: int, together: bool) -> None:
    def pods() -> list[Any]:
        made = web(len(tolerates), together=together)
        return [each.tolerates("disktype") if ok else each for each, ok in zip(made, tolerates, strict=True)]

    free = planned(group("ssd", cpu="2", memory="2Gi").node_labels({ZONE: "x"}), plain(most=most), *pods())
    soft = planned(ssd(), plain(most=most), *pods())

    assert reasons(free) == reasons(soft) == {}
