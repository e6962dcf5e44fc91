"""Limits and budgets of a plan, across strategies and policies."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import PodBuilder, budget, pod
from trimtab.api.descheduler_policy import DeschedulerPolicySpec, Limits
from trimtab.api.reasons import DISRUPTION_BUDGET, LIMIT_REACHED
from trimtab.api.strategies import Strategies
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.outcome import Refusal
from trimtab.disruption.protections.gate import Gate
from trimtab.kube.objects import Pod


def limited(**limits: int) -> DeschedulerPolicySpec:
    return DeschedulerPolicySpec(strategies=Strategies(), limits=Limits(**limits))


def web(name: str, node: str = "n1", namespace: str = "shop", owner: str = "web") -> PodBuilder:
    return pod(name, namespace=namespace).labels(app=owner).on(node).ready().owned_by("ReplicaSet", owner)


FIRST = web("web-1").build()


@pytest.mark.parametrize(
    ("limits", "second", "message"),
    [
        pytest.param(
            {"per_cycle": 1},
            web("db-1", "n2", "bank", "db"),
            "limits.perCycle is 1, and 1 eviction is planned",
            id="cycle",
        ),
        pytest.param(
            {"per_node": 1},
            web("db-1", "n1", "bank", "db"),
            "limits.perNode is 1, and 1 eviction is planned for node n1",
            id="node",
        ),
        pytest.param(
            {"per_namespace": 1},
            web("db-1", "n2", "shop", "db"),
            "limits.perNamespace is 1, and 1 eviction is planned for namespace shop",
            id="namespace",
        ),
        pytest.param(
            {"per_owner": 1},
            web("web-2", "n2"),
            "limits.perOwner is 1, and 1 eviction is planned for ReplicaSet shop/web",
            id="owner",
        ),
    ],
)
def test_reached_limit_refuses_next_pod(limits, second, message):
    rules = Gate(Snapshot(), now=0.0).rules_for(limited(**limits))
    assert rules.refusal(FIRST) is None
    rules.take(FIRST)
    assert rules.refusal(second.build()) == Refusal(reason=LIMIT_REACHED, message=message)


@pytest.mark.parametrize(
    ("limits", "second"),
    [
        pytest.param({"per_node": 1}, web("web-2", "n2"), id="another node"),
        pytest.param({"per_namespace": 1}, web("web-2", namespace="bank"), id="another namespace"),
        pytest.param({"per_owner": 1}, web("db-1", owner="db"), id="another owner"),
        pytest.param({"per_owner": 1}, web("web-1", namespace="bank"), id="an owner of that name elsewhere"),
        pytest.param({}, web("web-2"), id="no limit"),
    ],
)
def test_limit_does_not_refuse_other_scopes(limits, second):
    rules = Gate(Snapshot(), now=0.0).rules_for(limited(**limits))
    rules.take(FIRST)
    assert rules.refusal(second.build()) is None


def test_node_limit_counts_the_source_node():
    rules = Gate(Snapshot(), now=0.0).rules_for(limited(per_node=1))
    rules.take(FIRST)
    moved = msgspec.structs.replace(web("web-2").build(), node="n2")
    assert rules.refusal(moved) is None
    assert rules.refusal(web("web-2").build()) is not None


def test_pod_is_moved_once_per_plan():
    rules = Gate(Snapshot(), now=0.0).rules_for(limited())
    rules.take(FIRST)
    refusal = rules.refusal(msgspec.structs.replace(FIRST, node="n2"))
    assert refusal is not None
    assert refusal.reason == LIMIT_REACHED


def test_taken_back_eviction_does_not_count():
    first, second = web("a").build(), web("b").build()
    snapshot = Snapshot([first, second, budget("web").selecting(app="web").allowing(1).build()])
    rules = Gate(snapshot, now=0.0).rules_for(limited(per_cycle=1, per_node=1, per_owner=1))
    rules.take(first)
    assert rules.refusal(first) is not None
    assert rules.refusal(second) is not None
    rules.take_back(first)
    assert rules.refusal(first) is None
    assert rules.refusal(second) is None


def test_policies_share_budgets_and_node_counts_but_not_cycle_limits():
    gate = Gate(Snapshot([budget("web", namespace="shop").selecting(app="web").allowing(1).build()]), now=0.0)
    one, other = gate.rules_for(limited(per_cycle=1)), gate.rules_for(limited(per_cycle=1, per_node=1))
    one.take(FIRST)
    spent = other.refusal(web("web-2", "n2").build())
    assert spent is not None
    assert spent.reason == DISRUPTION_BUDGET
    full = other.refusal(web("db-1", "n1", owner="db").build())
    assert full is not None
    assert "perNode" in full.message
    assert other.refusal(web("db-1", "n2", owner="db").build()) is None


PODS = st.builds(
    lambda number, node, namespace, owner: web(f"p-{number}", node, namespace, owner).build(),
    st.integers(0, 10**6),
    st.sampled_from(["n1", "n2"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["x", "y"]),
)


@given(
    limits=st.fixed_dictionaries(
        {},
        optional={name: st.integers(1, 4) for name in ("per_cycle", "per_node", "per_namespace", "per_owner")},
    ),
    asked=st.lists(PODS, max_size=30, unique_by=lambda each: each.key),
)
def test_no_limit_is_ever_exceeded(limits: dict[str, int], asked: list[Pod]):
    rules = Gate(Snapshot(), now=0.0).rules_for(limited(**limits))
    taken: list[Pod] = []
    for each in asked:
        if rules.refusal(each) is None:
            rules.take(each)
            taken.append(each)
    keys = {
        "per_cycle": lambda _: "",
        "per_node": lambda each: each.node,
        "per_namespace": lambda each: each.namespace,
        "per_owner": lambda each: (each.namespace, each.owners[0].name),
    }
    for name, limit in limits.items():
        groups = [keys[name](each) for each in taken]
        assert all(groups.count(group) <= limit for group in groups)


@pytest.mark.parametrize(
    ("builder", "moving", "removing"),
    [
        pytest.param(web("a"), None, None, id="it runs"),
        pytest.param(web("a").phase("Failed"), "Terminal", None, id="it has failed"),
        pytest.param(web("a").phase("Succeeded").volume("emptyDir"), "Terminal", "LocalStorage", id="with its data"),
        pytest.param(pod("a").on("n1").phase("Failed"), "Terminal", "BarePod", id="a bare pod"),
        pytest.param(
            web("a").phase("Failed").deleted("2026-11-20T12:00:00Z"), "Terminating", "Terminating", id="going"
        ),
    ],
)
def test_terminal_pod_may_be_removed_but_not_moved(builder, moving, removing):
    one = builder.build()
    rules = Gate(Snapshot([one]), now=0.0).rules_for(limited())
    for found, expected in ((rules.protected(one), moving), (rules.protected_from_removal(one), removing)):
        assert (found.reason if found else None) == expected
