"""Whatever bytes a file or the API server holds, reading them ends with objects or with an InputError, and soon.

`make fuzz` runs these tests with many more examples.
"""

from __future__ import annotations

import copy
import io
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.validity.objects import OBJECTS
from trimtab.kube.errors import InputError
from trimtab.kube.printable import CONTROLS, printable
from trimtab.kube.rules.quantity import QuantityError, amount
from trimtab.kube.rules.selectors import SelectorError, parse_field_selector, parse_label_selector
from trimtab.kube.wire.decode import decode_object
from trimtab.kube.wire.files.reader import read_objects
from trimtab.kube.wire.files.strict_yaml import load_all
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.json_codec import JsonCodec
from trimtab.kube.wire.protobuf import ProtobufCodec

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["1Gi", "-1", "1e99", "*"])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8
)
YAML_PARTS = st.sampled_from(
    [
        "a: ",
        "- ",
        "&x ",
        "*x",
        "<<: ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "\n",
        "  ",
        "!!binary ",
        "|\n",
        "'",
        '"',
        "# ",
        "? ",
        "0x1",
    ]
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in a manifest."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [path, *(place for key, below in inner for place in places(below, (*path, key)))]


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """A valid manifest with a few of its values replaced by arbitrary ones."""
    manifest = copy.deepcopy(draw(st.sampled_from(list(OBJECTS.values()))))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(places(manifest)[1:] or [("kind",)]))
        target: Any = manifest
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = draw(VALUES)
    return manifest


@given(mutated())
def test_a_manifest_with_arbitrary_values_is_read_or_refused(manifest: dict[str, Any]) -> None:
    with suppress(InputError):
        decode_object(manifest)


@given(mutated())
def test_a_file_with_arbitrary_values_is_read_or_refused(manifest: dict[str, Any]) -> None:
    try:
        text = msgspec.json.encode(manifest)
    except UnicodeEncodeError:
        return  # a lone surrogate: such a text cannot be in a file
    with suppress(InputError):
        read_objects(io.BytesIO(text))


@given(
    st.binary(max_size=200)
    | st.lists(YAML_PARTS | st.text(max_size=3), max_size=40).map(lambda p: "".join(p).encode(errors="replace"))
)
def test_arbitrary_yaml_is_read_or_refused(text: bytes) -> None:
    with suppress(InputError):
        load_all(text)


@pytest.mark.parametrize("kind", ["Pod", "Node", "PersistentVolume", "PodDisruptionBudget", "Lease"])
@given(data=st.data())
def test_arbitrary_protobuf_is_read_or_refused(kind: str, data: st.DataObject) -> None:
    codec = ProtobufCodec(kind, Interner())
    raw = data.draw(st.binary(max_size=300))
    for read in (codec.decode, codec.frame, codec.metadata):
        with suppress(InputError):
            read(raw)


@pytest.mark.parametrize("kind", ["Pod", "MachineSet"])
@given(data=st.data())
def test_arbitrary_json_of_the_server_is_read_or_refused(kind: str, data: st.DataObject) -> None:
    codec = JsonCodec(kind, Interner())
    raw = data.draw(st.binary(max_size=100) | VALUES.filter(_is_unicode).map(msgspec.json.encode))
    for read in (codec.decode, codec.frame, codec.metadata):
        with suppress(InputError):
            read(raw)


def _is_unicode(value: Any) -> bool:
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return False
    return True


@given(st.text(alphabet="0123456789.eEKMGTPinumk+- ", max_size=30) | st.text(max_size=10))
def test_an_arbitrary_quantity_is_an_amount_or_refused(text: str) -> None:
    with suppress(QuantityError):
        assert isinstance(amount(text), int)


@given(st.text(alphabet="ab/.-_=!<>(), in\\", max_size=40) | st.text(max_size=10))
def test_an_arbitrary_selector_is_parsed_or_refused(text: str) -> None:
    for parse in (parse_label_selector, parse_field_selector):
        with suppress(SelectorError, InputError):
            parse(text)


@given(st.text())
def test_printable_text_holds_no_control_characters(text: str) -> None:
    shown = printable(text)
    assert CONTROLS.search(shown) is None
    assert shown == text or CONTROLS.search(text)
