"""Policies of other deschedulers that say as much as they can: every kind of thing once."""

from __future__ import annotations

from typing import Any, Final

SELECTOR: Final = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["d"]}]}

OLD: Final[dict[str, Any]] = {
    "apiVersion": "descheduler/v1alpha1",
    "kind": "DeschedulerPolicy",
    "nodeSelector": "a=b",
    "evictLocalStoragePods": True,
    "ignorePvcPods": True,
    "maxNoOfPodsToEvictPerNode": 3,
    "strategies": {
        "RemoveDuplicates": {"enabled": True, "params": {"removeDuplicates": {"excludeOwnerKinds": ["Job"]}}},
        "LowNodeUtilization": {
            "enabled": True,
            "params": {
                "nodeResourceUtilizationThresholds": {
                    "thresholds": {"cpu": 20},
                    "targetThresholds": {"cpu": 50},
                    "numberOfNodes": 1,
                },
                "nodeFit": True,
            },
        },
        "PodLifeTime": {
            "enabled": True,
            "params": {
                "podLifeTime": {"maxPodLifeTimeSeconds": 5, "states": ["Pending"]},
                "namespaces": {"include": ["a"]},
                "labelSelector": SELECTOR,
                "thresholdPriority": 5,
            },
        },
        "RemovePodsViolatingNodeTaints": {"enabled": True, "params": {"excludedTaints": ["a=b"]}},
    },
}

NEW: Final[dict[str, Any]] = {
    "apiVersion": "descheduler/v1alpha2",
    "kind": "DeschedulerPolicy",
    "nodeSelector": "a=b",
    "maxNoOfPodsToEvictTotal": 3,
    "gracePeriodSeconds": 5,
    "metricsProviders": [
        {
            "source": "Prometheus",
            "prometheus": {"url": "http://p", "authToken": {"secretReference": {"namespace": "a", "name": "b"}}},
        }
    ],
    "profiles": [
        {
            "name": "a",
            "pluginConfig": [
                {
                    "name": "DefaultEvictor",
                    "args": {
                        "nodeSelector": "c=d",
                        "labelSelector": SELECTOR,
                        "namespaceLabelSelector": SELECTOR,
                        "priorityThreshold": {"value": 5},
                        "nodeFit": True,
                        "minReplicas": 2,
                        "minPodAge": "5m",
                        "noEvictionPolicy": "Mandatory",
                        "podProtections": {
                            "defaultDisabled": ["PodsWithLocalStorage"],
                            "extraEnabled": ["PodsWithPVC"],
                            "config": {"PodsWithPVC": {"protectedStorageClasses": [{"name": "fast"}]}},
                        },
                    },
                },
                {
                    "name": "PodLifeTime",
                    "args": {
                        "maxPodLifeTimeSeconds": 5,
                        "conditions": [{"reason": "x"}],
                        "ownerKinds": {"exclude": ["Job"]},
                        "namespaces": {"include": ["a"]},
                        "labelSelector": SELECTOR,
                    },
                },
                {
                    "name": "LowNodeUtilization",
                    "args": {
                        "thresholds": {"MetricResource": 20},
                        "targetThresholds": {"MetricResource": 50},
                        "metricsUtilization": {"source": "Prometheus", "prometheus": {"query": "up"}},
                        "evictableNamespaces": {"exclude": ["a"]},
                        "evictionLimits": {"node": 2},
                    },
                },
            ],
            "plugins": {
                "filter": {"enabled": ["DefaultEvictor"]},
                "deschedule": {"enabled": ["PodLifeTime"]},
                "balance": {"enabled": ["LowNodeUtilization"], "disabled": ["RemoveDuplicates"]},
            },
        },
    ],
}

OPENSHIFT: Final[dict[str, Any]] = {
    "apiVersion": "operator.openshift.io/v1",
    "kind": "KubeDescheduler",
    "metadata": {"name": "cluster"},
    "spec": {
        "managementState": "Managed",
        "mode": "Automatic",
        "profiles": ["AffinityAndTaints", "LifecycleAndUtilization"],
        "deschedulingIntervalSeconds": 60,
        "evictionLimits": {"total": 3, "node": 1},
        "profileCustomizations": {
            "podLifetime": "5m",
            "thresholdPriority": 5,
            "namespaces": {"included": ["a"], "excluded": []},
            "devLowNodeUtilizationThresholds": "Low",
            "devActualUtilizationProfile": "PrometheusCPUCombined",
            "devEnableEvictionsInBackground": True,
        },
    },
}
