"""Nodes that are added and that go, as the page tells them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from tests.builders import node, pod
from tests.fixtures.golden import Golden
from tests.unit.autoscaling.scale_down_plans import NOW, flat, web, worker
from tests.unit.autoscaling.scale_down_plans import group as machine_set
from tests.unit.autoscaling.scale_up_helpers import group, pending_pod
from tests.unit.cli.report.pages import read_page
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.plan import Plan
from trimtab.autoscaling.planner import plan
from trimtab.autoscaling.scale_up import PlanInputs
from trimtab.cli.report import Report, report
from trimtab.cluster.snapshot import Snapshot

EVIL = "<script>alert(1)</script>"


def scaled(*parts: Any, **spec: Any) -> Report:
    """The report of an autoscaler's plan for a cluster of builders, without policies."""
    snapshot = Snapshot([builder.build() for builder in flat(parts)])
    autoscaler = msgspec.convert(spec, ClusterAutoscalerSpec)
    made, _ = plan(snapshot, PlanInputs(autoscaler, NOW))
    return report(made, (), snapshot, [], cluster="test", autoscaler=autoscaler)


def growing() -> Report:
    """A full node, a group that grows by three for five pods, and a pod that nothing helps."""
    pods = [pending_pod(f"web-{number}", cpu="1500m") for number in range(5)]
    return scaled(
        node("n1"),
        pod("full").on("n1").cpu("4"),
        group(),
        pods,
        pending_pod("big", cpu="64"),
    )


def shrinking() -> Report:
    """Two nodes of a group, of which one goes and its pod has a place on the other one."""
    of = machine_set(size=2)
    return scaled(worker("n1", of), worker("n2", of), of, web("a", "n1"), web("b", "n2", cpu="3"))


def test_scale_up_is_shown_with_its_pods(golden: Golden) -> None:
    page = read_page(growing())

    pending, groups, pods = page.tables["machines"]
    assert pending[1:] == [["PendingPods", "5"], ["NoGroupFits", "1"]]
    (row,) = groups[1:]
    assert row[:5] == ["MachineSet/openshift-machine-api/a", "0", "3", "5", "PendingPods"]
    assert pods[1:] == [[f"shop/web-{number}", "MachineSet/openshift-machine-api/a"] for number in range(5)]
    golden(page.sections["summary"], "summary")
    golden(page.sections["machines"], "machines")


def test_kept_pods_and_nodes_are_shown_with_reasons() -> None:
    page = read_page(growing())

    assert page.tables["kept-NoGroupFits"][0][1][0] == "shop/big"
    assert page.tables["kept-NotAutoscaled"][0][1][0] == "Node n1"
    assert {"kept-NoGroupFits", "kept-NotAutoscaled"} <= set(page.ids)


def test_node_removal_is_shown_with_pod_targets(golden: Golden) -> None:
    made = shrinking()
    page = read_page(made)

    nodes, targets = page.tables["machines"]
    (row,) = nodes[1:]
    assert row[:4] == ["n1", "MachineSet/openshift-machine-api/a", "1", "Underutilized"]
    assert targets[1:] == [["shop/a", "n1", "n2"]]
    golden(page.sections["machines"])


def test_removed_node_has_no_usage_and_its_pods_count_on_targets() -> None:
    usage = shrinking().usage

    assert (usage.names, usage.going) == (("n1", "n2"), frozenset({"n1"}))
    assert usage.before[:, 0].tolist() == [12.5, 75]
    assert np.isnan(usage.after[0]).all()
    assert usage.after[1, 0] == 87.5
    assert (usage.leaving.tolist(), usage.arriving.tolist()) == ([1, 0], [0, 1])


def test_charts_show_node_removals(golden: Golden) -> None:
    page = read_page(shrinking())

    (numbers,) = page.tables["nodes"]
    assert numbers[1][1:3] == ["1", "0"]
    golden(page.sections["nodes"])


def test_empty_plan_is_reported(golden: Golden) -> None:
    page = read_page(scaled(node("n1")))

    golden(page.sections["summary"], "summary")
    golden(page.sections["machines"], "machines")


def test_plan_without_autoscaler_has_no_node_section() -> None:
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
def test_page_is_small_unless_all_is_given(everything: bool, rows: int, golden: Golden) -> None:
    content = growing()
    (action,) = content.plan.scaling or ()
    many = msgspec.structs.replace(action, pods=tuple(f"shop/web-{number:04}" for number in range(2500)))
    content = msgspec.structs.replace(content, plan=msgspec.structs.replace(content.plan, scaling=(many,)))
    page = read_page(content, everything=everything)
    _, _, pods = page.tables["machines"]
    assert len(pods) == rows + 1
    golden("\n".join(line for line in page.sections["machines"].splitlines() if "2,500" in line))


def test_names_and_messages_are_escaped() -> None:
    content = shrinking()
    (action,) = content.plan.scaling or ()
    evil = msgspec.structs.replace(action, message=EVIL, group=EVIL, reason=EVIL)
    page = read_page(msgspec.structs.replace(content, plan=msgspec.structs.replace(content.plan, scaling=(evil,))))
    assert page.tables["machines"][0][1][1] == EVIL
    assert [tag for tag, _ in page.tags].count("script") == 1
