"""Patches of a node's taints and annotations: what they add and remove, and what they leave to other writers."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.fakes.json_patch import patch
from trimtab.kube.api import Invalid
from trimtab.kube.node_patches import NodeFields, append_taint, remove_taints, set_annotations


def node(*keys: str) -> dict[str, Any]:
    taints = [{"key": key, "effect": "NoSchedule"} for key in keys]
    return {"metadata": {"uid": "u1", "annotations": {"mine": "x"}}, "spec": {"taints": taints} if taints else {}}


def keys_of(manifest: dict[str, Any]) -> list[str]:
    return [each["key"] for each in manifest["spec"].get("taints", [])]


@pytest.mark.parametrize("removed", [("a",), ("c",), ("a", "c"), ("b", "a", "c"), ("none",), ()], ids=str)
def test_removed_taints_do_not_shift_each_other(removed: tuple[str, ...]) -> None:
    manifest = node("a", "b", "c")
    operations = remove_taints(NodeFields.from_manifest(manifest), *removed)
    assert keys_of(patch(copy.deepcopy(manifest), operations)) == [key for key in "abc" if key not in removed]


def test_removal_is_refused_if_another_writer_has_moved_the_taint() -> None:
    operations = remove_taints(NodeFields.from_manifest(node("a", "b")), "b")
    with pytest.raises(Invalid):
        patch(node("b"), operations)


def test_taints_and_annotations_are_added_to_a_node_without_any() -> None:
    bare: dict[str, Any] = {"metadata": {"uid": "u1"}, "spec": {}}
    fields = NodeFields.from_manifest(bare)
    operations = [*set_annotations(fields, {"a/b": "1"}), *append_taint(fields, {"key": "a", "effect": "NoSchedule"})]
    assert patch(bare, operations) == {
        "metadata": {"uid": "u1", "annotations": {"a/b": "1"}},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
    }
