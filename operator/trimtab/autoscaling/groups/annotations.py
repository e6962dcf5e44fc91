"""What a group's annotations say of its sizes and options. What cannot be read is told, and never guessed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.go_durations import parse_go_duration
from trimtab.autoscaling.groups.keys import MAX_SIZE, MIN_SIZE, OPTIONS
from trimtab.autoscaling.groups.node_group import GroupOptions, Problem
from trimtab.kube.objects import AnyMachineSet

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}")
_NUMBER: Final = re.compile(r"[0-9]*[.]?[0-9]+|[0-9]+[.]")
_INT32: Final = 2**31 - 1


class Limits(Struct, frozen=True):
    """The smallest and the largest size of a group."""

    minimum: int
    maximum: int


def problem(source: AnyMachineSet, reason: str, message: str) -> Problem:
    """Something that is wrong with a group's object."""
    return Problem(source.kind, source.namespace, source.name, reason, message)


def annotated_limits(source: AnyMachineSet) -> Limits | Problem | None:
    """The limits that the annotations say; ``None`` where there are none, so that it is no group.

    Upstream takes one that is missing for 0. Here both must be there: a set would shrink to nothing because an
    annotation was lost, or was misspelt.
    """
    prefix = f"{source.api_group}/"
    keys = (prefix + MIN_SIZE, prefix + MAX_SIZE)
    texts = [source.annotations.get(key) for key in keys]
    if texts == [None, None]:
        return None
    sizes = []
    for key, text in zip(keys, texts, strict=True):
        if text is None:
            return problem(source, reasons.INVALID_LIMITS, f"has no annotation {key}: both sizes must be given")
        size = int(text) if _INTEGER.fullmatch(text) else -1
        if not 0 <= size <= _INT32:
            message = f"annotation {key} must be a whole number from 0 on, not {text!r}"
            return problem(source, reasons.INVALID_LIMITS, message)
        sizes.append(size)
    if sizes[1] < sizes[0]:
        message = (
            f"annotation {keys[1]} must be at least that for the smallest size: {sizes[1]} is less than {sizes[0]}"
        )
        return problem(source, reasons.INVALID_LIMITS, message)
    return Limits(*sizes)


def annotated_options(source: AnyMachineSet) -> tuple[GroupOptions, tuple[Problem, ...]]:
    """What the annotations want otherwise, and which of them cannot be read. Empty ones say nothing, as upstream."""
    found: dict[str, float] = {}
    problems = []
    prefix = f"{source.api_group}/{OPTIONS}"
    for key, text in sorted(source.annotations.items()):
        option = GROUP_OPTIONS.get(key.removeprefix(prefix)) if key.startswith(prefix) else None
        if option is None:
            if key.startswith(prefix):
                message = f"annotation {key} is no option: allowed are {', '.join(GROUP_OPTIONS)} after {prefix}"
                problems.append(problem(source, reasons.INVALID_ANNOTATION, message))
            continue
        name, parse = option
        try:
            if text:
                found[name] = parse(text.lower())
        except ValueError as error:
            problems.append(problem(source, reasons.INVALID_ANNOTATION, f"annotation {key} {error}"))
    return GroupOptions(**found), tuple(problems)


def _share(text: str) -> float:
    if not _NUMBER.fullmatch(text) or not 0 <= float(text) <= 1:
        raise ValueError(f"must be a share between 0 and 1, e.g. 0.5; not {text!r}")
    return float(text)


GROUP_OPTIONS: Final[dict[str, tuple[str, Callable[[str], float]]]] = {
    "scaledownutilizationthreshold": ("utilization_threshold", _share),
    "scaledowngpuutilizationthreshold": ("gpu_utilization_threshold", _share),
    "scaledownunneededtime": ("unneeded_seconds", parse_go_duration),
    "scaledownunreadytime": ("unready_seconds", parse_go_duration),
    "maxnodeprovisiontime": ("provision_seconds", parse_go_duration),
    "maxnodestartuptime": ("startup_seconds", parse_go_duration),
}
"""Upstream's options by the last part of their annotations' keys."""
