"""Random: any, but the same for the same cluster."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import ClassVar

from trimtab.autoscaling.scale_up.expanders.expander import AnyOption, Context


class Random:
    """One of the options by lot. The lot is drawn from the cluster's own names, so a plan can be made again.

    Groups come first about equally often, as pods and nodes change from plan to plan.
    """

    name: ClassVar = "Random"

    def best(self, options: Sequence[AnyOption], context: Context) -> Sequence[AnyOption]:
        """One of them."""

        def lot(option: AnyOption) -> bytes:
            return hashlib.sha256(f"{context.seed}\0{option.group.id}".encode()).digest()

        return [min(options, key=lot)]
