"""``spec.strategies`` in the definition: a map from a strategy's name to what every strategy may say.

In Python each strategy is a type of its own. An object with a property per strategy would be the plain schema of that,
but the API server prunes properties that it doesn't know without a word unless the client asks for strict validation:
a misspelt strategy would vanish. The keys of a map are data and stay, so that a rule can refuse the unknown ones by
name, whatever the client. The price is one schema for all strategies' values; who may use which parameter, and what an
enabled strategy needs, are rules as well. All of it is made from :class:`trimtab.api.strategies.Strategies`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, get_args, get_type_hints

from trimtab.api.base import Rule
from trimtab.api.schema import Schema, structural_schema
from trimtab.api.strategies import STRATEGIES, Strategies, Strategy

_MAX_STRATEGIES: Final = 32
_VALUE_PARTS: Final = {"type", "description", "properties"}


def strategies_schema() -> Schema:
    """The map with its rules.

    Raises:
        TypeError: two strategies give one parameter different schemas, or a strategy asks for what a shared schema
            cannot say (a required parameter, a rule beside its parameters).
    """
    by_name = structural_schema(Strategies)["properties"]
    params, owners = _union_of_params(by_name)
    lines = [f"{name}: {schema['description']}" for name, schema in by_name.items()]
    return {
        "type": "object",
        "description": "The strategies by name, each with enabled and params. " + " ".join(lines),
        "minProperties": 1,
        "maxProperties": _MAX_STRATEGIES,
        "additionalProperties": {
            "type": "object",
            "description": "A strategy: whether it runs, and its parameters.",
            "properties": {
                "enabled": next(iter(by_name.values()))["properties"]["enabled"],
                "params": {"type": "object", "description": "The strategy's parameters.", "properties": params},
            },
        },
        "x-kubernetes-validations": [
            rule.wire()
            for rule in (_known(), *_ownership(owners), *_words(by_name, params), *_needs(), *Strategies.cel)
        ],
    }


def _union_of_params(by_name: Mapping[str, Schema]) -> tuple[dict[str, Schema], dict[str, tuple[str, ...]]]:
    """Every parameter's schema, and which strategies have it.

    Strategies may mean different things by a parameter of one name, and let it hold different words of a list: all
    descriptions and all words are told, and :func:`_words` has the rules.
    """
    params: dict[str, Schema] = {}
    owners: dict[str, tuple[str, ...]] = {}
    told: dict[str, dict[str, tuple[str, ...]]] = {}
    for name, strategy in by_name.items():
        own = strategy["properties"]["params"]
        for place, schema in ((name, strategy), (f"{name}.params", own)):
            if beyond := set(schema) - _VALUE_PARTS:
                raise TypeError(f"{place}: strategies share one schema, which cannot have {', '.join(sorted(beyond))}")
        for param, schema in own.get("properties", {}).items():
            # A default would be written into every strategy, also into those that don't have the parameter.
            bare = {key: value for key, value in schema.items() if key not in ("default", "description")}
            known = params.setdefault(param, bare)
            if _wordless(known) != _wordless(bare):
                raise TypeError(f"{name}.params.{param}: differs from the parameter of {', '.join(owners[param])}")
            if "enum" in bare.get("items", ()):
                words = sorted({*known["items"]["enum"], *bare["items"]["enum"]})
                params[param] = {**known, "items": {**known["items"], "enum": words}}
            owners[param] = (*owners.get(param, ()), name)
            texts = told.setdefault(param, {})
            texts[schema["description"]] = (*texts.get(schema["description"], ()), name)
    for param, texts in told.items():
        text = " ".join(f"{' and '.join(names)}: {description}" for description, names in texts.items())
        params[param] = {"description": text, **params[param]}
    return params, owners


def _wordless(schema: Schema) -> Schema:
    """A schema without the words that the items of a list may be."""
    if "enum" not in schema.get("items", ()):
        return schema
    return {**schema, "items": {key: value for key, value in schema["items"].items() if key != "enum"}}


def _known() -> Rule:
    names = _cel(STRATEGIES)
    return Rule(
        rule=f"self.all(k, k in {names})",
        message=f"unknown strategy; allowed are {', '.join(STRATEGIES)}",
        expression=f"'unknown strategy %s; allowed are {', '.join(STRATEGIES)}'"
        f".format([self.filter(k, !(k in {names}))])",
    )


def _ownership(owners: Mapping[str, tuple[str, ...]]) -> list[Rule]:
    return [
        Rule(
            rule=f"self.all(k, k in {_cel(names)} || !has(self[k].params) || !has(self[k].params.{param}))",
            message=f"params.{param} belongs to {' and '.join(names)} only",
            expression=f"'params.{param} belongs to {' and '.join(names)}, not to %s'.format([self.filter(k, "
            f"!(k in {_cel(names)}) && has(self[k].params) && has(self[k].params.{param}))])",
            reason="FieldValueForbidden",
        )
        for param, names in owners.items()
    ]


def _words(by_name: Mapping[str, Schema], params: Mapping[str, Schema]) -> list[Rule]:
    """Which words of a list that several strategies have belong to which of them."""
    rules = []
    for name, strategy in by_name.items():
        for param, schema in strategy["properties"]["params"].get("properties", {}).items():
            words = schema.get("items", {}).get("enum")
            if words is None or set(words) == set(params[param]["items"]["enum"]):
                continue
            own = f"self['{name}']"
            rules.append(
                Rule(
                    rule=f"!('{name}' in self) || !has({own}.params) || !has({own}.params.{param}) || "
                    f"{own}.params.{param}.all(w, w in {_cel(tuple(words))})",
                    message=f"{name}.params.{param} allows {', '.join(words)} only",
                )
            )
    return rules


def _needs() -> list[Rule]:
    rules = []
    for name, cls in strategy_types().items():
        own = f"self['{name}']"
        needs: list[tuple[tuple[str, ...], str]] = [
            ((param,), f"{name}.params.{param} is required") for param in cls.needs
        ]
        if cls.needs_one_of:
            needs.append((cls.needs_one_of, f"{name}.params needs at least one of {', '.join(cls.needs_one_of)}"))
        for alternatives, message in needs:
            given = " || ".join(f"has({own}.params.{param})" for param in alternatives)
            rules.append(
                Rule(
                    rule=f"!('{name}' in self) || !{own}.enabled || (has({own}.params) && ({given}))",
                    message=f"{message} where {name} is enabled",
                    reason="FieldValueRequired",
                )
            )
        if cls.at_most_one_of:
            flags = ", ".join(f"has({own}.params.{param})" for param in cls.at_most_one_of)
            rules.append(
                Rule(
                    rule=f"!('{name}' in self) || !has({own}.params) || [{flags}].filter(given, given).size() <= 1",
                    message=f"{name}.params: {' and '.join(cls.at_most_one_of)} cannot be given together",
                    reason="FieldValueForbidden",
                )
            )
    return rules


def strategy_types() -> dict[str, type[Strategy]]:
    """Each strategy's class by its name in the API."""
    hints = get_type_hints(Strategies)
    found = {}
    for name, attribute in zip(Strategies.__struct_encode_fields__, Strategies.__struct_fields__, strict=True):
        found[name] = next(cls for cls in get_args(hints[attribute]) if issubclass(cls, Strategy))
    return found


def _cel(values: tuple[str, ...]) -> str:
    return "[" + ", ".join(f"'{value}'" for value in values) + "]"
