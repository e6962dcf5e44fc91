"""One broken line of the operator for each invariant of the churn, and a copy of the operator that has it.

``TRIMTAB_E2E_BROKEN=all pytest -m "" -s tests/e2e/test_joint_churn.py -k broken`` runs the churn with each of them, and
fails if the checker does not report that the invariant was violated.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Final

from msgspec import Struct

from trimtab_local.install import OperatorProcess

PACKAGE: Final = Path(__file__).parents[1] / "operator" / "trimtab"


class BrokenLine(Struct, frozen=True, kw_only=True):
    """A line whose change violates an invariant.

    Attributes:
        name: the name of the broken operator.
        violation: what the checker's message about the invariant contains.
        module: the path of the module in the operator's package.
        old: the line, without its indentation. It occurs once.
        new: what takes its place.
        kinds: the kinds of steps that provoke the violation, and that are executed first and most often.
        without: the kinds of steps that are left out, because their effects excuse the violation.
        per_minute: the rate limit of the policy; 0 for that of the churn.
        at_rest: whether the violation shows when the cluster is at rest.
    """

    name: str
    violation: str
    module: str
    old: str
    new: str
    kinds: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    per_minute: int = 0
    at_rest: bool = False


BROKEN: Final = (
    BrokenLine(
        name="uid",
        violation="evicted without a UID",
        module="disruption/evictor/eviction_api.py",
        old='options: dict[str, Any] = {"preconditions": {"uid": request.uid}}',
        new="options: dict[str, Any] = {}",
    ),
    BrokenLine(
        name="twice",
        violation="evicted twice",
        module="disruption/evictor/eviction_api.py",
        old='await api.request("POST", path, body=body, timeout=timeout)',
        new='[await api.request("POST", path, body=body, timeout=timeout) for _ in range(2)]',
    ),
    BrokenLine(
        name="settling",
        violation="moved within the settling time",
        kinds=("stall_kubelets",),
        without=("scale", "burst", "urgent_burst", "pile_up", "kill_leader", "freeze_leader", "kill_api_server"),
        per_minute=600,
        module="disruption/evictor/evictor.py",
        old="if not request.settle or owner is None:",
        new="if True:",
    ),
    BrokenLine(
        name="pace",
        violation="evictions by policies in the minute",
        kinds=("pile_up",),
        module="disruption/executor/executor.py",
        old="pace.limit(*pace_of(per_minute))",
        new="pace.limit(*pace_of(100 * per_minute))",
    ),
    BrokenLine(
        name="protected",
        violation="protected pod touched",
        kinds=("scale",),
        at_rest=True,
        module="autoscaling/scale_down/drainability.py",
        old='return block(reasons.NOT_REPLICATED, "no controller owns it, so nothing would recreate it")',
        new="return None",
    ),
    BrokenLine(
        name="budget",
        violation="budget broken",
        kinds=("taint_guarded",),
        without=("fail_node", "delete_machine", "kill_api_server", "kill_machine_controller"),
        module="tainting/eviction_queue.py",
        old='how="Evict" if evicts else "Delete",',
        new='how="Delete",',
    ),
    BrokenLine(
        name="victims",
        violation="was preempted for",
        kinds=("urgent_burst", "burst"),
        module="scheduling/preemption.py",
        old="waiting = self.waiting(pod)",
        new="waiting = self.waiting(pod := msgspec.structs.replace("
        "pod, spec=msgspec.structs.replace(pod.spec, priority=10**9)))",
    ),
    BrokenLine(
        name="placement",
        violation="evicted without a place elsewhere",
        kinds=("urgent_burst", "pile_up"),
        module="placement/filters/nodes.py",
        old="least[column] = amount",
        new="pass",
    ),
    BrokenLine(
        name="busy",
        violation="machine of a busy node removed",
        kinds=("scale",),
        module="autoscaling/actuation/drain.py",
        old="found = [pod for pod in pods if _is_running(pod) and pod.deleted is None and not of_daemon_set(pod)]",
        new="found = list[Pod]()",
    ),
    BrokenLine(
        name="size",
        violation="size out of bounds",
        kinds=("burst", "urgent_burst"),
        module="autoscaling/groups/build.py",
        old="return SizeLimits(owner.spec.min_replicas, owner.spec.max_replicas)",
        new="return SizeLimits(0, owner.spec.max_replicas + 5)",
    ),
    BrokenLine(
        name="overcommitted",
        violation="overcommitted",
        kinds=("burst",),
        module="placement/filters/nodes.py",
        old="least[column] = amount",
        new="pass",
    ),
    BrokenLine(
        name="early",
        violation="deleted without a deadline",
        kinds=("fail_node",),
        module="tainting/deadlines.py",
        old="seconds = FOREVER if chosen.seconds is None else float(max(0, chosen.seconds))",
        new="seconds = FOREVER if chosen.seconds is None else 0.0",
    ),
    BrokenLine(
        name="late",
        violation="deadline missed",
        kinds=("fail_node",),
        module="tainting/deadlines.py",
        old="seconds = FOREVER if chosen.seconds is None else float(max(0, chosen.seconds))",
        new="seconds = FOREVER if chosen.seconds is None else float(max(0, chosen.seconds)) + 60.0",
    ),
    BrokenLine(
        name="pressure-node",
        violation="evicted for node pressure from another node",
        kinds=("leak",),
        module="pressure/assignment.py",
        old="if matches is not None and not matches(node.labels):",
        new="if False:",
    ),
    BrokenLine(
        name="pressure-deletion",
        violation="deleted for node pressure",
        kinds=("leak",),
        module="pressure/evictions.py",
        old="how=planned.how,",
        new='how="Delete",',
    ),
    BrokenLine(
        name="lease",
        violation="written after another process had acquired the Lease",
        module="runtime/leader_election/elector.py",
        old="return self._clock.monotonic() >= self._observed_at + duration",
        new="return True",
    ),
    BrokenLine(
        name="taint",
        violation="taint ToBeDeletedByClusterAutoscaler on node",
        kinds=("scale", "hold_node"),
        module="autoscaling/actuation/node_markers.py",
        old="operations += remove_taints(fields, TO_BE_DELETED)",
        new="pass",
        at_rest=True,
    ),
    BrokenLine(
        name="cordon",
        violation="is cordoned",
        kinds=("scale", "hold_node"),
        module="autoscaling/actuation/node_markers.py",
        old='operations += [expect_value("/spec/unschedulable", True), {"op": "remove", '
        '"path": "/spec/unschedulable"}]',
        new="pass",
        at_rest=True,
    ),
    BrokenLine(
        name="annotation",
        violation="annotation trimtab.dev/removing on node",
        kinds=("scale", "hold_node"),
        module="autoscaling/actuation/node_markers.py",
        old="operations += remove_annotation(fields, REMOVING)",
        new="pass",
        at_rest=True,
    ),
    BrokenLine(
        name="finalizer",
        violation="finalizer machinetarget.autoscaling.openshift.io on the deleted",
        kinds=("recreate_limits",),
        module="autoscaling/machine_autoscalers/controller.py",
        old="await self._writer.remove_finalizer(entry)",
        new="pass",
        at_rest=True,
    ),
    BrokenLine(
        name="unrest",
        violation="not at rest",
        kinds=("scale",),
        module="pressure/state_machine.py",
        old="reached = available >= limit if threshold.signal == MEMORY_STALL else available < limit",
        new="reached = True",
        at_rest=True,
    ),
    BrokenLine(
        name="nodes",
        violation="the number of nodes is not stable",
        kinds=("scale",),
        module="autoscaling/scale_up/planner.py",
        old="self._groups, self._templates, self._nodes, decided=self._decided, raised=self._minimum",
        new="self._groups, self._templates, self._nodes, decided=self._decided, raised="
        "RaisedGroups({each.id: 1 for each in self._groups if each.target < each.maximum})",
        at_rest=True,
    ),
)


def broken_copy(broken: BrokenLine, directory: Path) -> type[OperatorProcess]:
    """Copy the operator's package with a broken line, and return the class of the processes that run the copy."""
    path = directory / "operator" / "trimtab"
    shutil.copytree(PACKAGE, path, ignore=shutil.ignore_patterns("__pycache__"))
    module = path / broken.module
    module.write_text(module.read_text().replace(broken.old, broken.new, 1))

    class BrokenOperator(OperatorProcess):
        def _command(self, *program: str) -> list[str]:
            assert not program
            return super()._command("env", f"PYTHONPATH={path.parent}", sys.executable, "-m", "trimtab")

    return BrokenOperator
