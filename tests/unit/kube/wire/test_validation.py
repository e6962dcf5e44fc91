"""Validation of objects in files: errors name file, object and field."""

import contextlib
import io
import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import node, pod
from tests.fixtures.golden import Golden
from tests.validity.objects import OBJECTS
from tests.validity.tables import Row, changed, rows
from trimtab.kube.errors import InputError
from trimtab.kube.wire import decode
from trimtab.kube.wire.decode import decode_json, decode_object
from trimtab.kube.wire.files.reader import read_objects

FAULTS = rows("faults")
SOUND = rows("sound")


def as_json(*manifests: dict[str, Any]) -> bytes:
    return "\n".join(map(json.dumps, manifests)).encode()


def as_yaml(*manifests: dict[str, Any]) -> bytes:
    return yaml.safe_dump_all(manifests).encode()


def as_list(*manifests: dict[str, Any]) -> bytes:
    return as_json({"apiVersion": "v1", "kind": "List", "items": list(manifests)})


def as_yaml_list(*manifests: dict[str, Any]) -> bytes:
    return as_yaml({"apiVersion": "v1", "kind": "List", "items": list(manifests)})


def read(text: bytes) -> Any:
    return read_objects(io.BytesIO(text)).objects


def label(manifest: dict[str, Any]) -> str:
    metadata = manifest["metadata"]
    return "/".join(filter(None, [manifest["kind"], metadata.get("namespace", ""), metadata["name"]]))


@pytest.mark.parametrize("shape", [as_json, as_yaml])
def test_valid_objects_are_read(shape):
    assert {kind: len(read(shape(manifest))) for kind, manifest in OBJECTS.items()} == dict.fromkeys(OBJECTS, 1)


@pytest.mark.parametrize("row", FAULTS, ids=lambda row: row.id)
def test_invalid_fields_are_refused_with_object_and_field(row: Row):
    manifest = row.manifest
    for shape in (as_json, as_yaml):
        with pytest.raises(InputError) as caught:
            read(shape(manifest))
        assert str(caught.value).startswith(f"-: {label(manifest)}: {row.named}: ")
        assert row.says in caught.value.message


@pytest.mark.parametrize("row", SOUND, ids=lambda row: row.id)
def test_unusual_but_valid_objects_are_read(row: Row):
    for shape in (as_json, as_yaml):
        [value] = read(shape(row.manifest))
        assert type(value).__name__ == row.kind
        assert value == decode_object(row.manifest)


SHAPES = {"JSON lines": as_json, "YAML documents": as_yaml, "a JSON list": as_list, "a YAML list": as_yaml_list}
BAD = [
    changed("Pod", "spec.containers[0].ports[0].hostPort", 70000),
    changed("Node", "spec.taints[0].effect", "Never"),
    changed("PersistentVolume", "spec.volumeMode", "Disk"),
]
GOOD = [changed("Pod", "metadata.name", "web-2"), changed("Node", "metadata.name", "n2")]
MESSAGES = [
    "Pod/shop/web-1: spec.containers[0].ports[0].hostPort: must be between 1 and 65535, not 70000",
    "Node/n1: spec.taints[0].effect: must be NoSchedule, PreferNoSchedule or NoExecute, not 'Never'",
    "PersistentVolume/pv-1: spec.volumeMode: must be Block or Filesystem, not 'Disk'",
]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_invalid_objects_of_a_file_can_be_skipped(tmp_path, shape):
    path = tmp_path / "cluster"
    path.write_bytes(shape(BAD[0], GOOD[0], BAD[1], GOOD[1], BAD[2]))
    errors: list[InputError] = []
    found = read_objects(path, skip_invalid=errors.append).objects
    assert [value.key for value in found] == ["shop/web-2", "n2"]
    assert [str(error) for error in errors] == [f"{path}: {recorded}" for recorded in MESSAGES]
    with pytest.raises(InputError) as caught:
        read_objects(path)
    assert str(caught.value) == f"{path}: {MESSAGES[0]}"


def test_errors_in_a_folder_name_the_file(tmp_path):
    (tmp_path / "a.yaml").write_bytes(as_yaml(GOOD[0], BAD[1]))
    (tmp_path / "b.json").write_bytes(as_list(BAD[0], GOOD[1]))
    errors: list[InputError] = []
    found = read_objects(tmp_path, skip_invalid=errors.append).objects
    assert [value.key for value in found] == ["shop/web-2", "n2"]
    assert [str(error) for error in errors] == [
        f"{tmp_path / 'a.yaml'}: {MESSAGES[1]}",
        f"{tmp_path / 'b.json'}: {MESSAGES[0]}",
    ]


