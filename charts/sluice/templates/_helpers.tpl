{{/* Value of app.kubernetes.io/name. */}}
{{- define "sluice.name" -}}
{{- .Values.nameOverride | default "kueue" }}
{{- end }}

{{/* Prefix of the names of objects. */}}
{{- define "sluice.fullname" -}}
{{- .Values.fullnameOverride | default .Values.nameOverride | default "kueue" }}
{{- end }}

{{/* Labels of every object except the component. */}}
{{- define "sluice.labels" -}}
app.kubernetes.io/name: {{ include "sluice.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Labels of an object of the component, or of the controller if the context names none. */}}
{{- define "sluice.managerLabels" -}}
{{ include "sluice.labels" . }}
app.kubernetes.io/component: {{ .component | default "controller" }}
{{- end }}

{{/* Labels that select the pods of the component. */}}
{{- define "sluice.selectorLabels" -}}
app.kubernetes.io/name: {{ include "sluice.name" . }}
app.kubernetes.io/component: {{ .component | default "controller" }}
{{- end }}

{{/* Kueue's label of its Deployment, pods and metrics Service, by which users and their monitors select. */}}
{{- define "sluice.kueueLabel" -}}
control-plane: controller-manager
{{- end }}

{{/* Label of the pods that serve the webhooks. An upgrade that changes webhooks.separate moves it to other pods; the old ones serve
until these are ready. */}}
{{- define "sluice.servingLabel" -}}
sluice.dev/serves-webhooks: "true"
{{- end }}

{{/* Labels that select these pods. */}}
{{- define "sluice.servingLabels" -}}
app.kubernetes.io/name: {{ include "sluice.name" . }}
{{ include "sluice.servingLabel" . }}
{{- end }}

{{/* The components that are Deployments, as JSON. A single one runs the whole manager. */}}
{{- define "sluice.components" -}}
{{- if .Values.webhooks.separate }}["controller", "webhooks"]{{ else }}["controller"]{{ end }}
{{- end }}

{{/* Name of the component's Deployment and of the objects for it alone. */}}
{{- define "sluice.componentName" -}}
{{ include "sluice.fullname" . }}-{{ ternary "webhooks" "controller-manager" (eq .component "webhooks") }}
{{- end }}

{{/* Number of the component's replicas. */}}
{{- define "sluice.replicas" -}}
{{ ternary .Values.webhooks.replicas .Values.controllerManager.replicas (eq .component "webhooks") }}
{{- end }}

{{/* Not empty if the component serves the webhooks. */}}
{{- define "sluice.servesWebhooks" -}}
{{- if or (eq .component "webhooks") (not .Values.webhooks.separate) }}true{{ end }}
{{- end }}

{{/* The configuration as JSON. */}}
{{- define "sluice.config" -}}
{{- $config := .Values.managerConfig.controllerManagerConfigYaml | fromYaml }}
{{- with $config.Error }}
{{- fail (printf "managerConfig.controllerManagerConfigYaml is not a YAML document with fields: %s" .) }}
{{- end }}
{{- if not $config }}
{{- fail "managerConfig.controllerManagerConfigYaml has no content; the manager refuses such a configuration" }}
{{- end }}
{{- with $config.namespace }}
{{- if ne . $.Release.Namespace }}
{{- fail (printf "managerConfig.controllerManagerConfigYaml: namespace %q is not the release's namespace %q; remove the field" . $.Release.Namespace) }}
{{- end }}
{{- end }}
{{- toJson $config }}
{{- end }}

{{/* A section of the configuration as JSON. Usage: list $ "section". */}}
{{- define "sluice.config.section" -}}
{{- $config := include "sluice.config" (index . 0) | fromJson }}
{{- get $config (index . 1) | default dict | toJson }}
{{- end }}

{{/* The enabled frameworks as JSON. */}}
{{- define "sluice.frameworks" -}}
{{- $integrations := include "sluice.config.section" (list . "integrations") | fromJson }}
{{- if kindIs "slice" $integrations.frameworks }}
{{- toJson $integrations.frameworks }}
{{- else }}
{{- toJson (list "batch/job") }}
{{- end }}
{{- end }}

{{/* Not empty if pods without a queue name get the default queue of their namespace, which they do only as jobs. */}}
{{- define "sluice.queuesAllPods" -}}
{{- if .Values.webhooks.defaultQueueForPods }}
{{- if not (has "pod" (include "sluice.frameworks" . | fromJsonArray)) }}
{{- fail "webhooks.defaultQueueForPods: the framework pod is not in integrations.frameworks of managerConfig.controllerManagerConfigYaml" }}
{{- end }}true
{{- end }}
{{- end }}

{{/* Not empty if jobs without a queue name are managed too. */}}
{{- define "sluice.managesAllJobs" -}}
{{- $config := include "sluice.config" . | fromJson }}
{{- if $config.manageJobsWithoutQueueName }}true{{ end }}
{{- end }}

{{/* Fields of internalCertManagement that differ from the configuration, as JSON. */}}
{{- define "sluice.certificateOverrides" -}}
{{- $internal := include "sluice.config.section" (list . "internalCertManagement") | fromJson }}
{{- $overrides := dict }}
{{- if .Values.enableCertManager }}
{{- if $internal.enable }}
{{- fail "enableCertManager: managerConfig.controllerManagerConfigYaml sets internalCertManagement.enable; remove one of both" }}
{{- end }}
{{- if not (hasKey $internal "enable") }}
{{- $_ := set $overrides "enable" false }}
{{- end }}
{{- end }}
{{- if ne (include "sluice.fullname" .) "kueue" }}
{{- if not $internal.webhookServiceName }}
{{- $_ := set $overrides "webhookServiceName" (include "sluice.webhookServiceName" .) }}
{{- end }}
{{- if not $internal.webhookSecretName }}
{{- $_ := set $overrides "webhookSecretName" (include "sluice.webhookSecretName" .) }}
{{- end }}
{{- end }}
{{- toJson $overrides }}
{{- end }}

{{/* The configuration file: as it was given, if nothing must be changed. */}}
{{- define "sluice.configFile" -}}
{{- $overrides := include "sluice.certificateOverrides" . | fromJson }}
{{- if $overrides }}
{{- $config := include "sluice.config" . | fromJson }}
{{- mergeOverwrite $config (dict "internalCertManagement" $overrides) | toYaml }}
{{- else }}
{{- .Values.managerConfig.controllerManagerConfigYaml }}
{{- end }}
{{- end }}

{{- define "sluice.webhookServiceName" -}}
{{- $internal := include "sluice.config.section" (list . "internalCertManagement") | fromJson }}
{{- $internal.webhookServiceName | default (printf "%s-webhook-service" (include "sluice.fullname" .)) }}
{{- end }}

{{- define "sluice.conversionServiceName" -}}
{{ include "sluice.fullname" . }}-conversion-service
{{- end }}

{{- define "sluice.visibilityServiceName" -}}
{{ include "sluice.fullname" . }}-visibility-server
{{- end }}

{{/* Not empty if the visibility API is served. */}}
{{- define "sluice.servesVisibility" -}}
{{- $gates := mergeOverwrite (dict "VisibilityOnDemand" true) (include "sluice.config.section" (list . "featureGates") | fromJson) }}
{{- range .Values.controllerManager.featureGates }}
{{- $_ := set $gates .name .enabled }}
{{- end }}
{{- if and .Values.visibility.enabled $gates.VisibilityOnDemand }}true{{ end }}
{{- end }}

{{/* Services whose names the serving certificate has, as JSON. */}}
{{- define "sluice.certifiedServices" -}}
{{- $services := list (include "sluice.webhookServiceName" .) (include "sluice.metricsServiceName" .) }}
{{- if include "sluice.servesVisibility" . }}
{{- $services = append $services (include "sluice.visibilityServiceName" .) }}
{{- end }}
{{- if .Values.v1beta1.enabled }}
{{- $services = append $services (include "sluice.conversionServiceName" .) }}
{{- end }}
{{- if include "sluice.dashboardInManager" . }}
{{- $services = append $services (include "sluice.dashboardName" .) }}
{{- end }}
{{- toJson $services }}
{{- end }}

{{- define "sluice.webhookSecretName" -}}
{{- $internal := include "sluice.config.section" (list . "internalCertManagement") | fromJson }}
{{- $internal.webhookSecretName | default (printf "%s-webhook-server-cert" (include "sluice.fullname" .)) }}
{{- end }}

{{- define "sluice.metricsServiceName" -}}
{{ include "sluice.fullname" . }}-controller-manager-metrics-service
{{- end }}

{{/* Ports of the pod. Those of metrics and probes are empty if they are off. */}}
{{- define "sluice.webhookPort" -}}
{{- $webhook := include "sluice.config.section" (list . "webhook") | fromJson }}
{{- $webhook.port | default 9443 }}
{{- end }}

{{- define "sluice.metricsPort" -}}
{{- $metrics := include "sluice.config.section" (list . "metrics") | fromJson }}
{{- include "sluice.portOf" (list "metrics.bindAddress" ($metrics.bindAddress | default ":8443")) }}
{{- end }}

{{- define "sluice.visibilityPort" -}}
{{- $visibility := include "sluice.config.section" (list . "visibilityServer") | fromJson }}
{{- $visibility.bindPort | default 8082 }}
{{- end }}

{{- define "sluice.healthPort" -}}
{{- $health := include "sluice.config.section" (list . "health") | fromJson }}
{{- include "sluice.portOf" (list "health.healthProbeBindAddress" ($health.healthProbeBindAddress | default ":8081")) }}
{{- end }}

{{/* Port of an address, or nothing for "0". Usage: list "field" "address". */}}
{{- define "sluice.portOf" -}}
{{- $address := index . 1 | toString }}
{{- if ne $address "0" }}
{{- $port := regexFind ":[0-9]+$" $address | trimPrefix ":" }}
{{- if not $port }}
{{- fail (printf "managerConfig.controllerManagerConfigYaml: %s %q has no port" (index . 0) $address) }}
{{- end }}
{{- $port }}
{{- end }}
{{- end }}

{{/* Annotations with which cert-manager finds the CA of webhooks. */}}
{{- define "sluice.injectCA" -}}
{{- if .Values.enableCertManager -}}
annotations:
  cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/{{ include "sluice.fullname" . }}-serving-cert
{{- end }}
{{- end }}

{{/* Not empty if the manager issues its certificate. */}}
{{- define "sluice.issuesCertificates" -}}
{{- $internal := include "sluice.config.section" (list . "internalCertManagement") | fromJson }}
{{- if not (or .Values.enableCertManager (and (hasKey $internal "enable") (not $internal.enable))) }}true{{ end }}
{{- end }}

{{/* Not empty unless the feature gates TopologyAwareScheduling and ElasticJobsViaWorkloadSlices are off. */}}
{{- define "sluice.topology" -}}
{{- $gates := dict "TopologyAwareScheduling" true "ElasticJobsViaWorkloadSlices" true }}
{{- $gates = mergeOverwrite $gates (include "sluice.config.section" (list . "featureGates") | fromJson) }}
{{- range .Values.controllerManager.featureGates }}
{{- $_ := set $gates .name .enabled }}
{{- end }}
{{- if or $gates.TopologyAwareScheduling $gates.ElasticJobsViaWorkloadSlices }}true{{ end }}
{{- end }}

{{/* Not empty if jobs of deactivated Workloads are deleted after a while. */}}
{{- define "sluice.retention" -}}
{{- $policies := include "sluice.config.section" (list . "objectRetentionPolicies") | fromJson }}
{{- $workloads := $policies.workloads | default dict }}
{{- if hasKey $workloads "afterDeactivatedByKueue" }}true{{ end }}
{{- end }}

{{/* Permission of separate webhooks to read the definitions whose objects are converted. */}}
{{- define "sluice.conversionRules" -}}
{{- if .Values.v1beta1.enabled }}
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  resourceNames:
  - clusterqueues.kueue.x-k8s.io
  - cohorts.kueue.x-k8s.io
  - localqueues.kueue.x-k8s.io
  - multikueueclusters.kueue.x-k8s.io
  - workloads.kueue.x-k8s.io
  verbs: [get, list, watch]
{{- end }}
{{- end }}
