"""Replacing nodes by fewer or cheaper ones, from the plan to the last old node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import budget
from tests.unit.autoscaling.replacing import World, group, message, removals, told, ups, web, worker
from tests.unit.autoscaling.scaling import waiting
from trimtab.api.plan import ScaleUp

CPUS = {"big": "8", "small": "4", "dear": "4", "cheap": "4"}


def one_big(**scale_down: Any) -> World:
    """A dear node of 8 cpus of which more than the threshold is used; two cheap ones of 4 would do, one nearly."""
    big, small = group("big", "0.8", size=1, cpu="8"), group("small", "0.3", cpu="4")
    pods = [web(f"web-{each}", "n1") for each in range(5)]
    return World(big, small, worker("n1", big, cpu="8"), pods, **scale_down)


def four_small(price: str = "0.5") -> World:
    """Four nodes of 4 cpus with 2.5 used each; two of 8 would hold all."""
    small, big = group("small", "0.3", size=4), group("big", price, cpu="8")
    pods = [[web(f"a-{each}", f"n{each}", "1500m"), web(f"b-{each}", f"n{each}", "1")] for each in range(4)]
    return World(small, big, [worker(f"n{each}", small) for each in range(4)], pods)


class TestPlan:
    def test_a_dear_node_is_replaced_by_cheaper_ones(self) -> None:
        world = one_big()

        made = world.plan()

        assert ups(made) == {"small": (0, 2)}
        (action,) = made.scaling or ()
        assert isinstance(action, ScaleUp)
        assert (action.reason, action.pods) == ("Replacement", ())
        assert action.message == (
            "2 new nodes for 0.6 an hour in place of 1 node for 0.8: n1; saves 25%, replaceThreshold is 15%; "
            "5 pods to move"
        )

    def test_nodes_are_replaced_by_fewer(self) -> None:
        made = four_small().plan()

        assert ups(made) == {"big": (0, 1)}
        assert made.scaling is not None
        assert "in place of 3 nodes for 0.9: n0, n1, n2; saves 44.4%" in made.scaling[0].message

    def test_what_fits_on_nodes_that_stay_needs_no_new_one(self) -> None:
        world = one_big()
        other = group("other", None, size=1)
        for each in (other, *worker("n2", other), web("x", "n2", "3")):
            world.builders[world._key(each)] = each

        assert ups(world.plan()) == {"small": (0, 1)}

    def test_it_is_off_unless_somebody_switches_it_on(self) -> None:
        made = one_big(replace="Disabled").plan()

        assert not made.scaling
        assert not told(made)

    def test_nothing_is_replaced_where_nodes_are_not_removed(self) -> None:
        assert not one_big(enabled=False).plan().scaling

    @pytest.mark.parametrize(
        ("threshold", "replaced"), [("0.15", True), ("0.25", True), ("0.26", False)], ids=["less", "equal", "more"]
    )
    def test_it_must_be_cheaper_by_a_share(self, threshold: str, replaced: bool) -> None:
        made = one_big(replaceThreshold=threshold).plan()

        assert bool(ups(made)) is replaced
        assert told(made) == ({} if replaced else {"big": "NotCheaper"})
        if not replaced:
            assert message(made, "big") == "the best that was found saves 25%; replaceThreshold is 26%"

    def test_what_is_as_dear_is_left(self) -> None:
        made = four_small("0.9").plan()

        assert not made.scaling
        assert message(made, "small") == "other groups' nodes would cost as much or more; replaceThreshold is 15%"

    def test_groups_without_a_price_are_neither_replaced_nor_grown(self) -> None:
        dear, free = group("dear", None, size=1), group("free", None)
        world = one_big()
        for each in (dear, free, *worker("n2", dear), *(web(f"x-{number}", "n2") for number in range(4))):
            world.builders[world._key(each)] = each

        made = world.plan()

        assert ups(made) == {"small": (0, 2)}
        assert told(made) == {"dear": "PriceUnknown"}

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
        ids=["pod", "budget", "node", "minimum", "maximum", "taint", "paused", "too large a pod"],
    )
    def test_rules_of_scale_down_and_limits_hold(self, change: Any) -> None:
        world = one_big()

        change(world)

        assert not world.plan().scaling

    def test_limits_of_the_cluster_count_old_and_new_nodes(self) -> None:
        world = one_big()
        world.spec = world.spec.__class__(scale_down=world.spec.scale_down, resource_limits=_max_nodes(2))

        assert not world.plan().scaling

    @pytest.mark.parametrize(
        ("inputs", "words"),
        [
            ({"halted": "too many nodes are not ready"}, "too many nodes are not ready"),
            ({"upcoming": {"MachineSet/openshift-machine-api/small": 1}}, "are on their way"),
        ],
        ids=["halted", "upcoming"],
    )
    def test_it_waits_for_rest(self, inputs: Any, words: str) -> None:
        made = one_big().plan(**inputs)

        assert not made.scaling
        assert told(made) == {"default": "ReplacementWaits"}
        assert words in message(made, "default")

    def test_groups_that_back_off_are_not_grown(self) -> None:
        assert not one_big().plan(backoff={"MachineSet/openshift-machine-api/small": "until noon"}).scaling

    @pytest.mark.parametrize(
        ("parts", "words"),
        [
            ([waiting("x", cpu="9")], "pods wait for a node"),
            ([worker("n9", group("idle", None, size=1))], "not needed"),
        ],
        ids=["a pod waits", "a node is not needed"],
    )
    def test_it_waits_while_something_else_is_to_be_done(self, parts: Any, words: str) -> None:
        world = one_big()
        if words == "not needed":
            idle = group("idle", None, size=1)
            parts = [idle, *worker("n9", idle)]
        for each in parts:
            world.builders[world._key(each)] = each

        made = world.plan()

        assert not ups(made)
        assert told(made)["default"] == "ReplacementWaits"
        assert words in message(made, "default")

    @pytest.mark.parametrize("field", ["lastScaleUp", "lastScaleDown", "lastScaleDownFailure"])
    def test_it_keeps_the_delays_of_scale_down(self, field: str) -> None:
        world = one_big()
        world.status = World(status={field: "2026-11-20T11:59:58Z"}).status

        assert told(world.plan()) == {"default": "ReplacementWaits"}

    def test_a_budget_lets_as_many_nodes_go_as_it_allows_at_once(self) -> None:
        world = four_small("0.25")
        for each in range(4):
            world.builders[f"Pod/shop/a-{each}"].cpu("2500m")
        world.builders["b"] = budget("web").selecting(app="web").allowing(2)

        made = world.plan()

        assert world.promises is not None
        (begun,) = world.promises.replacements
        assert [each.name for each in begun.nodes] == ["n0"]
        assert ups(made) == {"big": (0, 1)}

    def test_the_order_of_objects_does_not_matter(self) -> None:
        world, other = four_small(), four_small()
        other.builders = dict(reversed(other.builders.items()))

        assert world.plan().document() == other.plan().document()


def _max_nodes(number: int) -> Any:
    from trimtab.api.cluster_limits import ResourceLimits

    return ResourceLimits(max_nodes_total=number)


class TestCarriedThrough:
    def test_new_nodes_come_first_and_then_the_old_ones_go(self) -> None:
        world = one_big()
        world.grow(world.plan(), cpus=CPUS)
        world.keep()

        world.now += 90
        made = world.plan()

        assert removals(made) == {"n1": "Replacement"}
        kept = {each.name: each.reason for each in made.kept if each.kind == "Node"}
        assert kept == {"new-1": "ReplacementGoesOn", "new-2": "ReplacementGoesOn"}
        world.keep()
        assert world.status.replacements[0].message == "1 of 1 nodes are still to go"

        world.shrink(made)
        world.now += 20
        world.plan()
        world.keep()
        assert not world.status.replacements

    def test_the_old_ones_stay_until_all_new_ones_are_ready(self) -> None:
        world = one_big()
        names = world.grow(world.plan(), cpus=CPUS)
        world.builders[f"Node//{names[1]}"].not_ready()
        world.keep()

        world.now += 90
        made = world.plan()

        assert not made.scaling
        world.keep()
        assert world.status.replacements[0].message == "1 of 2 new nodes are ready"

    def test_nothing_else_is_replaced_meanwhile(self) -> None:
        world = one_big()
        world.grow(world.plan(), cpus=CPUS, ready=False)
        world.keep()
        world.now += 3000
        world.status = World(status={}).status.__class__(replacements=world.status.replacements)

        world.now -= 2000
        assert told(world.plan()) == {"default": "ReplacementWaits"}

    def test_a_node_of_the_same_name_is_not_the_one_that_was_to_go(self) -> None:
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
            (lambda world: setattr(world, "now", world.now + 86_400), "0 of 2 new nodes are ready, and the time"),
            (
                lambda world: world.builders["MachineSet/openshift-machine-api/small"].replicas(1),
                "was asked for 2 nodes, and its size is 1 now",
            ),
            (
                lambda world: world.builders.pop("MachineSet/openshift-machine-api/small"),
                "which was to get new nodes, is gone",
            ),
        ],
        ids=["deadline", "target lowered", "group gone"],
    )
    def test_it_is_given_up_and_nothing_is_tried_for_a_while(self, change: Any, words: str) -> None:
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

    def test_after_it_was_given_up_all_nodes_are_ordinary(self) -> None:
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

    def test_a_record_without_nodes_is_given_up(self) -> None:
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

    def test_a_budget_holds_while_old_nodes_are_drained(self) -> None:
        world = one_big()
        world.grow(world.plan(), cpus=CPUS)
        world.keep()
        world.builders["b"] = budget("web").selecting(app="web").allowing(4)

        world.now += 90
        made = world.plan()

        assert not removals(made)
        assert {each.name: each.reason for each in made.kept}["n1"] == "BlockedByPod"

    def test_pods_that_wait_meanwhile_have_the_new_nodes(self) -> None:
        world = one_big()
        world.grow(world.plan(), cpus=CPUS)
        world.keep()
        late = waiting("late", cpu="3")
        world.builders[world._key(late)] = late

        made = world.plan()

        assert not ups(made)

    def test_once_switched_off_all_nodes_are_ordinary(self) -> None:
        world = one_big()
        world.grow(world.plan(), cpus=CPUS)
        world.keep()
        world.spec = one_big(replace="Disabled").spec

        world.now += 90
        made = world.plan()

        assert not made.scaling
        assert world.promises is not None
        assert not world.promises.replacements

    def test_nothing_is_replaced_back(self) -> None:
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
