"""What an expander is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol, TypeVar

from msgspec import Struct

from trimtab.autoscaling.scale_up.option import Option

AnyOption = TypeVar("AnyOption", bound=Option)


class Context(Struct, frozen=True):
    """What expanders read beside the options.

    Attributes:
        priorities: what the priority expander's ConfigMap says: patterns of groups' names by priority.
        seed: for Random; the same snapshot has the same.
    """

    priorities: Mapping[int, tuple[str, ...]] = {}
    seed: str = ""


class Expander(Protocol):
    """A rule that prefers some options to others.

    Attributes:
        name: as ``spec.expanders`` names it.
    """

    name: ClassVar[str]

    def best(self, options: Sequence[AnyOption], context: Context) -> Sequence[AnyOption]:
        """The options that it likes best, equally; at least one, in the order given."""
        ...
