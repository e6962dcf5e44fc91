"""What tests read from the schemas of the CRDs."""

from __future__ import annotations

from typing import Any


def rule_messages(schema: Any) -> set[str]:
    """Return the messages of the CEL rules of a schema and of its fields and items."""
    found = {rule["message"] for rule in schema.get("x-kubernetes-validations", ())}
    inner = [*schema.get("properties", {}).values(), *filter(None, [schema.get("items")])]
    return found.union(*(rule_messages(each) for each in inner))
