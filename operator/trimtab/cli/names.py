"""Names of objects on the command line, as kubectl takes them.

All of these name the same pod::

    trimtab explain pod web-1 -n shop
    trimtab explain pod/web-1 -n shop
    trimtab explain pods shop/web-1
    trimtab explain po web-1            # if shop is the namespace of the kubeconfig's context
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final

from msgspec import Struct

from trimtab.kube.errors import InputError


class ObjectType(Struct, frozen=True, kw_only=True):
    """A type of objects that commands take by name.

    Attributes:
        name: the name of the type, which is the name of its ``explain`` command.
        kind: the kind, for messages.
        aliases: other names of the type.
        qualifier: what may come before the object's name, separated by a slash; empty if nothing may.
        defaulted: whether an object without a namespace is in the default one. Otherwise, it may be in any.
    """

    name: str
    kind: str
    aliases: tuple[str, ...] = ()
    qualifier: str = ""
    defaulted: bool = False

    @property
    def namespaced(self) -> bool:
        """Return whether the objects are in namespaces."""
        return self.qualifier == "namespace"


POD: Final = ObjectType(name="pod", kind="Pod", aliases=("pods", "po"), qualifier="namespace", defaulted=True)
NODE: Final = ObjectType(name="node", kind="Node", aliases=("nodes", "no"))
PDB: Final = ObjectType(
    name="pdb",
    kind="PodDisruptionBudget",
    aliases=("pdbs", "poddisruptionbudget", "poddisruptionbudgets"),
    qualifier="namespace",
    defaulted=True,
)
NODE_GROUP: Final = ObjectType(name="nodegroup", kind="NodeGroup", aliases=("nodegroups", "ng"), qualifier="namespace")
POLICY: Final = ObjectType(name="policy", kind="Policy", aliases=("policies",), qualifier="kind")

OBJECT_TYPES: Final = (POD, NODE, PDB, NODE_GROUP, POLICY)
"""The types of objects that can be explained."""

ALIASES: Final = {alias: each.name for each in OBJECT_TYPES for alias in (each.name, *each.aliases)}
"""The name of each type by its name and its aliases."""


class ObjectName(Struct, frozen=True):
    """The name of an object.

    Attributes:
        name: its name.
        namespace: its namespace; empty for objects without one, and if a node group may be in any namespace.
        kind: the kind of a policy in lower case, if it is given; empty for other objects.
    """

    name: str
    namespace: str = ""
    kind: str = ""

    @property
    def key(self) -> str:
        """Return ``namespace/name`` or ``name``."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def split_type(text: str) -> tuple[str, str] | None:
    """Split ``TYPE/NAME``, for example ``pod/web-1``.

    Returns:
        The name of the type and the rest; ``None`` if the text does not begin with a type.
    """
    prefix, slash, rest = text.partition("/")
    type_ = ALIASES.get(prefix.lower())
    return (type_, rest) if slash and type_ is not None else None


def parse_object_name(
    text: str, type_: ObjectType, *, namespace: str | None = None, default_namespace: str = "default"
) -> ObjectName:
    """Parse the name of an object as a command takes it.

    Args:
        text: ``NAME``, or ``NAMESPACE/NAME`` or ``KIND/NAME`` if the type has such a qualifier.
        type_: the type of the object.
        namespace: the namespace of the option ``--namespace``; ``None`` if it is not given.
        default_namespace: the namespace if neither the text nor the option contains one.

    Raises:
        InputError: the text is not the name of an object, or it contradicts the option ``--namespace``.
    """
    qualifier, slash, name = text.rpartition("/")
    form = f"{type_.qualifier.upper()}/NAME or NAME" if type_.qualifier else "NAME"
    if not name or "/" in qualifier or (slash and not (qualifier and type_.qualifier)):
        raise InputError(f"{text!r} is not the name of a {type_.name}; give {form}")
    if namespace is not None and not type_.namespaced:
        raise InputError(f"a {type_.name} has no namespace; remove --namespace {namespace}")
    if not type_.namespaced:
        return ObjectName(name, kind=qualifier.lower())
    if namespace is not None and qualifier and qualifier != namespace:
        raise InputError(f"{text!r} is not in namespace {namespace}; give either NAMESPACE/NAME or --namespace")
    return ObjectName(name, qualifier or namespace or (default_namespace if type_.defaulted else ""))


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return the end of an error message with the names that are similar to a wrong one; empty if there are none."""
    near = get_close_matches(name, list(names), n=3)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def object_not_found(
    wanted: ObjectName, keys: Sequence[str], *, type_: ObjectType, what: str = "", source: str = ""
) -> InputError:
    """Return the error that an object does not exist.

    Its message contains objects of this name in other namespaces, otherwise similar names in the namespace, otherwise
    what the namespace or the cluster contains.

    Args:
        wanted: the name that the user gave.
        keys: the existing objects of this type, as ``namespace/name`` or ``name``.
        type_: the type of the object.
        what: the objects, in the plural; empty for the name of the type with an s.
        source: the file or cluster that was searched.
    """
    many = what or f"{type_.name}s"
    reference = f"{type_.kind}/{wanted.key}"
    if not type_.namespaced:
        return InputError(f"{type_.name} not found{did_you_mean(wanted.name, keys)}", source=source, object=reference)
    found = [(namespace, name) for namespace, _, name in (key.rpartition("/") for key in sorted(keys))]
    there = [name for namespace, name in found if namespace == wanted.namespace or not wanted.namespace]
    elsewhere = [f"{namespace}/{name}" for namespace, name in found if name == wanted.name]
    near = get_close_matches(wanted.name, there, n=3)
    meant = elsewhere[:3] or [ObjectName(name, wanted.namespace).key for name in near]
    if meant:
        hint = f"; did you mean {' or '.join(meant)}?"
    elif there:
        hint = f"; the {len(there)} {many} in namespace {wanted.namespace} include {', '.join(there[:3])}"
        hint = hint if wanted.namespace else f"; the {len(there)} {many} include {', '.join(there[:3])}"
    else:
        namespaces = sorted({namespace for namespace, _ in found})
        close = get_close_matches(wanted.namespace, namespaces, n=3) or namespaces[:5]
        hint = f"; namespace {wanted.namespace} has no {many}, these namespaces have: {', '.join(close)}"
        hint = hint if close else f"; the cluster has no {many}"
    return InputError(f"{type_.name} not found{hint}", source=source, object=reference)
