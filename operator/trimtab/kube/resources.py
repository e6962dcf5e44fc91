"""The API resources that trimtab uses, with their paths, and references to objects."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Resource(Struct, frozen=True, gc=False):
    """An API resource: ``Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")``.

    Attributes:
        group: the API group, or ``""`` for the core group.
        version: the API version.
        plural: the name of the resource in paths and RBAC rules.
        kind: the kind of its objects.
        namespaced: whether its objects are in namespaces.
        type: the name of the type in :data:`trimtab.kube.objects.TYPES`, if it differs from the kind because several
            groups have this kind.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    type: str = ""

    @property
    def type_name(self) -> str:
        """Return the name of the type that objects of this resource decode to."""
        return self.type or self.kind

    @property
    def api_version(self) -> str:
        """Return the API version in manifests: ``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def name(self) -> str:
        """Return the plural name followed by the group, as in kubectl: ``pods``, ``poddisruptionbudgets.policy``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, name: str = "", *, namespace: str = "", subresource: str = "") -> str:
        """Return the URL path of the collection, of an object, or of a subresource of an object."""
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
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange")
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
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
JOBS = Resource("batch", "v1", "jobs", "Job")
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob")
VERTICAL_POD_AUTOSCALERS = Resource("autoscaling.k8s.io", "v1", "verticalpodautoscalers", "VerticalPodAutoscaler")
EVICTION_REQUESTS = Resource(
    "lifecycle.k8s.io", "v1alpha1", "evictionrequests", "EvictionRequest", type="PodEvictionRequest"
)
POD_TEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate")
DEPLOYMENT_CONFIGS = Resource("apps.openshift.io", "v1", "deploymentconfigs", "DeploymentConfig")
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
SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
SUBJECT_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
MUTATING_WEBHOOK_CONFIGURATIONS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
VALIDATING_WEBHOOK_CONFIGURATIONS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
API_SERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_AUTOSCALERS = Resource(
    "autoscaling.openshift.io", "v1", "clusterautoscalers", "ClusterAutoscaler", namespaced=False
)
MACHINE_AUTOSCALERS = Resource("autoscaling.openshift.io", "v1beta1", "machineautoscalers", "MachineAutoscaler")
DESCHEDULER_POLICIES = Resource("trimtab.dev", "v1alpha1", "deschedulerpolicies", "DeschedulerPolicy", namespaced=False)
DESCHEDULING_RUNS = Resource("trimtab.dev", "v1alpha1", "deschedulingruns", "DeschedulingRun", namespaced=False)
HISTORY_RECORDS = Resource("trimtab.dev", "v1alpha1", "historyrecords", "HistoryRecord", namespaced=False)
TAINT_MANAGERS = Resource("trimtab.dev", "v1alpha1", "taintmanagers", "TaintManager", namespaced=False)
SCHEDULER_POLICIES = Resource("trimtab.dev", "v1alpha1", "schedulerpolicies", "SchedulerPolicy", namespaced=False)
NODE_PRESSURE_POLICIES = Resource(
    "trimtab.dev", "v1alpha1", "nodepressurepolicies", "NodePressurePolicy", namespaced=False
)
PLACEMENT_ADMISSIONS = Resource(
    "trimtab.dev", "v1alpha1", "placementadmissions", "PlacementAdmission", namespaced=False
)


class ObjectReference(Struct, frozen=True, gc=False, kw_only=True):
    """core/v1 ObjectReference, which events use. ``namespace`` is empty for cluster-scoped objects."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = "v1"

    @classmethod
    def to(cls, resource: Resource, name: str, *, namespace: str = "", uid: str = "") -> ObjectReference:
        """Return a reference to an object of a known kind: ``ObjectReference.to(PODS, "web-1", namespace="shop")``."""
        return cls(kind=resource.kind, name=name, namespace=namespace, uid=uid, api_version=resource.api_version)

    def as_json(self) -> dict[str, Any]:
        """Return the reference as JSON, omitting empty fields."""
        fields = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
        }
        return {key: value for key, value in fields.items() if value}

    def __str__(self) -> str:
        return "/".join(part for part in (self.kind, self.namespace, self.name) if part)


def pod_reference(key: str, uid: str) -> ObjectReference:
    """Return a reference to a pod with the key ``namespace/name``."""
    namespace, _, name = key.partition("/")
    return ObjectReference.to(PODS, name, namespace=namespace, uid=uid)


def node_reference(name: str, uid: str) -> ObjectReference:
    """Return a reference to a node."""
    return ObjectReference.to(NODES, name, uid=uid)
