"""An option: nodes of one group, and the pods that they would take."""

from __future__ import annotations

from fractions import Fraction

from msgspec import Struct

from trimtab.autoscaling.groups.node_group import NodeGroup
from trimtab.autoscaling.template.node_template import NodeTemplate
from trimtab.cluster.resources import CPU, MEMORY, IntArray
from trimtab.kube.frozen import ResourceList


class Candidate(Struct, frozen=True, eq=False):
    """A group that may be able to help.

    Attributes:
        group: the group.
        template: what a new node of it would be.
        free: int64, shape (resources,): what such a node has left for pods.
    """

    group: NodeGroup
    template: NodeTemplate
    free: IntArray

    @property
    def amounts(self) -> ResourceList:
        """What limits count of a node, and what waste is measured by."""
        return self.template.node.capacity or self.template.node.allocatable


class Option(Struct, frozen=True, eq=False):
    """What one group could do for the pods that are left.

    Attributes:
        candidate: the group with its template.
        nodes: how many would be added.
        pods: how many pods they would take.
        taken: int64, shape (resources,): what these pods request in all.
        similar: groups among which the nodes would be balanced, the candidate's own included.
    """

    candidate: Candidate
    nodes: int
    pods: int
    taken: IntArray
    similar: tuple[Candidate, ...] = ()

    @property
    def group(self) -> NodeGroup:
        """The group."""
        return self.candidate.group

    @property
    def waste(self) -> Fraction:
        """The shares of cpu and memory that the pods leave, added: 0 to 2, exactly."""
        amounts = self.candidate.amounts
        return sum(
            (
                1 - Fraction(int(self.taken[column]), self.nodes * amounts[name])
                for name, column in (("cpu", CPU), ("memory", MEMORY))
                if amounts.get(name)
            ),
            start=Fraction(0),
        )
