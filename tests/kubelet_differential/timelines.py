"""Random timelines of a node for the kubelet's eviction manager and for trimtab: thresholds, pods, readings."""

from __future__ import annotations

import random
from typing import Any, Final

from trimtab.kube.rules.quantity import amount

GI: Final = 1 << 30
INTERVAL: Final = 10

CAPACITIES: Final = {
    "memory.available": 16 * GI,
    "allocatableMemory.available": 14 * GI,
    "nodefs.available": 100 * GI,
    "nodefs.inodesFree": 6_000_000,
    "imagefs.available": 200 * GI,
    "imagefs.inodesFree": 12_000_000,
    "pid.available": 32_768,
}
_INODES: Final = ("nodefs.inodesFree", "imagefs.inodesFree")


def random_timeline(seed: int, *, readings: int = 60) -> dict[str, Any]:
    """Return a timeline as the Go program reads it. The same seed returns the same timeline."""
    rng = random.Random(seed)
    signals = sorted(rng.sample(sorted(CAPACITIES), rng.choice((1, 1, 2, 3))))
    timeline: dict[str, Any] = {
        "hard": {},
        "soft": {},
        "grace": {},
        "reclaim": {},
        "maxGrace": rng.choice((1, 5, 60)),
        "transition": rng.choice((30, 60, 300)),
        "dedicatedImageFs": rng.random() < 0.5,
        "splitImageFs": False,
    }
    timeline["splitImageFs"] = timeline["dedicatedImageFs"] and rng.random() < 0.4
    for signal in signals:
        if rng.random() < 0.7:
            timeline["hard"][signal] = _threshold(rng, signal, 5)
        if signal not in timeline["hard"] or rng.random() < 0.7:
            timeline["soft"][signal] = _threshold(rng, signal, 15)
            timeline["grace"][signal] = f"{rng.choice((10, 25, 60, 90))}s"
        if rng.random() < 0.4:
            timeline["reclaim"][signal] = rng.choice(("3%", _amount(CAPACITIES[signal], 0.02)))
    disk_requests = not set(signals) & set(_INODES)
    timeline["pods"] = [_pod(rng, f"pod-{index}", disk_requests=disk_requests) for index in range(rng.randint(1, 8))]
    timeline["readings"] = _readings(rng, signals, [each["name"] for each in timeline["pods"]], readings)
    return timeline


def _threshold(rng: random.Random, signal: str, percent: int) -> str:
    if rng.random() < 0.5:
        return f"{percent}%"
    return _amount(CAPACITIES[signal], percent / 100)


def _amount(capacity: int, fraction: float) -> str:
    return str(int(capacity * fraction))


def _pod(rng: random.Random, name: str, *, disk_requests: bool) -> dict[str, Any]:
    requests = {}
    if rng.random() < 0.6:
        requests["memory"] = rng.choice(("500Mi", "1Gi", "4Gi"))
    if disk_requests and rng.random() < 0.5:
        requests["ephemeral-storage"] = rng.choice(("1Gi", "10Gi"))
    return {
        "name": name,
        "priority": rng.choice((-10, 0, 0, 1000)),
        "requests": requests,
        "grace": rng.choice((1, 10, 30, 120)),
        "memory": rng.randint(1, 5 * GI),
        "root": rng.randint(1, 20 * GI),
        "logs": rng.randint(1, 5 * GI),
        "processes": rng.randint(1, 4000),
        "rootInodes": rng.randint(1, 500_000),
        "logsInodes": rng.randint(1, 50_000),
    }


def _readings(rng: random.Random, signals: list[str], pods: list[str], count: int) -> list[dict[str, Any]]:
    """Return readings whose values walk around the thresholds, which are at 5% and 15% of the capacities.

    No value is a whole percentage: the kubelet stores percentages as 32-bit numbers, so 15% of 16Gi are 102 bytes more.
    """
    fractions = {signal: rng.uniform(0.03, 0.3) for signal in signals}
    found, at = [], 1_763_877_600
    for _ in range(count):
        after = INTERVAL if rng.random() < 0.9 else rng.choice((1, 30, 120))
        at += after
        values = {}
        for signal, capacity in CAPACITIES.items():
            if signal in fractions:
                step = rng.choice((-0.1, -0.03, -0.01, 0.0, 0.0, 0.01, 0.03, 0.12))
                fractions[signal] = min(0.9007, max(0.0013, fractions[signal] + step))
            values[signal] = {
                "available": int(capacity * fractions.get(signal, 0.5)),
                "capacity": capacity,
                "at": at - 2,
            }
        gone = [rng.choice(pods)] if rng.random() < 0.03 else []
        found.append({"after": after, "values": values, "gone": gone})
    return found


def parsed(requests: dict[str, str]) -> dict[str, int]:
    """Return the requests of a pod in bytes."""
    return {resource: amount(text) for resource, text in requests.items()}
