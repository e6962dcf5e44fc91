"""Markers on nodes: their owner, and that a rollback keeps those of other programs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import machine_set, node
from tests.fakes.clock import START
from tests.fakes.fleet import MARK, TO_BE_DELETED
from tests.fakes.json_patch import patch
from tests.unit.autoscaling.removal_operator import spec_of
from trimtab.autoscaling.actuation.node_markers import (
    CORDONED_BY,
    REMOVING,
    markers_of,
    removal_markers,
    taint_and_cordon,
    untaint_and_uncordon,
)
from trimtab.autoscaling.actuation.removal import RemovalSettings
from trimtab.autoscaling.actuation.removal_checks import LeftoverAction, leftovers
from trimtab.autoscaling.groups import Groups, build_groups
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.node_patches import NodeFields

OURS = {REMOVING: str(int(START)), CORDONED_BY: "cluster-autoscaler"}
VALUE = str(int(START))
NOTHING = Groups()


def manifests() -> st.SearchStrategy[dict[str, Any]]:
    """Nodes with taints, cordons and annotations of other programs."""
    keys = st.sampled_from(["a", "b", "node.kubernetes.io/unschedulable", "DeletionCandidateOfClusterAutoscaler"])
    taint = st.fixed_dictionaries(
        {"key": keys, "effect": st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"])},
        optional={"value": st.sampled_from(["", "1", "x"])},
    )
    taints = st.lists(taint, max_size=3, unique_by=lambda each: (each["key"], each["effect"]))
    annotations = st.dictionaries(st.sampled_from(["a/b", "c~d", "trimtab.dev/unneeded-since"]), st.just("x"))
    return st.builds(
        lambda taints, annotations, cordoned: {
            "metadata": {"name": "n1", "uid": "u"} | ({"annotations": annotations} if annotations else {}),
            "spec": ({"taints": taints} if taints else {}) | ({"unschedulable": True} if cordoned else {}),
        },
        taints,
        annotations,
        st.booleans(),
    )


@given(manifests(), st.booleans())
def test_rollback_restores_the_node(manifest: dict[str, Any], cordon: bool) -> None:
    before = copy.deepcopy(manifest)
    change = taint_and_cordon(int(START), cordon=cordon)

    marked = patch(manifest, change(NodeFields.from_manifest(manifest)))
    markers = markers_of(NodeFields.from_manifest(marked))
    assert (markers.ours, markers.foreign, markers.since) == (True, False, START)
    assert markers.cordoned is (cordon and not before["spec"].get("unschedulable", False))
    assert not change(NodeFields.from_manifest(marked)), "an earlier try went through"

    returned = patch(marked, untaint_and_uncordon(NodeFields.from_manifest(marked)))
    for part, key in (("spec", "taints"), ("metadata", "annotations")):
        if not returned[part].get(key, True):
            del returned[part][key]  # the API server omits empty fields
    assert returned == before


@pytest.mark.parametrize(
    ("built", "ours", "foreign", "any_"),
    [
        (node(), False, False, False),
        (node().cordoned(), False, False, False),
        (node().taint(TO_BE_DELETED, VALUE), False, True, False),
        (node().taint(TO_BE_DELETED, VALUE).annotations(OURS), True, False, True),
        (node().taint(TO_BE_DELETED, "1").annotations(OURS), False, True, True),
        (node().annotations(OURS), False, False, True),
        (node().annotations({CORDONED_BY: "an admin"}), False, False, False),
    ],
    ids=[
        "none",
        "admin cordon",
        "foreign taint",
        "own taint",
        "later foreign taint",
        "leftover cordon",
        "foreign cordon",
    ],
)
def test_owner_of_markers(built: Any, ours: bool, foreign: bool, any_: bool) -> None:
    markers = removal_markers(built.build())
    assert (markers.ours, markers.foreign, markers.any) == (ours, foreign, any_)


def test_markers_of_another_autoscaler_are_kept() -> None:
    manifest = node().taint(TO_BE_DELETED, "1").annotations(OURS).merge(spec={"unschedulable": True}).manifest()
    returned = patch(manifest, untaint_and_uncordon(NodeFields.from_manifest(manifest)))
    assert [taint["key"] for taint in returned["spec"]["taints"]] == [TO_BE_DELETED]
    assert "unschedulable" not in returned["spec"]
    assert returned["metadata"]["annotations"] == {}


def going(**changes: Any) -> Any:
    return node("n1").taint(TO_BE_DELETED, VALUE).annotations(OURS)


@pytest.mark.parametrize(
    ("built", "target", "machine", "spec", "now", "step"),
    [
        (going(), 1, "running", {}, 10, LeftoverAction.RESUME),
        (going(), 1, "marked", {}, 10, LeftoverAction.RESUME),
        (going(), 0, "marked", {}, 10, LeftoverAction.VERIFY),
        (going(), 0, "running", {}, 10, LeftoverAction.RESUME),
        (going(), 1, "deleting", {}, 10, LeftoverAction.LEAVE),
        (going(), 1, "running", {}, 4000, LeftoverAction.ROLL_BACK),
        (going(), 1, "running", {}, -10, LeftoverAction.ROLL_BACK),
        (going(), 1, "running", {"mode": "Simulate"}, 10, LeftoverAction.ROLL_BACK),
        (going(), 1, "running", {"scaleDown": {"enabled": False}}, 10, LeftoverAction.ROLL_BACK),
        (going(), 1, "running", None, 10, LeftoverAction.ROLL_BACK),
        (going(), 0, "marked", None, 10, LeftoverAction.VERIFY),
        (going(), 1, "none", {}, 10, LeftoverAction.LEAVE),
        (going(), 1, "none", {}, 130, LeftoverAction.ROLL_BACK),
        (going(), 1, "none", None, 10, LeftoverAction.ROLL_BACK),
        (going().not_ready(), 1, "none", {}, 10, LeftoverAction.LEAVE),
        (going().not_ready(), 1, "none", {}, 1000, LeftoverAction.ROLL_BACK),
        (going().deleted(), 1, "running", {}, 10, LeftoverAction.LEAVE),
        (node("n1").annotations(OURS), 1, "running", {}, 10, LeftoverAction.ROLL_BACK),
        (node("n1").taint(TO_BE_DELETED, VALUE), 1, "running", {}, 10, LeftoverAction.LEAVE),
    ],
    ids=[
        "a removal that was begun",
        "marked before the size was lowered",
        "the size is lowered",
        "lowered by somebody else",
        "its machine is being deleted",
        "too old to be gone on with",
        "of a time to come",
        "simulated only",
        "disabled",
        "no autoscaler",
        "no autoscaler, but the size is lowered",
        "the machine is deleted, and the deletion of its node is not yet reported",
        "the group is gone",
        "the group and the autoscaler are gone",
        "the machine is gone and the node is dying",
        "the machine is gone for long",
        "the node is being deleted",
        "only a cordon is left",
        "another's",
    ],
)
def test_action_for_leftovers(
    built: Any, target: int, machine: str, spec: dict[str, Any] | None, now: float, step: LeftoverAction
) -> None:
    made = machine_set("a").limits(0, 9).replicas(target)
    own = made.machine("m").on("n1")
    if machine == "marked":
        own.annotations({MARK: "trimtab x"})
    if machine == "deleting":
        own.deleted()
    snapshot = Snapshot([built.build(), *([] if machine == "none" else [made.build(), own.build()])])
    [found] = leftovers(
        [snapshot.nodes.node(0)],
        build_groups(snapshot),
        None if spec is None else spec_of(spec),
        ours=lambda _: False,
        settings=RemovalSettings(),
        now=START + now,
    )
    assert found.action is step


def test_leftovers_of_a_paused_group_are_rolled_back() -> None:
    made = machine_set("a").limits(0, 9).replicas(1).annotations({"cluster.x-k8s.io/paused": "true"})
    snapshot = Snapshot([going().build(), made.build(), made.machine("m").on("n1").build()])
    [found] = leftovers(
        [snapshot.nodes.node(0)],
        build_groups(snapshot),
        spec_of(),
        ours=lambda _: False,
        settings=RemovalSettings(),
        now=START,
    )
    assert found.action is LeftoverAction.ROLL_BACK


def test_running_removals_are_no_leftovers() -> None:
    found = leftovers(
        [going().build()], NOTHING, None, ours=lambda _: True, settings=replace(RemovalSettings()), now=START
    )
    assert found == []
