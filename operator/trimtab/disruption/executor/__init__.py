"""The executor: evicts the pods of a descheduler plan.

:mod:`.executor` executes a plan, and :mod:`.owner_queue` orders its evictions by owner. :mod:`.rollout_restart`
replaces single replicas by restarting their Deployment. :mod:`.events` logs outcomes and emits events.
"""

from trimtab.disruption.executor.executor import CYCLE_DEADLINE_EXCEEDED, STOPPING, Executor, ExecutorSettings

__all__ = ["CYCLE_DEADLINE_EXCEEDED", "STOPPING", "Executor", "ExecutorSettings"]
