"""What is remembered, as planners take it."""

from __future__ import annotations

from msgspec.structs import replace

from trimtab.autoscaling.groups import groups
from trimtab.autoscaling.memory.advance import advance
from trimtab.autoscaling.memory.backoff import backoff_words
from trimtab.autoscaling.memory.findings import Findings
from trimtab.autoscaling.memory.health import DEFAULTS, Health, HealthSettings, health
from trimtab.autoscaling.memory.readiness import readiness
from trimtab.autoscaling.memory.state import State, recall
from trimtab.autoscaling.scale_up import Inputs
from trimtab.cluster.snapshot import Snapshot


def with_memory(inputs: Inputs, state: State, findings: Findings, found: Health) -> Inputs:
    """The inputs with what a pass has learned before it plans.

    Args:
        inputs: otherwise complete.
        state: after :func:`~trimtab.autoscaling.memory.advance`.
        findings: of the same.
        found: of cluster and groups.
    """
    return replace(
        inputs,
        backoff={**backoff_words(state, inputs.now), **inputs.backoff},
        unhealthy=found.groups,
        asked=findings.asked,
        upcoming=findings.upcoming,
        halted=found.cluster,
    )


def remembering(snapshot: Snapshot, inputs: Inputs, *, settings: HealthSettings = DEFAULTS) -> Inputs:
    """The inputs as a pass would have them that begins now, from the snapshot and the status alone.

    For who plans without being the controller: what that has not written down yet nobody else knows.
    """
    found = groups(snapshot, inputs.machine_autoscalers, inputs.external)
    nodes = {node.name: node for node in snapshot.nodes.at if node is not None}
    standing = readiness(nodes, found, now=inputs.now, startup=inputs.spec.startup_taints)
    state, findings = advance(recall(inputs.status), found, nodes, inputs.spec, inputs.now, standing=standing)
    well = health(found, standing, state, now=inputs.now, settings=settings)
    return with_memory(inputs, state, findings, well)
