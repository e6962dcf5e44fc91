"""The ConfigMap of the expander Priority, read when it may be needed, and what is wrong with it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from trimtab.api import reasons
from trimtab.autoscaling.groups import Problem
from trimtab.autoscaling.scale_up.expanders.priority import CONFIG_MAP, read_priorities
from trimtab.kube.api import Api, ApiError, NotFound, Unreachable
from trimtab.kube.errors import InputError
from trimtab.kube.resources import CONFIG_MAPS
from trimtab.kube.verbs import get

log = logging.getLogger(__name__)

TIMEOUT: Final = 3.0
"""Seconds: pods wait for it."""

NAME: Final = "Priority"
"""The expander's name in ``spec.expanders``."""


class Priorities:
    """Reads the ConfigMap; the last one that could be read counts while the API server does not answer.

    Args:
        api: the API server.
        namespace: the operator's own.

    Attributes:
        problem: what is wrong with it; ``None`` where nothing is known to be.
    """

    def __init__(self, api: Api, namespace: str) -> None:
        self.problem: Problem | None = None
        self._api = api
        self._namespace = namespace
        self._known: Mapping[int, tuple[str, ...]] = {}

    async def read(self) -> Mapping[int, tuple[str, ...]]:
        """Priorities with their patterns; empty where there are none to go by: then other expanders decide."""
        try:
            found = await get(self._api, CONFIG_MAPS, CONFIG_MAP, namespace=self._namespace, timeout=TIMEOUT)
            self._known = read_priorities(found.get("data") or {})
        except NotFound:
            self._known = {}
            self._wrong("there is no such ConfigMap, so the expander Priority decides nothing")
        except InputError as error:
            self._known = {}
            self._wrong(f"{error.field}: {error.message}; the expander Priority decides nothing")
        except (ApiError, Unreachable) as error:
            log.warning("ConfigMap %s/%s cannot be read: %s", self._namespace, CONFIG_MAP, error)
            self._wrong(f"cannot be read: {error}")
        else:
            self.problem = None
        return self._known

    def _wrong(self, message: str) -> None:
        reason = reasons.PRIORITY_CONFIG_MAP_INVALID
        problem = Problem("ConfigMap", self._namespace, CONFIG_MAP, reason, message)
        if problem != self.problem:
            log.warning("ConfigMap %s/%s: %s", self._namespace, CONFIG_MAP, message)
        self.problem = problem
