"""The queries of policies, put to Prometheus once."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.cluster.prometheus import Prometheus, PrometheusSettings, read_shares
from trimtab.cluster.usage import Usage
from trimtab.descheduling.burden import measured_by
from trimtab.kube.clock import SYSTEM_CLOCK


def ask(
    policies: Sequence[DeschedulerPolicy], settings: PrometheusSettings | None, *, now: int | None
) -> dict[str, Usage]:
    """What is used by the policies' queries, by the policies' names.

    Args:
        policies: those that judge by a query.
        settings: where Prometheus is; ``None`` where nobody has said, which is then each measurement's problem.
        now: seconds since the epoch to ask for, as the plan is made for; ``None`` for Prometheus' own now.

    Raises:
        InputError: the settings cannot be used.
    """
    import uvloop

    return uvloop.run(_ask(policies, settings, now))


async def _ask(
    policies: Sequence[DeschedulerPolicy], settings: PrometheusSettings | None, now: int | None
) -> dict[str, Usage]:
    if settings is None:
        return await _each(policies, None, now)
    async with Prometheus(settings.server()) as prometheus:
        return await _each(policies, prometheus, now)


async def _each(
    policies: Sequence[DeschedulerPolicy], prometheus: Prometheus | None, now: int | None
) -> dict[str, Usage]:
    found = {}
    for policy in policies:
        wanted = measured_by(policy)
        if wanted is not None and wanted.prometheus is not None:
            when = SYSTEM_CLOCK.now()
            found[policy.name] = await read_shares(prometheus, wanted.prometheus, now=when, at=now)
    return found
