"""Nodes that are added and that go, as the page tells them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from tests.builders import node, pod
from tests.unit.autoscaling.removing import NOW, flat, web, worker
from tests.unit.autoscaling.removing import group as machine_set
from tests.unit.autoscaling.scaling import group, waiting
from tests.unit.cli.report.pages import Reader, read_page
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.plan import Plan
from trimtab.autoscaling.planner import plan
from trimtab.autoscaling.scale_up import Inputs
from trimtab.cli.report import Report, report
from trimtab.cluster.snapshot import Snapshot

EVIL = "<script>alert(1)</script>"


def scaled(*parts: Any, **spec: Any) -> Report:
    """The report of an autoscaler's plan for a cluster of builders, without policies."""
    snapshot = Snapshot([builder.build() for builder in flat(parts)])
    autoscaler = msgspec.convert(spec, ClusterAutoscalerSpec)
    made, _ = plan(snapshot, Inputs(autoscaler, NOW))
    return report(made, (), snapshot, [], cluster="test", autoscaler=autoscaler)


def growing() -> Report:
    """A full node, a group that grows by three for five pods, and a pod that nothing helps."""
    pods = [waiting(f"web-{number}", cpu="1500m") for number in range(5)]
    return scaled(
        node("n1"),
        pod("full").on("n1").cpu("4"),
        group(),
        pods,
        waiting("big", cpu="64"),
    )


def shrinking() -> Report:
    """Two nodes of a group, of which one goes and its pod has a place on the other one."""
    of = machine_set(size=2)
    return scaled(worker("n1", of), worker("n2", of), of, web("a", "n1"), web("b", "n2", cpu="3"))


def cards(page: Reader) -> str:
    return " ".join(page.text.split())


def test_a_group_that_grows_is_told_with_its_pods() -> None:
    page = read_page(growing())

    (row,) = page.tables["Groups that grow"][1:]
    assert row[:5] == ["MachineSet/openshift-machine-api/a", "0", "3", "5", "PendingPods"]
    assert page.tables["Pods that get new nodes"][1:] == [
        [f"shop/web-{number}", "MachineSet/openshift-machine-api/a"] for number in range(5)
    ]
    assert page.tables["Pods without a node, by why"][1:] == [["PendingPods", "5"], ["NoGroupFits", "1"]]
    assert "1 node now, 3 asked for, 0 removed: 4 nodes once all of it is done." in page.text
    for told in ("3 nodes asked for", "0 nodes removed", "4 nodes after that", "5 pending pods that get new nodes"):
        assert told in cards(page)


def test_what_nothing_helps_and_what_stays_is_told_with_its_reason() -> None:
    page = read_page(growing())

    assert page.tables["Kept: NoGroupFits"][1][0] == "shop/big"
    assert page.tables["Kept: NotAutoscaled"][1][0] == "Node n1"
    assert {"kept-NoGroupFits", "kept-NotAutoscaled"} <= set(page.ids)


def test_a_node_that_goes_is_told_with_the_places_of_its_pods() -> None:
    made = shrinking()
    page = read_page(made)

    (row,) = page.tables["Nodes that go, in order"][1:]
    assert row[:4] == ["n1", "MachineSet/openshift-machine-api/a", "1", "Underutilized"]
    assert page.tables["Where the pods of nodes that go have places"][1:] == [["shop/a", "n1", "n2"]]
    assert "2 nodes now, 0 asked for, 1 removed: 1 node once all of it is done." in page.text


def test_a_node_that_goes_has_nothing_after_and_its_pods_count_where_they_will_be() -> None:
    usage = shrinking().usage

    assert (usage.names, usage.going) == (("n1", "n2"), frozenset({"n1"}))
    assert usage.before[:, 0].tolist() == [12.5, 75]
    assert np.isnan(usage.after[0]).all()
    assert usage.after[1, 0] == 87.5
    assert (usage.leaving.tolist(), usage.arriving.tolist()) == ([1, 0], [0, 1])


def test_the_pictures_say_that_a_node_goes() -> None:
    page = read_page(shrinking())

    assert "n1 (goes): cpu after gone" in page.text
    assert "12 → gone" in page.text
    assert "1 node goes" in page.text
    numbers = page.tables["Pods moved and requests in percent, before and after"]
    assert numbers[1][:4] == ["n1 (goes)", "1", "0", "12.5 → gone"]


def test_a_plan_with_nothing_to_do_says_so() -> None:
    page = read_page(scaled(node("n1")))

    assert "no pod waits for a node that could be added, and no node can go" in page.text
    assert "No pod waits for a node." in page.text
    assert "1 node; none is added and none goes." in page.text


def test_a_plan_of_policies_alone_has_no_such_section() -> None:
    content = growing()
    page = read_page(msgspec.structs.replace(content, plan=Plan(now=NOW)))
    assert "machines" not in page.ids
    assert "machines" in read_page(content).ids


def test_the_autoscaler_is_shown_in_full() -> None:
    first = growing().policies[0]
    assert (first.name, first.mode, first.strategies) == ("ClusterAutoscaler", "Act", ("ScaleUp", "ScaleDown"))
    held = scaled(node("n1"), scaleDown={"enabled": False}).policies[0]
    assert held.strategies == ("ScaleUp",)
    assert "enabled: false" in held.yaml


@pytest.mark.parametrize(("everything", "rows"), [(False, 2000), (True, 2500)])
def test_the_page_stays_small_unless_all_is_asked_for(everything: bool, rows: int) -> None:
    content = growing()
    (action,) = content.plan.scaling or ()
    many = msgspec.structs.replace(action, pods=tuple(f"shop/web-{number:04}" for number in range(2500)))
    content = msgspec.structs.replace(content, plan=msgspec.structs.replace(content.plan, scaling=(many,)))
    page = read_page(content, everything=everything)
    assert len(page.tables["Pods that get new nodes"]) == rows + 1
    assert ("of which 2,000 are shown" in page.text) is not everything


def test_names_and_messages_are_text_and_no_markup() -> None:
    content = shrinking()
    (action,) = content.plan.scaling or ()
    evil = msgspec.structs.replace(action, message=EVIL, group=EVIL, reason=EVIL)
    page = read_page(msgspec.structs.replace(content, plan=msgspec.structs.replace(content.plan, scaling=(evil,))))
    assert page.tables["Nodes that go, in order"][1][1] == EVIL
    assert [tag for tag, _ in page.tags].count("script") == 1
