from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Time(_message.Message):
    __slots__ = ("seconds",)
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    seconds: int
    def __init__(self, seconds: _Optional[int] = ...) -> None: ...

class ObjectMeta(_message.Message):
    __slots__ = ("name", "namespace", "uid", "resource_version", "creation_timestamp", "deletion_timestamp", "labels", "annotations", "owner_references")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    CREATION_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    DELETION_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    OWNER_REFERENCES_FIELD_NUMBER: _ClassVar[int]
    name: str
    namespace: str
    uid: str
    resource_version: str
    creation_timestamp: Time
    deletion_timestamp: bytes
    labels: _containers.RepeatedScalarFieldContainer[bytes]
    annotations: _containers.RepeatedScalarFieldContainer[bytes]
    owner_references: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, name: _Optional[str] = ..., namespace: _Optional[str] = ..., uid: _Optional[str] = ..., resource_version: _Optional[str] = ..., creation_timestamp: _Optional[_Union[Time, _Mapping]] = ..., deletion_timestamp: _Optional[bytes] = ..., labels: _Optional[_Iterable[bytes]] = ..., annotations: _Optional[_Iterable[bytes]] = ..., owner_references: _Optional[_Iterable[bytes]] = ...) -> None: ...

class VolumeSource(_message.Message):
    __slots__ = ("host_path", "empty_dir", "ephemeral")
    HOST_PATH_FIELD_NUMBER: _ClassVar[int]
    EMPTY_DIR_FIELD_NUMBER: _ClassVar[int]
    EPHEMERAL_FIELD_NUMBER: _ClassVar[int]
    host_path: bytes
    empty_dir: bytes
    ephemeral: bytes
    def __init__(self, host_path: _Optional[bytes] = ..., empty_dir: _Optional[bytes] = ..., ephemeral: _Optional[bytes] = ...) -> None: ...

class Volume(_message.Message):
    __slots__ = ("name", "volume_source")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VOLUME_SOURCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    volume_source: VolumeSource
    def __init__(self, name: _Optional[str] = ..., volume_source: _Optional[_Union[VolumeSource, _Mapping]] = ...) -> None: ...

class Container(_message.Message):
    __slots__ = ("volume_mounts",)
    VOLUME_MOUNTS_FIELD_NUMBER: _ClassVar[int]
    volume_mounts: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, volume_mounts: _Optional[_Iterable[bytes]] = ...) -> None: ...

class PodSpec(_message.Message):
    __slots__ = ("volumes", "containers", "node_name", "hostname", "init_containers")
    VOLUMES_FIELD_NUMBER: _ClassVar[int]
    CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    INIT_CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    volumes: _containers.RepeatedCompositeFieldContainer[Volume]
    containers: _containers.RepeatedCompositeFieldContainer[Container]
    node_name: str
    hostname: str
    init_containers: _containers.RepeatedCompositeFieldContainer[Container]
    def __init__(self, volumes: _Optional[_Iterable[_Union[Volume, _Mapping]]] = ..., containers: _Optional[_Iterable[_Union[Container, _Mapping]]] = ..., node_name: _Optional[str] = ..., hostname: _Optional[str] = ..., init_containers: _Optional[_Iterable[_Union[Container, _Mapping]]] = ...) -> None: ...

class ContainerStatus(_message.Message):
    __slots__ = ("state", "restart_count")
    STATE_FIELD_NUMBER: _ClassVar[int]
    RESTART_COUNT_FIELD_NUMBER: _ClassVar[int]
    state: bytes
    restart_count: int
    def __init__(self, state: _Optional[bytes] = ..., restart_count: _Optional[int] = ...) -> None: ...

class Condition(_message.Message):
    __slots__ = ("last_transition_time",)
    LAST_TRANSITION_TIME_FIELD_NUMBER: _ClassVar[int]
    last_transition_time: Time
    def __init__(self, last_transition_time: _Optional[_Union[Time, _Mapping]] = ...) -> None: ...

class PodStatus(_message.Message):
    __slots__ = ("phase", "conditions", "reason", "start_time", "container_statuses", "qos_class", "init_container_statuses", "nominated_node_name", "ephemeral_container_statuses")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_STATUSES_FIELD_NUMBER: _ClassVar[int]
    QOS_CLASS_FIELD_NUMBER: _ClassVar[int]
    INIT_CONTAINER_STATUSES_FIELD_NUMBER: _ClassVar[int]
    NOMINATED_NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    EPHEMERAL_CONTAINER_STATUSES_FIELD_NUMBER: _ClassVar[int]
    phase: str
    conditions: _containers.RepeatedScalarFieldContainer[bytes]
    reason: str
    start_time: Time
    container_statuses: _containers.RepeatedCompositeFieldContainer[ContainerStatus]
    qos_class: str
    init_container_statuses: bytes
    nominated_node_name: str
    ephemeral_container_statuses: bytes
    def __init__(self, phase: _Optional[str] = ..., conditions: _Optional[_Iterable[bytes]] = ..., reason: _Optional[str] = ..., start_time: _Optional[_Union[Time, _Mapping]] = ..., container_statuses: _Optional[_Iterable[_Union[ContainerStatus, _Mapping]]] = ..., qos_class: _Optional[str] = ..., init_container_statuses: _Optional[bytes] = ..., nominated_node_name: _Optional[str] = ..., ephemeral_container_statuses: _Optional[bytes] = ...) -> None: ...

class Pod(_message.Message):
    __slots__ = ("metadata", "spec", "status")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    metadata: ObjectMeta
    spec: PodSpec
    status: PodStatus
    def __init__(self, metadata: _Optional[_Union[ObjectMeta, _Mapping]] = ..., spec: _Optional[_Union[PodSpec, _Mapping]] = ..., status: _Optional[_Union[PodStatus, _Mapping]] = ...) -> None: ...
