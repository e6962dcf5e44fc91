"""RemovePodsViolatingInterPodAntiAffinity and its parameters."""

from __future__ import annotations

from typing import Annotated

from trimtab.api.base import doc
from trimtab.api.strategies.base import NoParams, Strategy


class RemovePodsViolatingInterPodAntiAffinity(Strategy, frozen=True):
    """Parts pods that a required anti-affinity term forbids to be together, moving as few of them as it takes."""

    params: Annotated[NoParams, doc("The strategy has no parameters.")] = NoParams()
