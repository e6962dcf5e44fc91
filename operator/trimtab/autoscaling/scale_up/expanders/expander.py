"""What an expander is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Protocol, TypeVar

from msgspec import Struct

from trimtab.autoscaling.scale_up.expanders.advice import Advice
from trimtab.autoscaling.scale_up.option import Option
from trimtab.kube.objects import Pod

AnyOption = TypeVar("AnyOption", bound=Option)


def _none(_option: Option) -> Iterable[Pod]:
    return ()


class Context(Struct, frozen=True):
    """What expanders read beside the options.

    Attributes:
        priorities: what the priority expander's ConfigMap says: patterns of groups' names by priority.
        seed: for Random; the same snapshot has the same.
        advice: what somebody outside has said; ``None`` where nobody is asked.
        pods: those of an option, for who is asked.
    """

    priorities: Mapping[int, tuple[str, ...]] = {}
    seed: str = ""
    advice: Advice | None = None
    pods: Callable[[Option], Iterable[Pod]] = _none


class Expander(Protocol):
    """A rule that prefers some options to others.

    Attributes:
        name: as ``spec.expanders`` names it.
    """

    name: ClassVar[str]

    def best(self, options: Sequence[AnyOption], context: Context) -> Sequence[AnyOption]:
        """The options that it likes best, equally; at least one, in the order given."""
        ...
