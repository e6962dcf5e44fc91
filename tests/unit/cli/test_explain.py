"""``trimtab explain pod``."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.builders import node, pod
from tests.fixtures.golden import Golden
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


def test_json_matches_the_contract(run, cluster) -> None:
    result = run("explain", "pod", "shop/huge", "--cluster", cluster, "-o", "json")

    assert result.exit_code == 0
    document = msgspec.json.decode(result.stdout)
    remedy = document.pop("remedy")
    contract = ("pod", "node", "fits", "likely", "message", "nodes")
    assert document["state"] == "Pending"
    assert {key: document[key] for key in contract} == {
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


def test_feasible_node_has_a_score_breakdown(run, cluster) -> None:
    document = msgspec.json.decode(run("explain", "pod", "shop/web-2", "--cluster", cluster, "-o", "json").stdout)

    assert document["node"] == "n1"
    assert document["likely"] == ["n2"]
    assert document["remedy"] is None
    [score] = [node["score"] for node in document["nodes"] if node["fits"]]
    assert score.pop("total") == sum(score.values())
    assert score["NodeResourcesFit"] == (25 + 98) // 2
    assert set(score) == {rule.name for rule in DEFAULT.scores}


def test_bound_pod_is_evaluated_as_pending(run, cluster, golden: Golden) -> None:
    response = msgspec.json.decode(run("explain", "pod", "shop/web-2", "--cluster", cluster, "-o", "json").stdout)

    # n1 is too small even without web-2 itself, n2 takes it.
    assert response["fits"] == ["n2"]
    golden(response["message"])


def test_a_pod_that_fits_everywhere_needs_no_reasons(run, write) -> None:
    cluster = write("c.yaml", node("n1"), node("n2"), pod("a", namespace="x").on("n1"))

    response = msgspec.json.decode(run("explain", "pod", "x/a", "--cluster", cluster, "-o", "json").stdout)

    assert response["message"] == "2/2 nodes are available."
    assert response["fits"] == ["n1", "n2"]


def test_cluster_without_nodes_has_the_schedulers_message(run, write, golden: Golden) -> None:
    cluster = write("c.json", pod("a", namespace="x"))

    golden(run("explain", "pod", "x/a", "--cluster", cluster).stdout)


def test_gated_pod_has_the_message_of_its_condition(run, write, golden: Golden) -> None:
    gated = pod("a", namespace="x").merge(spec={"schedulingGates": [{"name": "example.com/quota"}]})
    cluster = write("c.json", node("n1"), gated)

    golden("\n".join(run("explain", "pod", "x/a", "--cluster", cluster).stdout.splitlines()[:2]))


def test_combined_changes_are_listed_in_order_before_alternatives(run, write, golden: Golden) -> None:
    cluster = write("c.json", node("n1").taint("gpu").cordoned(), pod("a", namespace="x"))

    golden("\n".join(run("explain", "pod", "x/a", "--cluster", cluster).stdout.splitlines()[1:6]))


def test_best_node_is_shown_first_as_likely(run, write, golden: Golden) -> None:
    objects = node("n1"), node("n2"), node("n3").taint("gone"), pod("b").on("n1").cpu("2"), pod("a", namespace="x")
    lines = run("explain", "pod", "x/a", "--cluster", write("c.json", *objects)).stdout.splitlines()

    golden(lines[1])
    assert [line.split()[0] for line in lines[3:]] == ["NODE", "n2", "n1", "n3"]
    assert "(TaintToleration 300, NodeResourcesFit" in lines[4]


def test_equal_nodes_are_equally_likely(run, write, golden: Golden) -> None:
    objects = [node(f"n{number}") for number in range(8)]
    lines = run("explain", "pod", "x/a", "--cluster", write("c.json", *objects, pod("a", namespace="x"))).stdout

    golden(lines)


@pytest.mark.parametrize(("scoring", "likely"), [("LeastAllocated", ["n2"]), ("MostAllocated", ["n1"])])
def test_the_scoring_strategy_decides_which_node_is_likely(run, write, scoring, likely) -> None:
    full = pod("b").on("n1").cpu("2").memory("8Gi")
    cluster = write("c.json", node("n1"), node("n2"), full, pod("a", namespace="x").cpu("1").memory("4Gi"))
    result = run("explain", "pod", "x/a", "--cluster", cluster, "--scoring", scoring, "-o", "json")

    assert msgspec.json.decode(result.stdout)["likely"] == likely


def test_single_nodes_can_be_selected(run, cluster, golden: Golden) -> None:
    result = run("explain", "pod", "shop/huge", "--cluster", cluster, "--node", "n3", "-o", "json")
    wrong = run("explain", "pod", "shop/huge", "--cluster", cluster, "--node", "n33")

    assert [each["node"] for each in msgspec.json.decode(result.stdout)["nodes"]] == ["n3"]
    assert wrong.exit_code == 2
    golden(wrong.stderr.replace(str(cluster), "c.json"))


@pytest.mark.parametrize("word", ["pod", "pods", "po"])
def test_the_resource_has_kubectls_aliases(run, cluster, word, golden: Golden) -> None:
    result = run("explain", word, "shop/huge", "--cluster", cluster)

    assert result.exit_code == 0
    golden("\n".join(result.stdout.splitlines()[3:]))


@pytest.mark.parametrize(
    ("asked", "similar"),
    [
        pytest.param("shop/web-3", ["shop/web-2", "shop/web-1"], id="near name"),
        pytest.param("shop/api-1", ["billing/api-1"], id="other namespace"),
        pytest.param("shop/zzz", ["huge", "web-1", "web-2"], id="nothing near"),
        pytest.param("biling/zzz", ["billing"], id="namespace misspelt"),
    ],
)
def test_unknown_pod_is_an_input_error_with_similar_names(run, cluster, asked, similar, golden: Golden) -> None:
    result = run("explain", "pod", asked, "--cluster", cluster)

    assert result.exit_code == 2
    assert result.stderr.startswith(f"trimtab: {cluster}: Pod/{asked}: ")
    assert all(name in result.stderr for name in similar)
    assert result.stderr.count("\n") == 1
    golden(result.stderr.replace(str(cluster), "c.json"))


@pytest.mark.parametrize("asked", ["shop/", "/web-1", "a/b/c"])
def test_invalid_name_of_a_pod_is_refused(run, cluster, asked) -> None:
    result = run("explain", "pod", asked, "--cluster", cluster)

    assert result.exit_code == 2
    assert "NAMESPACE/NAME" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["pod", "shop/huge"],
        ["pod", "huge", "-n", "shop"],
        ["pod/huge", "--namespace", "shop"],
        ["po/shop/huge"],
        ["pods", "shop/huge", "-n", "shop"],
    ],
)
def test_names_as_in_kubectl(run, cluster, arguments) -> None:
    result = run("explain", *arguments, "--cluster", cluster, "-o", "json")

    assert msgspec.json.decode(result.stdout)["pod"] == "shop/huge"


def test_an_unknown_resource_is_a_usage_error(run, golden: Golden) -> None:
    result = run("explain", "service", "web")

    assert result.exit_code == 2
    golden(result.stderr)


def test_help_lists_all_filters_and_scores(run) -> None:
    words = " ".join(run("explain", "pod", "-h").stdout.split())

    assert all(rule.name in words.partition("Filters:")[2] for rule in DEFAULT.filters)
    assert all(f"{score.name} ({score.weight})" in words for score in DEFAULT.scores)


def test_a_file_and_a_live_cluster_exclude_each_other(run, cluster, golden: Golden) -> None:
    result = run("explain", "pod", "shop/web-1", "--cluster", cluster, "--context", "dev")

    assert result.exit_code == 2
    golden(result.stderr)


def test_many_nodes_are_grouped_unless_all_is_given(run, write, golden: Golden) -> None:
    small = [node(f"small-{number:02}").allocatable(cpu="1") for number in range(40)]
    cluster = write("c.json", *small, node("big").allocatable(cpu="64"), pod("a", namespace="x").cpu("2"))

    short = run("explain", "pod", "x/a", "--cluster", cluster).stdout.splitlines()
    long = run("explain", "pod", "x/a", "--cluster", cluster, "--all").stdout.splitlines()

    golden("\n".join(short[1:3]))
    assert [line.split()[:2] for line in short[3:5]] == [["NODE", "FITS"], ["big", "yes"]]
    golden("\n".join(short[6:]), "2")
    assert len(long) == 4 + 41


@pytest.mark.parametrize(
    ("pods", "asked", "hint"),
    [
        ([], "shop/web", "the cluster has no pods"),
        (["billing/api", "shop-2/web-9"], "shop/db", "namespace shop has no pods, these namespaces have: shop-2"),
        (["billing/api"], "shop/db", "namespace shop has no pods, these namespaces have: billing"),
        (["shop/aaaa", "shop/bbbb"], "shop/zz", "the 2 pods in namespace shop include aaaa, bbbb"),
        (["shop/web-1", "shop/db"], "shop/web-2", "did you mean shop/web-1?"),
        (["a/web", "b/web"], "shop/web", "did you mean a/web or b/web?"),
    ],
)
def test_unknown_pod_has_a_hint(run, write, pods, asked, hint) -> None:
    built = [pod(name, namespace=namespace) for namespace, _, name in (each.partition("/") for each in pods)]
    result = run("explain", "pod", asked, "--cluster", write("cluster.json", node("n1"), *built))

    assert result.exit_code == 2
    assert result.stderr.rstrip().endswith(hint)
