"""Reads the ConfigMap of the Priority expander, and reports its errors."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from trimtab.api import reasons
from trimtab.autoscaling.groups import ObjectProblem
from trimtab.autoscaling.scale_up.expanders.priority import CONFIG_MAP, read_priorities
from trimtab.kube.api import Api, ApiError, Forbidden, NotFound, Unreachable
from trimtab.kube.errors import InputError
from trimtab.kube.resources import CONFIG_MAPS
from trimtab.kube.verbs import get

log = logging.getLogger(__name__)

TIMEOUT: Final = 3.0
"""Timeout in seconds for reading the ConfigMap in one namespace.

It is short because pending pods wait for the response.
"""

NAME: Final = "Priority"
"""The expander's name in ``spec.expanders``."""


class PriorityConfig:
    """Reads the Priority expander's ConfigMap. If the API server does not respond, the last version remains in use.

    Cluster-autoscaler reads the ConfigMap in its own namespace. OpenShift users create it in ``openshift-machine-api``,
    next to the MachineAutoscalers. Therefore both namespaces are tried, the operator's own first, unless a namespace is
    configured.

    Args:
        api: the API server.
        namespace: the operator's own namespace.
        configured: the only namespace to read; empty to try both.

    Attributes:
        problem: the error in the ConfigMap; ``None`` if there is none.
    """

    def __init__(self, api: Api, namespace: str, *, configured: str = "") -> None:
        self.problem: ObjectProblem | None = None
        self._api = api
        self._namespace = configured or namespace
        self._configured = configured
        self._known: Mapping[int, tuple[str, ...]] = {}

    async def read(self, machine_autoscalers: Iterable[str] = ()) -> Mapping[int, tuple[str, ...]]:
        """Return patterns of group ids by priority.

        If there is no valid ConfigMap, the result is empty, and the next expander decides.

        Args:
            machine_autoscalers: the namespaces of the MachineAutoscalers.
        """
        others = () if self._configured else tuple(sorted(set(machine_autoscalers) - {self._namespace}))
        forbidden = []
        for namespace in (self._namespace, *others):
            try:
                found = await get(self._api, CONFIG_MAPS, CONFIG_MAP, namespace=namespace, timeout=TIMEOUT)
                self._known = read_priorities(found.get("data") or {})
            except NotFound:
                continue
            except InputError as error:
                self._known = {}
                self._report(namespace, f"{error.field}: {error.message}; the expander Priority is skipped")
            except (ApiError, Unreachable) as error:
                if isinstance(error, Forbidden) and namespace != self._namespace:
                    forbidden.append(namespace)
                    continue
                self._report(namespace, f"cannot be read: {error}")
            else:
                self.problem = None
            return self._known
        self._known = {}
        searched = [namespace for namespace in others if namespace not in forbidden]
        elsewhere = f", nor in {', '.join(searched)}" if searched else ""
        hint = f" (reading it in {', '.join(forbidden)} is forbidden)" if forbidden else ""
        self._report(
            self._namespace,
            f"there is no such ConfigMap{elsewhere}{hint}, so the expander Priority is skipped",
        )
        return self._known

    def _report(self, namespace: str, message: str) -> None:
        problem = ObjectProblem("ConfigMap", namespace, CONFIG_MAP, reasons.PRIORITY_CONFIG_MAP_INVALID, message)
        if problem != self.problem:
            log.warning("Ignored ConfigMap %s/%s for the Priority expander: %s", namespace, CONFIG_MAP, message)
        self.problem = problem
