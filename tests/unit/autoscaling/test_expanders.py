"""Which of several groups that could take the pods gets the nodes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.autoscaling.scaling import group, planned, several, sizes, waiting
from trimtab.api.cluster_autoscaler import Expander
from trimtab.autoscaling.scale_up.expanders.priority import read_priorities
from trimtab.autoscaling.scale_up.expanders.registry import EXPANDERS
from trimtab.kube.errors import InputError

PRICE = "trimtab.dev/price"


def three() -> list[Any]:
    """A group of large nodes, one of small nodes, and one of large nodes with much memory."""
    return [
        group("large", cpu="8", memory="32Gi").annotations({PRICE: "0.5"}),
        group("small", cpu="2", memory="8Gi").annotations({PRICE: "0.11"}),
        group("wide", cpu="8", memory="64Gi"),
    ]


def test_every_name_that_the_definition_allows_has_its_expander() -> None:
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
def test_a_chain_of_expanders_decides_and_then_the_name(expanders: list[str], chosen: dict[str, Any]) -> None:
    priorities = {5: ("/large$", "/small$"), 20: ("wi.e",)}
    assert sizes(planned(*three(), *several(4), expanders=expanders, priorities=priorities)) == chosen


def test_the_action_says_who_decided() -> None:
    (action,) = planned(*three(), *several(4)).actions
    assert action.message.endswith("for 4 pods; LeastWaste chose it over 2 others")


def test_price_leaves_groups_without_one_to_the_next_and_takes_the_cheapest_for_what_is_asked() -> None:
    dear = group("a").annotations({PRICE: "2"})
    cheap = group("b").annotations({PRICE: "1.99"})
    unknown, wrong = group("c"), group("d").annotations({PRICE: "cheap"})
    assert sizes(planned(dear, cheap, unknown, wrong, waiting("p"), expanders=["Price"])) == {"b": (0, 1)}
    assert sizes(planned(unknown, wrong, waiting("p"), expanders=["Price"])) == {"c": (0, 1)}


def test_priority_decides_nothing_without_its_config_map_or_where_that_names_no_group() -> None:
    for priorities in ({}, {9: ("nobody",)}):
        made = planned(*three(), *several(4), expanders=["Priority", "LeastWaste"], priorities=priorities)
        assert sizes(made) == {"small": (0, 2)}


def test_random_is_the_same_for_the_same_cluster_and_another_for_others() -> None:
    def chosen(name: str) -> str:
        made = [planned(*three(), waiting(name), expanders=["Random"]) for _ in range(2)]
        assert made[0].actions == made[1].actions
        (found,) = sizes(made[0])
        return found

    assert {chosen(f"pod-{number}") for number in range(20)} == {"large", "small", "wide"}


class TestThePriorityConfigMap:
    def test_it_has_regular_expressions_by_priority(self) -> None:
        text = "10:\n- .*spot.*\n50:\n- workers-a\n- workers-b\n"
        assert read_priorities({"priorities": text}) == {10: (".*spot.*",), 50: ("workers-a", "workers-b")}

    @pytest.mark.parametrize(
        ("data", "told"),
        [
            ({}, "must have the key priorities"),
            ({"priorities": "{"}, "is no YAML"),
            ({"priorities": "- a"}, "must be priorities with lists"),
            ({"priorities": ""}, "must be priorities with lists"),
            ({"priorities": "high: [a]"}, "a priority must be a whole number, not 'high'"),
            ({"priorities": "1: a"}, "priority 1 must have a list"),
            ({"priorities": "1: ['(']"}, "priority 1: '(' is no regular expression"),
        ],
        ids=["nothing", "no YAML", "a list", "empty", "no number", "no list", "no expression"],
    )
    def test_what_cannot_be_read_is_told(self, data: dict[str, str], told: str) -> None:
        with pytest.raises(InputError) as caught:
            read_priorities(data)
        assert told in caught.value.message
