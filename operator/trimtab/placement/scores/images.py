"""ImageLocality: prefers nodes that already have the pod's images, weighted by size."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Set
from typing import ClassVar, Final

import numpy as np

from trimtab.cluster.node_table import NodeTable
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import NO_RESOURCES, ResourceList
from trimtab.kube.objects import Pod, PodSpec
from trimtab.placement.interface import MAX_SCORE, NO_KEYS

_MB: Final = 1024 * 1024
_LEAST: Final = 23 * _MB
_MAX_PER_CONTAINER: Final = 1000 * _MB
_KEPT: Final = 256
"""Maximum number of cached score arrays: 16 MiB for 8,192 slots."""
_SPECS: Final = 16_384

Asked = tuple[tuple[str, ...], int]
"""The image names of a pod, sorted and possibly with duplicates, and the number of its containers."""


class ImageLocality:
    """Scores nodes by the total size of the pod's images on them.

    Each size is scaled by the share of nodes with the image.

    A total of up to 23 MiB scores 0, and one of 1000 MiB per container or more scores 100. The score is not normalized.
    Images of init containers and image volumes are included in the sum, but image volumes do not count as containers.
    Source: kube-scheduler v1.36 ``imagelocality``.

    The scheduler uses the size of an image on the node that it saw first, in random order at startup. trimtab uses the
    first node by name. The scheduler updates the number of nodes with an image only for nodes that change; trimtab uses
    the current number.
    """

    name: ClassVar = "ImageLocality"
    weight: ClassVar = 1

    def __init__(self, snapshot: Snapshot) -> None:
        self._nodes = snapshot.nodes
        self._images = ImageIndex(snapshot.nodes)
        self._asked: dict[int, tuple[PodSpec, Asked]] = {}
        self._kept: dict[Asked, IntArray | int] = {}
        self._version = -1
        snapshot.nodes.caches.add(self)

    def forget_removed(self, used: Set[int]) -> None:
        """See :class:`~trimtab.cluster.node_table.SpecCache`."""
        self._asked = {key: each for key, each in self._asked.items() if key in used}
        self._kept.clear()

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
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

    def coupled_by(self, pod: Pod) -> frozenset[str]:
        return NO_KEYS

    def _asks(self, spec: PodSpec) -> Asked:
        found = self._asked.get(id(spec))
        if found is None:
            if len(self._asked) >= _SPECS:
                self._asked.clear()
            found = self._asked[id(spec)] = (spec, images_of(spec))  # keeps the spec alive
        return found[1]

    def _compute(self, names: tuple[str, ...], containers: int) -> IntArray | int:
        worth = [(slots, self._worth(name, slots)) for name in names if len(slots := self._images.slots(name))]
        if sum(bytes_ for _, bytes_ in worth) <= _LEAST:
            return 0
        total = np.zeros(self._nodes.capacity, dtype=np.int64)
        for slots, bytes_ in worth:
            total[slots] += bytes_
        most = _MAX_PER_CONTAINER * containers
        found: IntArray = MAX_SCORE * (np.clip(total, _LEAST, most) - _LEAST) // (most - _LEAST)
        return found

    def _worth(self, name: str, slots: IntArray) -> int:
        """Return the size of an image in bytes, scaled by the share of nodes that have the image and rounded down."""
        return int(self._images.size(name) * (len(slots) / len(self._nodes)))


class ImageIndex:
    """Indexes which nodes have each image. Only nodes whose images changed are read again.

    Args:
        nodes: the node table.
    """

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._slots: defaultdict[str, array[int]] = defaultdict(lambda: array("i"))  # 4 bytes per node with the image
        self._seen: list[ResourceList] = []

    @property
    def any(self) -> bool:
        """Return whether any node reports images."""
        return bool(self._slots)

    def refresh(self) -> None:
        """Update the index from the node table."""
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
        """Return the slots whose nodes have an image: int64, in no particular order."""
        return np.array(self._slots.get(name, ()), dtype=np.int64)

    def size(self, name: str) -> int:
        """Return the size of an image in bytes, as reported by the first node by name that has it."""
        slots = self.slots(name)
        first = int(slots[self._nodes.rank()[slots].argmin()])
        return self._nodes.node(first).images[name]


def images_of(spec: PodSpec) -> Asked:
    """Return the normalized image names of a pod, and the number of its containers."""
    containers = (*spec.init_containers, *spec.containers)
    names = [container.image for container in containers]
    names += [volume.disk[0] for volume in spec.volumes if volume.kind == "image" and volume.disk]
    return tuple(sorted(map(normalized_name, names))), len(containers)


def normalized_name(image: str) -> str:
    """Return an image name with the tag ``latest`` if it has neither a tag nor a digest."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
