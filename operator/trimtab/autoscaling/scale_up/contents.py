"""The pods of an option, for whoever is asked about it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from trimtab.autoscaling.scale_up.counted import CountedOption
from trimtab.autoscaling.scale_up.option import Option
from trimtab.autoscaling.scale_up.together import TogetherOption
from trimtab.autoscaling.scale_up.waiting import Waiting
from trimtab.kube.objects import Pod


def pods_of(option: Option, waiting: Waiting) -> Iterator[Pod]:
    """The pods that an option would take, of those that wait."""
    if isinstance(option, TogetherOption):
        return (pod for node in option.filled for _, pod in node)
    if isinstance(option, CountedOption):
        placed = option.packing.placed.items()
        return chain.from_iterable(islice(waiting.pods(number), count) for number, count in placed)
    return iter(())
