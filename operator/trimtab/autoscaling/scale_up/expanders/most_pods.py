"""MostPods: most pods helped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from trimtab.autoscaling.scale_up.expanders.expander import AnyOption, Context


class MostPods:
    """The groups that take the most of the pods that wait (upstream's ``most-pods``)."""

    name: ClassVar = "MostPods"

    def best(self, options: Sequence[AnyOption], context: Context) -> Sequence[AnyOption]:
        """Those with the most pods."""
        del context
        most = max(option.pods for option in options)
        return [option for option in options if option.pods == most]
