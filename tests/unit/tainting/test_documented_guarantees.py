"""What OpenShift's documentation promises of taints and tolerations, sentence by sentence, with its own examples.

Of each example: whether the scheduler may place the pod, whether it would rather place it elsewhere, and for how long a
pod stays that is there when the taints are put on.
"""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from tests.builders import machine_set, node, pod
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Pod, Taint
from trimtab.kube.wire.files.reader import read_objects
from trimtab.placement.placer import Placer
from trimtab.tainting.deadlines import TolerationRule, deadline, observe_taints

START = 1_800_000_000.0
NEVER = None
BUILT_IN = (
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/out-of-disk",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/unschedulable",
    "node.cloudprovider.kubernetes.io/uninitialized",
)
HOUR = """
- key: "key1"
  operator: "Equal"
  value: "value1"
  effect: "NoExecute"
  tolerationSeconds: 3600
"""
HOUR_BY_EXISTS = """
- key: "key1"
  operator: "Exists"
  effect: "NoExecute"
  tolerationSeconds: 3600
"""
TWO = """
- key: "key1"
  operator: "Equal"
  value: "value1"
  effect: "NoSchedule"
- key: "key1"
  operator: "Equal"
  value: "value1"
  effect: "NoExecute"
"""
EVERYTHING = """
- operator: "Exists"
"""
FIVE_MINUTES = """
- key: node.kubernetes.io/not-ready
  operator: Exists
  effect: NoExecute
  tolerationSeconds: 300
- key: node.kubernetes.io/unreachable
  operator: Exists
  effect: NoExecute
  tolerationSeconds: 300
"""
DAEMON = """
- {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute}
- {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute}
"""
SSD = """
- {key: disktype, value: ssd, operator: Equal, effect: NoSchedule}
"""


def one(text: str, **changed: str) -> str:
    """The first toleration of an example with something changed."""
    [first, *_] = yaml.safe_load(text)
    return yaml.safe_dump([first | changed])


PROMISES: dict[str, tuple[list[str], str, bool, bool, float | None]] = {
    "NoSchedule keeps new pods off, and existing ones remain": (["k=v:NoSchedule"], "", False, False, NEVER),
    "PreferNoSchedule is avoided where that is possible": (["k=v:PreferNoSchedule"], "", True, True, NEVER),
    "NoExecute keeps new pods off, and existing ones are removed": (["k=v:NoExecute"], "", False, False, 0),
    "Equal: key, value and effect are the same": (["key1=value1:NoExecute"], HOUR, True, False, 3600),
    "Equal: not with another key": (["key2=value1:NoExecute"], HOUR, False, False, 0),
    "Equal: not with another value": (["key1=value2:NoExecute"], HOUR, False, False, 0),
    "Equal: not with another effect": (["key1=value1:NoSchedule"], HOUR, False, False, NEVER),
    "Equal is the default": (["key1=value1:NoExecute"], one(HOUR, operator=""), True, False, 3600),
    "Exists: a blank value matches any": (["key1=value1:NoExecute"], HOUR_BY_EXISTS, True, False, 3600),
    "Exists: not with another key": (["key2=value1:NoExecute"], HOUR_BY_EXISTS, False, False, 0),
    "Exists: not with another effect": (["key1=value1:NoSchedule"], HOUR_BY_EXISTS, False, False, NEVER),
    "three taints and two tolerations: not scheduled there, and continues running": (
        ["key1=value1:NoSchedule", "key1=value1:NoExecute", "key2=value2:NoSchedule"],
        TWO,
        False,
        False,
        NEVER,
    ),
    "all taints matched: none has an effect": (
        ["key1=value1:NoSchedule", "key1=value1:NoExecute"],
        TWO,
        True,
        False,
        NEVER,
    ),
    "an unmatched PreferNoSchedule beside matched ones is avoided": (
        ["key1=value1:NoSchedule", "key2=value2:PreferNoSchedule"],
        TWO,
        True,
        True,
        NEVER,
    ),
    "an unmatched NoExecute beside matched ones ends it at once": (
        ["key1=value1:NoSchedule", "key2=value2:NoExecute"],
        TWO,
        False,
        False,
        0,
    ),
    "a toleration of everything": (
        ["a:NoSchedule", "b=c:NoExecute", "d:PreferNoSchedule"],
        EVERYTHING,
        True,
        False,
        NEVER,
    ),
    "five minutes while its node is not ready": (
        ["node.kubernetes.io/not-ready:NoExecute"],
        FIVE_MINUTES,
        True,
        False,
        300,
    ),
    "and while it is unreachable": (["node.kubernetes.io/unreachable:NoExecute"], FIVE_MINUTES, True, False, 300),
    "no value of tolerationSeconds: never": (["node.kubernetes.io/unreachable:NoExecute"], DAEMON, True, False, NEVER),
    "a master's taint": (["node-role.kubernetes.io/master:NoSchedule"], "", False, False, NEVER),
    "special hardware, closed": (["disktype=ssd:NoSchedule"], "", False, False, NEVER),
    "special hardware, rather kept free": (["disktype=ssd:PreferNoSchedule"], "", True, True, NEVER),
    "special hardware, for who needs it": (["disktype=ssd:NoSchedule"], SSD, True, False, NEVER),
} | {f"built in: {key}": ([f"{key}:NoSchedule"], "", False, False, NEVER) for key in BUILT_IN}


