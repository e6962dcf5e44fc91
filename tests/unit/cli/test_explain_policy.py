"""``trimtab explain policy``."""

from __future__ import annotations

import msgspec
import pytest

from tests.builders import node, pod
from tests.fixtures.golden import Golden

POLICY = """\
apiVersion: trimtab.dev/v1alpha1
kind: DeschedulerPolicy
metadata: {name: default}
spec: {strategies: {RemoveDuplicates: {}}}
"""
MANAGER = """\
apiVersion: trimtab.dev/v1alpha1
kind: TaintManager
metadata: {name: default}
spec: {mode: Observe}
"""
TAINTED = node("n1").taint("example.com/x", effect="NoExecute", added="2026-11-20T11:00:00Z")


@pytest.mark.parametrize("name", ["policy/dp/default", "policy DeschedulerPolicy/default"])
def test_policy_by_kind_and_name(run, write, policy, name) -> None:
    options = ("--cluster", write("c.json", TAINTED), "--policy", policy(POLICY, MANAGER))
    result = run("explain", *name.split(), *options, "-o", "json")

    assert (result.exit_code, result.stderr) == (0, "")
    assert msgspec.json.decode(result.stdout)["kind"] == "DeschedulerPolicy"


def test_taint_manager_in_mode_observe_is_held_back_by_its_mode(run, write, policy) -> None:
    options = ("--cluster", write("c.json", TAINTED, pod("w").on("n1")), "--policy", policy(MANAGER))
    document = msgspec.json.decode(run("explain", "policy", "default", *options, "-o", "json").stdout)

    assert [(each["action"], each["count"]) for each in document["planned"]] == [("Delete", 1)]
    assert [each["reason"] for each in document["heldBackBy"]] == ["Observe"]
    assert "Held back by" in run("explain", "policy", "default", *options).stdout


def test_name_of_several_kinds_and_unknown_names_are_errors(run, write, policy, tmp_path, golden: Golden) -> None:
    options = ("--cluster", write("c.json", TAINTED), "--policy", policy(POLICY, MANAGER))
    several = run("explain", "policy", "default", *options)
    assert several.exit_code == 2
    assert "deschedulerpolicy/default, taintmanager/default" in several.stderr
    unknown = run("explain", "policy", "dp/nightly", *options)
    assert unknown.exit_code == 2
    kind = run("explain", "policy", "deschedulerpolcy/default", *options)
    assert kind.exit_code == 2
    for label, result in {"several": several, "unknown": unknown, "kind": kind}.items():
        golden(result.stderr.replace(str(tmp_path), ""), label)
