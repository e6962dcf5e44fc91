"""Replacements of nodes by fewer or cheaper nodes, from the plan to the removal of the last old node."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from tests.builders import budget, pod
from tests.fakes.slow_namespace import SlowNamespace
from tests.fixtures.golden import Golden
from tests.unit.autoscaling.replacement_cluster import (
    NOW,
    World,
    group,
    kept_reasons,
    message,
    removals,
    ups,
    web,
    worker,
)
from tests.unit.autoscaling.scale_up_helpers import pending_pod
from trimtab.api.cluster_autoscaler import ResourceLimits
from trimtab.api.plan import ScaleUp
from trimtab.autoscaling.groups import build_groups
from trimtab.autoscaling.replace import candidates, planner
from trimtab.autoscaling.scale_up import PlanInputs
from trimtab.cluster.snapshot import Snapshot
from trimtab.placement.placer import Placer
from trimtab.placement.plan_budget import PlanBudget

CPUS = {"big": "8", "small": "4", "dear": "4", "cheap": "4"}


def one_big(**scale_down: Any) -> World:
    """An expensive node of 8 cpus above the utilization threshold, whose pods fit on two cheap nodes of 4 cpus."""
    big, small = group("big", "0.8", size=1, cpu="8"), group("small", "0.3", cpu="4")
    pods = [web(f"web-{each}", "n1") for each in range(5)]
    return World(big, small, worker("n1", big, cpu="8"), pods, **scale_down)


def four_small(price: str = "0.5") -> World:
    """Four nodes of 4 cpus with 2.5 requested each; all pods fit on two nodes of 8 cpus."""
    small, big = group("small", "0.3", size=4), group("big", price, cpu="8")
    pods = [[web(f"a-{each}", f"n{each}", "1500m"), web(f"b-{each}", f"n{each}", "1")] for each in range(4)]
    return World(small, big, [worker(f"n{each}", small) for each in range(4)], pods)


def tenant_pod(name: str, cpu: str = "1") -> Any:
    return pod(name, "tenant").cpu(cpu).memory("1Gi")


def blocking_pod(node: str, namespace: str) -> Any:
    """A pod without a controller, which blocks the drain of its node."""
    return pod(f"x-{node}", namespace).cpu("4500m").memory("1Gi").on(node).ready()


def pinned_pod(name: str, node: str, cpu: str) -> Any:
    """A pod of the tenant that does not block the drain of its node, and fits on no other node."""
    made = tenant_pod(name, cpu).on(node).owned_by("ReplicaSet", "x").ready()
    return made.node_selector(**{"kubernetes.io/hostname": node})


def moving_pod(name: str, node: str) -> Any:
    """A pod of the tenant that does not block the drain of its node, and needs a node of more than 4 cpus."""
    return tenant_pod(name, "4500m").on(node).owned_by("ReplicaSet", "x").ready()


def replacement_candidates(world: World, now: float) -> candidates.ReplacementCandidates:
    """The candidates of a plan, if all groups have the same price."""
    snapshot = world.snapshot()
    groups = build_groups(snapshot)
    prices = dict.fromkeys(groups.by_id, Fraction(1))
    return candidates.ReplacementCandidates(snapshot, Placer(snapshot), groups, PlanInputs(world.spec, now), prices)


def accepted(world: World, now: float) -> list[str]:
    """The nodes that may be replaced together, by rank."""
    return [each.node.name for each in replacement_candidates(world, now).of(None)]


def replaced(world: World) -> list[str]:
    """The nodes that the last plan replaces."""
    assert world.promises is not None
    (record,) = world.promises.replacements
    return [each.name for each in record.nodes]


def first_replaced(world: World, plans: int = 100) -> list[str]:
    """The nodes that the first plan with a replacement replaces; none if this number of plans has none."""
    for _ in range(plans):
        if ups(world.plan()):
            return replaced(world)
        world.now += 10
    return []


class TestPlan:
    def test_expensive_node_is_replaced_by_cheaper_nodes(self, golden: Golden) -> None:
        world = one_big()

        made = world.plan()

        assert ups(made) == {"small": (0, 2)}
        (action,) = made.scaling or ()
        assert isinstance(action, ScaleUp)
        assert (action.reason, action.pods) == ("Replacement", ())
        golden(action.message)

    def test_pods_that_belong_together_get_one_new_node(self) -> None:
        big, medium = group("big", "0.8", size=1, cpu="8"), group("medium", "0.5", cpu="6")
        pods = [web(f"web-{each}", "n1").affinity() for each in range(5)]

        made = World(big, medium, worker("n1", big, cpu="8"), pods).plan()

        assert ups(made) == {"medium": (0, 1)}

    def test_pods_that_wait_for_each_other_share_new_nodes_with_others(self) -> None:
        """The pod that needs the company of web goes to one of the nodes that web gets."""
        big, small = group("big", "0.8", size=1, cpu="8"), group("small", "0.3", cpu="4")
        near = {"labelSelector": {"matchLabels": {"app": "web"}}}
        pods = [*(web(f"web-{each}", "n1") for each in range(5)), web("side", "n1", app="side").affinity(**near)]

        made = World(big, small, worker("n1", big, cpu="8"), pods).plan()

        assert ups(made) == {"small": (0, 2)}

    def test_best_ranked_nodes_are_judged_in_each_plan_if_none_is_blocked(self) -> None:
        """Empty nodes come first. Scale-down removes them."""
        names = [f"n{each:03}" for each in range(160)]
        big = group("big", "0.8", size=len(names), cpu="8")
        pods = [web(f"web-{name}", name, "4500m") for name in names[100:]]
        world = World(big, [worker(name, big, cpu="8") for name in names], pods)

        for now in range(10):
            assert accepted(world, NOW + now) == names[100:120]

    def test_nodes_are_replaced_by_fewer_nodes(self, golden: Golden) -> None:
        made = four_small().plan()

        assert ups(made) == {"big": (0, 1)}
        assert made.scaling is not None
        golden(made.scaling[0].message)

    def test_pods_that_fit_on_existing_nodes_need_no_replacement(self) -> None:
        world = one_big()
        other = group("other", None, size=1)
        for each in (other, *worker("n2", other), web("x", "n2", "3")):
            world.builders[world._key(each)] = each

        assert ups(world.plan()) == {"small": (0, 1)}

    def test_static_pod_that_is_not_counted_is_no_pending_pod(self) -> None:
        world = one_big()
        forged = pod("x-n1", "tenant").on("n1").mirror().phase("Pending")
        world.builders[world._key(forged)] = forged

        made = world.plan()

        assert ups(made) == {"small": (0, 2)}
        assert [each.kind for each in made.kept if each.reason == "StaticPodNotCounted"] == ["MachineSet"]

    def test_replace_is_disabled_by_default(self) -> None:
        made = one_big(replace="Disabled").plan()

        assert not made.scaling
        assert not kept_reasons(made)

    def test_nothing_is_replaced_if_scale_down_is_disabled(self) -> None:
        assert not one_big(enabled=False).plan().scaling

    @pytest.mark.parametrize(
        ("threshold", "replaced"), [("0.15", True), ("0.25", True), ("0.26", False)], ids=["less", "equal", "more"]
    )
    def test_saving_must_reach_the_threshold(self, threshold: str, replaced: bool, golden: Golden) -> None:
        made = one_big(replaceThreshold=threshold).plan()

        assert bool(ups(made)) is replaced
        assert kept_reasons(made) == ({} if replaced else {"big": "NotCheaper"})
        if not replaced:
            golden(message(made, "big"))

    def test_equal_price_is_no_replacement(self, golden: Golden) -> None:
        made = four_small("0.9").plan()

        assert not made.scaling
        golden(message(made, "small"))

    def test_groups_without_a_price_are_ignored(self) -> None:
        dear, free = group("dear", None, size=1), group("free", None)
        world = one_big()
        for each in (dear, free, *worker("n2", dear), *(web(f"x-{number}", "n2") for number in range(4))):
            world.builders[world._key(each)] = each

        made = world.plan()

        assert ups(made) == {"small": (0, 2)}
        assert kept_reasons(made) == {"dear": "PriceUnknown"}

    @pytest.mark.parametrize(
        "change",
        [
            lambda world: world.builders["Pod/shop/web-0"].annotations(
                {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
            ),
            lambda world: world.builders.update({"b": budget("web").selecting(app="web").allowing(0)}),
            lambda world: world.builders["Node//n1"].annotations(
                {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
            ),
            lambda world: world.builders["MachineSet/openshift-machine-api/big"].limits(1, 9),
            lambda world: world.builders["MachineSet/openshift-machine-api/small"].limits(0, 1),
            lambda world: world.builders["MachineSet/openshift-machine-api/small"].node_taint("only", "x"),
            lambda world: world.builders["MachineSet/openshift-machine-api/small"].annotations(
                {"cluster.x-k8s.io/paused": ""}
            ),
            lambda world: world.builders["Pod/shop/web-0"].cpu("5"),
        ],
        ids=["pod", "budget", "node", "minimum", "maximum", "taint", "paused", "too large pod"],
    )
    def test_scale_down_rules_and_limits_apply(self, change: Any) -> None:
        world = one_big()

        change(world)

        assert not world.plan().scaling

    def test_cluster_limits_count_old_and_new_nodes(self) -> None:
        world = one_big()
        world.spec = world.spec.__class__(scale_down=world.spec.scale_down, resource_limits=_max_nodes(2))

        assert not world.plan().scaling

    @pytest.mark.parametrize(
        ("inputs", "words"),
        [
            ({"cluster_unhealthy": "too many nodes are not ready"}, "too many nodes are not ready"),
            ({"upcoming": {"MachineSet/openshift-machine-api/small": 1}}, "are upcoming"),
        ],
        ids=["cluster_unhealthy", "upcoming"],
    )
    def test_replacement_waits_until_the_cluster_is_at_rest(self, inputs: Any, words: str) -> None:
        made = one_big().plan(**inputs)

        assert not made.scaling
        assert kept_reasons(made) == {"default": "ReplacementWaits"}
        assert words in message(made, "default")

    def test_groups_in_backoff_are_not_scaled_up(self) -> None:
        assert not one_big().plan(backoff={"MachineSet/openshift-machine-api/small": "until noon"}).scaling

    def test_unneeded_nodes_are_removed_first(self) -> None:
        world, idle = one_big(), group("idle", None, size=1)
        world.add(idle, *worker("n9", idle))

        made = world.plan()

        assert not ups(made)
        assert kept_reasons(made)["default"] == "ReplacementWaits"
        assert "unneeded nodes" in message(made, "default")

    @pytest.mark.parametrize("field", ["lastScaleUp", "lastScaleDown", "lastScaleDownFailure"])
    def test_scale_down_delays_apply(self, field: str) -> None:
        world = one_big()
        world.status = World(status={field: "2026-11-20T11:59:58Z"}).status

        assert kept_reasons(world.plan()) == {"default": "ReplacementWaits"}

    def test_pdb_limits_the_replaced_nodes(self) -> None:
        world = four_small("0.25")
        for each in range(4):
            world.builders[f"Pod/shop/a-{each}"].cpu("2500m")
        world.builders["b"] = budget("web").selecting(app="web").allowing(2)

        made = world.plan()

        assert world.promises is not None
        (begun,) = world.promises.replacements
        assert [each.name for each in begun.nodes] == ["n0"]
        assert ups(made) == {"big": (0, 1)}

    def test_result_does_not_depend_on_the_order_of_objects(self) -> None:
        world, other = four_small(), four_small()
        other.builders = dict(reversed(other.builders.items()))

        assert world.plan().document() == other.plan().document()


class TestOtherNamespaces:
    """The pods of a tenant do not prevent the replacement of nodes that have only pods of other namespaces."""

    @pytest.mark.parametrize(
        "waiting",
        [
            tenant_pod("x", cpu="9").unschedulable(),
            tenant_pod("x").merge(spec={"schedulerName": "missing-scheduler"}),
            tenant_pod("x").unschedulable().merge(spec={"schedulingGates": [{"name": "closed"}]}),
        ],
        ids=["too large", "unknown scheduler", "gate"],
    )
    def test_pending_pods_that_fit_on_no_new_node_prevent_nothing(self, waiting: Any) -> None:
        world = one_big()
        world.add(waiting)

        assert ups(world.plan()) == {"small": (0, 2)}

    def test_pending_pod_that_could_take_the_room_prevents_new_nodes_of_its_groups(self, golden: Golden) -> None:
        """The tenant has as many nodes as its limit allows, so that no node is added for the pending pod."""
        world, full = one_big(), group("full", None, size=1)
        other = group("other", "0.3", cpu="4").node_taint("only", "x")
        world.add(full, *worker("n2", full), other, tenant_pod("a", cpu="4").on("n2").ready())
        world.add(tenant_pod("b", cpu="3500m").unschedulable())
        limits = ResourceLimits(max_nodes_per_namespace=1)
        world.spec = world.spec.__class__(scale_down=world.spec.scale_down, resource_limits=limits)

        made = world.plan()

        assert not ups(made)
        assert kept_reasons(made)["small"] == "ReplacementWaits"
        golden(message(made, "small"))
        for number in range(5):
            world.builders[f"Pod/shop/web-{number}"].tolerates("only")
        assert ups(world.plan()) == {"other": (0, 2)}

    def test_pending_pods_that_are_not_evaluated_in_time_prevent_new_nodes(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Judging the tenant's pods takes longer than the plan may take. Those that are judged fit on no new node."""
        time = SlowNamespace(monkeypatch)
        world = one_big()
        world.add(*(tenant_pod(f"x-{each}", cpu=f"{9 + each}").unschedulable() for each in range(60)))

        made = world.plan(budget=PlanBudget(80.0, time))

        assert not ups(made)
        assert kept_reasons(made)["small"] == "ReplacementWaits"

    def test_node_that_a_pending_pod_will_use_is_kept(self) -> None:
        world = one_big()
        world.add(tenant_pod("x", cpu="2").unschedulable())

        assert not ups(world.plan())

    def test_pod_that_fits_on_no_other_node_prevents_only_the_replacement_of_its_node(self) -> None:
        """The tenant's node would be replaced first."""
        big, small = group("big", "0.8", size=2, cpu="8"), group("small", "0.3", cpu="4")
        pods = [web(f"web-{each}", "n1") for each in range(5)]
        stuck = pinned_pod("x", "n2", "4500m")

        world = World(big, small, worker("n1", big, cpu="8"), worker("n2", big, cpu="8"), pods, stuck)

        assert ups(world.plan()) == {"small": (0, 1)}
        assert replaced(world) == ["n1"]

    @pytest.mark.parametrize("nodes", [candidates.MAX_REPLACED, 70])
    def test_pinned_pods_leave_others_to_be_judged(self, nodes: int) -> None:
        """The tenant's pods would fill each set of nodes that one trial evaluates. Their nodes come first."""
        names = [f"a{each:02}" for each in range(nodes)]
        world = self.with_others(names, [pinned_pod(f"x-{name}", name, "4500m") for name in names])

        assert ups(world.plan()) == {"small": (0, 2)}
        assert replaced(world) == ["n1"]

    def test_many_pinned_pods_leave_others_to_be_judged(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The tenant's nodes come first, and have as many pods as one trial evaluates."""
        monkeypatch.setattr(candidates, "MAX_PODS", 8)
        names = ["a0", "a1"]
        pods = [pinned_pod(f"x-{name}-{each}", name, "1100m") for name in names for each in range(4)]
        world = self.with_others(names, pods)

        assert ups(world.plan()) == {"small": (0, 2)}
        assert replaced(world) == ["n1"]

    def test_nodes_after_pinned_ones_do_not_prevent_replacements(self) -> None:
        """The other nodes come first. If others took the places of stuck nodes, each trial would find one more."""
        names = [f"x{each:02}" for each in range(30)]
        ordinary = [f"n{each:02}" for each in range(candidates.MAX_REPLACED - 1)]
        big, small = group("big", "0.8", size=49, cpu="8", most=99), group("small", "0.3", cpu="6", most=99)
        workers = [worker(name, big, cpu="8") for name in ordinary + names]
        pods = [web(f"web-{name}", name, "4500m") for name in ordinary]

        world = World(big, small, workers, pods, [pinned_pod(f"x-{name}", name, "4500m") for name in names])

        assert ups(world.plan()) == {"small": (0, len(ordinary))}
        assert replaced(world) == ordinary

    def test_pods_that_fit_elsewhere_leave_others_to_be_tried(self) -> None:
        """The tenant's nodes come first. Their pods fit on an existing node, so that they need no replacement."""
        names = [f"a{each:02}" for each in range(candidates.MAX_REPLACED)]
        world = self.with_others(names, [moving_pod(f"x-{name}", name) for name in names])
        roomy = group("roomy", None, size=1)
        there, machine = worker("n2", roomy)
        there.allocatable(cpu="300", memory="64Gi").capacity(cpu="300").taint("tenant")
        world.add(roomy, there, machine, tenant_pod("full", "190").on("n2").tolerates("tenant").ready())

        assert first_replaced(world) == ["n1"]

    def test_pods_that_need_equally_expensive_nodes_leave_others_to_be_tried(self) -> None:
        """The tenant's nodes come first. Nodes of another group could replace them, but would not be cheaper."""
        names = [f"a{each:02}" for each in range(candidates.MAX_REPLACED)]
        world = self.with_others(names, [moving_pod(f"x-{name}", name) for name in names])
        world.add(group("other", "0.8", cpu="8", most=99))

        assert first_replaced(world) == ["n1"]

    def test_few_nodes_are_tried_at_random_after_all_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """All nodes of three groups need nodes that are not cheaper."""
        groups = [group(f"big{each}", "0.8", size=30, cpu="8", most=99) for each in range(3)]
        names = [f"n{each:02}" for each in range(90)]
        workers = [worker(name, groups[each // 30], cpu="8") for each, name in enumerate(names)]
        pods = [moving_pod(f"x-{name}", name) for name in names]
        world = World(groups, workers, pods, group("other", "0.8", cpu="8", most=99))
        tried: list[list[str]] = []
        try_nodes = planner.ReplacementTrial.try_nodes
        monkeypatch.setattr(
            planner.ReplacementTrial,
            "try_nodes",
            lambda self, nodes, *others: tried.append([each.name for each in nodes]) or try_nodes(self, nodes, *others),
        )

        assert not ups(world.plan())
        ranked, at_random = tried[: planner.MAX_TRIALS], tried[planner.MAX_TRIALS :]
        assert all(nodes == sorted(nodes) for nodes in ranked)
        assert [len(nodes) for nodes in at_random] == [1] * planner.RANDOM_TRIALS
        chosen = [name for nodes in at_random for name in nodes]
        assert chosen != sorted(chosen)
        assert len({int(name[1:]) // 30 for name in chosen}) == 1

    def test_later_groups_have_their_trials(self) -> None:
        """The nodes of the first group by rank could be replaced only by equally expensive ones."""
        first, later = group("first", "1.2", size=25, cpu="8"), group("later", "0.6", size=25, cpu="4")
        workers = [worker(f"a{each:02}", first, cpu="8") for each in range(25)]
        workers += [worker(f"c{each:02}", later, cpu="4") for each in range(25)]
        pods = [
            tenant_pod(f"x-{each}", "7500m").on(f"a{each:02}").owned_by("ReplicaSet", "x").ready() for each in range(25)
        ]
        pods += [web(f"web-{each:02}-{part}", f"c{each:02}") for each in range(25) for part in range(3)]
        world = World(first, later, group("small", "0.3", cpu="4", most=99), workers, pods)
        world.add(group("same", "1.2", cpu="8", most=99))

        assert ups(world.plan())
        assert {name[0] for name in replaced(world)} == {"c"}

    def test_pods_that_tolerate_every_taint_must_fit_on_other_nodes(self) -> None:
        big, small = group("big", "0.8", size=2, cpu="8"), group("small", "0.3", cpu="4")
        pods = [web(f"web-{each}", "n1") for each in range(5)]
        tolerating = moving_pod("x", "n2").tolerates()

        world = World(big, small, worker("n1", big, cpu="8"), worker("n2", big, cpu="8"), pods, tolerating)

        assert ups(world.plan()) == {"small": (0, 1)}
        assert replaced(world) == ["n1"]

    @staticmethod
    def with_others(names: list[str], pods: list[Any]) -> World:
        """Nodes only for the tenant with these names, and one after them that can be replaced."""
        big, small = group("big", "0.8", size=len(names) + 1, cpu="8", most=99), group("small", "0.3", cpu="4")
        tenant = [worker(name, big, cpu="8") for name in names]
        for there, _ in tenant:
            there.taint("tenant")
        others = [web(f"web-{each}", "n1") for each in range(5)]
        tolerating = [each.tolerates("tenant") for each in pods]
        return World(big, small, tenant, worker("n1", big, cpu="8"), tolerating, others)

    @pytest.mark.parametrize("tenants", [1, 4, 14])
    def test_blocked_nodes_leave_others_to_be_judged(self, tenants: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """The tenants' bare pods block more nodes than one plan judges, and these nodes come first."""
        monkeypatch.setattr(candidates, "MAX_BLOCKED", 10)
        big, small = group("big", "0.8", size=15, cpu="8"), group("small", "0.3", cpu="4")
        blocked = [worker(f"a{each:02}", big, cpu="8") for each in range(14)]
        for there, _ in blocked:
            there.taint("tenant")
        bare = [blocking_pod(f"a{each:02}", f"tenant-{each % tenants}").tolerates() for each in range(14)]
        pods = [web(f"web-{each}", "n1") for each in range(5)]
        world = World(big, small, blocked, worker("n1", big, cpu="8"), bare, pods)
        made = []

        for _ in range(20):
            made.append(ups(world.plan()))
            world.now += 10

        assert {"small": (0, 2)} in made
        assert {} in made

    def test_pods_that_do_not_block_defer_no_node(self) -> None:
        """The namespace blocks the best-ranked nodes, and its other pods run on the nodes that follow."""
        names = [f"n{each:02}" for each in range(80)]
        big = group("big", "0.8", size=len(names), cpu="8")
        bare = [blocking_pod(name, "default") for name in names[:40]]
        pods = [web(f"web-{name}", name, "4500m") for name in names[40:60]]
        others = [tenant_pod(f"x-{name}", "4500m").on(name).owned_by("ReplicaSet", "x") for name in names[60:]]

        world = World(big, [worker(name, big, cpu="8") for name in names], bare, pods, others)

        for now in range(10):
            assert accepted(world, NOW + now) == names[40:60]

    def test_nodes_that_are_judged_in_random_order_are_sorted_by_rank(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(candidates, "MAX_BLOCKED", 2)
        names = [f"n{each:02}" for each in range(11)]
        big = group("big", "0.8", size=len(names), cpu="8")
        pods = [web(f"web-{name}", name, "4500m") for name in names[1:]]

        world = World(big, [worker(name, big, cpu="8") for name in names], blocking_pod(names[0], "tenant"), pods)

        assert accepted(world, NOW) == names[1:]

    def test_blocked_nodes_of_one_group_cost_nothing_for_the_nodes_of_another(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Only the pods of nodes of the group are read."""
        big, dear = group("big", "0.8", size=6, cpu="8"), group("dear", "0.8", size=6, cpu="8")
        names = {of.name: [f"{of.name}-{each}" for each in range(6)] for of in (big, dear)}
        nodes = [worker(name, of, cpu="8") for of in (big, dear) for name in names[of.name]]
        world = World(big, dear, nodes, [blocking_pod(name, "tenant") for name in names["big"] + names["dear"]])
        found = replacement_candidates(world, NOW)
        read: list[str] = []
        pods_on = Snapshot.pods_on
        monkeypatch.setattr(Snapshot, "pods_on", lambda self, name: read.append(name) or pods_on(self, name))

        assert found.of(found.groups[0]) == ()
        assert read == names["big"]

    def test_pods_that_fit_on_no_node_together_prevent_only_the_replacement_of_their_node(self) -> None:
        world = self.with_affinity(number=2, cpu="2200m")

        assert ups(world.plan()) == {"small": (0, 1)}
        assert replaced(world) == ["n1"]

    def test_expensive_pods_leave_time_to_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Placing the tenant's pods takes longer than the plan may take."""
        time = SlowNamespace(monkeypatch)
        world = self.with_affinity(number=5, cpu="900m", new_cpu="6")

        made = world.plan(budget=PlanBudget(80.0, time))

        assert ups(made) == {"small": (0, 1)}
        assert replaced(world) == ["n1"]

    def with_affinity(self, *, number: int, cpu: str, new_cpu: str = "4") -> World:
        """Two nodes, one with a tenant's pods that must be together. This node would be replaced first."""
        big, small = group("big", "0.8", size=2, cpu="8"), group("small", "0.3", cpu=new_cpu)
        pods = [web(f"web-{each}", "n1") for each in range(5)]
        together = [
            tenant_pod(f"x-{each}", cpu).on("n2").labels(app="x", n=str(each)).owned_by("ReplicaSet", "x").ready()
            for each in range(number)
        ]
        for each in together:
            each.affinity(labelSelector={"matchLabels": {"app": "x"}})
        return World(big, small, worker("n1", big, cpu="8"), worker("n2", big, cpu="8"), pods, together)


def _max_nodes(number: int) -> ResourceLimits:
    return ResourceLimits(max_nodes_total=number)


class TestProgress:
    def test_old_nodes_are_removed_after_new_nodes_are_ready(self, golden: Golden) -> None:
        world = one_big()
        world.grow(world.plan(), cpus=CPUS)
        world.keep()

        world.now += 90
        made = world.plan()

        assert removals(made) == {"n1": "Replacement"}
        kept = {each.name: each.reason for each in made.kept if each.kind == "Node"}
        assert kept == {"new-1": "ReplacementInProgress", "new-2": "ReplacementInProgress"}
        world.keep()
        golden(world.status.replacements[0].message)

        world.shrink(made)
        world.now += 20
        world.plan()
        world.keep()
        assert not world.status.replacements

    def test_old_nodes_are_kept_until_all_new_nodes_are_ready(self, golden: Golden) -> None:
        world = one_big()
        names = world.grow(world.plan(), cpus=CPUS)
        world.builders[f"Node//{names[1]}"].not_ready()
        world.keep()

        world.now += 90
        made = world.plan()

        assert not made.scaling
        world.keep()
        golden(world.status.replacements[0].message)

    def test_only_one_replacement_is_in_progress(self) -> None:
        world = one_big()
        world.grow(world.plan(), cpus=CPUS, ready=False)
        world.keep()
        world.now += 3000
        world.status = World(status={}).status.__class__(replacements=world.status.replacements)

        world.now -= 2000
        assert kept_reasons(world.plan()) == {"default": "ReplacementWaits"}

    def test_node_recreated_with_the_same_name_is_kept(self) -> None:
        world = one_big()
        world.grow(world.plan(), cpus=CPUS)
        world.keep()
        world.builders["Node//n1"]._at("metadata")["uid"] = "another"

        world.now += 90
        assert not removals(world.plan())
        world.keep()
        assert not world.status.replacements

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda world: setattr(world, "now", world.now + 86_400), "only 0 of 2 new nodes became ready in time"),
            (
                lambda world: world.builders["MachineSet/openshift-machine-api/small"].replicas(1),
                "was set to 2, but is 1 now",
            ),
            (
                lambda world: world.builders.pop("MachineSet/openshift-machine-api/small"),
                "from which new nodes were requested, no longer exists",
            ),
        ],
        ids=["deadline", "target lowered", "group gone"],
    )
    def test_replacement_is_given_up_and_backs_off(self, change: Any, words: str) -> None:
        world = one_big()
        world.grow(world.plan(), cpus=CPUS, ready=False)
        world.keep()
        world.now += 90

        change(world)
        world.plan()
        assert world.promises is not None
        assert words in world.promises.given_up[0].message
        world.keep()

        made = world.plan()
        assert not ups(made)
        assert not world.promises.given_up
        world.now += 3601
        world.plan()
        assert all(each.given_up is None for each in world.promises.replacements)

    def test_given_up_replacement_releases_its_nodes(self) -> None:
        world = one_big()
        names = world.grow(world.plan(), cpus=CPUS)
        world.builders["b"] = budget("web").selecting(app="web").allowing(0)
        world.keep()
        world.now += 86_400
        world.plan()
        world.keep()

        made = world.plan()

        kept = {each.name: each.reason for each in made.kept if each.kind == "Node"}
        assert kept["n1"] == "NotUnderutilized"
        assert all(kept[name] == "NotUnneededLongEnough" for name in names)

    def test_record_without_nodes_is_given_up(self) -> None:
        world = one_big()
        world.plan()
        world.keep()

        world.now += 30
        world.plan()
        assert world.promises is not None
        assert not world.promises.given_up
        world.now += 60
        world.plan()
        assert world.promises.given_up

    def test_pdb_holds_while_old_nodes_are_drained(self) -> None:
        world = one_big()
        world.grow(world.plan(), cpus=CPUS)
        world.keep()
        world.builders["b"] = budget("web").selecting(app="web").allowing(4)

        world.now += 90
        made = world.plan()

        assert not removals(made)
        assert {each.name: each.reason for each in made.kept}["n1"] == "BlockedByPod"

    def test_pending_pods_use_the_new_nodes(self) -> None:
        world = one_big()
        world.grow(world.plan(), cpus=CPUS)
        world.keep()
        late = pending_pod("late", cpu="3")
        world.builders[world._key(late)] = late

        made = world.plan()

        assert not ups(made)

    def test_disabling_replace_releases_its_nodes(self) -> None:
        world = one_big()
        world.grow(world.plan(), cpus=CPUS)
        world.keep()
        world.spec = one_big(replace="Disabled").spec

        world.now += 90
        made = world.plan()

        assert not made.scaling
        assert world.promises is not None
        assert not world.promises.replacements

    def test_replacements_do_not_alternate(self) -> None:
        world = four_small()
        world.grow(world.plan(), cpus=CPUS)
        world.keep()
        world.now += 90
        made = world.plan()
        world.shrink(made)
        world.keep()
        world.now += 7200

        made = world.plan()

        assert len(removals(made)) == 0
        assert not ups(made)
