{{- define "trimtab.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "trimtab.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "trimtab.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "trimtab.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* A Service's name is a DNS label: 63 characters with its suffix. */ -}}
{{- define "trimtab.metricsName" -}}
{{- printf "%s-metrics" (include "trimtab.fullname" . | trunc 55 | trimSuffix "-") -}}
{{- end -}}

{{- /* The Deployment of the admission webhooks, its Service, and the webhook configurations. */ -}}
{{- define "trimtab.admissionName" -}}
{{- printf "%s-admission" (include "trimtab.fullname" . | trunc 52 | trimSuffix "-") -}}
{{- end -}}

{{- /* The Service of the inspection API, and its roles. */ -}}
{{- define "trimtab.inspectionName" -}}
{{- printf "%s-inspection" (include "trimtab.fullname" . | trunc 51 | trimSuffix "-") -}}
{{- end -}}

{{- define "trimtab.admissionAccount" -}}
{{- default (include "trimtab.admissionName" .) .Values.admission.serviceAccountName -}}
{{- end -}}

{{- /* The Secret with the certificate of the webhooks: the chart's own, or one of cert-manager. */ -}}
{{- define "trimtab.admissionSecret" -}}
{{- default (printf "%s-certificate" (include "trimtab.admissionName" .)) .Values.admission.certificate.secretName -}}
{{- end -}}

{{- /* The service account with whose tokens the operator reads statistics from kubelets. */ -}}
{{- define "trimtab.kubeletStatsAccount" -}}
{{- printf "%s-kubelet-stats" (include "trimtab.fullname" . | trunc 49 | trimSuffix "-") -}}
{{- end -}}

{{- /* Labels that select the pods of the admission webhooks, and that no selector of the controllers' pods matches. */ -}}
{{- define "trimtab.admissionSelector" -}}
app.kubernetes.io/name: {{ printf "%s-admission" (include "trimtab.name" . | trunc 52 | trimSuffix "-") }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: admission
{{- end -}}

{{- define "trimtab.selectorLabels" -}}
app.kubernetes.io/name: {{ include "trimtab.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "trimtab.labels" -}}
{{ include "trimtab.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "trimtab.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "trimtab.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "trimtab.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "trimtab.controllers" -}}
{{- $names := list -}}
{{- if .Values.controllers.descheduler.enabled }}{{ $names = append $names "descheduler" }}{{ end -}}
{{- if .Values.controllers.clusterAutoscaler.enabled }}{{ $names = append $names "autoscaler" }}{{ end -}}
{{- if .Values.controllers.taintManager.enabled }}{{ $names = append $names "tainting" }}{{ end -}}
{{- if .Values.controllers.scheduler.enabled }}{{ $names = append $names "scheduler" }}{{ end -}}
{{- if .Values.controllers.pressure.enabled }}{{ $names = append $names "pressure" }}{{ end -}}
{{- if not $names }}{{ fail "controllers: enable at least one" }}{{ end -}}
{{- join "," $names -}}
{{- end -}}

{{- /* Arguments that name a gRPC server. */ -}}
{{- define "trimtab.grpc" -}}
{{- $prefix := .prefix -}}
{{- range $value, $option := dict "address" "address" "caFile" "ca-file" "certFile" "cert-file" "keyFile" "key-file" }}
{{- with index $.grpc $value }}
- --{{ $prefix }}-grpc-{{ $option }}={{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* NetworkPolicy peers: namespaces by name, and whatever else is listed. */ -}}
{{- define "trimtab.peers" -}}
{{- with .namespaces }}
- namespaceSelector:
    matchExpressions:
      - {key: kubernetes.io/metadata.name, operator: In, values: {{ toJson . }}}
{{- end }}
{{- with .from }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Ports of the servers that the values name, as a YAML list. */ -}}
{{- define "trimtab.serverPorts" -}}
{{- $ports := list -}}
{{- with .Values.prometheus.url -}}
{{- $url := urlParse . -}}
{{- $port := regexFind ":[0-9]+$" $url.host | trimPrefix ":" -}}
{{- $ports = append $ports (default (ternary "443" "80" (eq $url.scheme "https")) $port) -}}
{{- end -}}
{{- range list .Values.cloudProvider.grpc.address .Values.expander.grpc.address -}}
{{- with regexFind ":[0-9]+$" . | trimPrefix ":" }}{{ $ports = append $ports . }}{{ end -}}
{{- end -}}
{{- range concat $ports .Values.networkPolicy.servers.ports | uniq }}
- {{ . }}
{{- end }}
{{- end -}}

{{- /* What the schema cannot say because it concerns two values. */ -}}
{{- define "trimtab.check" -}}
{{- if and (not .Values.leaderElection.enabled) (gt (int .Values.replicas) 1) }}
{{- fail "replicas: more than 1 needs leaderElection.enabled, or every replica would act" }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.service.enabled) }}
{{- fail "metrics.serviceMonitor.enabled needs metrics.service.enabled: a ServiceMonitor selects a Service" }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.authorization (not .Values.metrics.secure) }}
{{- fail "metrics.serviceMonitor.authorization needs metrics.secure: without it the metrics need no authorization" }}
{{- end }}
{{- if and (or .Values.prometheus.tokenFile .Values.prometheus.caFile) (not .Values.prometheus.url) }}
{{- fail "prometheus.tokenFile and prometheus.caFile need prometheus.url" }}
{{- end }}
{{- if .Values.admission.enabled }}
{{- with .Values.admission }}
{{- if ne 3 (len (list (int .port) (int .probesPort) (int .metricsPort) | uniq)) }}
{{- fail "admission: port, probesPort and metricsPort must differ" }}
{{- end }}
{{- end }}
{{- range (include "trimtab.deployments" . | fromYaml).items }}
{{- if eq .account (include "trimtab.admissionAccount" $) }}
{{- fail "admission.serviceAccountName: the webhooks need a service account of their own, or they would have the permissions of the controllers" }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.controllers.pressure.kubelet }}
{{- if and .caFile .caConfigMap }}
{{- fail "controllers.pressure.kubelet: set caFile or caConfigMap, not both" }}
{{- end }}
{{- if and .insecureSkipTlsVerify (or .caFile .caConfigMap) }}
{{- fail "controllers.pressure.kubelet: caFile and caConfigMap have no effect with insecureSkipTlsVerify" }}
{{- end }}
{{- if and (eq .access "Proxy") (or .caFile .caConfigMap .insecureSkipTlsVerify) }}
{{- fail "controllers.pressure.kubelet: with access: Proxy, the API server verifies the kubelets' certificates; remove caFile, caConfigMap and insecureSkipTlsVerify" }}
{{- end }}
{{- end }}
{{- range $item := (include "trimtab.deployments" . | fromYaml).items }}
{{- if and $.Values.controllers.pressure.enabled (eq $item.account (include "trimtab.kubeletStatsAccount" $)) }}
{{- fail (printf "the service account %s is for reading statistics from kubelets; give the operator another one" $item.account) }}
{{- end }}
{{- end }}
{{- range $name, $grpc := dict "cloudProvider.grpc" .Values.cloudProvider.grpc "expander.grpc" .Values.expander.grpc }}
{{- if and (or $grpc.caFile $grpc.certFile $grpc.keyFile) (not $grpc.address) }}
{{- fail (printf "%s.caFile, certFile and keyFile need %s.address" $name $name) }}
{{- end }}
{{- if ne (empty $grpc.certFile) (empty $grpc.keyFile) }}
{{- fail (printf "%s.certFile and %s.keyFile must be set together" $name $name) }}
{{- end }}
{{- end }}
{{- if and .Values.prometheus.tokenFile (not (hasPrefix "https://" .Values.prometheus.url)) }}
{{- fail "prometheus.tokenFile: a token must not travel unencrypted, so prometheus.url must begin with https://" }}
{{- end }}
{{- with .Values.planning.deadline }}
{{- $start := toDate "2006-01-02" "2026-01-01" }}
{{- $deadline := dateModify . $start }}
{{- $inactivity := dateModify $.Values.health.maxInactivity $start }}
{{- if not ($deadline.Before $inactivity) }}
{{- fail "planning.deadline must be shorter than health.maxInactivity, or a plan of that length would end the process" }}
{{- end }}
{{- end }}
{{- end -}}
