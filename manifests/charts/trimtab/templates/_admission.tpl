{{- /*
What the operator may change with the permissions of its roles. RBAC permits a patch of a whole object or none; each template
below permits the fields that the controllers write, for ValidatingAdmissionPolicies (templates/admission-policies.yaml).
Arguments: `dict "root" $ "controllers" (list …) "lease" …`.

Objects are compared field by field, since CEL cannot compare two objects except for a field. Tests compare the fields that
are named here with those of the API server's schema, and the keys with those of the code.
*/ -}}

{{- /* Metadata that the operator never changes, through whatever endpoint. */ -}}
{{- define "trimtab.sameMetadata" -}}
object.metadata.?labels == oldObject.metadata.?labels &&
object.metadata.?finalizers == oldObject.metadata.?finalizers &&
object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences
{{- end -}}

{{- /*
How many entries of a list or map that users write an expression reads. The API server gives up at a cost of 1,000,000, which
20,000 to 90,000 entries exceed, and its time grows with the square of their number: 1,000 take 10 ms, 35,000 take 8 s.
*/ -}}
{{- define "trimtab.maxEntries" -}}1000{{- end -}}

{{- define "trimtab.sameAnnotations" -}}
variables.before.size() <= {{ include "trimtab.maxEntries" . }} && variables.after.size() <= {{ include "trimtab.maxEntries" . }} &&
variables.before.all(key, key in variables.ours || (key in variables.after && variables.after[key] == variables.before[key])) &&
variables.after.all(key, key in variables.ours || key in variables.before)
{{- end -}}

