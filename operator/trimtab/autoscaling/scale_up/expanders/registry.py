"""Every expander, and how several make a choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trimtab.autoscaling.scale_up.expanders.expander import AnyOption, Context, Expander
from trimtab.autoscaling.scale_up.expanders.grpc import Grpc
from trimtab.autoscaling.scale_up.expanders.least_nodes import LeastNodes
from trimtab.autoscaling.scale_up.expanders.least_waste import LeastWaste
from trimtab.autoscaling.scale_up.expanders.most_pods import MostPods
from trimtab.autoscaling.scale_up.expanders.price import Price
from trimtab.autoscaling.scale_up.expanders.priority import Priority
from trimtab.autoscaling.scale_up.expanders.random import Random

EXPANDERS: Final[dict[str, Expander]] = {
    each.name: each for each in (LeastWaste(), Priority(), Random(), MostPods(), LeastNodes(), Price(), Grpc())
}

DEFAULT: Final = (LeastWaste.name,)
"""Where ``spec.expanders`` is empty; upstream's default."""


def choose(options: Sequence[AnyOption], names: Sequence[str], context: Context) -> tuple[AnyOption, str]:
    """The option that a chain of expanders chooses, and which of them decided.

    Each chooses among those that the one before liked equally. Of what all like equally the first by the group's id is
    taken: upstream draws lots, and cannot tell afterwards why.

    Args:
        options: at least one.
        names: of ``spec.expanders``.
        context: what expanders read beside.

    Returns:
        The option, and the name of the expander that left only it; empty where there was nothing to choose, or names
        decided.
    """
    left = sorted(options, key=lambda option: option.group.id)
    if len(left) == 1:
        return left[0], ""
    unheard = ""
    for name in _chain(names):
        liked = list(EXPANDERS[name].best(left, context))
        if name == Grpc.name and liked == left:
            unheard = f" ({name} made no choice)"
        left = liked
        if len(left) == 1:
            return left[0], name + unheard
    return left[0], ""


def _chain(names: Sequence[str]) -> Sequence[str]:
    """The expanders in their order; after a server, which may be silent, the default."""
    if not names:
        return DEFAULT
    return names if Grpc.name not in names else tuple(dict.fromkeys((*names, *DEFAULT)))