def taint(text: str) -> Taint:
    """A taint as ``oc adm taint`` takes it, which writes no time."""
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return Taint(key, effect, value)


def tolerating(text: str) -> Any:
    made = pod("web", "shop")
    made._at("spec")["tolerations"] = yaml.safe_load(text) or []
    return made


@pytest.mark.parametrize(("taints", "tolerations", "may", "rather_not", "stays"), PROMISES.values(), ids=PROMISES)
def test_documented_guarantees(
    taints: list[str], tolerations: str, may: bool, rather_not: bool, stays: float | None
) -> None:
    tainted = node("a-tainted")  # the first by name: nothing else speaks for or against it
    for each in map(taint, taints):
        tainted.taint(each.key, each.value, each.effect)

    asks = tolerating(tolerations).build()
    alone, next_to = Snapshot([tainted.build(), asks]), Snapshot([tainted.build(), node("free").build(), asks])

    [placed] = Placer(alone).place([asks])
    [chosen] = Placer(next_to).place([asks])
    assert placed.pod.node == ("a-tainted" if may else "")
    assert (chosen.pod.node == "free") is (rather_not or not may)
    assert stays_for(tainted.build().taints, asks) == stays


def stays_for(taints: tuple[Taint, ...], asks: Pod) -> float | None:
    """For how many seconds a pod stays that has been on the node for long when the taints are put on."""
    there = replace(asks, node="a-tainted", phase="Running", started=START - 1000)
    known = observe_taints(node("a-tainted").build(), None, now=START - 1)
    known = observe_taints(replace(node("a-tainted").build(), taints=taints), known, now=START)
    found = deadline(there, known.observed, TolerationRule(), now=START)
    return None if found is None else found.due - START


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("a", ""),
        ("key1", "value1"),
        ("9a", "9z"),
        ("a-b.c_d", "a-b.c_d"),
        ("k" * 63, "v" * 63),
        (f"{'d' * 63}.{'e' * 63}.{'f' * 61}.{'g' * 63}/{'k' * 63}", ""),
    ],
    ids=["one letter", "letters and digits", "a digit first", "hyphens, dots and underscores", "63", "253 before a /"],
)
def test_valid_taint_keys_and_values(key: str, value: str) -> None:
    assert read(node("n").taint(key, value).manifest()).taints == (Taint(key, "NoSchedule", value),)
    assert read(machine_set().node_taint(key, value).manifest()).node_taints == (Taint(key, "NoSchedule", value),)


def read(manifest: dict[str, Any]) -> Any:
    """The object as a file's reader takes it."""
    [found] = read_objects(io.BytesIO(json.dumps(manifest).encode())).objects
    return found


@pytest.mark.parametrize(
    ("key", "value"),
    [("", ""), ("-a", ""), (".a", ""), ("a b", ""), ("k" * 64, ""), ("a", "-v"), ("a", "v" * 64), ("a", "v w")],
    ids=[
        "none",
        "a hyphen first",
        "a dot first",
        "a space",
        "64",
        "value: a hyphen first",
        "value: 64",
        "value: space",
    ],
)
def test_invalid_taint_keys_and_values_are_reported(key: str, value: str) -> None:
    """In files; of a cluster's nodes its API server sees to it."""
    for builder in (node("n").taint(key, value), machine_set().node_taint(key, value)):
        with pytest.raises(InputError, match=r"taints\[0\]"):
            read(builder.manifest())
