from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNSPECIFIED: _ClassVar[State]
    RUNNING: _ClassVar[State]
    CREATING: _ClassVar[State]
    DELETING: _ClassVar[State]
UNSPECIFIED: State
RUNNING: State
CREATING: State
DELETING: State

class Nothing(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Group(_message.Message):
    __slots__ = ("id", "min_size", "max_size")
    ID_FIELD_NUMBER: _ClassVar[int]
    MIN_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_SIZE_FIELD_NUMBER: _ClassVar[int]
    id: str
    min_size: int
    max_size: int
    def __init__(self, id: _Optional[str] = ..., min_size: _Optional[int] = ..., max_size: _Optional[int] = ...) -> None: ...

class Groups(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[Group]
    def __init__(self, groups: _Optional[_Iterable[_Union[Group, _Mapping]]] = ...) -> None: ...

class OfGroup(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class TargetSize(_message.Message):
    __slots__ = ("target_size",)
    TARGET_SIZE_FIELD_NUMBER: _ClassVar[int]
    target_size: int
    def __init__(self, target_size: _Optional[int] = ...) -> None: ...

class Resize(_message.Message):
    __slots__ = ("delta", "id")
    DELTA_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    delta: int
    id: str
    def __init__(self, delta: _Optional[int] = ..., id: _Optional[str] = ...) -> None: ...

class ProviderNode(_message.Message):
    __slots__ = ("provider_id", "name", "labels", "annotations")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class AnnotationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROVIDER_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    provider_id: str
    name: str
    labels: _containers.ScalarMap[str, str]
    annotations: _containers.ScalarMap[str, str]
    def __init__(self, provider_id: _Optional[str] = ..., name: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., annotations: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DeleteNodes(_message.Message):
    __slots__ = ("nodes", "id")
    NODES_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[ProviderNode]
    id: str
    def __init__(self, nodes: _Optional[_Iterable[_Union[ProviderNode, _Mapping]]] = ..., id: _Optional[str] = ...) -> None: ...

class InstanceError(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class InstanceStatus(_message.Message):
    __slots__ = ("state", "error")
    STATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    state: State
    error: InstanceError
    def __init__(self, state: _Optional[_Union[State, str]] = ..., error: _Optional[_Union[InstanceError, _Mapping]] = ...) -> None: ...

class Instance(_message.Message):
    __slots__ = ("id", "status")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    id: str
    status: InstanceStatus
    def __init__(self, id: _Optional[str] = ..., status: _Optional[_Union[InstanceStatus, _Mapping]] = ...) -> None: ...

class Instances(_message.Message):
    __slots__ = ("instances",)
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    instances: _containers.RepeatedCompositeFieldContainer[Instance]
    def __init__(self, instances: _Optional[_Iterable[_Union[Instance, _Mapping]]] = ...) -> None: ...

class Template(_message.Message):
    __slots__ = ("old_node", "node")
    OLD_NODE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    old_node: bytes
    node: bytes
    def __init__(self, old_node: _Optional[bytes] = ..., node: _Optional[bytes] = ...) -> None: ...

class Span(_message.Message):
    __slots__ = ("seconds", "nanos")
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    NANOS_FIELD_NUMBER: _ClassVar[int]
    seconds: int
    nanos: int
    def __init__(self, seconds: _Optional[int] = ..., nanos: _Optional[int] = ...) -> None: ...

class OldSpan(_message.Message):
    __slots__ = ("nanoseconds",)
    NANOSECONDS_FIELD_NUMBER: _ClassVar[int]
    nanoseconds: int
    def __init__(self, nanoseconds: _Optional[int] = ...) -> None: ...

class Options(_message.Message):
    __slots__ = ("utilization_threshold", "gpu_utilization_threshold", "old_unneeded", "old_unready", "old_provision", "zero_or_max", "unneeded", "unready", "provision", "startup")
    UTILIZATION_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    GPU_UTILIZATION_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    OLD_UNNEEDED_FIELD_NUMBER: _ClassVar[int]
    OLD_UNREADY_FIELD_NUMBER: _ClassVar[int]
    OLD_PROVISION_FIELD_NUMBER: _ClassVar[int]
    ZERO_OR_MAX_FIELD_NUMBER: _ClassVar[int]
    UNNEEDED_FIELD_NUMBER: _ClassVar[int]
    UNREADY_FIELD_NUMBER: _ClassVar[int]
    PROVISION_FIELD_NUMBER: _ClassVar[int]
    STARTUP_FIELD_NUMBER: _ClassVar[int]
    utilization_threshold: float
    gpu_utilization_threshold: float
    old_unneeded: OldSpan
    old_unready: OldSpan
    old_provision: OldSpan
    zero_or_max: bool
    unneeded: Span
    unready: Span
    provision: Span
    startup: Span
    def __init__(self, utilization_threshold: _Optional[float] = ..., gpu_utilization_threshold: _Optional[float] = ..., old_unneeded: _Optional[_Union[OldSpan, _Mapping]] = ..., old_unready: _Optional[_Union[OldSpan, _Mapping]] = ..., old_provision: _Optional[_Union[OldSpan, _Mapping]] = ..., zero_or_max: _Optional[bool] = ..., unneeded: _Optional[_Union[Span, _Mapping]] = ..., unready: _Optional[_Union[Span, _Mapping]] = ..., provision: _Optional[_Union[Span, _Mapping]] = ..., startup: _Optional[_Union[Span, _Mapping]] = ...) -> None: ...

class OptionsRequest(_message.Message):
    __slots__ = ("id", "defaults")
    ID_FIELD_NUMBER: _ClassVar[int]
    DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    defaults: Options
    def __init__(self, id: _Optional[str] = ..., defaults: _Optional[_Union[Options, _Mapping]] = ...) -> None: ...

class OptionsAnswer(_message.Message):
    __slots__ = ("options",)
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    options: Options
    def __init__(self, options: _Optional[_Union[Options, _Mapping]] = ...) -> None: ...

class PriceRequest(_message.Message):
    __slots__ = ("node", "start", "end")
    NODE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    node: ProviderNode
    start: Span
    end: Span
    def __init__(self, node: _Optional[_Union[ProviderNode, _Mapping]] = ..., start: _Optional[_Union[Span, _Mapping]] = ..., end: _Optional[_Union[Span, _Mapping]] = ...) -> None: ...

class Price(_message.Message):
    __slots__ = ("price",)
    PRICE_FIELD_NUMBER: _ClassVar[int]
    price: float
    def __init__(self, price: _Optional[float] = ...) -> None: ...
