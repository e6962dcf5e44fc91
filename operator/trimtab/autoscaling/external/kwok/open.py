"""The provider of kwok's templates with all that belongs to it."""

from __future__ import annotations

import time
from collections.abc import Callable

from trimtab.autoscaling.external.kwok.ledger import Ledger
from trimtab.autoscaling.external.kwok.provider import KwokProvider
from trimtab.autoscaling.external.kwok.source import Kwok
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.api import Api


def kwok(api: Api, namespace: str, *, snapshot: Callable[[], Snapshot]) -> Kwok:
    """The source of groups of kwok's templates.

    Args:
        api: the API server.
        namespace: with the ConfigMaps.
        snapshot: the cluster at present.
    """
    ledger = Ledger(snapshot, monotonic=time.monotonic)
    return Kwok(api, namespace, ledger, KwokProvider(api, ledger))
