{{- /* Rules that several controllers have in common: each has a role of its own, and can be the only one. */ -}}

{{- define "trimtab.picture" -}}
# The picture of the cluster. Volumes, claims, services and owners of pods are read because the scheduler reads them:
# they say where a pod that is evicted can go.
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
# Acting: eviction, which respects disruption budgets. Pods are never deleted, so there is no such verb here. get is
# for an eviction whose answer was lost: is the pod still there?
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
