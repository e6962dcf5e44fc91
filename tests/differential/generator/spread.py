"""Topology spread constraints."""

from __future__ import annotations

from typing import Any

from tests.builders import HOSTNAME, ZONE, PodBuilder
from tests.differential.generator.affinity import random_selector
from tests.differential.generator.chance import Chance
from tests.differential.generator.names import REGION


def add_spread(chance: Chance, made: PodBuilder) -> None:
    """Spread over up to three keys, each at most once as a must and once as a wish."""
    taken: set[tuple[str, str]] = set()
    for _ in range(chance.pick(1, 1, 2, 3)):
        key = chance.pick(HOSTNAME, ZONE, ZONE, REGION, "rack", "disk")
        when = chance.pick("DoNotSchedule", "ScheduleAnyway")
        if (key, when) in taken:
            continue
        taken.add((key, when))
        made.spread(key, max_skew=chance.pick(1, 1, 2, 3, 5), when=when, **_fields(chance, when))


def _fields(chance: Chance, when: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if chance.one_in(2):
        fields["labelSelector"] = random_selector(chance)
    elif chance.one_in(10):
        fields["labelSelector"] = None
    if when == "DoNotSchedule" and chance.one_in(3):
        fields["minDomains"] = chance.pick(1, 2, 3, 4)
    if chance.one_in(3):
        fields["nodeAffinityPolicy"] = chance.pick("Honor", "Ignore")
    if chance.one_in(3):
        fields["nodeTaintsPolicy"] = chance.pick("Honor", "Ignore")
    chosen = fields.get("labelSelector", {"matchLabels": {"tier": ""}})
    if chance.one_in(4) and chosen is not None and "tier" not in str(chosen):
        fields["matchLabelKeys"] = [chance.pick("tier", "tier", "absent")]
    return fields
