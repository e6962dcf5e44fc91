"""What somebody outside has said of options: the seam by which the expander Grpc is asked, without I/O in a planner.

A planner cannot wait for a server. So it goes by answers that are there, and takes note of the first question that has
none; whoever drives it asks that, adds the answer, and plans anew, until nothing is left to ask. A plan stays a
function of what it is given: with the same answers it is the same, and without any the next expander decides. Handing
the planner something that asks by itself would make each plan depend on when it was made, and would keep a changed
picture of the cluster open while a server thinks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from msgspec import Struct

from trimtab.autoscaling.scale_up.option import Option
from trimtab.kube.objects import Node, Pod

EXAMPLES = 100
"""Pods that are told of each option: all would be megabytes in each question."""


class Offer(Struct, frozen=True):
    """One option, as it is told to somebody outside.

    Attributes:
        group: the group's id.
        nodes: how many would be added.
        pods: how many pods they would take.
        node: what a new node would be.
        examples: the first of the pods.
    """

    group: str
    nodes: int
    pods: int
    node: Node
    examples: tuple[Pod, ...] = ()

    @property
    def key(self) -> tuple[str, int, int]:
        """What tells it from other offers of the same plan."""
        return self.group, self.nodes, self.pods


Key = tuple[tuple[str, int, int], ...]


class Question(Struct, frozen=True):
    """Offers among which somebody is to choose, by group."""

    offers: tuple[Offer, ...]

    @property
    def key(self) -> Key:
        """What tells it from other questions of the same plan."""
        return tuple(offer.key for offer in self.offers)


class Advice:
    """Answers, and the first question without one.

    Args:
        answers: the groups that are liked best, by the questions' keys; a group that was not asked about is no answer.

    Attributes:
        open: the first question of the last plan that has no answer; ``None`` where all have one.
    """

    def __init__(self, answers: Mapping[Key, Sequence[str]] | None = None) -> None:
        self._answers = dict(answers or {})
        self.open: Question | None = None

    def add(self, question: Question, groups: Sequence[str]) -> None:
        """Add an answer; the next plan goes by it."""
        self._answers[question.key] = tuple(groups)
        self.open = None

    def of(self, options: Sequence[Option], pods: Callable[[Option], Iterable[Pod]]) -> Sequence[str] | None:
        """The groups that are liked best; ``None`` where nobody has said it.

        Args:
            options: at least two.
            pods: of an option.
        """
        ordered = sorted(options, key=lambda option: option.group.id)
        key = tuple((option.group.id, option.nodes, option.pods) for option in ordered)
        found = self._answers.get(key)
        if found is None and self.open is None:
            self.open = Question(tuple(_offer(option, pods) for option in ordered))
        return found


def _offer(option: Option, pods: Callable[[Option], Iterable[Pod]]) -> Offer:
    node = option.candidate.template.node
    return Offer(option.group.id, option.nodes, option.pods, node, tuple(islice(pods(option), EXAMPLES)))
