"""What the descheduler counts: by strategy, reason, workload kind and mode, in a bounded number of series."""

from __future__ import annotations

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from trimtab.api.plan import Evict, Kept, Plan
from trimtab.descheduling.report.metrics import BARE, OTHER, WORKLOADS, DeschedulerMetrics
from trimtab.disruption.outcome import EVICTED, REFUSED, STARTED, Outcome

PLANNED = "trimtab_descheduler_planned_evictions"
EVICTIONS = "trimtab_descheduler_evictions_total"


def evict(owner: str = "ReplicaSet/web", policy: str = "default") -> Evict:
    return Evict(policy, "RemoveDuplicates", "shop", "web-1", "n1", "n2", "DuplicateOnNode", "", owner=owner)


class Counted:
    """The metrics, and what they say."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = DeschedulerMetrics(self.registry)

    def __call__(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """The samples by the values of these labels."""
        return {
            tuple(sample.labels[label] for label in labels): sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == name
        }


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.mark.parametrize(
    ("owner", "kind"),
    [
        pytest.param("ReplicaSet/web", "ReplicaSet", id="a kind of Kubernetes"),
        pytest.param("StatefulSet/db", "StatefulSet", id="another one"),
        pytest.param("CloneSet/web", OTHER, id="controller of another namespace"),
        pytest.param("", BARE, id="pod without owner"),
    ],
)
def test_evictions_are_counted_by_the_kind_of_their_workload(counted: Counted, owner: str, kind: str) -> None:
    counted.metrics.acts_as("default", "Act")
    counted.metrics.planned_by("default", "Act", Plan(0.0, (evict(owner), evict(owner))))
    counted.metrics.ended(Outcome(evict(owner), EVICTED, EVICTED, "", 0.0))

    assert counted(PLANNED, "strategy", "reason", "workload", "mode") == {
        ("RemoveDuplicates", "DuplicateOnNode", kind, "Act"): 2
    }
    assert counted(EVICTIONS, "workload", "mode", "result") == {(kind, "Act", EVICTED): 1}


def test_evictions_are_counted_by_the_mode_that_their_cycle_ran_in(counted: Counted) -> None:
    counted.metrics.acts_as("default", "Approve")
    counted.metrics.ended(Outcome(evict(), EVICTED, EVICTED, "", 0.0))
    counted.metrics.acts_as("default", "Act")
    counted.metrics.ended(Outcome(evict(), REFUSED, "DisruptionBudget", "", 0.0))

    assert counted(EVICTIONS, "mode", "result") == {("Approve", EVICTED): 1, ("Act", REFUSED): 1}


def test_metrics_distinguish_rollouts_and_evictions(counted: Counted) -> None:
    surge = msgspec.structs.replace(evict(), how="Surge")
    counted.metrics.planned_by("default", "Act", Plan(0.0, (evict(), surge)))
    for action in (evict(), surge):
        counted.metrics.ended(Outcome(action, STARTED if action is surge else EVICTED, "", "", 0.0))

    assert counted(PLANNED, "how") == {("Evict",): 1, ("Surge",): 1}
    assert counted(EVICTIONS, "how", "result") == {("Evict", EVICTED): 1, ("Surge", STARTED): 1}


def test_cluster_names_add_no_series(counted: Counted) -> None:
    crowd = tuple(evict(f"Kind{number}/owner-{number}") for number in range(500))
    stays = tuple(
        Kept("Pod", "shop", f"p{number}", "RemoveDuplicates", "NoPlace", str(number)) for number in range(500)
    )
    counted.metrics.planned_by("default", "Simulate", Plan(0.0, crowd, stays))

    assert counted(PLANNED, "workload") == {(OTHER,): 500}
    assert counted("trimtab_descheduler_kept_pods", "reason", "mode") == {("NoPlace", "Simulate"): 500}
    assert OTHER not in WORKLOADS


def test_series_of_previous_plan_are_removed(counted: Counted) -> None:
    counted.metrics.planned_by("default", "Act", Plan(0.0, (evict(),)))
    counted.metrics.planned_by("other", "Act", Plan(0.0, (evict(policy="other"),)))
    counted.metrics.planned_by("default", "Act", Plan(0.0))

    assert counted(PLANNED, "policy") == {("other",): 1}


def test_deleted_policy_has_no_series(counted: Counted) -> None:
    for policy in ("default", "other"):
        counted.metrics.acts_as(policy, "Act")
        counted.metrics.ended(Outcome(evict(policy=policy), EVICTED, EVICTED, "", 0.0))
    counted.metrics.forget("default")

    assert counted(EVICTIONS, "policy") == {("other",): 1}
