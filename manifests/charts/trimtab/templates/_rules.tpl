{{- /* Rules that several controllers share. Each controller has its own role, because it can be the only one. */ -}}

{{- define "trimtab.snapshot" -}}
# The snapshot of the cluster. Volumes, claims, services and owners of pods determine, as in the scheduler, on which nodes
# an evicted pod can run.
- apiGroups: [""]
  resources:
    - nodes
    - pods
    - namespaces
    - persistentvolumes
    - persistentvolumeclaims
    - services
    - replicationcontrollers
  verbs: [list, watch]
- apiGroups: [apps]
  resources: [replicasets, statefulsets]
  verbs: [list, watch]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [list, watch]
- apiGroups: [autoscaling.k8s.io]
  resources: [verticalpodautoscalers]
  verbs: [list, watch]
- apiGroups: [lifecycle.k8s.io]
  resources: [evictionrequests]
  verbs: [list, watch]
- apiGroups: [storage.k8s.io]
  resources: [storageclasses, csinodes, csidrivers, csistoragecapacities, volumeattachments]
  verbs: [list, watch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, watch]
- apiGroups: [scheduling.k8s.io]
  resources: [priorityclasses]
  verbs: [list, watch]
{{- end -}}

{{- define "trimtab.evicting" -}}
# Evictions, which respect PodDisruptionBudgets; this role does not permit deleting pods. get is for checking whether a pod
# still exists if the response to its eviction was lost.
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
- apiGroups: [""]
  resources: [pods]
  verbs: [get]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{- /* The kinds of the autoscaler's snapshot that the other controllers do not read. */ -}}
{{- define "trimtab.nodeGroups" -}}
- apiGroups: [apps]
  resources: [daemonsets]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [limitranges]
  verbs: [list, watch]
- apiGroups: [node.k8s.io]
  resources: [runtimeclasses]
  verbs: [list, watch]
- apiGroups: [machine.openshift.io]
  resources: [machinesets, machines]
  verbs: [list, watch]
- apiGroups: [cluster.x-k8s.io]
  resources: [machinedeployments, machinesets, machinepools, machines]
  verbs: [list, watch]
{{- end -}}

{{- /* trimtab's own kinds: `dict "verbs" (list "list")`. */ -}}
{{- define "trimtab.policyKinds" -}}
- apiGroups: [trimtab.dev]
  resources:
    - deschedulerpolicies
    - deschedulingruns
    - historyrecords
    - nodepressurepolicies
    - placementadmissions
    - schedulerpolicies
    - taintmanagers
  verbs: {{ toJson .verbs }}
- apiGroups: [autoscaling.openshift.io]
  resources: [clusterautoscalers, machineautoscalers]
  verbs: {{ toJson .verbs }}
{{- end -}}

{{- /* The rules with which a controller reads its own resources and writes their statuses, by controller. */ -}}
{{- define "trimtab.status.descheduler" -}}
# patch of a policy is for the finalizer, which delays a deletion until the policy's reconcile loop has ended.
- apiGroups: [trimtab.dev]
  resources: [deschedulerpolicies]
  verbs: [list, watch, patch]
- apiGroups: [trimtab.dev]
  resources: [deschedulingruns]
  verbs: [list, watch]
- apiGroups: [trimtab.dev]
  resources: [deschedulerpolicies/status, deschedulingruns/status]
  verbs: [patch]
{{- end -}}

{{- define "trimtab.status.autoscaler" -}}
# patch is for the finalizers, which delay a deletion until the operator has undone its changes.
- apiGroups: [autoscaling.openshift.io]
  resources: [clusterautoscalers]
  verbs: [list, watch, patch]
- apiGroups: [autoscaling.openshift.io]
  resources: [machineautoscalers]
  verbs: [get, list, watch, patch]
- apiGroups: [autoscaling.openshift.io]
  resources: [clusterautoscalers/status, machineautoscalers/status]
  verbs: [patch]
{{- end -}}

{{- define "trimtab.status.tainting" -}}
# patch is for the finalizer, which delays a deletion until the operator has removed its annotations.
- apiGroups: [trimtab.dev]
  resources: [taintmanagers]
  verbs: [list, watch, patch]
- apiGroups: [trimtab.dev]
  resources: [taintmanagers/status]
  verbs: [patch]
{{- end -}}

{{- define "trimtab.status.scheduler" -}}
# patch is for the finalizer, which delays a deletion until the operator has stopped scheduling.
- apiGroups: [trimtab.dev]
  resources: [schedulerpolicies]
  verbs: [list, watch, patch]
- apiGroups: [trimtab.dev]
  resources: [schedulerpolicies/status]
  verbs: [patch]
{{- end -}}

{{- define "trimtab.status.pressure" -}}
# patch is for the finalizer, which delays a deletion until the operator has removed the taints and conditions of nodes.
- apiGroups: [trimtab.dev]
  resources: [nodepressurepolicies]
  verbs: [list, watch, patch]
- apiGroups: [trimtab.dev]
  resources: [nodepressurepolicies/status]
  verbs: [patch]
{{- end -}}
