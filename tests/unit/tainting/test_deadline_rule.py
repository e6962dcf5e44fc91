"""When a pod goes: upstream's cases with the outcome that users were promised, and what upstream gets wrong."""

from __future__ import annotations

from itertools import permutations

import pytest
from msgspec.structs import replace

from tests.unit.tainting.deadlines import ALL, FIRST, START, bears, due, observed, of, pod, taint
from trimtab.api.decode import decode_taint_manager
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import PodCondition, Taint, Toleration
from trimtab.tainting.deadlines import TolerationRule, deadline, start_on_node, tolerance

A, B = taint("a"), taint("b")
NEVER = None

PROMISES: dict[str, tuple[tuple[Toleration, ...], tuple[Taint, ...], float | None]] = {
    "no taint, no toleration": ((), (), NEVER),
    "a taint that is not tolerated ends the pod at once": ((), (A,), 0),
    "one that is tolerated for a while, after that": ((bears("a", 100),), (A,), 100),
    "one that is tolerated without end, never": ((bears("a"),), (A,), NEVER),
    "a toleration of another key is none": ((bears("b", 100),), (A,), 0),
    "a toleration of all keys": ((bears(""),), (A, B), NEVER),
    "a toleration of all keys for a while": ((bears("", 60),), (A, B), 60),
    "a toleration of every effect": ((bears("a", effect=""),), (A,), NEVER),
    "a toleration of scheduling alone is none": ((bears("a", effect="NoSchedule"),), (A,), 0),
    "a toleration of the value": ((bears("a", value="v"),), (taint("a", "v"),), NEVER),
    "a toleration of another value is none": ((bears("a", value="v"),), (taint("a", "w"),), 0),
    "Exists is any value": ((bears("a", 5),), (taint("a", "w"),), 5),
    "Equal without a word of it": ((Toleration("a", "", "v"),), (taint("a", "v"),), NEVER),
    "0 seconds are at once": ((bears("a", 0),), (A,), 0),
    "fewer than 0 seconds are at once": ((bears("a", -5),), (A,), 0),
    "only one of two taints is tolerated": ((bears("a", 100),), (A, B), 0),
    "of two taints the first to run out counts": ((bears("a", 1), bears("b", 2)), (A, B), 1),
    "one of two has no end": ((bears("a"), bears("b", 50)), (A, B), 50),
    "none of two has an end": ((bears("a"), bears("b")), (A, B), NEVER),
    "NoSchedule ends nothing": ((), (taint("a", effect="NoSchedule"),), NEVER),
    "PreferNoSchedule ends nothing": ((), (taint("a", effect="PreferNoSchedule"),), NEVER),
    "the same key with both effects ends by one": ((), (taint("a", effect="NoSchedule"), A), 0),
    "the three taints of the seed, and two tolerations": (
        (bears("key1", value="value1", effect="NoSchedule"), bears("key1", value="value1", effect="NoExecute")),
        (
            taint("key1", "value1", effect="NoSchedule"),
            taint("key1", "value1"),
            taint("key2", "value2", effect="NoSchedule"),
        ),
        NEVER,
    ),
    "the seed's hour": ((bears("key1", 3600, value="value1"),), (taint("key1", "value1"),), 3600),
    "a second taint with a shorter tolerance shortens (upstream: 3600)": (
        (bears("a", 3600), bears("b", 10)),
        (A, taint("b", added=60)),
        70,
    ),
    "a later taint with a longer tolerance does not lengthen": (
        (bears("a", 100), bears("b", 3600)),
        (A, taint("b", added=60)),
        100,
    ),
    "what bears for ever is stronger than what bears for a while (upstream: by their order)": (
        (bears("a", 300), bears("a")),
        (A,),
        NEVER,
    ),
    "the fewest seconds of several (upstream: the first)": ((bears("a", 300), bears("a", 30)), (A,), 30),
    "a DaemonSet's pod stays while its node is away": (
        (bears("node.kubernetes.io/not-ready"), bears("node.kubernetes.io/unreachable")),
        (taint("node.kubernetes.io/unreachable"),),
        NEVER,
    ),
    "the plugin's 300 seconds": (
        (bears("node.kubernetes.io/not-ready", 300), bears("node.kubernetes.io/unreachable", 300)),
        (taint("node.kubernetes.io/unreachable"),),
        300,
    ),
    "Gt tolerates a greater value": ((bears("a", operator="Gt", value="1"),), (taint("a", "2"),), NEVER),
    "Gt tolerates no equal value": ((bears("a", operator="Gt", value="2"),), (taint("a", "2"),), 0),
    "Lt for a while": ((bears("a", 600, operator="Lt", value="1000"),), (taint("a", "950"),), 600),
    "Gt tolerates no word": ((bears("a", operator="Gt", value="1"),), (taint("a", "high"),), 0),
}


