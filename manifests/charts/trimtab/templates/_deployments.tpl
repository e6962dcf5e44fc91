{{- /*
What runs as what: one Deployment for all controllers, or one for each. YAML: `items`, each with
  name            of the Deployment and its PodDisruptionBudget
  component       label of its pods; empty where one Deployment runs all
  controllers     as `trimtab run --controllers` names them
  account         its service account
  lease           its Lease
*/ -}}
{{- define "trimtab.deployments" -}}
{{- $names := splitList "," (include "trimtab.controllers" .) -}}
items:
{{- if eq .Values.deployments "Shared" }}
  - name: {{ include "trimtab.fullname" . }}
    component: ""
    controllers: {{ toJson $names }}
    account: {{ include "trimtab.serviceAccountName" . }}
    lease: {{ .Values.leaderElection.leaseName }}
{{- else }}
{{- $base := include "trimtab.fullname" . | trunc 44 | trimSuffix "-" }}
{{- $accounts := list }}
{{- range $name := $names }}
{{- $component := include "trimtab.component" $name }}
{{- $value := index $.Values.controllers (include "trimtab.controllerValue" $name) }}
{{- $account := default (printf "%s-%s" (default $base $.Values.serviceAccount.name) $component) $value.serviceAccountName }}
{{- if has $account $accounts }}
{{- fail (printf "deployments: PerController needs a different service account for each controller, and %s is named twice" $account) }}
{{- end }}
{{- $accounts = append $accounts $account }}
  - name: {{ $base }}-{{ $component }}
    component: {{ $component }}
    controllers: [{{ $name }}]
    account: {{ $account }}
    lease: {{ $.Values.leaderElection.leaseName }}-{{ $component }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* A controller's name in roles, labels and service accounts. */ -}}
{{- define "trimtab.component" -}}
{{- get (dict "descheduler" "descheduler" "autoscaler" "cluster-autoscaler" "tainting" "taint-manager" "scheduler" "scheduler" "pressure" "pressure") . -}}
{{- end -}}

{{- /* A controller's key below `controllers`. */ -}}
{{- define "trimtab.controllerValue" -}}
{{- get (dict "descheduler" "descheduler" "autoscaler" "clusterAutoscaler" "tainting" "taintManager" "scheduler" "scheduler" "pressure" "pressure") . -}}
{{- end -}}

{{- /* The service account of a controller: `dict "root" $ "controller" "tainting"`. */ -}}
{{- define "trimtab.accountOf" -}}
{{- range (include "trimtab.deployments" .root | fromYaml).items }}{{ if has $.controller .controllers }}{{ .account }}{{ end }}{{ end -}}
{{- end -}}

{{- /* Labels that select the pods of one Deployment. */ -}}
{{- define "trimtab.podSelector" -}}
{{ include "trimtab.selectorLabels" . }}
{{- with .Item.component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}
