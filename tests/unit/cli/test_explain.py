"""``trimtab explain pod``."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.builders import node, pod
from trimtab.placement.registry import DEFAULT


@pytest.fixture
def cluster(write) -> Path:
    return write(
        "cluster.json",
        node("n1").allocatable(cpu="1"),
        node("n2").allocatable(cpu="8"),
        node("n3").cordoned(),
        pod("web-1", namespace="shop").cpu("500m").on("n1"),
        pod("web-2", namespace="shop").cpu("6").on("n1"),
        pod("huge", namespace="shop").cpu("64"),
        pod("api-1", namespace="billing").cpu("1"),
    )


def test_json_is_the_contract(run, cluster) -> None:
    result = run("explain", "pod", "shop/huge", "--cluster", cluster, "-o", "json")

    assert result.exit_code == 0
    document = msgspec.json.decode(result.stdout)
    remedy = document.pop("remedy")
    assert document == {
        "pod": "shop/huge",
        "node": None,
        "fits": [],
        "likely": [],
        "message": "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu.",
        "nodes": [
            {"node": "n1", "fits": False, "reasons": ["Insufficient cpu"]},
            {"node": "n2", "fits": False, "reasons": ["Insufficient cpu"]},
            {"node": "n3", "fits": False, "reasons": ["node(s) were unschedulable"]},
        ],
    }
    assert remedy["reason"] == "LargerNode"
    assert remedy["change"] == remedy["steps"][0]["change"]
    assert list(remedy) == ["change", "node", "reason", "cost", "steps", "alternatives"]


def test_a_node_that_fits_has_its_score_point_by_point(run, cluster) -> None:
    document = msgspec.json.decode(run("explain", "pod", "shop/web-2", "--cluster", cluster, "-o", "json").stdout)

    assert document["node"] == "n1"
    assert document["likely"] == ["n2"]
    assert document["remedy"] is None
    [score] = [node["score"] for node in document["nodes"] if node["fits"]]
    assert score.pop("total") == sum(score.values())
    assert score["NodeResourcesFit"] == (25 + 98) // 2
    assert set(score) == {rule.name for rule in DEFAULT.scores}


def test_a_pod_on_a_node_is_judged_as_if_it_were_not_there(run, cluster) -> None:
    answer = msgspec.json.decode(run("explain", "pod", "shop/web-2", "--cluster", cluster, "-o", "json").stdout)

    # n1 is too small even without web-2 itself, n2 takes it.
    assert answer["fits"] == ["n2"]
    assert answer["message"] == "1/3 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."


def test_a_pod_that_fits_everywhere_needs_no_reasons(run, write) -> None:
    cluster = write("c.yaml", node("n1"), node("n2"), pod("a", namespace="x").on("n1"))

    answer = msgspec.json.decode(run("explain", "pod", "x/a", "--cluster", cluster, "-o", "json").stdout)

    assert answer["message"] == "2/2 nodes are available."
    assert answer["fits"] == ["n1", "n2"]


def test_a_cluster_without_nodes_says_so_as_the_scheduler_does(run, write) -> None:
    cluster = write("c.json", pod("a", namespace="x"))

    assert run("explain", "pod", "x/a", "--cluster", cluster).stdout == "x/a: no nodes available to schedule pods\n"


def test_a_gated_pod_is_told_of_in_the_words_of_its_condition(run, write) -> None:
    gated = pod("a", namespace="x").merge(spec={"schedulingGates": [{"name": "example.com/quota"}]})
    cluster = write("c.json", node("n1"), gated)

    assert run("explain", "pod", "x/a", "--cluster", cluster).stdout.splitlines()[:2] == [
        "x/a: Scheduling is blocked due to non-empty scheduling gates",
        "The cheapest change that would make it fit: remove scheduling gate example.com/quota from pod x/a.",
    ]


def test_changes_that_belong_together_are_told_in_order_and_then_the_alternatives(run, write) -> None:
    cluster = write("c.json", node("n1").taint("gpu").cordoned(), pod("a", namespace="x"))

    assert run("explain", "pod", "x/a", "--cluster", cluster).stdout.splitlines()[1:6] == [
        "The cheapest changes that together would make it fit, on n1:",
        "  1. uncordon node n1",
        "  2. let pod x/a tolerate gpu:NoSchedule of node n1",
        "Or: uncordon node n1; remove gpu:NoSchedule from node n1.",
        "",
    ]


def test_the_best_node_is_shown_first_and_said_to_be_likely(run, write) -> None:
    things = node("n1"), node("n2"), node("n3").taint("gone"), pod("b").on("n1").cpu("2"), pod("a", namespace="x")
    lines = run("explain", "pod", "x/a", "--cluster", write("c.json", *things)).stdout.splitlines()

    assert lines[1] == "The scheduler would most likely take n2."
    assert [line.split()[0] for line in lines[3:]] == ["NODE", "n2", "n1", "n3"]
    assert "(TaintToleration 300, NodeResourcesFit" in lines[4]


def test_equal_nodes_are_equally_likely(run, write) -> None:
    things = [node(f"n{number}") for number in range(8)]
    lines = run("explain", "pod", "x/a", "--cluster", write("c.json", *things, pod("a", namespace="x"))).stdout

    assert "The scheduler would most likely take one of n0, n1, n2, n3, n4 and 3 more.\n" in lines


@pytest.mark.parametrize(("scoring", "likely"), [("LeastAllocated", ["n2"]), ("MostAllocated", ["n1"])])
def test_the_scoring_strategy_decides_which_node_is_likely(run, write, scoring, likely) -> None:
    full = pod("b").on("n1").cpu("2").memory("8Gi")
    cluster = write("c.json", node("n1"), node("n2"), full, pod("a", namespace="x").cpu("1").memory("4Gi"))
    result = run("explain", "pod", "x/a", "--cluster", cluster, "--scoring", scoring, "-o", "json")

    assert msgspec.json.decode(result.stdout)["likely"] == likely


def test_single_nodes_can_be_asked_for(run, cluster) -> None:
    result = run("explain", "pod", "shop/huge", "--cluster", cluster, "--node", "n3", "-o", "json")
    wrong = run("explain", "pod", "shop/huge", "--cluster", cluster, "--node", "n33")

    assert [each["node"] for each in msgspec.json.decode(result.stdout)["nodes"]] == ["n3"]
    assert wrong.exit_code == 2
    assert "Node/n33: no such node; did you mean n3" in wrong.stderr


@pytest.mark.parametrize("word", ["pod", "pods", "po"])
def test_the_resource_has_kubectls_aliases(run, cluster, word) -> None:
    result = run("explain", word, "shop/huge", "--cluster", cluster)

    assert result.exit_code == 0
    assert result.stdout.splitlines()[3:] == [
        "NODE   FITS   REASONS",
        "n1     no     Insufficient cpu",
        "n2     no     Insufficient cpu",
        "n3     no     node(s) were unschedulable",
    ]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        pytest.param("shop/web-3", "did you mean shop/web-2 or shop/web-1?", id="near name"),
        pytest.param("shop/api-1", "did you mean billing/api-1?", id="other namespace"),
        pytest.param("shop/zzz", "the 3 pods in namespace shop include huge, web-1, web-2", id="nothing near"),
        pytest.param("biling/zzz", "none at all in namespace biling; pods are in billing", id="namespace misspelt"),
    ],
)
def test_an_unknown_pod_is_bad_input_and_names_what_is_near(run, cluster, asked, told) -> None:
    result = run("explain", "pod", asked, "--cluster", cluster)

    assert result.exit_code == 2
    assert result.stderr.startswith(f"trimtab: {cluster}: Pod/{asked}: no such pod")
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("asked", ["web-1", "shop/", "/web-1", "a/b/c"])
def test_a_pod_without_its_namespace_is_refused(run, cluster, asked) -> None:
    result = run("explain", "pod", asked, "--cluster", cluster)

    assert result.exit_code == 2
    assert "NAMESPACE/NAME" in result.stderr


def test_an_unknown_resource_is_a_usage_error(run) -> None:
    result = run("explain", "node", "n1")

    assert result.exit_code == 2
    assert "No such command 'node'" in result.stderr


def test_the_help_names_every_rule_of_the_registry(run) -> None:
    words = " ".join(run("explain", "pod", "-h").stdout.split())

    assert all(rule.name in words.partition("Judged:")[2] for rule in DEFAULT.filters)
    assert all(f"{score.name} ({score.weight})" in words for score in DEFAULT.scores)


def test_a_file_and_a_live_cluster_exclude_each_other(run, cluster) -> None:
    result = run("explain", "pod", "shop/web-1", "--cluster", cluster, "--context", "dev")

    assert result.exit_code == 2
    assert "--kubeconfig and --context name a live cluster" in result.stderr


def test_many_nodes_are_shown_by_verdict_unless_all_are_asked_for(run, write) -> None:
    small = [node(f"small-{number:02}").allocatable(cpu="1") for number in range(40)]
    cluster = write("c.json", *small, node("big").allocatable(cpu="64"), pod("a", namespace="x").cpu("2"))

    short = run("explain", "pod", "x/a", "--cluster", cluster).stdout.splitlines()
    long = run("explain", "pod", "x/a", "--cluster", cluster, "--all").stdout.splitlines()

    assert short[1:3] == ["The scheduler can only take big.", ""]
    assert [line.split()[:2] for line in short[3:5]] == [["NODE", "FITS"], ["big", "yes"]]
    assert short[6:] == [
        "NODES   FITS   REASONS            FOR EXAMPLE",
        "1       yes                       big",
        "40      no     Insufficient cpu   small-00, small-01, small-02, …",
        "41 nodes (--all shows each)",
    ]
    assert len(long) == 4 + 41