@pytest.mark.parametrize(("tolerations", "taints", "expected"), PROMISES.values(), ids=PROMISES)
def test_deadline_does_not_depend_on_toleration_order(
    tolerations: tuple[Toleration, ...], taints: tuple[Taint, ...], expected: float | None
) -> None:
    for said in permutations(tolerations):
        for there in permutations(taints):
            assert due(of(said, there)) == expected


FIRST_MATCH: dict[str, tuple[tuple[Toleration, ...], float | None]] = {
    "a while before for ever": ((bears("a", 300), bears("a")), 300),
    "for ever before a while": ((bears("a"), bears("a", 300)), NEVER),
    "long before short": ((bears("a", 300), bears("a", 30)), 300),
    "one that does not match before": ((bears("b", 1), bears("a", 30)), 30),
    "none that matches": ((bears("b", 1),), 0),
    "none at all": ((), 0),
    "0 seconds": ((bears("a", 0), bears("a")), 0),
}


@pytest.mark.parametrize(("tolerations", "expected"), FIRST_MATCH.values(), ids=FIRST_MATCH)
def test_first_matching_uses_the_first_toleration(tolerations: tuple[Toleration, ...], expected: float | None) -> None:
    assert due(of(tolerations, (A,), rule=FIRST)) == expected


def test_rule_is_built_from_the_spec() -> None:
    spec = "{tolerationMatching: First, defaultTolerations: {defaultNotReadyTolerationSeconds: 0}}"
    manifest = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "TaintManager", "metadata": {"name": "default"}}
    import msgspec

    assert TolerationRule.of(
        decode_taint_manager({**manifest, "spec": msgspec.yaml.decode(spec)}).spec
    ) == TolerationRule(first=True, not_ready=0)
    assert TolerationRule.of(decode_taint_manager(manifest).spec) == ALL


def test_deadline_has_deciding_taint_and_toleration() -> None:
    found = of((bears("a", 300), bears("a", 30), bears("b", 100)), (A, B))

    assert found is not None
    assert (found.taint, found.toleration) == (A, bears("a", 30))
    assert (found.key, found.uid, found.node, found.since) == ("shop/web", "uid-web", "n1", START)


def test_untolerated_taint_has_no_toleration() -> None:
    found = of((bears("a", 300),), (A, B))

    assert found is not None
    assert (found.taint, found.toleration) == (B, None)


@pytest.mark.parametrize("there", list(permutations((A, B))))
def test_equal_deadlines_name_the_first_taint_by_key(there: tuple[Taint, ...]) -> None:
    found = of((), there)

    assert found is not None
    assert found.taint == A


NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
DEFAULTS = TolerationRule(not_ready=20, unreachable=40)


@pytest.mark.parametrize(
    ("tolerations", "key", "expected"),
    [
        ((), NOT_READY, 20),
        ((), UNREACHABLE, 40),
        ((), "a", 0),
        ((bears(NOT_READY, 300),), NOT_READY, 300),
        ((bears(NOT_READY, 300),), UNREACHABLE, 40),
        ((bears(""),), UNREACHABLE, NEVER),
        ((bears("", 7),), UNREACHABLE, 7),
        ((bears(NOT_READY, value="other"),), NOT_READY, 0),
        ((bears(NOT_READY, effect="NoSchedule"),), NOT_READY, 20),
    ],
    ids=[
        "nothing is said of not-ready",
        "nothing is said of unreachable",
        "a key without a default",
        "the pod's own word counts",
        "a word of the one is none of the other",
        "a word of all keys",
        "a word of all keys with seconds",
        "a word that does not match is one all the same",
        "a word of scheduling is none",
    ],
)
def test_default_tolerations_apply_to_pods_without_their_own(
    tolerations: tuple[Toleration, ...], key: str, expected: float | None
) -> None:
    assert due(of(tolerations, (taint(key),), rule=DEFAULTS)) == expected


