"""NodeTemplate: the node that a group would add next, with all that would be on it before any pod comes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from trimtab.autoscaling.groups.node_group import Problem
from trimtab.kube.frozen import Labels, ResourceList
from trimtab.kube.objects import CSINode, KubeObject, Node, Pod
from trimtab.kube.rules.node_labels import HOSTNAME


def template_name(group: str) -> str:
    """The name of a group's template node; no real node has it, for names of nodes have no slash."""
    return f"template-for-{group}"


class TemplateOrigin(StrEnum):
    """How well a template is known."""

    LEARNED = "Learned"
    """From a ready node of the group: what is there is what comes."""
    RECORDED = "Recorded"
    """From a node that the group had: what was written down of it while it was there."""
    ANNOTATIONS = "Annotations"
    """From what the group's object says: an estimate, whose allocatable amounts are the capacity less a reserve."""
    PROVIDER = "Provider"
    """From the group's provider, which says what a new node would be as a whole."""


class NodeTemplate(Struct, frozen=True):
    """What a new node of a group would be.

    Attributes:
        group: the group's id.
        node: the node: ready, schedulable, named ``template-for-<group>``, without a hostname label, for that is each
            node's own. Its allocatable amounts are before :attr:`pods` are counted.
        pods: what comes with each node: pods of DaemonSets and static pods, bound to :attr:`node`.
        drivers: the volume drivers of such a node, ``None`` where they are not known.
        origin: where it is from.
        sample: the node that it was learned from, gone by now where it is recorded; empty where it is from annotations.
        assumed: what had to be assumed, in words, e.g. the reserve; for explanations.
    """

    group: str
    node: Node
    pods: tuple[Pod, ...] = ()
    drivers: CSINode | None = None
    origin: TemplateOrigin = TemplateOrigin.LEARNED
    sample: str = ""
    assumed: tuple[str, ...] = ()

    def instance(self, name: str) -> tuple[KubeObject, ...]:
        """A node of that name with what is on it, ready to be put into a fork of a snapshot; the node comes first.

        Args:
            name: must be the name of no other node; its hostname label will be the same.
        """
        node = replace(
            self.node, name=name, uid=name, labels=Labels({**self.node.labels, HOSTNAME: name}), provider_id=""
        )
        pods = (replace(pod, name=f"{pod.name}-{name}", uid=f"{pod.uid}-{name}", node=name) for pod in self.pods)
        return (node, *pods, *(() if self.drivers is None else (replace(self.drivers, name=name, uid=name),)))

    @property
    def free(self) -> ResourceList:
        """What the node has left for pods once those that come with it are there; ``pods`` is how many fit."""
        left = dict(self.node.allocatable)
        for pod in self.pods:
            for name, amount in pod.spec.requests.items():
                left[name] = left.get(name, 0) - amount
        left["pods"] = left.get("pods", 0) - len(self.pods)
        return ResourceList({name: max(0, amount) for name, amount in left.items()})


class Templates(Struct, frozen=True):
    """The templates of groups.

    Attributes:
        of_group: by the groups' ids, in their order; a group whose template is not known is not in it.
        problems: why not, one a group without a template, sorted; a problem that leaves a template usable is
            in it as well.
    """

    of_group: Mapping[str, NodeTemplate] = {}
    problems: tuple[Problem, ...] = ()
