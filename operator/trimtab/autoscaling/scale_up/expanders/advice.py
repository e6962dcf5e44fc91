"""Stores the responses of an external expander as input for the planner, so that the planner does no I/O.

The planner cannot wait for a server. It uses the given responses, and records the first question that has no response.
The caller sends that question, adds the response and plans again, until no question is unanswered. So a plan is a
function of its inputs. If the server does not respond, the next expander decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from msgspec import Struct

from trimtab.autoscaling.scale_up.options import ScaleUpOption
from trimtab.kube.objects import Node, Pod

EXAMPLES = 100
"""Maximum number of pods that are sent with each option. Sending all pods could take megabytes."""


class ExpanderOption(Struct, frozen=True):
    """An option in the form in which it is sent to an external expander.

    Attributes:
        group: id of the group.
        nodes: number of nodes to add.
        pods: number of pods that fit on the nodes.
        node: a new node of the group.
        examples: the first pods that fit, at most :data:`EXAMPLES`.
    """

    group: str
    nodes: int
    pods: int
    node: Node
    examples: tuple[Pod, ...] = ()

    @property
    def key(self) -> tuple[str, int, int]:
        """Return the key that identifies the option within a plan."""
        return self.group, self.nodes, self.pods


Key = tuple[tuple[str, int, int], ...]


class ExpanderQuestion(Struct, frozen=True):
    """The options among which an external expander selects."""

    offers: tuple[ExpanderOption, ...]

    @property
    def key(self) -> Key:
        """Return the key that identifies the question within a plan."""
        return tuple(offer.key for offer in self.offers)


class Advice:
    """The responses of an external expander, and the first question that has no response yet.

    Args:
        answers: the preferred group ids by question key. Groups that were not offered are ignored.

    Attributes:
        unanswered: the first question of the last plan that has no response; ``None`` if all questions have one.
    """

    def __init__(self, answers: Mapping[Key, Sequence[str]] | None = None) -> None:
        self._answers = dict(answers or {})
        self.unanswered: ExpanderQuestion | None = None

    def add(self, question: ExpanderQuestion, groups: Sequence[str]) -> None:
        """Add a response for the next plan."""
        self._answers[question.key] = tuple(groups)
        self.unanswered = None

    def answer_to(
        self, options: Sequence[ScaleUpOption], pods: Callable[[ScaleUpOption], Iterable[Pod]]
    ) -> Sequence[str] | None:
        """Return the group ids that the server prefers among the options, or ``None`` if it has not responded yet.

        Args:
            options: at least two options.
            pods: returns the pods of an option.
        """
        ordered = sorted(options, key=lambda option: option.group.id)
        key = tuple((option.group.id, option.nodes, option.pods) for option in ordered)
        found = self._answers.get(key)
        if found is None and self.unanswered is None:
            self.unanswered = ExpanderQuestion(tuple(_expander_option(option, pods) for option in ordered))
        return found


def _expander_option(option: ScaleUpOption, pods: Callable[[ScaleUpOption], Iterable[Pod]]) -> ExpanderOption:
    node = option.candidate.template.node
    return ExpanderOption(option.group.id, option.nodes, option.pods, node, tuple(islice(pods(option), EXAMPLES)))
