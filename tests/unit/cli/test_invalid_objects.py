"""Objects of ``--cluster`` that the API server would not take: named, and left out on request."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.builders import budget, expression, node, pod
from tests.fixtures.golden import Golden

POLICY = """
apiVersion: trimtab.dev/v1alpha1
kind: DeschedulerPolicy
metadata: {name: default}
spec: {strategies: {RemoveDuplicates: {}}}
"""
NOW = "2026-11-20T12:00:00Z"

SOFT = "preferredDuringSchedulingIgnoredDuringExecution"
CASES = {
    "pod": (
        pod("bad").prefers_nodes(250, expression("disk", "In", "ssd")),
        f"Pod/shop/bad: spec.affinity.nodeAffinity.{SOFT}[0].weight: must be between 1 and 100, not 250",
    ),
    "node": (
        node("worse").taint("a", effect="NoAdmission"),
        "Node/worse: spec.taints[0].effect: must be NoSchedule, PreferNoSchedule or NoExecute, not 'NoAdmission'",
    ),
    "budget": (
        budget("worst").unhealthy_policy("Always"),
        (
            "PodDisruptionBudget/shop/worst: spec.unhealthyPodEvictionPolicy: "
            "must be IfHealthyBudget or AlwaysAllow, not 'Always'"
        ),
    ),
}
BROKEN, MESSAGES = (list(parts) for parts in zip(*CASES.values(), strict=True))


def good() -> list:
    pods = [pod(f"web-{n}").labels(app="web").owned_by("ReplicaSet", "web").cpu("100m").on("n1") for n in (1, 2)]
    return [node("n1"), node("n2"), *pods, pod("pending").cpu("64")]


@pytest.fixture
def commands(tmp_path: Path) -> dict[str, list[str]]:
    policy = tmp_path / "policy" / "policy.yaml"
    policy.parent.mkdir()
    policy.write_text(POLICY)
    return {
        "plan": ["plan", "--policy", str(policy), "--now", NOW],
        "explain": ["explain", "pod", "shop/pending"],
    }


@pytest.mark.parametrize("command", ["plan", "explain"])
@pytest.mark.parametrize("name", ["cluster.json", "cluster.yaml"])
@pytest.mark.parametrize(("broken", "expected"), CASES.values(), ids=CASES)
def test_first_invalid_object_fails_the_command(run, write, commands, command, name, broken, expected) -> None:
    cluster = write(name, *good(), broken)

    result = run(*commands[command], "--cluster", cluster)

    assert result.exit_code == 2
    assert result.stderr == f"trimtab: {cluster}: {expected}\n"
    assert result.stdout == ""


@pytest.mark.parametrize("command", ["plan", "explain"])
@pytest.mark.parametrize("name", ["cluster.json", "cluster.yaml"])
def test_invalid_objects_are_skipped_on_request(run, write, commands, command, name) -> None:
    first, *rest = good()
    cluster = write(name, BROKEN[0], first, BROKEN[1], *rest, BROKEN[2])
    whole = write(f"good/{name}", first, *rest)

    result = run(*commands[command], "--cluster", cluster, "--skip-invalid", "-o", "json")

    assert result.exit_code == 0
    assert result.stderr.splitlines() == [f"trimtab: skipped: {cluster}: {expected}" for expected in MESSAGES]
    assert result.stdout == run(*commands[command], "--cluster", whole, "-o", "json").stdout
    assert msgspec.json.decode(result.stdout)


def test_errors_in_a_folder_name_the_file(run, write, commands) -> None:
    one, other = write("all/a.yaml", *good()[:2], BROKEN[1]), write("all/b.json", BROKEN[0], *good()[2:])

    result = run(*commands["plan"], "--cluster", one.parent, "--skip-invalid")

    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        f"trimtab: skipped: {one}: {MESSAGES[1]}",
        f"trimtab: skipped: {other}: {MESSAGES[0]}",
    ]
    assert "1 Evict" in result.stdout


def test_standard_input_is_a_dash(run, write, commands) -> None:
    text = write("cluster.json", *good(), BROKEN[0]).read_bytes()

    refused = run(*commands["explain"], "--cluster", "-", stdin=text)
    skipped = run(*commands["explain"], "--cluster", "-", "--skip-invalid", stdin=text)

    assert (refused.exit_code, refused.stderr) == (2, f"trimtab: -: {MESSAGES[0]}\n")
    assert (skipped.exit_code, skipped.stderr) == (0, f"trimtab: skipped: -: {MESSAGES[0]}\n")


def test_a_pod_that_was_skipped_cannot_be_explained(run, write) -> None:
    cluster = write("cluster.json", *good(), BROKEN[0])

    result = run("explain", "pod", "shop/bad", "--cluster", cluster, "--skip-invalid")

    assert result.exit_code == 2
    assert result.stderr.splitlines()[0] == f"trimtab: skipped: {cluster}: {MESSAGES[0]}"
    assert "shop/bad" in result.stderr.splitlines()[1]


def test_non_object_document_is_skipped(run, tmp_path, commands, golden: Golden) -> None:
    good_ones = [msgspec.json.encode(each.manifest()).decode() for each in good()]
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("\n---\n".join([good_ones[0], "just text", "- a\n- b", *good_ones[1:]]))

    stopped = run(*commands["explain"], "--cluster", str(cluster))
    result = run(*commands["explain"], "--cluster", str(cluster), "--skip-invalid", "-o", "json")

    assert stopped.exit_code == 2
    golden(stopped.stderr.replace(str(tmp_path), "folder"), "stopped")
    assert result.exit_code == 0
    assert len(result.stderr.splitlines()) == 2
    golden(result.stderr.replace(str(tmp_path), "folder"), "skipped")
    assert msgspec.json.decode(result.stdout)["pod"] == "shop/pending"
