"""Reading clusters from files."""

import io
import json

import pytest
import yaml

from tests.builders import budget, cluster, node, pod, selector
from tests.fixtures.golden import Golden
from trimtab.kube.errors import InputError
from trimtab.kube.frozen import FrozenMap
from trimtab.kube.objects import LabelSelector
from trimtab.kube.wire.files.reader import read_objects

WEB = pod("web-1").on("n1").cpu("250m")
N1 = node("n1")


def as_yaml(*manifests):
    return yaml.safe_dump_all(manifests).encode()


def as_json(manifest):
    return json.dumps(manifest).encode()


SHAPES = {
    "a JSON list": as_json(cluster(N1, WEB)),
    "an indented JSON list": json.dumps(cluster(N1, WEB), indent=4).encode(),
    "a YAML list": as_yaml(cluster(N1, WEB)),
    "YAML documents": as_yaml(N1.manifest(), WEB.manifest()),
    "YAML documents, some of them empty": b"---\n---\n" + as_yaml(N1.manifest(), WEB.manifest()) + b"---\n# end\n",
    "YAML documents that are lists": as_yaml(cluster(N1), cluster(WEB)),
    "JSON lines": as_json(N1.manifest()) + b"\n" + as_json(WEB.manifest()) + b"\n",
    "JSON documents without a gap": as_json(N1.manifest()) + as_json(WEB.manifest()),
    "JSON documents that are lists": as_json(cluster(N1)) + b"\n" + as_json(cluster(WEB)),
    "JSON documents between YAML's dashes": as_json(N1.manifest()) + b"\n---\n" + as_json(WEB.manifest()),
    "a byte order mark": b"\xef\xbb\xbf" + as_json(cluster(N1, WEB)),
}


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES)
def test_every_shape_of_a_file_reads_the_same(tmp_path, text):
    path = tmp_path / "cluster"
    path.write_bytes(text)
    assert read_objects(path).objects == (N1.build(), WEB.build())


def test_a_single_object_is_a_cluster_too(tmp_path):
    path = tmp_path / "pod.json"
    path.write_bytes(as_json(WEB.manifest()))
    assert read_objects(str(path)).objects == (WEB.build(),)


def test_a_typed_list_gives_its_items_their_kind(tmp_path):
    item = WEB.manifest()
    del item["kind"], item["apiVersion"]
    for text in (as_json, as_yaml):
        path = tmp_path / "pods"
        path.write_bytes(text({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [item]}))
        assert read_objects(path).objects == (WEB.build(),)


@pytest.mark.parametrize("items", [[], None], ids=["empty", "null"])
def test_an_empty_list_is_an_empty_cluster(items):
    text = as_json({"apiVersion": "v1", "kind": "List", "items": items})
    assert read_objects(io.BytesIO(text)).objects == ()


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path):
    (tmp_path / "b.yaml").write_bytes(as_yaml(WEB.manifest()))
    (tmp_path / "a.json").write_bytes(as_json(N1.manifest()))
    (tmp_path / "README.md").write_text("not ours")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "c.yml").write_bytes(as_yaml(budget().manifest()))
    assert read_objects(tmp_path).objects == (N1.build(), WEB.build(), budget().build())


def test_a_stream_is_read():
    assert read_objects(io.BytesIO(as_json(cluster(N1)))).objects == (N1.build(),)


def test_other_kinds_are_kept_on_request():
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    listed = {"apiVersion": "v1", "kind": "List", "items": [widget, secret, N1.manifest()]}
    for text in (as_json(listed), as_yaml(listed)):
        assert read_objects(io.BytesIO(text), keep_kinds={"Widget"}).others == (widget,)
        assert read_objects(io.BytesIO(text)).others == ()


def test_pods_of_a_template_share_their_spec():
    text = as_json(cluster(pod("a").on("n1").cpu("1"), pod("b").on("n2").cpu("1")))
    one, other = read_objects(io.BytesIO(text)).objects
    assert one.spec is other.spec


def broken(**spec):
    return as_json(cluster(N1, pod("web-1").merge(spec=spec), pod("web-2")))


