"""Expanders choose among groups that fit the same pods."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.golden import Golden
from tests.unit.autoscaling.scale_up_helpers import group, pending_pod, pending_pods, planned, sizes
from trimtab.api.cluster_autoscaler import Expander
from trimtab.autoscaling.scale_up.expanders import EXPANDERS
from trimtab.autoscaling.scale_up.expanders.priority import matches, read_priorities
from trimtab.kube.errors import InputError

PRICE = "trimtab.dev/price"


def three() -> list[Any]:
    """A group of large nodes, one of small nodes, and one of large nodes with much memory."""
    return [
        group("large", cpu="8", memory="32Gi").annotations({PRICE: "0.5"}),
        group("small", cpu="2", memory="8Gi").annotations({PRICE: "0.11"}),
        group("wide", cpu="8", memory="64Gi"),
    ]


def test_every_allowed_expander_name_is_implemented() -> None:
    assert set(EXPANDERS) == set(Expander.__args__)
    assert all(name == each.name for name, each in EXPANDERS.items())


@pytest.mark.parametrize(
    ("expanders", "chosen"),
    [
        ([], {"small": (0, 2)}),
        (["LeastWaste"], {"small": (0, 2)}),
        (["LeastNodes"], {"large": (0, 1)}),
        (["LeastNodes", "LeastWaste"], {"large": (0, 1)}),
        (["MostPods"], {"large": (0, 1)}),
        (["MostPods", "LeastWaste"], {"small": (0, 2)}),
        (["Price"], {"small": (0, 2)}),
        (["Priority"], {"wide": (0, 1)}),
        (["MostPods", "Priority", "LeastWaste"], {"wide": (0, 1)}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_chain_of_expanders_decides_then_the_group_id(expanders: list[str], chosen: dict[str, Any]) -> None:
    priorities = {5: ("/large$", "/small$"), 20: ("wi.e",)}
    assert sizes(planned(*three(), *pending_pods(4), expanders=expanders, priorities=priorities)) == chosen


def test_action_names_the_expander_that_decided(golden: Golden) -> None:
    (action,) = planned(*three(), *pending_pods(4)).actions
    golden(action.message)


@pytest.mark.parametrize(
    ("expanders", "texts"),
    [
        (["LeastWaste"], ["0% of cpu, 75% of memory unused", "50% of cpu, 87.5% of memory unused"]),
        (["LeastNodes", "LeastWaste"], ["50% of cpu, 87.5% of memory unused", "50% of cpu, 93.8% of memory unused"]),
        (["Price"], ["0.0489 per requested core and hour", "0.111 per requested core and hour"]),
        (["Priority"], ["priority 20", "priority 5"]),
    ],
    ids=lambda value: "-".join(value),
)
def test_choice_compares_the_values_of_the_deciding_expander(expanders: list[str], texts: list[str]) -> None:
    priorities = {5: ("/large$", "/small$"), 20: ("wi.e",)}
    (choice,) = planned(*three(), *pending_pods(4), expanders=expanders, priorities=priorities).choices

    first = choice.others[0]
    assert (choice.by, first.expander) == (expanders[-1], expanders[-1])
    assert [first.best.text, first.measure.text] == texts
    assert first.best.rank < first.measure.rank
    assert {each.key.rpartition("/")[2] for each in choice.others} | {choice.chosen.key.rpartition("/")[2]} == {
        "large",
        "small",
        "wide",
    }


def test_message_names_at_most_three_groups_for_each_expander() -> None:
    groups = [group(f"g{number}", memory=f"{number}Gi") for number in range(16, 24)]
    (action,) = planned(*groups, *pending_pods(4)).actions

    assert action.machine_set.endswith("/g16")
    assert action.message.count("openshift-machine-api/") == 3
    assert " and 4 more" in action.message


def test_price_prefers_the_lowest_price_per_requested_core() -> None:
    dear = group("a").annotations({PRICE: "2"})
    cheap = group("b").annotations({PRICE: "1.99"})
    unknown, wrong = group("c"), group("d").annotations({PRICE: "cheap"})
    assert sizes(planned(dear, cheap, unknown, wrong, pending_pod("p"), expanders=["Price"])) == {"b": (0, 1)}
    assert sizes(planned(unknown, wrong, pending_pod("p"), expanders=["Price"])) == {"c": (0, 1)}


def test_priority_is_skipped_without_a_matching_config_map() -> None:
    for priorities in ({}, {9: ("no-such-group",)}):
        made = planned(*three(), *pending_pods(4), expanders=["Priority", "LeastWaste"], priorities=priorities)
        assert sizes(made) == {"small": (0, 2)}


def test_random_is_reproducible_per_cluster() -> None:
    def chosen(name: str) -> str:
        made = [planned(*three(), pending_pod(name), expanders=["Random"]) for _ in range(2)]
        assert made[0].actions == made[1].actions
        (found,) = sizes(made[0])
        return found

    assert {chosen(f"pod-{number}") for number in range(20)} == {"large", "small", "wide"}


class TestPriorityConfigMap:
    def test_it_maps_priorities_to_regular_expressions(self) -> None:
        text = "10:\n- .*spot.*\n50:\n- workers-a\n- workers-b\n"
        assert read_priorities({"priorities": text}) == {10: (".*spot.*",), 50: ("workers-a", "workers-b")}

    def test_matching_time_is_linear_in_the_text(self) -> None:
        ((_, (pattern,)),) = read_priorities({"priorities": '10: ["([a-zA-Z/-]+)+!"]'}).items()
        assert not matches(pattern, "MachineSet/default/workers-a" * 1000)  # of years, where an engine backtracks
        assert matches(pattern, "MachineSet/default/workers-a!")

    def test_yaml_merges_and_aliases_cannot_expand(self) -> None:
        lines = "".join(f"{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
        with pytest.raises(InputError, match="expands to"):
            read_priorities({"priorities": f"0: &a0 [x]\n{lines}"})

    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            ({}, "must have the key priorities"),
            ({"priorities": "{"}, "is not YAML"),
            ({"priorities": "- a"}, "must be priorities with lists"),
            ({"priorities": ""}, "must be priorities with lists"),
            ({"priorities": "high: [a]"}, "a priority must be a whole number, not 'high'"),
            ({"priorities": "1: a"}, "priority 1 must have a list"),
            ({"priorities": f"1: ['{'x' * 1001}']"}, "has 1001 characters, and at most 1000 are allowed"),
            (
                {"priorities": f"1: [{', '.join(['a'] * 1001)}]"},
                "has 1001 regular expressions, and at most 1000 are allowed",
            ),
            ({"priorities": "1: ['a{1001}']"}, "is not a valid RE2 regular expression"),
            ({"priorities": "1: [a]\n1: [b]"}, "duplicate key 1"),
            ({"priorities": "1: ['(']"}, "priority 1: '(' is not a valid RE2 regular expression"),
        ],
        ids=["nothing", "no YAML", "a list", "empty", "no number", "no list", "long", "many", "large", "twice", "none"],
    )
    def test_invalid_config_map_is_reported(self, data: dict[str, str], expected: str) -> None:
        with pytest.raises(InputError) as caught:
            read_priorities(data)
        assert expected in caught.value.message
