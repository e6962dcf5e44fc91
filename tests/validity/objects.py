"""Of each kind an object that is good, with all that is checked of it."""

from __future__ import annotations

from typing import Any, Final

SPREAD: Final = {
    "maxSkew": 1,
    "topologyKey": "topology.kubernetes.io/zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}
POD_TERM: Final = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
NODE_TERM: Final = {
    "matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}],
    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
}
HARD: Final = "requiredDuringSchedulingIgnoredDuringExecution"
SOFT: Final = "preferredDuringSchedulingIgnoredDuringExecution"

POD: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web-1",
        "namespace": "shop",
        "labels": {"app": "web", "example.com/tier": "front"},
        "annotations": {"trimtab.dev/note": "any text"},
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u-1", "controller": True},
            {"apiVersion": "example.com/v1", "kind": "Other", "name": "other", "uid": "u-2"},
        ],
    },
    "spec": {
        "nodeName": "n1",
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "nodeSelector": {"disk": "ssd"},
        "priorityClassName": "high",
        "preemptionPolicy": "Never",
        "containers": [
            {
                "name": "main",
                "image": "registry.example/app:1",
                "ports": [{"containerPort": 8080, "hostPort": 80, "protocol": "TCP", "hostIP": "10.0.0.1"}],
                "resources": {
                    "requests": {"cpu": "250m", "memory": "64Mi", "example.com/gpu": "1"},
                    "limits": {"cpu": "500m", "memory": "64Mi", "example.com/gpu": "1"},
                },
            },
            {"name": "second", "image": "registry.example/second:1"},
        ],
        "initContainers": [{"name": "first", "image": "registry.example/first:1", "restartPolicy": "Always"}],
        "affinity": {
            "nodeAffinity": {
                HARD: {"nodeSelectorTerms": [NODE_TERM]},
                SOFT: [{"weight": 100, "preference": NODE_TERM}],
            },
            "podAffinity": {HARD: [POD_TERM], SOFT: [{"weight": 1, "podAffinityTerm": POD_TERM}]},
            "podAntiAffinity": {HARD: [POD_TERM], SOFT: [{"weight": 50, "podAffinityTerm": POD_TERM}]},
        },
        "tolerations": [
            {"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 300},
            {"operator": "Exists"},
        ],
        "topologySpreadConstraints": [SPREAD, {**SPREAD, "topologyKey": "kubernetes.io/hostname"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    },
    "status": {
        "phase": "Running",
        "qosClass": "Burstable",
        "startTime": "2026-11-20T12:00:00Z",
        "containerStatuses": [{"name": "main", "restartCount": 3}],
        "initContainerStatuses": [{"name": "first", "restartCount": 0}],
    },
}
NODE: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "labels": {"disk": "ssd"}},
    "spec": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}]},
    "status": {
        "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110", "example.com/gpu": "2"},
        "allocatable": {"cpu": "3800m", "memory": "15Gi", "pods": "110", "attachable-volumes-csi-x": "25"},
        "images": [{"names": ["registry.example/app:1"], "sizeBytes": 1000}],
    },
}
BUDGET: Final[dict[str, Any]] = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "web", "namespace": "shop", "generation": 1},
    "spec": {"selector": {"matchLabels": {"app": "web"}}, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
    "status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2},
}
VOLUME: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "pv-1"},
    "spec": {
        "capacity": {"storage": "10Gi"},
        "accessModes": ["ReadWriteOnce"],
        "claimRef": {"namespace": "shop", "name": "data"},
        "storageClassName": "fast",
        "volumeMode": "Filesystem",
        "nodeAffinity": {"required": {"nodeSelectorTerms": [NODE_TERM]}},
        "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"},
    },
    "status": {"phase": "Bound"},
}
CLAIM: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data", "namespace": "shop"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}},
        "storageClassName": "fast",
        "volumeMode": "Filesystem",
        "selector": {"matchLabels": {"app": "web"}},
    },
    "status": {"phase": "Bound"},
}
_STORAGE: Final = {"apiVersion": "storage.k8s.io/v1"}
_APPS: Final = {
    "apiVersion": "apps/v1",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]},
        },
    },
}

OBJECTS: Final[dict[str, dict[str, Any]]] = {
    "Pod": POD,
    "Node": NODE,
    "PodDisruptionBudget": BUDGET,
    "Namespace": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}},
    "PriorityClass": {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "some"},
        "value": 1000,
    },
    "PersistentVolume": VOLUME,
    "PersistentVolumeClaim": CLAIM,
    "StorageClass": {
        **_STORAGE,
        "kind": "StorageClass",
        "metadata": {"name": "fast"},
        "provisioner": "ebs.csi.aws.com",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [
            {"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["a", "b"]}]}
        ],
    },
    "CSINode": {
        **_STORAGE,
        "kind": "CSINode",
        "metadata": {"name": "n1"},
        "spec": {"drivers": [{"name": "ebs.csi.aws.com", "nodeID": "i-1", "allocatable": {"count": 25}}]},
    },
    "CSIDriver": {
        **_STORAGE,
        "kind": "CSIDriver",
        "metadata": {"name": "ebs.csi.aws.com"},
        "spec": {"storageCapacity": True},
    },
    "CSIStorageCapacity": {
        **_STORAGE,
        "kind": "CSIStorageCapacity",
        "metadata": {"name": "one", "namespace": "shop"},
        "storageClassName": "fast",
        "nodeTopology": {"matchLabels": {"zone": "a"}},
        "capacity": "10Gi",
    },
    "VolumeAttachment": {
        **_STORAGE,
        "kind": "VolumeAttachment",
        "metadata": {"name": "one"},
        "spec": {"attacher": "ebs.csi.aws.com", "nodeName": "n1", "source": {"persistentVolumeName": "pv-1"}},
    },
    "Service": {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    },
    "ReplicaSet": {"kind": "ReplicaSet", **_APPS},
    "StatefulSet": {"kind": "StatefulSet", **_APPS},
    "DaemonSet": {"kind": "DaemonSet", **_APPS},
    "ReplicationController": {
        **_APPS,
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "spec": {**_APPS["spec"], "selector": {"app": "web"}},  # type: ignore[dict-item]
    },
}
