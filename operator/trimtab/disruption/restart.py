"""One try at one restart: the rollout that renews a single replica before it goes."""

from __future__ import annotations

from typing import Final

from trimtab.api.plan import Evict
from trimtab.api.reasons import EVICTION_FAILED, EVICTION_REFUSED, PLAN_OUTDATED, ROLLOUT_IN_PROGRESS
from trimtab.cluster.rollouts import RESTARTED_AT, Rollout, rollout_of
from trimtab.disruption.answer import Answer
from trimtab.disruption.outcome import FAILED, REFUSED, SKIPPED, STARTED
from trimtab.disruption.surge import against, progress
from trimtab.kube import verbs
from trimtab.kube.api import Api, ApiError, Conflict, Forbidden, NotFound, ServerError, TooManyRequests, Unreachable
from trimtab.kube.objects import Pod
from trimtab.kube.resources import DEPLOYMENTS

NO_RIGHT: Final = "restarting Deployments is a right of its own (the chart's controllers.descheduler.surge)"


async def restart(api: Api, action: Evict, pod: Pod, *, mark: str, timeout: float) -> Answer:
    """Restart the pod's Deployment as ``kubectl rollout restart`` does. Never raises for what the server says.

    The Deployment is read first and judged once more. The restart holds only for what was read (``resourceVersion``):
    nobody can have made it recreate, scaled or paused it in between. A second try of the same ``mark`` finds the first
    one, should its answer have been lost (:func:`look_for`).

    Args:
        api: the API server.
        action: a surge.
        pod: the pod.
        mark: the time of the restart, as the annotation of the template says it.
        timeout: seconds for each request.
    """
    sent = False
    try:
        found = await verbs.get(api, DEPLOYMENTS, action.deployment, namespace=action.namespace, timeout=timeout)
        rollout = rollout_of(found)
        if rollout.restarted_at == mark:
            return _started(action)
        against_it = against(rollout, pod) or progress(rollout)
        if against_it is not None:
            return Answer(REFUSED, against_it.reason, against_it.message)
        sent = True
        await verbs.merge_patch(
            api, DEPLOYMENTS, rollout.name, _patch(rollout, mark), namespace=rollout.namespace, timeout=timeout
        )
    except NotFound:
        return Answer(SKIPPED, PLAN_OUTDATED, f"Deployment {action.deployment} has gone")
    except TooManyRequests as error:
        return Answer(REFUSED, EVICTION_REFUSED, error.message, again=True, retry_after=error.retry_after)
    except Conflict as error:
        return Answer(FAILED, EVICTION_FAILED, error.message, again=True)
    except Forbidden as error:
        return Answer(FAILED, EVICTION_FAILED, f"{error.message}; {NO_RIGHT}")
    except (ServerError, Unreachable) as error:
        return Answer(FAILED, EVICTION_FAILED, str(error), again=True, doubt=sent)
    except ApiError as error:
        return Answer(FAILED, EVICTION_FAILED, error.message)
    return _started(action)


async def look_for(api: Api, action: Evict, *, mark: str, timeout: float) -> Answer:
    """After a lost answer, see whether the Deployment was restarted. Judged again it would seem to be by somebody else.

    Args:
        api: the API server.
        action: a surge that was asked for.
        mark: the time of the restart.
        timeout: seconds.

    Returns:
        Started, if it was; otherwise an answer with ``again``, which is in ``doubt`` as long as nobody answers.
    """
    try:
        found = await verbs.get(api, DEPLOYMENTS, action.deployment, namespace=action.namespace, timeout=timeout)
    except NotFound:
        return Answer(SKIPPED, PLAN_OUTDATED, f"Deployment {action.deployment} has gone")
    except (ApiError, Unreachable) as error:
        message = f"no answer came to the restart, nor when looking for what became of it: {error}"
        return Answer(FAILED, EVICTION_FAILED, message, again=True, doubt=True)
    if rollout_of(found).restarted_at == mark:
        return _started(action)
    told = f"no answer came to the restart, and Deployment {action.deployment} was not restarted"
    return Answer(FAILED, EVICTION_FAILED, told, again=True)


def _started(action: Evict) -> Answer:
    told = f"Deployment {action.deployment} was restarted, and makes a new pod before {action.pod} goes"
    return Answer(STARTED, ROLLOUT_IN_PROGRESS, told)


def _patch(rollout: Rollout, mark: str) -> dict[str, object]:
    return {
        "metadata": {"resourceVersion": rollout.resource_version},
        "spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: mark}}}},
    }
