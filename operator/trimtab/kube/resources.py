"""Which resource lives at which path of the API server."""

from __future__ import annotations

from msgspec import Struct


class Resource(Struct, frozen=True, gc=False):
    """A kind with its place in the API: ``Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")``.

    ``type`` is the name of the type in :data:`trimtab.kube.objects.TYPES` where another group has a kind of that name.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    type: str = ""

    @property
    def type_name(self) -> str:
        """The name of the type that objects decode to: the kind, but for the few that several groups have."""
        return self.type or self.kind

    @property
    def api_version(self) -> str:
        """``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def name(self) -> str:
        """The plural with its group, as kubectl takes it: ``pods``, ``poddisruptionbudgets.policy``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, name: str = "", *, namespace: str = "", subresource: str = "") -> str:
        """The path of the collection, of one object, or of an object's subresource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/".join(parts)


PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
PERSISTENT_VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
PERSISTENT_VOLUME_CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
CSI_NODES = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)
CSI_DRIVERS = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False)
CSI_STORAGE_CAPACITIES = Resource("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity")
VOLUME_ATTACHMENTS = Resource("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False)
SERVICES = Resource("", "v1", "services", "Service")
REPLICATION_CONTROLLERS = Resource("", "v1", "replicationcontrollers", "ReplicationController")
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
MACHINE_SETS = Resource("machine.openshift.io", "v1beta1", "machinesets", "MachineSet")
MACHINES = Resource("machine.openshift.io", "v1beta1", "machines", "Machine")
MACHINE_DEPLOYMENTS = Resource("cluster.x-k8s.io", "v1beta2", "machinedeployments", "MachineDeployment")
CLUSTER_MACHINE_SETS = Resource("cluster.x-k8s.io", "v1beta2", "machinesets", "MachineSet", type="ClusterMachineSet")
MACHINE_POOLS = Resource("cluster.x-k8s.io", "v1beta2", "machinepools", "MachinePool")
CLUSTER_MACHINES = Resource("cluster.x-k8s.io", "v1beta2", "machines", "Machine", type="ClusterMachine")
NODE_METRICS = Resource("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics", namespaced=False)
POD_METRICS = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
CLUSTER_AUTOSCALERS = Resource(
    "autoscaling.openshift.io", "v1", "clusterautoscalers", "ClusterAutoscaler", namespaced=False
)
MACHINE_AUTOSCALERS = Resource("autoscaling.openshift.io", "v1beta1", "machineautoscalers", "MachineAutoscaler")
DESCHEDULER_POLICIES = Resource("trimtab.dev", "v1alpha1", "deschedulerpolicies", "DeschedulerPolicy", namespaced=False)
DESCHEDULING_RUNS = Resource("trimtab.dev", "v1alpha1", "deschedulingruns", "DeschedulingRun", namespaced=False)
