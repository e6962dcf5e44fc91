"""Signs on nodes: whose they are, and that taking ours away leaves what is somebody else's."""

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
from tests.unit.autoscaling.removing_nodes import spec_of
from trimtab.autoscaling.actuation.leftovers import Step, leftovers
from trimtab.autoscaling.actuation.settings import RemovalSettings
from trimtab.autoscaling.actuation.signs import CORDONED_BY, REMOVING, Seen, marking, returning, signs_of
from trimtab.autoscaling.groups import Groups, groups
from trimtab.cluster.snapshot import Snapshot

OURS = {REMOVING: str(int(START)), CORDONED_BY: "cluster-autoscaler"}
VALUE = str(int(START))
NOTHING = Groups()


def manifests() -> st.SearchStrategy[dict[str, Any]]:
    """Nodes with taints, cordons and annotations of others."""
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
def test_a_node_that_is_returned_is_as_it_was(manifest: dict[str, Any], cordon: bool) -> None:
    before = copy.deepcopy(manifest)
    change = marking(int(START), cordon=cordon)

    marked = patch(manifest, change(Seen.read(manifest)))
    signs = Seen.read(marked).signs
    assert (signs.ours, signs.foreign, signs.since) == (True, False, START)
    assert signs.cordoned is (cordon and not before["spec"].get("unschedulable", False))
    assert not change(Seen.read(marked)), "an earlier try went through"

    returned = patch(marked, returning(Seen.read(marked)))
    for part, key in (("spec", "taints"), ("metadata", "annotations")):
        if not returned[part].get(key, True):
            del returned[part][key]  # the API server leaves out what is empty
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
    ids=["none", "an admin's cordon", "another's taint", "ours", "another's later", "a cordon left", "not by us"],
)
def test_whose_signs_they_are(built: Any, ours: bool, foreign: bool, any_: bool) -> None:
    signs = signs_of(built.build())
    assert (signs.ours, signs.foreign, signs.any) == (ours, foreign, any_)


def test_of_another_autoscalers_node_only_our_own_leftovers_are_taken() -> None:
    manifest = node().taint(TO_BE_DELETED, "1").annotations(OURS).merge(spec={"unschedulable": True}).manifest()
    returned = patch(manifest, returning(Seen.read(manifest)))
    assert [taint["key"] for taint in returned["spec"]["taints"]] == [TO_BE_DELETED]
    assert "unschedulable" not in returned["spec"]
    assert returned["metadata"]["annotations"] == {}


def going(**changes: Any) -> Any:
    return node("n1").taint(TO_BE_DELETED, VALUE).annotations(OURS)


@pytest.mark.parametrize(
    ("built", "target", "machine", "spec", "now", "step"),
    [
        (going(), 1, "running", {}, 10, Step.GO_ON),
        (going(), 1, "marked", {}, 10, Step.GO_ON),
        (going(), 0, "marked", {}, 10, Step.VERIFY),
        (going(), 0, "running", {}, 10, Step.GO_ON),
        (going(), 1, "deleting", {}, 10, Step.LEAVE),
        (going(), 1, "running", {}, 4000, Step.RETURN),
        (going(), 1, "running", {}, -10, Step.RETURN),
        (going(), 1, "running", {"mode": "Simulate"}, 10, Step.RETURN),
        (going(), 1, "running", {"scaleDown": {"enabled": False}}, 10, Step.RETURN),
        (going(), 1, "running", None, 10, Step.RETURN),
        (going(), 0, "marked", None, 10, Step.VERIFY),
        (going(), 1, "none", {}, 10, Step.LEAVE),
        (going(), 1, "none", {}, 130, Step.RETURN),
        (going(), 1, "none", None, 10, Step.RETURN),
        (going().not_ready(), 1, "none", {}, 10, Step.LEAVE),
        (going().not_ready(), 1, "none", {}, 1000, Step.RETURN),
        (going().deleted(), 1, "running", {}, 10, Step.LEAVE),
        (node("n1").annotations(OURS), 1, "running", {}, 10, Step.RETURN),
        (node("n1").taint(TO_BE_DELETED, VALUE), 1, "running", {}, 10, Step.LEAVE),
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
        "the machine is gone, and nobody has noticed that its node is",
        "the group is gone",
        "the group and the autoscaler are gone",
        "the machine is gone and the node is dying",
        "the machine is gone for long",
        "the node is being deleted",
        "only a cordon is left",
        "another's",
    ],
)
def test_what_becomes_of_leftovers(
    built: Any, target: int, machine: str, spec: dict[str, Any] | None, now: float, step: Step
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
        groups(snapshot),
        None if spec is None else spec_of(spec),
        ours=lambda _: False,
        settings=RemovalSettings(),
        now=START + now,
    )
    assert found.step is step


def test_a_paused_groups_leftovers_are_returned() -> None:
    made = machine_set("a").limits(0, 9).replicas(1).annotations({"cluster.x-k8s.io/paused": "true"})
    snapshot = Snapshot([going().build(), made.build(), made.machine("m").on("n1").build()])
    [found] = leftovers(
        [snapshot.nodes.node(0)],
        groups(snapshot),
        spec_of(),
        ours=lambda _: False,
        settings=RemovalSettings(),
        now=START,
    )
    assert found.step is Step.RETURN


def test_removals_that_run_are_no_leftovers() -> None:
    found = leftovers(
        [going().build()], NOTHING, None, ours=lambda _: True, settings=replace(RemovalSettings()), now=START
    )
    assert found == []
