"""Topology spread constraints."""

from __future__ import annotations

from typing import Any

from tests.builders import HOSTNAME, ZONE, PodBuilder
from tests.differential.generator.affinity import random_selector
from tests.differential.generator.names import REGION
from tests.differential.generator.rng import RandomSource


def add_spread(rng: RandomSource, made: PodBuilder) -> None:
    """Add constraints for up to three topology keys, each key at most once as hard and once as soft."""
    taken: set[tuple[str, str]] = set()
    for _ in range(rng.pick(1, 1, 2, 3)):
        key = rng.pick(HOSTNAME, ZONE, ZONE, REGION, "rack", "disk")
        when = rng.pick("DoNotSchedule", "ScheduleAnyway")
        if (key, when) in taken:
            continue
        taken.add((key, when))
        made.spread(key, max_skew=rng.pick(1, 1, 2, 3, 5), when=when, **_fields(rng, when))


def _fields(rng: RandomSource, when: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if rng.one_in(2):
        fields["labelSelector"] = random_selector(rng)
    elif rng.one_in(10):
        fields["labelSelector"] = None
    if when == "DoNotSchedule" and rng.one_in(3):
        fields["minDomains"] = rng.pick(1, 2, 3, 4)
    if rng.one_in(3):
        fields["nodeAffinityPolicy"] = rng.pick("Honor", "Ignore")
    if rng.one_in(3):
        fields["nodeTaintsPolicy"] = rng.pick("Honor", "Ignore")
    with_choice = fields.get("labelSelector", {"matchLabels": {"tier": ""}})
    if rng.one_in(4) and with_choice is not None and "tier" not in str(with_choice):
        fields["matchLabelKeys"] = [rng.pick("tier", "tier", "absent")]
    return fields
