"""Priority: the groups that a ConfigMap puts first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

import msgspec

from trimtab.autoscaling.scale_up.expanders.expander import AnyOption, Context
from trimtab.kube.errors import InputError

CONFIG_MAP: Final = "cluster-autoscaler-priority-expander"
"""The ConfigMap's name, upstream's."""

KEY: Final = "priorities"
"""Its key, with YAML: priorities, each with a list of regular expressions."""

_FIELD: Final = f"data[{KEY}]"


def read_priorities(data: Mapping[str, str]) -> dict[int, tuple[str, ...]]:
    """What the ConfigMap's data say.

    Upstream takes no notice of the whole ConfigMap if anything in it cannot be read, and tells it in an event that few
    look for. So whoever reads it here must say what is wrong.

    Args:
        data: of the ConfigMap.

    Raises:
        InputError: it cannot be read; the field names the place.
    """
    if KEY not in data:
        raise InputError(f"must have the key {KEY}", field="data")
    try:
        found = msgspec.yaml.decode(data[KEY])
    except msgspec.DecodeError as error:
        raise InputError(f"is no YAML: {error}", field=_FIELD) from None
    if not isinstance(found, dict) or not found:
        raise InputError('must be priorities with lists of regular expressions, e.g. 10: [".*spot.*"]', field=_FIELD)
    return {_number(key): _patterns(key, value) for key, value in found.items()}


def _number(key: object) -> int:
    try:
        return int(str(key))
    except ValueError:
        raise InputError(f"a priority must be a whole number, not {key!r}", field=_FIELD) from None


def _patterns(key: object, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise InputError(f"priority {key} must have a list of regular expressions, not {value!r}", field=_FIELD)
    for pattern in value:
        try:
            re.compile(pattern)
        except re.error as error:
            raise InputError(f"priority {key}: {pattern!r} is no regular expression: {error}", field=_FIELD) from None
    return tuple(value)


class Priority:
    """The groups of the highest priority, by the ConfigMap ``cluster-autoscaler-priority-expander`` (upstream's).

    A regular expression may match anywhere in a group's id, e.g. ``MachineSet/openshift-machine-api/workers-a``. Groups
    that none matches are not chosen while there is one that some matches. Without the ConfigMap, or where it matches
    no group, the next expander decides.
    """

    name: ClassVar = "Priority"

    def best(self, options: Sequence[AnyOption], context: Context) -> Sequence[AnyOption]:
        """Those of the highest priority."""
        for priority in sorted(context.priorities, reverse=True):
            patterns = context.priorities[priority]
            found = [each for each in options if any(re.search(pattern, each.group.id) for pattern in patterns)]
            if found:
                return found
        return options