@pytest.mark.parametrize(
    ("added", "started", "expected"),
    [(0, -1000, 300), (0, 50, 350), (0, 0, 300), (100, 50, 400)],
    ids=["the pod was there", "the pod came later", "both at once", "the taint came later"],
)
def test_toleration_time_counts_from_later_of_taint_and_pod(added: float, started: float, expected: float) -> None:
    assert due(of((bears("a", 300),), (taint(added=added),), started=started, at=200)) == expected


def test_pod_bound_to_tainted_node_gets_full_toleration_time() -> None:
    assert due(of((bears("a", 300),), (A,), at=9000, started=8999)) == 9299


@pytest.mark.parametrize("ahead", [0.5, 3600], ids=["a bit", "an hour"])
def test_future_taint_time_counts_from_now(ahead: float) -> None:
    seen = observed(taint(added=ahead), seen=10)

    assert due(deadline(pod(bears("a", 60)), seen.observed, ALL, now=START + 10)) == 60 + min(ahead, 10)
    assert due(deadline(pod(bears("a", 60)), seen.observed, ALL, now=START + 40)) == 60 + min(ahead, 10)


def test_future_start_time_counts_from_now() -> None:
    late = pod(bears("a", 60), started=100)

    assert due(deadline(late, observed(A).observed, ALL, now=START + 10)) == 70
    assert due(deadline(late, observed(A).observed, ALL, now=START + 500)) == 160


SCHEDULED = PodCondition("PodScheduled", "True", since=START - 30)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"started": START - 20, "conditions": (SCHEDULED,)}, -20),
        ({"started": None, "conditions": (SCHEDULED,)}, -30),
        ({"started": None, "conditions": (PodCondition("PodScheduled", "False", since=START - 30),)}, -5000),
        ({"started": None}, -5000),
        ({"started": None, "created": None}, 0),
        ({"started": START + 9, "conditions": (SCHEDULED,)}, -30),
        ({"started": START + 9}, 0),
        ({"started": None, "conditions": (replace(SCHEDULED, since=START + 9),)}, 0),
    ],
    ids=[
        "the kubelet's word",
        "the scheduler's where the kubelet is silent",
        "not that it is not scheduled",
        "when it was made, where nothing else is said",
        "now, where nothing at all is said",
        "the scheduler's where the kubelet's clock is ahead",
        "now, where it is and the scheduler says nothing",
        "now, where the scheduler's clock is ahead",
    ],
)
def test_start_on_node_is_computed(changed: dict[str, object], expected: float) -> None:
    assert start_on_node(replace(pod(), **changed), now=START) - START == expected


@pytest.mark.parametrize(
    "changed",
    [
        {"phase": "Succeeded"},
        {"phase": "Failed"},
        {"deleted": START},
        {"annotations": Labels({"kubernetes.io/config.mirror": "x"})},
    ],
    ids=["has succeeded", "has failed", "is going", "is a mirror pod"],
)
def test_pods_not_subject_to_taints(changed: dict[str, object]) -> None:
    assert deadline(replace(pod(), **changed), observed(A).observed, ALL, now=START) is None


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown", ""])
def test_pending_and_running_pods_are_subject_to_taints(phase: str) -> None:
    assert deadline(replace(pod(), phase=phase), observed(A).observed, ALL, now=START) is not None


@pytest.mark.parametrize("tolerations", list(permutations((bears("", 5), bears("a", 5), bears("a", 5, effect="")))))
def test_equal_tolerations_are_chosen_independent_of_order(
    tolerations: tuple[Toleration, ...],
) -> None:
    assert tolerance(tolerations, A, ALL).toleration == bears("", 5)
