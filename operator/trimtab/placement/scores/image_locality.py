"""ImageLocality: the more of the pod's images a node holds already, by their sizes, the better."""

from __future__ import annotations

from array import array
from collections import defaultdict
from typing import ClassVar, Final

import numpy as np

from trimtab.cluster.nodes import NodeTable
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import NO_RESOURCES, ResourceList
from trimtab.kube.objects import Pod, PodSpec
from trimtab.placement.framework import MAX_SCORE

_MB: Final = 1024 * 1024
_LEAST: Final = 23 * _MB
_MOST_PER_CONTAINER: Final = 1000 * _MB
_KEPT: Final = 256
"""Score arrays that are kept: 16 MiB on 8,192 slots."""
_SPECS: Final = 16_384

Asked = tuple[tuple[str, ...], int]
"""The images that a pod runs from, sorted, some perhaps more than once, and the number of its containers."""


class ImageLocality:
    """Sums the sizes of the pod's images on a node, each scaled by the share of all nodes that hold it.

    23 MiB and less are 0 and 1000 MiB per container are 100; it is not normalized. Images of init containers and of
    image volumes count, but the latter do not count as containers. Source: kube-scheduler v1.36 ``imagelocality``.

    The scheduler knows one size per image name: that of the node that it heard of first, and at its start they come in
    no order. So where nodes tell different sizes it is chance which counts there; here it is the first node's by name.
    How many nodes hold an image it counts anew for a node only when something changes on that node; here the number is
    that of now.
    """

    name: ClassVar = "ImageLocality"
    weight: ClassVar = 1

    def __init__(self, snapshot: Snapshot) -> None:
        self._nodes = snapshot.nodes
        self._images = ImageIndex(snapshot.nodes)
        self._asked: dict[int, tuple[PodSpec, Asked]] = {}
        self._kept: dict[Asked, IntArray | int] = {}
        self._version = -1

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        """See :meth:`~trimtab.placement.framework.Score.scores`."""
        del among
        if self._version != self._nodes.images_version:
            self._kept.clear()
            self._images.refresh()
            self._version = self._nodes.images_version
        if not self._images.any:
            return 0
        asked = self._asks(pod.spec)
        found = self._kept.get(asked)
        if found is None:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            found = self._kept[asked] = self._compute(*asked)
        return found

    def _asks(self, spec: PodSpec) -> Asked:
        found = self._asked.get(id(spec))
        if found is None:
            if len(self._asked) >= _SPECS:
                self._asked.clear()
            found = self._asked[id(spec)] = (spec, images_of(spec))  # the spec is held: its id stays its own
        return found[1]

    def _compute(self, names: tuple[str, ...], containers: int) -> IntArray | int:
        worth = [(slots, self._worth(name, slots)) for name in names if len(slots := self._images.slots(name))]
        if sum(bytes_ for _, bytes_ in worth) <= _LEAST:
            return 0
        total = np.zeros(self._nodes.capacity, dtype=np.int64)
        for slots, bytes_ in worth:
            total[slots] += bytes_
        most = _MOST_PER_CONTAINER * containers
        found: IntArray = MAX_SCORE * (np.clip(total, _LEAST, most) - _LEAST) // (most - _LEAST)
        return found

    def _worth(self, name: str, slots: IntArray) -> int:
        """The bytes of an image, scaled by the share of nodes that hold it and rounded down."""
        return int(self._images.size(name) * (len(slots) / len(self._nodes)))


class ImageIndex:
    """Which slots hold which image; only nodes whose images changed are read again.

    Args:
        nodes: the node slots.
    """

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._slots: defaultdict[str, array[int]] = defaultdict(lambda: array("i"))  # 4 bytes a holder: there are many
        self._seen: list[ResourceList] = []

    @property
    def any(self) -> bool:
        """Whether some node tells of any image."""
        return bool(self._slots)

    def refresh(self) -> None:
        """Catch up with the nodes."""
        self._seen.extend([NO_RESOURCES] * (len(self._nodes.at) - len(self._seen)))
        for slot, node in enumerate(self._nodes.at):
            images, seen = NO_RESOURCES if node is None else node.images, self._seen[slot]
            if images is seen:
                continue
            for name in seen.keys() - images.keys():
                holders = self._slots[name]
                holders.remove(slot)
                if not holders:
                    del self._slots[name]
            for name in images.keys() - seen.keys():
                self._slots[name].append(slot)
            self._seen[slot] = images

    def slots(self, name: str) -> IntArray:
        """The slots that hold an image: int64, in no order."""
        return np.array(self._slots.get(name, ()), dtype=np.int64)

    def size(self, name: str) -> int:
        """Bytes of an image that some node holds, as its first holder by name tells it."""
        slots = self.slots(name)
        first = int(slots[self._nodes.rank()[slots].argmin()])
        return self._nodes.node(first).images[name]


def images_of(spec: PodSpec) -> Asked:
    """The images that a pod runs from, by the names that nodes tell, and the number of its containers of all kinds."""
    containers = (*spec.init_containers, *spec.containers)
    names = [container.image for container in containers]
    names += [volume.disk[0] for volume in spec.volumes if volume.kind == "image" and volume.disk]
    return tuple(sorted(map(normalized_name, names))), len(containers)


def normalized_name(image: str) -> str:
    """The name with a tag, ``latest`` where it has none; one with a digest has a colon and stays as it is."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
