"""``trimtab plan`` on files."""

from __future__ import annotations

import html
import random
from pathlib import Path

import msgspec
import pytest
import yaml

from tests.builders import budget, node, pod, priority_class, pv, pvc
from tests.fixtures.golden import Golden
from tests.unit.cli.conftest import as_list
from trimtab.descheduling.memory.cooldown import template_digest

NOW = "2026-11-20T12:00:00Z"
EXAMPLES = Path(__file__).parents[3] / "examples"

POLICY = """\
apiVersion: trimtab.dev/v1alpha1
kind: DeschedulerPolicy
metadata: {name: default}
spec:
  strategies: {RemoveDuplicates: {}}
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return path


def objects() -> list:
    """Two duplicates on n1, one of another owner whose budget allows nothing, room elsewhere."""
    return [
        *(node(f"n{number}") for number in range(1, 5)),
        *(pod(f"web-{number}").on("n1").cpu("1").owned_by("ReplicaSet", "web").ready() for number in (1, 2)),
        *(pod(f"db-{number}").on("n2").labels(app="db").owned_by("ReplicaSet", "db").ready() for number in (1, 2)),
        budget("db").selecting(app="db").allowing(0, healthy=2, expected=2),
    ]


def test_policy_status_provides_eviction_history(run, write, tmp_path) -> None:
    entry = {
        "strategy": "RemoveDuplicates",
        "namespace": "shop",
        "kind": "ReplicaSet",
        "name": "web",
        "template": template_digest(pod("web-1").on("n1").cpu("1").owned_by("ReplicaSet", "web").ready().build()),
        "failures": 3,
        "time": NOW,
        "until": NOW,
        "trouble": "CameBack",
        "node": "n1",
        "gaveUp": True,
    }
    body = yaml.safe_load(POLICY)
    body["metadata"]["generation"] = 4
    body["status"] = {"memory": {"generation": 4, "setbacks": [entry]}}
    path = tmp_path / "live.yaml"
    for generation, reasons in ((4, {"GaveUp"}), (5, set())):
        body["metadata"]["generation"] = generation
        path.write_text(yaml.safe_dump(body))
        result = run("plan", "--cluster", write("c.json", *objects()), "--policy", path, "--now", NOW, "-o", "json")

        assert result.exit_code == 0
        document = msgspec.json.decode(result.stdout)
        assert {each["reason"] for each in document["kept"] if each["name"].startswith("web")} == reasons
        assert document["summary"]["Evict"] == (0 if reasons else 1)

        page = run("plan", "--cluster", tmp_path / "c.json", "--policy", path, "--now", NOW, "-o", "html")
        assert all(each["message"] in html.unescape(page.stdout) for each in document["kept"])
        assert ("GaveUp" in page.stdout) is bool(reasons)


def test_json_matches_the_contract(run, write, policy) -> None:
    result = run("plan", "--cluster", write("c.json", *objects()), "--policy", policy, "--now", NOW, "-o", "json")

    assert result.exit_code == 0
    document = msgspec.json.decode(result.stdout)
    assert list(document) == ["apiVersion", "kind", "now", "actions", "kept", "summary"]
    assert (document["apiVersion"], document["kind"], document["now"]) == ("trimtab.dev/v1alpha1", "Plan", NOW)
    (action,) = document["actions"]
    assert list(action)[:9] == [
        "action",
        "policy",
        "strategy",
        "namespace",
        "pod",
        "node",
        "target",
        "reason",
        "message",
    ]
    assert (action["action"], action["pod"], action["node"]) == ("Evict", "web-1", "n1")
    assert {(kept["name"], kept["reason"]) for kept in document["kept"]} >= {("db-1", "DisruptionBudget")}
    assert list(document["kept"][0])[:6] == ["kind", "namespace", "name", "strategy", "reason", "message"]
    assert document["summary"] == {"Evict": 1, "kept": len(document["kept"])}


def test_output_is_independent_of_input_order_and_format(run, write, policy) -> None:
    def planned(cluster: Path | str, stdin: bytes | None = None) -> str:
        result = run("plan", "--cluster", cluster, "--policy", policy, "--now", NOW, "-o", "json", stdin=stdin)
        assert result.exit_code == 0
        return result.stdout

    items = objects()
    first = planned(write("c.json", *items))
    shuffler = random.Random(7)

    assert planned(write("c.json", *items)) == first
    for _ in range(5):
        shuffler.shuffle(items)
        assert planned(write("shuffled.json", *items)) == first
    assert planned(write("c.yaml", *items)) == first
    assert planned("-", msgspec.json.encode(as_list(*items))) == first
    for number, item in enumerate(items):
        write(f"folder/{number % 2}/{number}.yaml", item)
    assert planned(write("folder/last.json").parent) == first


def test_output_is_independent_of_policy_order(run, write, tmp_path, policy) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(POLICY.replace("default", "another"))
    cluster = write("c.json", *objects())

    one = run("plan", "--cluster", cluster, "--policy", policy, "--policy", other, "--now", NOW, "-o", "json")
    two = run("plan", "--cluster", cluster, "--policy", other, "--policy", policy, "--now", NOW, "-o", "json")

    assert one.stdout == two.stdout
    assert msgspec.json.decode(one.stdout)["actions"][0]["policy"] == "another"


def test_page_is_independent_of_order_and_has_all_moves(run, write, policy) -> None:
    items = objects()
    arguments = ["--policy", policy, "--now", NOW]
    one = run("plan", "--cluster", write("c.json", *items), *arguments, "-o", "html")
    items.reverse()
    two = run("plan", "--cluster", write("c.json", *items), *arguments, "-o", "html")
    document = msgspec.json.decode(run("plan", "--cluster", write("c.json", *items), *arguments, "-o", "json").stdout)

    assert one.exit_code == 0
    assert one.stdout == two.stdout
    assert one.stdout.startswith("<!doctype html>")
    for each in (*document["actions"], *document["kept"]):
        assert each["message"] in html.unescape(one.stdout)


def test_yaml_equals_json(run, write, policy) -> None:
    arguments = ["plan", "--cluster", write("c.json", *objects()), "--policy", policy, "--now", NOW]

    as_yaml = msgspec.yaml.decode(run(*arguments, "-o", "yaml").stdout)

    assert as_yaml == msgspec.json.decode(run(*arguments, "-o", "json").stdout)


def test_table_shows_actions_and_kept_pods(run, write, policy) -> None:
    result = run("plan", "--cluster", write("c.json", *objects()), "--policy", policy, "--now", NOW)

    first, blank, header, row, *rest = result.stdout.splitlines()
    assert first.startswith(f"Plan for {NOW}: 1 Evict; ")
    assert blank == ""
    assert header.split() == ["POLICY", "STRATEGY", "POD", "FROM", "TO", "REASON", "MESSAGE"]
    assert row.split()[:4] == ["default", "RemoveDuplicates", "shop/web-1", "n1"]
    assert any(line.startswith("Kept: DisruptionBudget (") for line in rest)
    assert "\x1b[" not in result.stdout  # colours are for terminals


def test_terminal_pod_has_no_target(run, write, tmp_path) -> None:
    failed = pod("web-1").on("n1").owned_by("ReplicaSet", "web").created("2026-11-20T00:00:00Z").phase("Failed")
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY.replace("RemoveDuplicates", "RemoveFailedPods"))
    arguments = ["plan", "--cluster", write("c.json", node("n1"), failed), "--policy", policy, "--now", NOW]

    (action,) = msgspec.json.decode(run(*arguments, "-o", "json").stdout)["actions"]
    row = run(*arguments).stdout.splitlines()[3]

    assert (action["node"], action["target"], action["reason"]) == ("n1", "", "PodFailed")
    assert row.split()[:6] == ["default", "RemoveFailedPods", "shop/web-1", "n1", "-", "PodFailed"]


def test_long_list_of_kept_pods_is_truncated_unless_all_is_given(run, write, policy) -> None:
    crowd = [pod(f"db-{number}").on("n1").labels(app="db").owned_by("ReplicaSet", "db").ready() for number in range(12)]
    cluster = write("c.json", node("n1"), node("n2"), *crowd, budget("db").selecting(app="db").allowing(0))
    arguments = ["plan", "--cluster", cluster, "--policy", policy, "--now", NOW]

    short, long = run(*arguments).stdout, run(*arguments, "--all").stdout

    assert "more (--all shows them)" in short
    assert "--all" not in long
    assert len(long.splitlines()) > len(short.splitlines())


def test_empty_plan_is_reported(run, write, policy, golden: Golden) -> None:
    result = run("plan", "--cluster", write("c.json", node("n1")), "--policy", policy, "--now", NOW)

    golden(result.stdout)


def test_mode_and_suspend_are_ignored(run, write, tmp_path, policy) -> None:
    acting = tmp_path / "acting.yaml"
    acting.write_text(POLICY + "  mode: Act\n  suspend: true\n")
    cluster = write("c.json", *objects())

    def planned(by: Path) -> str:
        return run("plan", "--cluster", cluster, "--policy", by, "--now", NOW, "-o", "json").stdout

    assert planned(acting) == planned(policy)


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        pytest.param("2026-11-20T13:00:00+01:00", NOW, id="another zone"),
        pytest.param("2026-11-20T12:00:00.999Z", NOW, id="a fraction, as plans print whole seconds"),
    ],
)
def test_now_is_read_as_rfc_3339(run, write, policy, given, printed) -> None:
    result = run("plan", "--cluster", write("c.json", node()), "--policy", policy, "--now", given, "-o", "json")

    assert msgspec.json.decode(result.stdout)["now"] == printed


@pytest.mark.parametrize(
    "given",
    [
        "yesterday",
        "2026-11-20T12:00:00",
        "2026-11-20",
        "1800000000",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
    ],
)
def test_a_time_without_date_or_zone_is_refused(run, write, policy, given, golden: Golden) -> None:
    result = run("plan", "--cluster", write("c.json", node()), "--policy", policy, "--now", given)

    assert result.exit_code == 2
    assert given in result.stderr
    golden(result.stderr)


def test_standard_input_can_be_given_once(run, golden: Golden) -> None:
    result = run("plan", "--cluster", "-", "--policy", "-", stdin=b"{}")

    assert result.exit_code == 2
    golden(result.stderr)


def test_policy_is_read_from_standard_input(run, write) -> None:
    result = run("plan", "--cluster", write("c.json", *objects()), "--policy", "-", stdin=POLICY.encode())

    assert result.exit_code == 0
    assert "shop/web-1" in result.stdout


@pytest.mark.parametrize(
    ("content", "recorded"),
    [
        pytest.param("{", "is not", id="broken"),
        pytest.param("kind: List\napiVersion: v1\nitems: []", "contains no object that trimtab reads", id="empty list"),
        pytest.param(POLICY, "contains no object that trimtab reads; it reads Pod, Node", id="a policy"),
    ],
)
def test_invalid_cluster_file_is_an_input_error(run, tmp_path, policy, content, recorded) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(content)

    result = run("plan", "--cluster", path, "--policy", policy)

    assert result.exit_code == 2
    assert result.stderr.startswith(f"trimtab: {path}: ")
    assert recorded in result.stderr
    assert result.stderr.count("\n") == 1


def test_invalid_object_is_named_with_file_and_field(run, write, policy) -> None:
    cluster = write("c.json", node("n1"), pod("bad").cpu("a lot"))

    result = run("plan", "--cluster", cluster, "--policy", policy)

    assert result.exit_code == 2
    assert result.stderr.startswith(f"trimtab: {cluster}: Pod/shop/bad: spec.containers[0].resources.requests")
    assert result.stderr.count("\n") == 1


def test_missing_claims_are_warned_about(run, write, policy, golden: Golden) -> None:
    using = [each.claim("data") if hasattr(each, "claim") else each for each in objects()]
    saved = pvc().of_class("fast").bound_to("volume-1")

    incomplete = write("c.json", *using)
    without = run("plan", "--cluster", incomplete, "--policy", policy, "--now", NOW, "-o", "json")
    complete = write("all.json", *using, saved, pv("volume-1").of_class("fast").claimed_by("data"))
    result = run("plan", "--cluster", complete, "--policy", policy, "--now", NOW, "-o", "json")

    golden(without.stderr.replace(str(incomplete), "c.json"))
    assert msgspec.json.decode(without.stdout)["actions"] == []
    assert result.stderr == ""
    assert [action["pod"] for action in msgspec.json.decode(result.stdout)["actions"]] == ["web-1"]


def test_invalid_objects_are_skipped_on_request(run, write, policy) -> None:
    cluster = write("c.json", *objects(), pod("bad").cpu("a lot"), node("worse").allocatable(cpu="x"))

    result = run("plan", "--cluster", cluster, "--policy", policy, "--now", NOW, "--skip-invalid", "-o", "json")
    good = run("plan", "--cluster", write("g.json", *objects()), "--policy", policy, "--now", NOW, "-o", "json")

    assert result.exit_code == 0
    assert [line.split(": ")[:4] for line in result.stderr.splitlines()] == [
        ["trimtab", "skipped", str(cluster), "Pod/shop/bad"],
        ["trimtab", "skipped", str(cluster), "Node/worse"],
    ]
    assert result.stdout == good.stdout


def test_example_cluster_behaves_as_its_comments_describe(run, policy) -> None:
    policy.write_text(
        POLICY.replace(
            "{RemoveDuplicates: {}}",
            "{RemoveDuplicates: {}, RemovePodsViolatingNodeAffinity: {}, RemovePodsViolatingInterPodAntiAffinity: {}}",
        )
    )
    result = run("plan", "--cluster", EXAMPLES / "cluster", "--policy", policy, "--now", NOW, "-o", "json")

    document = msgspec.json.decode(result.stdout)
    assert {action["pod"].split("-")[0]: action["target"] for action in document["actions"]}["search"] == "node-d"
    assert sorted(action["pod"].split("-")[0] for action in document["actions"]) == ["cart", "search", "web"]
    kept = {(each["namespace"], each["reason"]) for each in document["kept"]}
    assert ("payments", "DisruptionBudget") in kept


@pytest.mark.parametrize(
    ("stated", "classes", "reasons"),
    [
        pytest.param({"priorityClassName": "high"}, [priority_class("high", 500)], ["PriorityTooHigh"], id="its class"),
        pytest.param({}, [priority_class("high", 500).by_default()], ["PriorityTooHigh"], id="the default class"),
        pytest.param(
            {}, [priority_class("low", 5).by_default(), priority_class("high", 500).by_default()], [], id="the lowest"
        ),
        pytest.param({"priorityClassName": "system-node-critical"}, [], ["CriticalPod"], id="the system's class"),
        pytest.param(
            {"priorityClassName": "high", "priority": 3}, [priority_class("high", 500)], [], id="its own number counts"
        ),
        pytest.param({"priorityClassName": "gone"}, [], [], id="a class that is not there"),
    ],
)
def test_pods_without_priority_get_that_of_their_class(run, write, tmp_path, stated, classes, reasons):
    twins = [pod(f"web-{number}").on("n1").owned_by("ReplicaSet", "web").merge(spec=stated) for number in (1, 2)]
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY + "  priorityThreshold: {value: 100}\n")
    cluster = write("cluster.yaml", *twins, node("n1"), node("n2"), *classes)
    result = run("plan", "--cluster", cluster, "--policy", policy, "-o", "json")
    document = msgspec.json.decode(result.stdout)
    assert sorted({kept["reason"] for kept in document["kept"]}) == reasons
    assert document["summary"].get("Evict", 0) == (0 if reasons else 1)


UTILIZATION = """\
apiVersion: trimtab.dev/v1alpha1
kind: DeschedulerPolicy
metadata: {name: %s}
spec:
  strategies:
    %s: {params: {nodeResourceUtilizationThresholds: {thresholds: {cpu: 20}%s}}}
