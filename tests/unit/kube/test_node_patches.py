"""Patches of a node's taints and annotations: what they add and remove, and what they leave to other writers."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.fakes.api import Call, FakeApi
from tests.fakes.json_patch import patch
from trimtab.kube.api import Conflict, Invalid
from trimtab.kube.node_patches import MAX_TRIES, NodeFields, append_taints, patch_node, remove_taints, set_annotations
from trimtab.kube.resources import NODES


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
    operations = [*set_annotations(fields, {"a/b": "1"}), *append_taints(fields, {"key": "a", "effect": "NoSchedule"})]
    assert patch(bare, operations) == {
        "metadata": {"uid": "u1", "annotations": {"a/b": "1"}},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
    }


class Nodes(FakeApi):
    """The fake API with atomic JSON patches."""

    def _patch(self, call: Call) -> Any:
        return self._store(call.path, patch(copy.deepcopy(self.objects[self._existing(call.path)]), call.body))


TAINT = {"key": "new", "effect": "NoSchedule"}


def taint(fields: NodeFields) -> Any:
    return append_taints(fields, TAINT)


@pytest.fixture
def api() -> Nodes:
    found = Nodes()
    found.put(NODES.path("n1"), node("a"))
    return found


async def test_change_of_another_writer_is_kept(api: Nodes) -> None:
    old = NodeFields.from_manifest(node())
    assert await patch_node(api, "n1", "u1", taint, fields=old, timeout=1)
    assert keys_of(api.objects[NODES.path("n1")]) == ["a", "new"]
    assert [call.method for call in api.calls] == ["PATCH", "GET", "PATCH"]


@pytest.mark.parametrize("uid", ["", "u1"])
async def test_node_without_a_change_is_only_read(api: Nodes, uid: str) -> None:
    assert await patch_node(api, "n1", uid, lambda _: (), timeout=1)
    assert [call.method for call in api.calls] == ["GET"]


@pytest.mark.parametrize("read", [True, False], ids=["before it is read", "before it is patched"])
async def test_deleted_node_is_not_patched(api: Nodes, read: bool) -> None:
    api.objects.clear()
    fields = None if read else NodeFields.from_manifest(node())
    assert not await patch_node(api, "n1", "u1", taint, fields=fields, timeout=1)


async def test_node_of_the_same_name_is_not_patched(api: Nodes) -> None:
    assert not await patch_node(api, "n1", "u0", taint, timeout=1)
    assert [call.method for call in api.calls] == ["GET"]


async def test_node_that_others_keep_changing_is_left_after_some_attempts(api: Nodes) -> None:
    api.fail(Conflict("changed", status=409), times=MAX_TRIES, method="PATCH")
    with pytest.raises(Conflict):
        await patch_node(api, "n1", "u1", taint, timeout=1)
    assert len(api.sent("PATCH")) == MAX_TRIES
