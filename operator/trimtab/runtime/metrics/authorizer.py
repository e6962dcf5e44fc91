"""Authorizes clients of /metrics, see :mod:`trimtab.runtime.http.authorizer`.

The client needs a ClusterRole with::

    rules:
      - nonResourceURLs: [/metrics]
        verbs: [get]
"""

from __future__ import annotations

from typing import Final

from trimtab.kube.api import Api
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.runtime.http.authorizer import AccessCheck, RequestAuthorizer

PATH: Final = "/metrics"
VERB: Final = "get"
CHECK: Final = AccessCheck("metrics", ({"nonResourceAttributes": {"path": PATH, "verb": VERB}},))


class MetricsAuthorizer(RequestAuthorizer):
    """Authorizes requests by their Authorization header.

    Args:
        api: the API client, which sends the reviews of tokens and permissions.
        clock: provides the time.
    """

    def __init__(self, api: Api, *, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(api, PATH, clock=clock)

    async def refusal_reason(self, authorization: str, client: str) -> str | None:
        """Return the reason code for refusing a request; ``None`` if the client may read the metrics.

        Args:
            authorization: the Authorization header; ``""`` if there is none.
            client: the client's address.
        """
        refusal = await self.token_refusal(authorization, client, CHECK)
        return None if refusal is None else refusal.reason
