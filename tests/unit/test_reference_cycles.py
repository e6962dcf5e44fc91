"""Plans contain no reference cycles: the operator rarely runs the garbage collections that would free them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from tests.fixtures.garbage import unreachable_objects, without_collections
from trimtab.cli.main import cli
from trimtab.cluster.snapshot import Snapshot

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
PLANNERS: Final = (
    "trimtab.autoscaling",
    "trimtab.descheduling",
    "trimtab.disruption",
    "trimtab.placement",
    "trimtab.pressure",
    "trimtab.scheduling",
    "trimtab.tainting",
)


@pytest.fixture
def living_snapshots(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Snapshot]]:
    """Snapshots outlive the plans, as in the operator."""
    snapshots: list[Snapshot] = []
    init = Snapshot.__init__

    def init_and_keep(self: Snapshot, *given: Any, **options: Any) -> None:
        init(self, *given, **options)
        snapshots.append(self)

    monkeypatch.setattr(Snapshot, "__init__", init_and_keep)
    yield snapshots
    snapshots.clear()


@pytest.mark.parametrize(
    ("cluster", "policy"),
    [
        ("cluster", "policies/conservative.yaml"),
        ("cluster", "policies/openshift-3.11.yaml"),
        ("cluster", "policies/tenants.yaml"),
        ("plans/scale-down/cluster.yaml", "plans/scale-down/autoscaler.yaml"),
        ("plans/scale-up/cluster.yaml", "plans/scale-up/autoscaler.yaml"),
        ("plans/replace/cluster.yaml", "plans/replace/autoscaler.yaml"),
        ("tainting/cluster.yaml", "tainting/taint-and-evict.yaml"),
        ("scheduling/cluster.yaml", "scheduling/bin-packing.yaml"),
        ("node-pressure/cluster.yaml", "node-pressure/workers.yaml"),
    ],
)
def test_plans_contain_no_reference_cycles(living_snapshots: list[Snapshot], cluster: str, policy: str) -> None:
    command = ["plan", "--cluster", str(EXAMPLES / cluster), "--policy", str(EXAMPLES / policy)]
    with without_collections():
        result = CliRunner().invoke(cli, [*command, "--now", "2026-11-20T12:00:00Z"])
        assert result.exit_code == 0
        assert living_snapshots
        del result
        found = {type(each) for each in unreachable_objects()}
    assert (
        sorted(f"{each.__module__}.{each.__qualname__}" for each in found if each.__module__.startswith(PLANNERS)) == []
    )
