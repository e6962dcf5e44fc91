"""What all strategies of a policy share."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from trimtab.api.base import Spec, doc

SET: Final = {"x-kubernetes-list-type": "set"}
"""A list whose items are all different."""


class NoParams(Spec, frozen=True):
    """The strategy has no parameters."""


class Strategy(Spec, frozen=True):
    """A strategy of any kind."""

    needs: ClassVar[tuple[str, ...]] = ()
    """Parameters that must be given where the strategy is enabled."""

    needs_one_of: ClassVar[tuple[str, ...]] = ()
    """Parameters of which at least one must be given where the strategy is enabled."""

    at_most_one_of: ClassVar[tuple[str, ...]] = ()
    """Parameters that exclude each other; lists among them cannot be empty, for an empty one counts as not given."""

    enabled: Annotated[bool, doc("Whether the strategy runs. A strategy that is not listed does not.")] = True