def test_every_pod_of_an_invalid_template_is_reported():
    pods = [changed("Pod", "metadata.name", f"web-{number}") for number in range(3)]
    for manifest in pods:
        manifest["spec"]["tolerations"][0]["effect"] = "Never"
    errors: list[InputError] = []
    assert read_objects(io.BytesIO(as_list(*pods, GOOD[1])), skip_invalid=errors.append).objects == read(
        as_json(GOOD[1])
    )
    assert [error.object for error in errors] == ["Pod/shop/web-0", "Pod/shop/web-1", "Pod/shop/web-2"]


def test_specs_that_pods_share_are_validated_once(monkeypatch):
    validated = []
    monkeypatch.setattr(decode, "validate", lambda _message, path: validated.append(path))
    pods = [pod(f"web-{number}").labels(app="web").on(f"n{number}").manifest() for number in range(20)]
    assert len(read(as_list(*pods))) == 20
    assert validated.count("spec") == 1
    assert validated.count("status") == 20


@pytest.mark.parametrize("row", FAULTS, ids=lambda row: row.id)
def test_objects_of_an_api_server_are_not_validated(row: Row):
    """Except for what cannot become a value at all: wrong types, integers beyond their size, amounts, missing names."""
    never = ("quantity", "negative", "is required", "expected", "must be at most")
    with contextlib.suppress(InputError):
        value = decode_json(row.kind, json.dumps(row.manifest).encode())
        assert type(value).__name__ == row.kind
        return
    assert any(word in row.says for word in never)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(inner for key, item in children for inner in places(item, (*path, key)))]


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from([2**31, 2**63, 10**40, -1, 0]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
PLACES = [(kind, place) for kind, manifest in OBJECTS.items() for place in places(manifest) if place]


@given(place=st.sampled_from(PLACES), value=ANYTHING, shape=st.sampled_from([as_json, as_yaml]))
def test_any_value_of_a_field_is_read_or_reported(place, value, shape):
    kind, path = place
    manifest = json.loads(json.dumps(OBJECTS[kind]))
    parent = manifest
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = value
    errors: list[InputError] = []
    found = read_objects(io.BytesIO(shape(manifest, node("good").manifest())), skip_invalid=errors.append)
    assert found.objects[-1].key == "good"
    for error in errors:
        assert error.message
        if path[0] not in ("kind", "apiVersion", "metadata"):
            assert str(error).startswith(f"-: {label(OBJECTS[kind])}: ")
            assert error.field.startswith(str(path[0]))


@pytest.mark.parametrize("shape", [as_json, as_yaml])
@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")], ids=str)
def test_infinity_and_nan_are_not_amounts(shape, number, golden: Golden):
    with pytest.raises(InputError) as raised:
        read(shape(changed("Node", "status.capacity.cpu", number)))
    golden(str(raised.value))


@pytest.mark.parametrize("number", [float("inf"), float("nan")], ids=str)
def test_infinity_and_nan_are_not_json(number):
    with pytest.raises(InputError, match="is not JSON"):
        read(as_json(changed("Node", "status.capacity.cpu", number), GOOD[1]))


DEEP = 100_000
UNREADABLE = {
    "JSON that is nested deeply": (
        b'{"kind": "Pod", "spec": {"volumes": ' + b"[" * DEEP + b"]" * DEEP + b"}}",
        "nested too deeply",
    ),
    "YAML that is a part of itself": (b"kind: Pod\nmetadata: &m\n  name: a\n  labels: *m", "a part of itself"),
    "half a character in JSON": (b'{"kind": "Pod", "metadata": {"name": "a", "uid": "\\ud800"}}', "is not JSON"),
    "half a character in YAML": (b'kind: Pod\nmetadata: {name: a, uid: "\\ud800"}', "is not YAML"),
    "bytes that are no UTF-8": (b'{"kind": "Pod", "metadata": {"name": "\xff"}}', "is not "),
    "a date that is none": (b"kind: Pod\nmetadata: {name: a, creationTimestamp: 2026-13-01}", "is not YAML"),
    "5,000 digits in YAML": (
        b"kind: Pod\nmetadata: {name: a}\nspec: {priority: " + b"9" * 5000 + b"}",
        "is not YAML",
    ),
    "5,000 digits in JSON": (
        b'{"kind": "Pod", "metadata": {"name": "a"}, "spec": {"priority": ' + b"9" * 5000 + b"}}",
        "-: Pod/default/a: spec.priority: integer value out of range",
    ),
    "an amount of 5,000 digits": (
        b'{"kind": "Node", "metadata": {"name": "a"}, "status": {"capacity": {"cpu": ' + b"9" * 5000 + b"}}}",
        "-: Node/a: status.capacity: integer value out of range",
    ),
}


@pytest.mark.parametrize(("text", "says"), UNREADABLE.values(), ids=UNREADABLE)
def test_unreadable_files_are_input_errors(text, says):
    with pytest.raises(InputError) as caught:
        read(text)
    assert says in str(caught.value)
    assert str(caught.value).startswith("-: ")
