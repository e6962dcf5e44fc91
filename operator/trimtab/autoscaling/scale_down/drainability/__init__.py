"""May a pod be evicted so that its node can go: upstream's twelve rules in order, one a file."""

from trimtab.autoscaling.scale_down.drainability.registry import IN_ORDER, judge, judge_template
from trimtab.autoscaling.scale_down.drainability.rule import Context, Outcome, Rule, Verdict

__all__ = ["IN_ORDER", "Context", "Outcome", "Rule", "Verdict", "judge", "judge_template"]