"""
EVEN = UTILIZATION % ("even", "LowNodeUtilization", ", targetThresholds: {cpu: 50}")
FILL = UTILIZATION % ("fill", "HighNodeUtilization", "")


def test_conflicting_policies_are_rejected_together(run, write, tmp_path, golden: Golden) -> None:
    (tmp_path / "even.yaml").write_text(EVEN)
    (tmp_path / "fill.yaml").write_text(FILL)
    even, fill = (("--policy", tmp_path / f"{name}.yaml") for name in ("even", "fill"))
    command = ("plan", "--cluster", write("c.json", *objects()), "--now", NOW, "-o", "json")

    result = run(*command, *fill, *even)
    assert result.exit_code == 2
    assert result.stdout == ""
    golden(result.stderr)
    assert "plan them separately" in result.stderr
    assert [run(*command, *each).exit_code for each in (even, fill)] == [0, 0]


@pytest.mark.parametrize(("scoring", "code"), [("LeastAllocated", 2), ("MostAllocated", 0), (None, 0)])
def test_policy_conflicting_with_scoring_is_rejected(run, write, tmp_path, scoring, code, golden: Golden) -> None:
    (tmp_path / "fill.yaml").write_text(FILL)
    recorded = () if scoring is None else ("--scoring", scoring)
    result = run("plan", "--cluster", write("c.json", *objects()), "--policy", tmp_path / "fill.yaml", *recorded)
    assert result.exit_code == code
    assert (result.stderr != "") is (code == 2)
    if code:
        golden(result.stderr)


BY_USE = """\
apiVersion: trimtab.dev/v1alpha1
kind: DeschedulerPolicy
metadata: {name: default}
spec:
  strategies:
    LowNodeUtilization:
      params:
        metricsUtilization: {source: KubernetesMetrics}
        nodeResourceUtilizationThresholds: {thresholds: {cpu: 20}, targetThresholds: {cpu: 50}}
"""


def test_metrics_are_read_from_the_file_for_policies_using_them(run, write, policy) -> None:
    policy.write_text(BY_USE)
    metrics = [
        {
            "apiVersion": "metrics.k8s.io/v1beta1",
            "kind": "NodeMetrics",
            "metadata": {"name": name},
            "usage": {"cpu": cpu, "memory": "1Gi"},
        }
        for name, cpu in (("n1", "2500m"), ("n2", "100m"))
    ]
    things = [
        *(node(name) for name in ("n1", "n2")),
        pod("web").on("n1").cpu("1").owned_by("ReplicaSet", "web").ready(),
    ]

    def planned(*items) -> dict:
        cluster = write("c.yaml", *items)
        result = run("plan", "--cluster", cluster, "--policy", policy, "--now", NOW, "-o", "json")
        assert result.exit_code == 0
        return msgspec.json.decode(result.stdout)

    (action,) = planned(*things, *metrics)["actions"]
    assert (action["pod"], action["target"]) == ("web", "n2")
    without = planned(*things)
    assert without["actions"] == []
    assert {each["reason"] for each in without["kept"]} == {"NotMeasured"}
    assert "contains no NodeMetrics" in without["kept"][0]["message"]
