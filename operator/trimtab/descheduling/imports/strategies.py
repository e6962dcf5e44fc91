"""Strategies as a foreign policy asks for them, and the policies that they make.

In the descheduler project each strategy has its own namespaces and labels; here a policy has them for all of its
strategies. So strategies that look at the same pods share a policy, and others get one of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from trimtab.api.decode import InvalidObject
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.descheduling.imports.catalogue import SCOPE, own_params
from trimtab.descheduling.imports.draft import Draft, Findings, Imported, object_name, without_nulls
from trimtab.descheduling.imports.fields import take_scope


class Asked(Struct, kw_only=True):
    """One strategy as a document asks for it.

    Attributes:
        name: the strategy's.
        place: where its arguments stand in the document.
        nest: where those stand that trimtab has one deeper.
        args: v1alpha2's name of each argument to its value; those of the scope left out.
        places: where each of the arguments stands.
        scope: which pods it looks at.
        enabled: whether it runs.
    """

    name: str
    place: str
    nest: str = ""
    args: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    scope: Draft = field(default_factory=Draft)
    enabled: bool = True

    def take(self, key: str, value: Any, place: str, findings: Findings) -> None:
        """Take an argument, which may be one of the scope."""
        value = without_nulls(value)
        if key in SCOPE:
            take_scope(self.scope, key, value, place, findings)
        else:
            self.args[key] = value
            self.places[key] = place

    def put(self, draft: Draft) -> None:
        """Put the strategy into a draft, its arguments where trimtab's type of it has them."""
        path = f"strategies.{self.name}"
        draft.put(f"{path}.enabled", self.enabled, f"{self.place}.enabled")
        draft.origins[f"spec.{path}.params"] = self.place
        own = own_params(self.name)
        for key, value in self.args.items():
            nest, dot, _ = own[key].rpartition(".")
            if dot:  # where the nest itself is to be blamed, the arguments are
                draft.origins[f"spec.{path}.params.{nest}"] = self.nest or self.place
            draft.put(f"{path}.params.{own[key]}", value, self.places[key])


def drafts(
    base: str, common: Draft, asked: Sequence[Asked], *, place: str, findings: Findings
) -> list[tuple[str, Draft]]:
    """The policies that strategies make, by name, one for each scope.

    Args:
        base: the name, where one policy will do; others are called after it and their first strategy.
        common: what all of them share.
        asked: the strategies; those that are off go into the first policy.
        place: where in the document they are from, for the note that there will be several policies.
        findings: what is to be told.
    """
    groups: dict[object, list[Asked]] = {}
    running = [each for each in asked if each.enabled]
    for each in running:
        groups.setdefault(_comparable(each.scope.spec), []).append(each)
    members = list(groups.values()) or [[]]
    members[0] = [*members[0], *(each for each in asked if not each.enabled)]
    made = []
    for group in members:
        name = base if len(members) == 1 else f"{base}-{object_name(group[0].name)}"
        draft = common.joined(group[0].scope) if running else common.joined(Draft())
        draft.origins["spec.strategies"] = place
        for each in group:
            each.put(draft)
        made.append((name, draft))
    if len(made) > 1:
        names = ", ".join(name for name, _ in made)
        findings.warn(
            place,
            "its strategies do not all look at the same pods, and a policy has one scope: it becomes the "
            f"{len(made)} policies {names}",
        )
    return made


def _comparable(value: Any) -> object:
    """The value as a key; what YAML gave may hold anything."""
    if isinstance(value, Mapping):
        return frozenset((str(key), _comparable(item)) for key, item in value.items())
    if isinstance(value, list):
        return tuple(_comparable(item) for item in value)
    return repr(value)


def finish(
    made: Sequence[tuple[str, Draft]], findings: Findings, *, source: str, described: str, total: str
) -> Imported:
    """All drafts of a document as policies.

    Args:
        made: name and draft of each.
        findings: what is to be told so far.
        source: where the document came from, for messages.
        described: what it calls itself.
        total: where it limits the evictions of a whole cycle; ``""`` where it does not.

    Raises:
        InvalidObject: something is wrong with the document.
    """
    done: list[tuple[DeschedulerPolicy, dict[str, Any]]] = []
    for name, draft in made:
        if len(made) > 1 and total:
            message = f"held for all strategies together; here each of the {len(made)} policies may evict as many"
            findings.warn(total, message)
        finished = draft.finish(name, findings)
        if finished is not None:
            done.append(finished)
    if findings.errors:
        raise InvalidObject(tuple(dict.fromkeys(findings.errors)), source=source, object=described)
    policies, documents = zip(*done, strict=True) if done else ((), ())
    return Imported(tuple(policies), tuple(documents), tuple(findings.warnings))


def mapping(value: Any, place: str, findings: Findings) -> Mapping[str, Any]:
    """A mapping without keys that say nothing; empty for nothing, and for another kind of value, which is noted."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        findings.error(place, "must be a mapping")
        return {}
    return {str(key): item for key, item in value.items() if item is not None}
