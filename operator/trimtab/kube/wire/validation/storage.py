"""Volumes, claims and what storage.k8s.io says of them (core/v1 and storage/v1 validation, v1.36)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from trimtab.kube.rules.quantity import QuantityError, amount
from trimtab.kube.rules.selector_syntax import is_label_key
from trimtab.kube.wire import json
from trimtab.kube.wire.fields import FieldError
from trimtab.kube.wire.validation.checks import (
    COUNT32,
    Check,
    Shape,
    both,
    distinct,
    each,
    given,
    matching,
    needed,
    one_of,
    shown,
    some,
)
from trimtab.kube.wire.validation.names import DRIVER, LABEL_KEY, SUBDOMAIN
from trimtab.kube.wire.validation.resources import AMOUNTS, quantities_alone
from trimtab.kube.wire.validation.selectors import LABEL_SELECTOR, NODE_SELECTOR

_MODES: Final = each(one_of("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"))
_VOLUME_MODE: Final = one_of("Block", "Filesystem")


def _alone(modes: Sequence[str]) -> None:
    if "ReadWriteOncePod" in modes and set(modes) != {"ReadWriteOncePod"}:
        raise FieldError("", "ReadWriteOncePod must be the only mode")


ACCESS_MODES: Final = both(_MODES, _alone)


def _bytes(least: int) -> Check:
    """An amount of storage."""

    def check(quantity: Any) -> None:
        try:
            found = amount(quantity)
        except QuantityError as error:
            raise FieldError("", str(error)) from None
        if found < 0:
            raise FieldError("", f"must not be negative: {quantity}")
        if found < least:
            raise FieldError("", f"must be greater than 0, not {shown(quantity)}")

    return check


_SIZE: Final = _bytes(1)
FREE: Final = _bytes(0)


def _capacity(quantities: dict[str, Any]) -> None:
    AMOUNTS(quantities)
    _size(quantities)


def _requests(quantities: dict[str, Any]) -> None:
    quantities_alone(quantities)
    _size(quantities)


def _size(quantities: dict[str, Any]) -> None:
    """Capacities or requests of which that of storage counts."""
    if "storage" not in quantities:
        return
    try:
        _SIZE(quantities["storage"])
    except FieldError as error:
        raise FieldError("storage", error.message) from None


def _local_needs_affinity(message: Any) -> None:
    if message.local is not None and message.node_affinity is None:
        raise FieldError("nodeAffinity", "is required for a local volume: it says which node has it")


PERSISTENT_VOLUME_SPEC: Final = Shape(
    json.PersistentVolumeSpec,
    capacity=_capacity,
    access_modes=ACCESS_MODES,
    storage_class_name=SUBDOMAIN,
    volume_mode=_VOLUME_MODE,
    node_affinity=Shape(
        json.VolumeNodeAffinity, needs="required", required=needed(NODE_SELECTOR, "which nodes have the volume")
    ),
    volume_attributes_class_name=SUBDOMAIN,
    csi=Shape(
        json.CSIPersistentVolumeSource,
        needs="driver volume_handle",
        driver=DRIVER,
        volume_handle=given("what the driver calls the volume"),
    ),
    also=[_local_needs_affinity],
)
PERSISTENT_VOLUME_STATUS: Final = Shape(
    json.PersistentVolumeStatus, phase=one_of("Pending", "Available", "Bound", "Released", "Failed")
)


def _class_name(name: str) -> None:
    if name:  # empty is a class of its own: no class
        SUBDOMAIN(name)


PERSISTENT_VOLUME_CLAIM_SPEC: Final = Shape(
    json.PersistentVolumeClaimSpec,
    access_modes=ACCESS_MODES,
    resources=Shape(json.ResourceRequirements, requests=_requests),
    selector=LABEL_SELECTOR,
    storage_class_name=_class_name,
    volume_mode=_VOLUME_MODE,
    volume_attributes_class_name=_class_name,
)
PERSISTENT_VOLUME_CLAIM_STATUS: Final = Shape(
    json.PersistentVolumeClaimStatus, phase=one_of("Pending", "Bound", "Lost")
)

PROVISIONER: Final = matching(lambda text: is_label_key(text.lower()), "a name such as ebs.csi.aws.com")
BINDING_MODE: Final = one_of("Immediate", "WaitForFirstConsumer")
ALLOWED_TOPOLOGIES: Final = each(
    Shape(
        json.TopologySelectorTerm,
        match_label_expressions=both(
            each(
                Shape(
                    json.TopologySelectorLabelRequirement,
                    needs="key values",
                    key=LABEL_KEY,
                    values=both(
                        some(lambda _value: None, "at least one value"), distinct(lambda value: value, "values")
                    ),
                )
            ),
            distinct(lambda expression: expression.key, "keys", field="key"),
        ),
    )
)
CSI_NODE_SPEC: Final = Shape(
    json.CSINodeSpec,
    drivers=both(
        each(
            Shape(
                json.CSINodeDriver,
                needs="name",
                name=DRIVER,
                allocatable=Shape(json.VolumeNodeResources, count=COUNT32),
            )
        ),
        distinct(lambda driver: driver.name, "names", field="name"),
    ),
)
VOLUME_ATTACHMENT_SPEC: Final = Shape(
    json.VolumeAttachmentSpec,
    needs="attacher node_name",
    attacher=DRIVER,
    node_name=SUBDOMAIN,
    source=Shape(json.VolumeAttachmentSource, persistent_volume_name=SUBDOMAIN),
)
