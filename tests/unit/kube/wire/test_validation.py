"""Ranges and formats of what files hold: the API server's rules, told with file, object and field."""

import contextlib
import io
import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import node, pod
from tests.validity.objects import OBJECTS
from tests.validity.tables import Row, changed, rows
from trimtab.kube.errors import InputError
from trimtab.kube.wire.decode import decode_json, decode_object
from trimtab.kube.wire.fields import FieldError
from trimtab.kube.wire.files import read_objects
from trimtab.kube.wire.validation.checks import remembered

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
@pytest.mark.parametrize("kind", OBJECTS)
def test_a_good_object_is_read(kind, shape):
    assert len(read(shape(OBJECTS[kind]))) == 1


@pytest.mark.parametrize("shape", [as_json, as_yaml])
@pytest.mark.parametrize("row", FAULTS, ids=lambda row: row.id)
def test_what_cannot_be_is_refused_with_object_and_field(row: Row, shape):
    manifest = row.manifest
    with pytest.raises(InputError) as caught:
        read(shape(manifest))
    assert str(caught.value).startswith(f"-: {label(manifest)}: {row.named}: ")
    assert row.says in caught.value.message


@pytest.mark.parametrize("shape", [as_json, as_yaml])
@pytest.mark.parametrize("row", SOUND, ids=lambda row: row.id)
def test_what_is_odd_and_yet_allowed_is_read(row: Row, shape):
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
TOLD = [
    "Pod/shop/web-1: spec.containers[0].ports[0].hostPort: must be between 1 and 65535, not 70000",
    "Node/n1: spec.taints[0].effect: must be NoSchedule, PreferNoSchedule or NoExecute, not 'Never'",
    "PersistentVolume/pv-1: spec.volumeMode: must be Block or Filesystem, not 'Disk'",
]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_rest_of_a_file_is_read_where_broken_objects_may_be_left_out(tmp_path, shape):
    path = tmp_path / "cluster"
    path.write_bytes(shape(BAD[0], GOOD[0], BAD[1], GOOD[1], BAD[2]))
    errors: list[InputError] = []
    found = read_objects(path, skip_invalid=errors.append).objects
    assert [value.key for value in found] == ["shop/web-2", "n2"]
    assert [str(error) for error in errors] == [f"{path}: {told}" for told in TOLD]
    with pytest.raises(InputError) as caught:
        read_objects(path)
    assert str(caught.value) == f"{path}: {TOLD[0]}"


def test_in_a_folder_each_is_told_with_its_file(tmp_path):
    (tmp_path / "a.yaml").write_bytes(as_yaml(GOOD[0], BAD[1]))
    (tmp_path / "b.json").write_bytes(as_list(BAD[0], GOOD[1]))
    errors: list[InputError] = []
    found = read_objects(tmp_path, skip_invalid=errors.append).objects
    assert [value.key for value in found] == ["shop/web-2", "n2"]
    assert [str(error) for error in errors] == [
        f"{tmp_path / 'a.yaml'}: {TOLD[1]}",
        f"{tmp_path / 'b.json'}: {TOLD[0]}",
    ]


def test_every_pod_of_a_broken_template_is_told():
    pods = [changed("Pod", "metadata.name", f"web-{number}") for number in range(3)]
    for manifest in pods:
        manifest["spec"]["tolerations"][0]["effect"] = "Never"
    errors: list[InputError] = []
    assert read_objects(io.BytesIO(as_list(*pods, GOOD[1])), skip_invalid=errors.append).objects == read(
        as_json(GOOD[1])
    )
    assert [error.object for error in errors] == ["Pod/shop/web-0", "Pod/shop/web-1", "Pod/shop/web-2"]


def test_what_pods_share_is_checked_once(monkeypatch):
    checked = []
    monkeypatch.setattr("trimtab.kube.wire.validation.validator.POD_SPEC", checked.append)
    monkeypatch.setattr("trimtab.kube.wire.validation.validator.check_labels", checked.append)
    pods = [pod(f"web-{number}").labels(app="web").on(f"n{number}").manifest() for number in range(20)]
    assert len(read(as_list(*pods))) == 20
    assert len(checked) == 2


def test_what_recurs_in_specs_is_checked_once_and_what_fails_every_time():
    checked = []

    def check(value: list[int]) -> None:
        checked.append(value)
        if not value:
            raise FieldError("", "is empty")

    again = remembered(check)
    for value in ([1], [1], [2], [1]):
        again(value)
    for _ in range(2):
        with pytest.raises(FieldError, match="is empty"):
            again([])
    assert checked == [[1], [2], [], []]


def test_labels_are_checked_where_annotations_are_the_same():
    manifest = pod().labels({"trimtab.dev/note": "any text"}).annotations({"trimtab.dev/note": "any text"}).manifest()
    with pytest.raises(InputError, match=r"metadata\.labels\[trimtab\.dev/note\]: must be a label value"):
        read(as_json(pod("other").annotations({"trimtab.dev/note": "any text"}).manifest(), manifest))


@pytest.mark.parametrize("row", FAULTS, ids=lambda row: row.id)
def test_what_an_api_server_sends_is_not_judged(row: Row):
    """But for what cannot be made into a value at all, of which types, amounts and names are."""
    never = ("quantity", "negative", "is required", "expected")
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
def test_whatever_a_field_holds_the_object_is_read_or_named(place, value, shape):
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
def test_what_is_no_number_is_no_amount(shape, number):
    with pytest.raises(InputError, match=r"^-: Node/n1: status\.capacity\.cpu: \S+ is not a quantity"):
        read(shape(changed("Node", "status.capacity.cpu", number)))


@pytest.mark.parametrize("number", [float("inf"), float("nan")], ids=str)
def test_documents_with_what_is_no_number_are_no_json(number):
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
def test_what_cannot_even_be_read_is_an_error_like_others(text, says):
    with pytest.raises(InputError) as caught:
        read(text)
    assert says in str(caught.value)
    assert str(caught.value).startswith("-: ")