{{- /* The validations of a template below with the expressions of its variables, because match conditions have no variables. */ -}}
{{- define "trimtab.admission.inlined" -}}
{{- $spec := include (printf "trimtab.admission.%s" .policy) . | fromYaml }}
{{- range $rule := $spec.validations }}
{{- range $field := list "expression" "messageExpression" }}
{{- range reverse (default list $spec.variables) }}
{{- if hasKey $rule $field }}
{{- $_ := set $rule $field (regexReplaceAllLiteral (printf "variables\\.%s\\b" .name) (get $rule $field) (printf "(%s)" .expression)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $spec.validations }}
{{- end -}}

{{- define "trimtab.annotations" -}}
- name: before
  expression: oldObject.metadata.?annotations.orValue({})
- name: after
  expression: object.metadata.?annotations.orValue({})
{{- end -}}

{{- define "trimtab.admission.nodes" -}}
{{- $autoscaler := has "autoscaler" .controllers }}
{{- $pressure := has "pressure" .controllers }}
{{- $own := and (has "tainting" .controllers) (eq .root.Values.controllers.taintManager.rights "TaintAndEvict") }}
{{- $earlier := and (has "tainting" .controllers) (ne .root.Values.controllers.taintManager.rights "Observe") }}
matchConstraints:
  resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      resources: [nodes]
      operations: [UPDATE]
variables:
  {{- include "trimtab.annotations" . | nindent 2 }}
  - name: ours
    expression: >-
      {{- $keys := list }}
      {{- if $autoscaler }}{{ $keys = list "trimtab.dev/unneeded-since" "trimtab.dev/removing" "trimtab.dev/cordoned-by" }}{{ end }}
      {{- if $earlier }}{{ $keys = append $keys "trimtab.dev/taints-since" }}{{ end }}
      {{- if $pressure }}{{ $keys = append $keys "pressure.trimtab.dev/state" }}{{ end }}
      ['{{ join "', '" $keys }}']
  - name: taints
    expression: >-
      {{- $taints := list }}
      {{- if $autoscaler }}{{ $taints = list "ToBeDeletedByClusterAutoscaler:NoSchedule" "DeletionCandidateOfClusterAutoscaler:PreferNoSchedule" }}{{ end }}
      {{- if $own }}
      {{- range $key := list "not-ready" "unreachable" "memory-pressure" "disk-pressure" "pid-pressure" "network-unavailable" "unschedulable" "out-of-disk" }}
      {{- $taints = append $taints (printf "node.kubernetes.io/%s:NoSchedule" $key) }}
      {{- end }}
      {{- $taints = concat $taints (list "node.kubernetes.io/not-ready:NoExecute" "node.kubernetes.io/unreachable:NoExecute") }}
      {{- end }}
      {{- if $pressure }}
      {{- $taints = concat $taints (list "pressure.trimtab.dev/memory:NoSchedule" "pressure.trimtab.dev/disk:NoSchedule" "pressure.trimtab.dev/pid:NoSchedule") }}
      {{- end }}
      [{{ if $taints }}'{{ join "', '" $taints }}'{{ end }}]
validations:
  - expression: >-
      {{- include "trimtab.sameMetadata" . | nindent 6 }} &&
      object.spec.?podCIDR == oldObject.spec.?podCIDR &&
      object.spec.?podCIDRs == oldObject.spec.?podCIDRs &&
      object.spec.?providerID == oldObject.spec.?providerID &&
      object.spec.?configSource == oldObject.spec.?configSource &&
      object.spec.?externalID == oldObject.spec.?externalID
    message: the operator may change taints, its annotations and the cordon of nodes only
    reason: Forbidden
  {{- if not $autoscaler }}
  - expression: object.spec.?unschedulable == oldObject.spec.?unschedulable
    message: the operator may not cordon nodes; only the autoscaler does
    reason: Forbidden
  {{- end }}
  - expression: >-
      {{- include "trimtab.sameAnnotations" . | nindent 6 }}
    messageExpression: "'the operator may change these annotations of nodes only, and none if there are more than {{ include "trimtab.maxEntries" . }}: ' + variables.ours.join(', ')"
    reason: Forbidden
  - expression: >-
      object.spec.?taints.orValue([]).filter(taint, !((taint.key + ':' + taint.effect) in variables.taints)) ==
      oldObject.spec.?taints.orValue([]).filter(taint, !((taint.key + ':' + taint.effect) in variables.taints))
    messageExpression: "'the operator may change these taints of nodes only: ' + variables.taints.join(', ')"
    reason: Forbidden
{{- end -}}

{{- define "trimtab.admission.simulated-nodes" -}}
matchConstraints:
  resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      resources: [nodes]
      operations: [CREATE, DELETE]
validations:
  - expression: "(request.operation == 'CREATE' ? object : oldObject).spec.?providerID.orValue('').startsWith('kwok:')"
    message: the operator may create and delete nodes of kwok only
    reason: Forbidden
{{- end -}}

{{- define "trimtab.admission.node-status" -}}
{{- $own := and (has "tainting" .controllers) (eq .root.Values.controllers.taintManager.rights "TaintAndEvict") }}
{{- $pressure := has "pressure" .controllers }}
matchConstraints:
  resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      resources: [nodes/status]
      operations: [UPDATE]
variables:
  - name: before
    expression: oldObject.status.?conditions.orValue([])
  - name: after
    expression: object.status.?conditions.orValue([])
  {{- if $pressure }}
  - name: ours
    expression: >-
      ['pressure.trimtab.dev/MemoryPressure', 'pressure.trimtab.dev/DiskPressure', 'pressure.trimtab.dev/PIDPressure']
  {{- end }}
validations:
  - expression: >-
      {{- include "trimtab.sameMetadata" . | nindent 6 }} &&
      object.metadata.?annotations == oldObject.metadata.?annotations &&
      object.status.?addresses == oldObject.status.?addresses &&
      object.status.?allocatable == oldObject.status.?allocatable &&
      object.status.?capacity == oldObject.status.?capacity &&
      object.status.?config == oldObject.status.?config &&
      object.status.?daemonEndpoints == oldObject.status.?daemonEndpoints &&
      object.status.?declaredFeatures == oldObject.status.?declaredFeatures &&
      object.status.?features == oldObject.status.?features &&
      object.status.?images == oldObject.status.?images &&
      object.status.?nodeInfo == oldObject.status.?nodeInfo &&
      object.status.?phase == oldObject.status.?phase &&
      object.status.?runtimeHandlers == oldObject.status.?runtimeHandlers &&
      object.status.?volumesAttached == oldObject.status.?volumesAttached &&
      object.status.?volumesInUse == oldObject.status.?volumesInUse
    message: the operator may change conditions of a node's status only
    reason: Forbidden
  {{- if $own }}
  # The taint manager sets the conditions of unreachable nodes to Unknown. Only the kubelet sets True or False.
  {{- end }}
  {{- if $pressure }}
  # The node-pressure controller sets and removes conditions of types of its own. The kubelet keeps them.
  {{- end }}
  - expression: >-
      variables.after.all(each, variables.before.exists(old, old == each)
      {{- if $own }} || (each.status == 'Unknown' &&
      each.type in ['Ready', 'MemoryPressure', 'DiskPressure', 'PIDPressure']){{ end }}
      {{- if $pressure }} || each.type in variables.ours{{ end }}) &&
      variables.before.all(old, variables.after.exists(each, each.type == old.type)
      {{- if $pressure }} || old.type in variables.ours{{ end }})
    message: >-
      the operator may {{ if $own }}set conditions of nodes to Unknown{{ end }}{{ if and $own $pressure }} and {{ end -}}
      {{ if $pressure }}set the conditions pressure.trimtab.dev/…{{ end }} only
    reason: Forbidden
{{- end -}}

{{- define "trimtab.admission.pod-status" -}}
{{- $tainting := and (has "tainting" .controllers) (ne .root.Values.controllers.taintManager.rights "Observe") }}
{{- $own := and $tainting (eq .root.Values.controllers.taintManager.rights "TaintAndEvict") }}
{{- $scheduler := has "scheduler" .controllers }}
{{- $reasons := list }}
{{- if $scheduler }}{{ $reasons = append $reasons "PreemptionByScheduler" }}{{ end }}
{{- if has "pressure" .controllers }}{{ $reasons = append $reasons "DeletionByNodePressure" }}{{ end }}
matchConstraints:
  resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      resources: [pods/status]
      operations: [UPDATE]
variables:
  - name: before
    expression: oldObject.status.?conditions.orValue([])
  - name: after
    expression: object.status.?conditions.orValue([])
validations:
  - expression: >-
      {{- include "trimtab.sameMetadata" . | nindent 6 }} &&
      object.metadata.?annotations == oldObject.metadata.?annotations &&
      object.status.?allocatedResources == oldObject.status.?allocatedResources &&
      object.status.?containerStatuses == oldObject.status.?containerStatuses &&
      object.status.?ephemeralContainerStatuses == oldObject.status.?ephemeralContainerStatuses &&
      object.status.?extendedResourceClaimStatus == oldObject.status.?extendedResourceClaimStatus &&
      object.status.?hostIP == oldObject.status.?hostIP &&
      object.status.?hostIPs == oldObject.status.?hostIPs &&
      object.status.?initContainerStatuses == oldObject.status.?initContainerStatuses &&
      object.status.?message == oldObject.status.?message &&
      object.status.?nodeAllocatableResourceClaimStatuses == oldObject.status.?nodeAllocatableResourceClaimStatuses &&
      {{- if not $scheduler }}
      object.status.?nominatedNodeName == oldObject.status.?nominatedNodeName &&
      {{- end }}
      object.status.?observedGeneration == oldObject.status.?observedGeneration &&
      object.status.?phase == oldObject.status.?phase &&
      object.status.?podIP == oldObject.status.?podIP &&
      object.status.?podIPs == oldObject.status.?podIPs &&
      object.status.?qosClass == oldObject.status.?qosClass &&
      object.status.?reason == oldObject.status.?reason &&
      object.status.?resize == oldObject.status.?resize &&
      object.status.?resourceClaimStatuses == oldObject.status.?resourceClaimStatuses &&
      object.status.?resources == oldObject.status.?resources &&
      object.status.?startTime == oldObject.status.?startTime
    message: the operator may change conditions {{- if $scheduler }} and nominatedNodeName{{ end }} of a pod's status only
    reason: Forbidden
  # DisruptionTarget is set before a deletion
  {{- if $own }}; Ready becomes False for the pods of a node that is not ready{{ end }}
  {{- if $scheduler }}; PodScheduled becomes False for pods that could not be scheduled{{ end }}.
  - expression: >-
      variables.after.all(each, variables.before.exists(old, old == each)
      {{- if $tainting }} || each.type == 'DisruptionTarget'{{ end }}
      {{- if $own }} || (each.type == 'Ready' && each.status == 'False'){{ end }}
      {{- if $scheduler }} || (each.type == 'PodScheduled' && each.status == 'False'){{ end }}
      {{- if and $reasons (not $tainting) }} || (each.type == 'DisruptionTarget' && each.?reason.orValue('') in ['{{ join "', '" $reasons }}']){{ end }}) &&
      variables.before.all(old, variables.after.exists(each, each.type == old.type))
    message: >-
      the operator may set these conditions of pods only: DisruptionTarget
      {{- if $own }}, Ready to False{{ end }}{{ if $scheduler }}, PodScheduled to False{{ end }}
    reason: Forbidden
{{- end -}}

{{- define "trimtab.admission.pod-deletion" -}}
{{- $tainting := and (has "tainting" .controllers) (ne .root.Values.controllers.taintManager.rights "Observe") }}
{{- $scheduler := has "scheduler" .controllers }}
{{- $pressure := has "pressure" .controllers }}
matchConstraints:
  resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      resources: [pods]
      operations: [DELETE]
variables:
  {{- if $tainting }}
  - name: tolerations
    expression: oldObject.spec.?tolerations.orValue([])
  {{- end }}
  {{- if $scheduler }}
  - name: preempted
    expression: >-
      oldObject.?status.?conditions.orValue([]).exists(each, each.type == 'DisruptionTarget' && each.status == 'True' &&
      each.?reason.orValue('') == 'PreemptionByScheduler')
  {{- end }}
  {{- if $pressure }}
  # Pods that the kubelet has evicted, and pods that the node-pressure controller may evict: no static, system-critical or
  # DaemonSet pods.
  - name: evicted
    expression: >-
      oldObject.?status.?phase.orValue('') == 'Failed' && oldObject.?status.?reason.orValue('') == 'Evicted'
  - name: evictable
    expression: >-
      oldObject.spec.?nodeName.orValue('') != '' && oldObject.spec.?priority.orValue(0) < 2000000000 &&
      !('kubernetes.io/config.mirror' in oldObject.metadata.?annotations.orValue({})) &&
      (oldObject.metadata.?ownerReferences.orValue([]).size() > {{ include "trimtab.maxEntries" . }} ||
      !oldObject.metadata.?ownerReferences.orValue([]).exists(owner, owner.kind == 'DaemonSet'))
  {{- end }}
validations:
  {{- if $tainting }}
  # The taint manager never deletes pods that tolerate every NoExecute taint without a time limit, as static pods and most
  # system DaemonSets do. These have few tolerations.
  - expression: >-
      variables.tolerations.size() > {{ include "trimtab.maxEntries" . }} || !variables.tolerations.exists(each, each.?key.orValue('') == '' && each.?operator.orValue('') == 'Exists' &&
      each.?effect.orValue('') in ['NoExecute', '']) || variables.tolerations.exists(each, has(each.tolerationSeconds))
      {{- if $scheduler }} || variables.preempted{{ end }}
      {{- if $pressure }} || variables.evicted || variables.evictable{{ end }}
    message: the operator may not delete pods that tolerate every NoExecute taint
    reason: Forbidden
  {{- else if $pressure }}
  - expression: variables.evicted || variables.evictable{{ if $scheduler }} || variables.preempted{{ end }}
    message: the operator may not delete static, system-critical and DaemonSet pods
    reason: Forbidden
  {{- else }}
  # Before the scheduler deletes a victim, it sets the victim's condition DisruptionTarget.
  - expression: variables.preempted
    message: the operator may delete pods that it preempts only
    reason: Forbidden
  {{- end }}
  # The API server fills in the pod's own grace period, which is 0 for a terminal pod and a pod without a node.
  - expression: >-
      request.options.?gracePeriodSeconds.orValue(0) >= oldObject.spec.?terminationGracePeriodSeconds.orValue(30) ||
      oldObject.?status.?phase.orValue('') in ['Succeeded', 'Failed'] || oldObject.spec.?nodeName.orValue('') == ''
      {{- if $pressure }} ||
      (variables.evictable && request.options.?gracePeriodSeconds.orValue(0) >= 1)
      {{- end }}
    message: the operator may not {{ if $pressure }}delete a pod without a{{ else }}shorten a pod's{{ end }} grace period
    reason: Forbidden
{{- end -}}

{{- define "trimtab.admission.volumes" -}}
matchConstraints:
  resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      resources: [persistentvolumes]
      operations: [UPDATE]
variables:
  {{- include "trimtab.annotations" . | nindent 2 }}
  - name: ours
    expression: "['pv.kubernetes.io/bound-by-controller']"
validations:
  - expression: >-
      {{- include "trimtab.sameMetadata" . | nindent 6 }}
      {{- range $field := splitList " " (include "trimtab.volumeFields" .) }} &&
      object.spec.?{{ $field }} == oldObject.spec.?{{ $field }}
      {{- end }} &&
      dyn(object).spec.?capacity == dyn(oldObject).spec.?capacity
    message: the operator may change the claim of a volume only
    reason: Forbidden
  # A volume that a user has reserved for a claim stays reserved for it.
  - expression: >-
      !has(oldObject.spec.claimRef) || (has(object.spec.claimRef) &&
      object.spec.claimRef.?namespace == oldObject.spec.claimRef.?namespace &&
      object.spec.claimRef.?name == oldObject.spec.claimRef.?name &&
      (oldObject.spec.claimRef.?uid.orValue('') == '' || object.spec.claimRef.?uid == oldObject.spec.claimRef.?uid))
    message: the operator may not take a volume from its claim
    reason: Forbidden
  - expression: >-
      {{- include "trimtab.sameAnnotations" . | nindent 6 }}
    messageExpression: "'the operator may change these annotations of volumes only, and none if there are more than {{ include "trimtab.maxEntries" . }}: ' + variables.ours.join(', ')"
    reason: Forbidden
{{- end -}}

{{- /* All fields but capacity, whose type the API server's type checker does not know, and claimRef. */ -}}
{{- define "trimtab.volumeFields" -}}
accessModes awsElasticBlockStore azureDisk azureFile cephfs cinder csi fc flexVolume flocker gcePersistentDisk glusterfs hostPath iscsi local mountOptions nfs nodeAffinity persistentVolumeReclaimPolicy photonPersistentDisk portworxVolume quobyte rbd scaleIO storageClassName storageos volumeAttributesClassName volumeMode vsphereVolume
{{- end -}}

{{- define "trimtab.admission.claims" -}}
matchConstraints:
  resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      resources: [persistentvolumeclaims]
      operations: [UPDATE]
variables:
  {{- include "trimtab.annotations" . | nindent 2 }}
  - name: ours
    expression: "['volume.kubernetes.io/selected-node']"
validations:
  - expression: >-
      {{- include "trimtab.sameMetadata" . | nindent 6 }}
      {{- range $field := splitList " " "accessModes dataSource dataSourceRef resources selector storageClassName volumeAttributesClassName volumeMode volumeName" }} &&
      object.spec.?{{ $field }} == oldObject.spec.?{{ $field }}
      {{- end }}
    message: the operator may change the selected node of a claim only
    reason: Forbidden
  - expression: >-
      {{- include "trimtab.sameAnnotations" . | nindent 6 }}
    messageExpression: "'the operator may change these annotations of claims only, and none if there are more than {{ include "trimtab.maxEntries" . }}: ' + variables.ours.join(', ')"
    reason: Forbidden
{{- end -}}

{{- define "trimtab.admission.node-groups" -}}
matchConstraints:
  resourceRules:
    - apiGroups: [machine.openshift.io, cluster.x-k8s.io]
      apiVersions: ["*"]
      resources: [machinedeployments, machinepools, machinesets]
      operations: [UPDATE]
variables:
  {{- include "trimtab.annotations" . | nindent 2 }}
  - name: ours
    expression: >-
      ['machine.openshift.io/cluster-api-autoscaler-node-group-min-size',
      'machine.openshift.io/cluster-api-autoscaler-node-group-max-size',
      'cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size',
      'cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size',
      'autoscaling.openshift.io/machineautoscaler',
      'capacity.cluster-autoscaler.kubernetes.io/cpu',
      'capacity.cluster-autoscaler.kubernetes.io/memory',
      'capacity.cluster-autoscaler.kubernetes.io/gpu-count',
      'capacity.cluster-autoscaler.kubernetes.io/gpu-type',
      'capacity.cluster-autoscaler.kubernetes.io/maxPods',
      'trimtab.dev/capacity-copies', 'trimtab.dev/learned-node', 'trimtab.dev/removal-backoff',
      'trimtab.dev/removal-in-progress']
validations:
  # The autoscaler sets sizes through the scale subresource, which changes no other field.
  - expression: >-
      object.?spec == oldObject.?spec &&
      {{- include "trimtab.sameMetadata" . | nindent 6 }}
    message: the operator may change the size and its own annotations of node groups only
    reason: Forbidden
  - expression: >-
      {{- include "trimtab.sameAnnotations" . | nindent 6 }}
    messageExpression: "'the operator may change these annotations of node groups only, and none if there are more than {{ include "trimtab.maxEntries" . }}: ' + variables.ours.join(', ')"
    reason: Forbidden
{{- end -}}

{{- define "trimtab.admission.machines" -}}
matchConstraints:
  resourceRules:
    - apiGroups: [machine.openshift.io, cluster.x-k8s.io]
      apiVersions: ["*"]
      resources: [machines]
      operations: [UPDATE]
variables:
  {{- include "trimtab.annotations" . | nindent 2 }}
  - name: ours
    expression: "['machine.openshift.io/delete-machine', 'cluster.x-k8s.io/delete-machine']"
validations:
  - expression: >-
      object.?spec == oldObject.?spec &&
      {{- include "trimtab.sameMetadata" . | nindent 6 }}
    message: the operator may change its own annotations of machines only
    reason: Forbidden
  - expression: >-
      {{- include "trimtab.sameAnnotations" . | nindent 6 }}
    messageExpression: "'the operator may change these annotations of machines only, and none if there are more than {{ include "trimtab.maxEntries" . }}: ' + variables.ours.join(', ')"
    reason: Forbidden
{{- end -}}

{{- define "trimtab.admission.policies" -}}
{{- $ours := list }}
{{- if has "descheduler" .controllers }}{{ $ours = append $ours "deschedulerpolicies" }}{{ end }}
{{- if has "tainting" .controllers }}{{ $ours = append $ours "taintmanagers" }}{{ end }}
{{- if has "scheduler" .controllers }}{{ $ours = append $ours "schedulerpolicies" }}{{ end }}
{{- if has "pressure" .controllers }}{{ $ours = append $ours "nodepressurepolicies" }}{{ end }}
matchConstraints:
  resourceRules:
    {{- with $ours }}
    - apiGroups: [trimtab.dev]
      apiVersions: ["*"]
      resources: {{ toJson . }}
      operations: [UPDATE]
    {{- end }}
    {{- if has "autoscaler" .controllers }}
    - apiGroups: [autoscaling.openshift.io]
      apiVersions: ["*"]
      resources: [clusterautoscalers, machineautoscalers]
      operations: [UPDATE]
    {{- end }}
variables:
  {{- include "trimtab.annotations" . | nindent 2 }}
  # Annotations in which the framework Kopf keeps its state. Only users set try-again and run-now.
  - name: changed
    expression: >-
      variables.before.map(key, key).filter(key, !(key in variables.after && variables.after[key] == variables.before[key])) +
      variables.after.map(key, key).filter(key, !(key in variables.before))
  - name: finalizers
    expression: "['trimtab.dev/finalizer', 'machinetarget.autoscaling.openshift.io']"
validations:
  - expression: >-
      object.?spec == oldObject.?spec &&
      object.metadata.?labels == oldObject.metadata.?labels &&
      object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences
    message: the operator may change the status and its finalizer of its own resources only, never the spec
    reason: Forbidden
  - expression: >-
      object.metadata.?finalizers.orValue([]).filter(each, !(each in variables.finalizers)) ==
      oldObject.metadata.?finalizers.orValue([]).filter(each, !(each in variables.finalizers))
    messageExpression: "'the operator may change these finalizers only: ' + variables.finalizers.join(', ')"
    reason: Forbidden
  - expression: >-
      variables.changed.all(key, key.startsWith('trimtab.dev/') &&
      !(key in ['trimtab.dev/try-again', 'trimtab.dev/run-now']))
    message: the operator may change annotations below trimtab.dev/ only, except try-again and run-now
    reason: Forbidden
{{- end -}}

{{- define "trimtab.admission.runs" -}}
matchConstraints:
  resourceRules:
    - apiGroups: [trimtab.dev]
      apiVersions: ["*"]
      resources: [deschedulingruns]
      operations: [CREATE, UPDATE]
validations:
  - expression: "request.operation == 'CREATE' ? !object.spec.approved : object.spec == oldObject.spec"
    message: the operator may not approve runs
    reason: Forbidden
{{- end -}}

{{- define "trimtab.admission.creation" -}}
{{- $maps := list }}
{{- if has "autoscaler" .controllers }}{{ $maps = append $maps "cluster-autoscaler-status" }}{{ end }}
{{- if has "tainting" .controllers }}{{ $maps = append $maps "trimtab-taint-manager" }}{{ end }}
matchConstraints:
  resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      resources: [configmaps]
      operations: [CREATE]
    - apiGroups: [coordination.k8s.io]
      apiVersions: [v1]
      resources: [leases]
      operations: [CREATE]
validations:
  # RBAC cannot restrict create to a name.
  - expression: >-
      object.metadata.namespace == '{{ .root.Release.Namespace }}' &&
      object.metadata.name in (request.resource.resource == 'leases' ? ['{{ .lease }}', '{{ .lease }}-acting'] : {{ if $maps }}['{{ join "', '" $maps }}']{{ else }}[]{{ end }})
    message: the operator may create its own Leases and its own ConfigMaps only
    reason: Forbidden
{{- end -}}

{{- define "trimtab.admission.events" -}}
matchConstraints:
  resourceRules:
    - apiGroups: [events.k8s.io]
      apiVersions: [v1]
      resources: [events]
      operations: [CREATE, UPDATE]
validations:
  - expression: >-
      object.?reportingController.orValue('') == 'trimtab.dev/trimtab' &&
      (request.operation == 'CREATE' || oldObject.?reportingController.orValue('') == 'trimtab.dev/trimtab')
    message: the operator may write its own events only
    reason: Forbidden
{{- end -}}
