"""Grpc: whatever a server says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from trimtab.autoscaling.scale_up.expanders.expander import AnyOption, Context


class Grpc:
    """The groups that a server of cluster-autoscaler's expander API likes best (upstream's ``grpc``).

    Where it has not been asked, does not answer, or names no group that it was asked about, the next expander decides.
    """

    name: ClassVar = "Grpc"

    def best(self, options: Sequence[AnyOption], context: Context) -> Sequence[AnyOption]:
        """Those that the server named."""
        found = context.advice.of(options, context.pods) if context.advice is not None else None
        return [option for option in options if option.group.id in (found or ())] or options
