"""Generates the structs for JSON and YAML from the schema of the protobuf messages, see ``slim.proto``.

``python -m tools.generate.wire [--check]`` writes or checks them without the dependencies of other generated files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from tools.generate import ROOT
from trimtab.kube.wire import slim_pb2
from trimtab.kube.wire.identity import GROUPS

WIRE: Final = ROOT / "operator" / "trimtab" / "kube" / "wire"

_HEAD: Final = '''"""The messages of ``slim.proto`` as structs, for JSON and YAML.

Made by `make proto`: change the schema, not this file.
"""

from __future__ import annotations

from msgspec import field

from trimtab.kube.wire.json_base import FieldsV1, Int32, Int64, Message, Quantities, Quantity, Time
'''

_SCALARS: Final = {
    FieldDescriptor.TYPE_STRING: ("str", '""'),
    FieldDescriptor.TYPE_BOOL: ("bool", "False"),
    FieldDescriptor.TYPE_INT32: ("Int32", "0"),
    FieldDescriptor.TYPE_INT64: ("Int64", "0"),
}
_SPECIAL: Final = {"Time": "Time", "MicroTime": "Time", "Quantity": "Quantity", "FieldsV1": "FieldsV1"}
_NEVER_ABSENT: Final = frozenset({"metadata", "spec", "status"})


def wire_files() -> dict[Path, str]:
    """Return the generated module."""
    return {WIRE / "slim_json.py": _HEAD + "".join(map(_struct, _messages()))}


def _messages() -> list[Descriptor]:
    """Return the messages of all kinds, each after those that it refers to."""
    found: dict[str, Descriptor] = {}

    def visit(message: Descriptor) -> None:
        if message.name in found or message.name in _SPECIAL:
            return
        for each in message.fields:
            if each.message_type is not None:
                visit(each.message_type)
        if not message.GetOptions().map_entry:
            found[message.name] = message

    for kind in GROUPS:
        message = slim_pb2.DESCRIPTOR.message_types_by_name.get(kind)
        if message is not None:
            visit(message)
    return list(found.values())


def _struct(message: Descriptor) -> str:
    inlined = [each for each in message.fields if each.GetOptions().Extensions[slim_pb2.inline]]
    base = inlined[0].message_type.name if inlined else "Message"
    lines = [f"    {_attribute(each)}" for each in message.fields if each not in inlined]
    for each in inlined:
        lines += ["", "    @property", f"    def {each.name}(self) -> {base}:", "        return self"]
    return "\n\n" + "\n".join([f"class {message.name}({base}):", *(lines or ["    pass"])]) + "\n"


def _attribute(each: FieldDescriptor) -> str:
    type_, default = _type(each)
    key = "" if each.json_name == _in_camel_case(each.name) else f'name="{each.json_name}", '
    factory = {"[]": "list", "{}": "dict", type_: type_}.get(default)
    if factory is not None and (key or factory == type_):
        value = f"field({key}default_factory={factory})"
    else:
        value = f"field({key}default={default})" if key else default
    return f"{each.name}: {type_} = {value}"


def _type(each: FieldDescriptor) -> tuple[str, str]:
    """Return the annotation of a field and its default."""
    of_map = _value_of_map(each)
    if of_map is not None:
        return ("Quantities" if of_map.name == "Quantity" else f"dict[str, {_SPECIAL[of_map.name]} | None]"), "{}"
    inner = each.message_type
    if inner is not None and inner.GetOptions().map_entry:
        return "dict[str, str]", "{}"
    if each.is_repeated:
        return f"list[{inner.name if inner is not None else _SCALARS[each.type][0]}]", "[]"
    options = each.GetOptions()
    if inner is None:
        scalar, zero = _SCALARS[each.type]
        return (f"{scalar} | None", "None") if options.Extensions[slim_pb2.pointer] else (scalar, zero)
    name = _SPECIAL.get(inner.name, inner.name)
    absent = each.name not in _NEVER_ABSENT
    if options.HasExtension(slim_pb2.pointer):
        absent = options.Extensions[slim_pb2.pointer]
    return (f"{name} | None", "None") if absent else (name, name)


def _value_of_map(each: FieldDescriptor) -> Descriptor | None:
    """Return the message type of a map's values, or ``None``."""
    inner = each.message_type
    if inner is None or not inner.GetOptions().map_entry:
        return None
    value: Descriptor | None = inner.fields_by_name["value"].message_type
    return value


def _in_camel_case(name: str) -> str:
    """Return the key that ``rename="camel"`` gives a field."""
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; end with status 1 if the file is not up to date.")
def main(*, check: bool) -> None:
    """Write or check the structs."""
    for path, text in wire_files().items():
        if not check:
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            raise click.ClickException(f"{path.name}: not up to date; `make proto` writes it")


if __name__ == "__main__":
    main()
