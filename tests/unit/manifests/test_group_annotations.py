"""The admission policy lets the operator write each annotation of node groups that it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.autoscaling.groups import annotations

POLICIES = Path(__file__).parents[3] / "manifests/base/admission-policies.yaml"


@pytest.mark.parametrize(
    "key",
    [
        annotations.OWNER,
        annotations.LEARNED_NODE,
        annotations.REMOVAL_BACKOFF,
        annotations.REMOVAL_IN_PROGRESS,
    ],
)
def test_an_annotation_that_is_written_to_node_groups_is_admitted(key: str) -> None:
    assert f"''{key}''" in POLICIES.read_text(encoding="utf-8")
