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

{{- /* What the schema cannot say because it concerns two values. */ -}}
{{- define "trimtab.check" -}}
{{- if and (not .Values.leaderElection.enabled) (gt (int .Values.replicas) 1) }}
{{- fail "replicas: more than 1 needs leaderElection.enabled, or every one of them would act" }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.service.enabled) }}
{{- fail "metrics.serviceMonitor.enabled needs metrics.service.enabled: it finds pods through the Service" }}
{{- end }}
{{- if and (or .Values.prometheus.tokenFile .Values.prometheus.caFile) (not .Values.prometheus.url) }}
{{- fail "prometheus.tokenFile and prometheus.caFile need prometheus.url" }}
{{- end }}
{{- range $name, $grpc := dict "cloudProvider.grpc" .Values.cloudProvider.grpc "expander.grpc" .Values.expander.grpc }}
{{- if and (or $grpc.caFile $grpc.certFile $grpc.keyFile) (not $grpc.address) }}
{{- fail (printf "%s.caFile, certFile and keyFile need %s.address" $name $name) }}
{{- end }}
{{- if ne (empty $grpc.certFile) (empty $grpc.keyFile) }}
{{- fail (printf "%s.certFile and %s.keyFile belong together" $name $name) }}
{{- end }}
{{- end }}
{{- if and .Values.prometheus.tokenFile (not (hasPrefix "https://" .Values.prometheus.url)) }}
{{- fail "prometheus.tokenFile: a token must not travel unencrypted, so prometheus.url must begin with https://" }}
{{- end }}
{{- end -}}