def test_an_error_names_file_object_and_field(tmp_path, golden: Golden):
    path = tmp_path / "cluster.json"
    path.write_bytes(broken(containers=[{"name": "a", "resources": {"requests": {"cpu": "1K"}}}]))
    with pytest.raises(InputError) as caught:
        read_objects(path)
    error = caught.value
    assert (error.source, error.object) == (str(path), "Pod/shop/web-1")
    assert error.field == "spec.containers[0].resources.requests.cpu"
    golden(str(error).replace(str(tmp_path), "folder"))


def test_invalid_objects_can_be_left_out(golden: Golden):
    errors = []
    found = read_objects(io.BytesIO(broken(nodeName=7)), skip_invalid=errors.append)
    assert [value.key for value in found.objects] == ["n1", "shop/web-2"]
    golden("\n".join([str(error) for error in errors]))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(b'{"kind": "List", ', "is not JSON", id="broken JSON"),
        pytest.param(b"a: [", "is not YAML", id="broken YAML"),
        pytest.param(b"a: \x01", "is not YAML", id="control characters"),
        pytest.param(b"[1, 2]", "does not hold a Kubernetes object (it is a list)", id="no mapping"),
        pytest.param(b"just text", "does not hold a Kubernetes object (it is a str)", id="text"),
        pytest.param(b"kind: List\nitems: 3", "does not hold a Kubernetes object (items is not a list)", id="no items"),
        pytest.param(b"kind: List\nitems: [a]", "items[0] is not a Kubernetes object", id="an item that is text"),
        pytest.param(b'{"kind": "List", "items": [3]}', "items[0]", id="an item that is a number"),
        pytest.param(b'{"kind": "List", "items": [{}]}', "items[0]: kind: is required", id="an item without a kind"),
        pytest.param(b"apiVersion: v1", "kind: is required", id="no kind"),
        pytest.param(b'{"kind": "Pod", "metadata": {}}', "Pod: metadata.name: is required", id="no name"),
        pytest.param(
            b"{apiVersion: policy/v2, kind: PodDisruptionBudget, metadata: {name: web, namespace: shop}}",
            "PodDisruptionBudget/shop/web: apiVersion: must be policy/v1 or policy/v1beta1, not policy/v2",
            id="a kind of ours in an unknown version",
        ),
        pytest.param(
            b"{kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: -1}}}",
            "Node/n1: status.allocatable.cpu: must not be negative: -1",
            id="a negative amount",
        ),
    ],
)
def test_a_file_without_objects_is_refused(text, says):
    with pytest.raises(InputError) as caught:
        read_objects(io.BytesIO(text))
    assert str(caught.value).startswith("-: ")
    assert says in str(caught.value)


def test_a_duplicate_is_refused_with_both_places(tmp_path, golden: Golden):
    (tmp_path / "a.json").write_bytes(as_json(cluster(N1, WEB)))
    (tmp_path / "b.yaml").write_bytes(as_yaml(WEB.manifest()))
    with pytest.raises(InputError) as caught:
        read_objects(tmp_path)
    assert (caught.value.source, caught.value.object) == (str(tmp_path / "b.yaml"), "Pod/shop/web-1")
    golden(str(caught.value).replace(str(tmp_path), "folder"))


def test_kinds_of_other_groups_are_ignored():
    text = b"{apiVersion: management.cattle.io/v3, kind: Node, metadata: {name: n1}, status: {allocatable: 3}}"
    assert read_objects(io.BytesIO(text)).objects == ()


@pytest.mark.parametrize("shape", [as_json, as_yaml])
@pytest.mark.parametrize(
    ("stated", "meant"),
    [
        pytest.param({}, None, id="an empty selector selects nothing"),
        pytest.param(selector(app="web"), LabelSelector(FrozenMap({"app": "web"})), id="any other is the same"),
    ],
)
def test_a_budget_of_an_old_cluster_is_read(shape, stated, meant):
    manifest = budget("web", namespace="shop").manifest() | {"apiVersion": "policy/v1beta1"}
    manifest["spec"]["selector"] = stated
    [found] = read_objects(io.BytesIO(shape(manifest))).objects
    assert found.selector == meant


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.json: cannot be read: No such file"):
        read_objects(tmp_path / "nowhere.json")


def test_a_folder_without_files_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"holds no file ending in \.json, \.yaml, \.yml"):
        read_objects(tmp_path)
