{{/* Arguments of the component. */}}
{{- define "sluice.manager.args" -}}
- --config=/controller_manager_config.yaml
- --shutdown-delay=15s
- --config-dir=/etc/kueue-manager-config
{{- if .Values.webhooks.separate }}
- --component={{ .component }}
{{- end }}
{{- if .Values.v1beta1.enabled }}
{{- if .Values.webhookClientCA.configMap }}
{{- fail "v1beta1.enabled: API servers have objects converted without a client certificate, which webhookClientCA demands" }}
{{- end }}
- --conversion-service={{ include "sluice.conversionServiceName" . }}
{{- end }}
{{- if not .Values.visibility.enabled }}
- --visibility-bind-address=0
{{- end }}
{{- if ne (include "sluice.fullname" .) "kueue" }}
- --metrics-service={{ include "sluice.metricsServiceName" . }}
{{- end }}
{{- if ne .Values.kubernetesClusterDomain "cluster.local" }}
{{- $observers := list (include "sluice.dashboardName" .) (include "sluice.historyName" .) }}
{{- range concat (include "sluice.certifiedServices" . | fromJsonArray) $observers | uniq }}
- --webhook-san={{ . }}.{{ $.Release.Namespace }}.svc.{{ $.Values.kubernetesClusterDomain }}
{{- end }}
{{- end }}
{{- with .Values.webhookClientCA }}
{{- if .configMap }}
- --webhook-client-ca=/etc/kueue-webhook-client-ca/ca.crt
{{- range .names }}
- {{ printf "--webhook-client-name=%s" . | quote }}
{{- end }}
{{- else if .names }}
{{- fail "webhookClientCA.names: webhookClientCA.configMap is required" }}
{{- end }}
{{- end }}
{{- include "sluice.manager.sharedArgs" . }}
{{- if ne .component "webhooks" }}
{{- include "sluice.dashboardManagerArgs" . }}
{{- include "sluice.historyManagerArgs" . }}
{{- end }}
{{- with .Values.controllerManager.manager.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Arguments of every component. */}}
{{- define "sluice.manager.sharedArgs" -}}
{{- if not .Values.provisioningRequests.enabled }}
- --provisioning-requests=false
{{- end }}
{{- if ne (.Values.visibility.tenantDetail | default "sums") "sums" }}
- --visibility-tenant-detail={{ .Values.visibility.tenantDetail }}
{{- end }}
{{- if ne (include "sluice.fullname" .) "kueue" }}
- --visibility-service={{ include "sluice.visibilityServiceName" . }}
- --mutating-webhook-configuration={{ include "sluice.fullname" . }}-mutating-webhook-configuration
- --validating-webhook-configuration={{ include "sluice.fullname" . }}-validating-webhook-configuration
{{- end }}
{{- with .Values.controllerManager.featureGates }}
{{- if hasKey (include "sluice.config" $ | fromJson) "featureGates" }}
{{- fail "controllerManager.featureGates: managerConfig.controllerManagerConfigYaml has featureGates as well; set one of both" }}
{{- end }}
{{- $gates := list }}
{{- range . }}
{{- $gates = append $gates (printf "%s=%t" .name .enabled) }}
{{- end }}
- --feature-gates={{ join "," $gates }}
{{- end }}
{{- with include "sluice.manager.logLevel" . }}
- {{ printf "--log-level=%s" . | quote }}
{{- end }}
{{- end }}

{{/* Log level. A number is a level of Kueue. */}}
{{- define "sluice.manager.logLevel" -}}
{{- $level := .Values.controllerManager.manager.logLevel }}
{{- if kindIs "string" $level }}
{{- $level }}
{{- else if le (int $level) 3 }}info
{{- else if le (int $level) 5 }}debug
{{- else }}trace
{{- end }}
{{- end }}

{{/* Reference of the image. */}}
{{- define "sluice.manager.image" -}}
{{- with .Values.controllerManager.manager.image }}
{{- if .digest }}
{{- printf "%s@%s" .repository .digest }}
{{- else }}
{{- printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) }}
{{- end }}
{{- end }}
{{- end }}

{{/* PriorityClass of the pods; nothing if the value is null. */}}
{{- define "sluice.manager.priorityClass" -}}
{{- $class := .Values.controllerManager.manager.priorityClassName }}
{{- if kindIs "string" $class }}
{{- $class | default (printf "%s-controller-manager" (include "sluice.fullname" .)) }}
{{- end }}
{{- end }}

{{/* Affinity of the pods. */}}
{{- define "sluice.manager.affinity" -}}
{{- with .Values.controllerManager.affinity }}
{{- toYaml . }}
{{- else -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
  - weight: 100
    podAffinityTerm:
      topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels:
          {{- include "sluice.selectorLabels" . | nindent 10 }}
{{- end }}
{{- end }}

{{/* The container that runs the component. */}}
{{- define "sluice.manager.container" -}}
{{- $manager := .Values.controllerManager.manager -}}
name: manager
image: {{ include "sluice.manager.image" . | quote }}
{{- with $manager.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
command:
- /manager
args:
{{- include "sluice.manager.args" . | nindent 0 }}
{{- if and (include "sluice.servesVisibility" .) (ne .component "webhooks") }}
env:
- name: POD_IP
  valueFrom:
    fieldRef:
      apiVersion: v1
      fieldPath: status.podIP
{{- end }}
ports:
{{- if include "sluice.servesWebhooks" . }}
- name: webhook-server
  containerPort: {{ include "sluice.webhookPort" . }}
  protocol: TCP
{{- end }}
{{- with include "sluice.metricsPort" . }}
- name: metrics
  containerPort: {{ . }}
  protocol: TCP
{{- end }}
{{- if and (include "sluice.servesVisibility" .) (ne .component "webhooks") }}
- name: visibility
  containerPort: {{ include "sluice.visibilityPort" . }}
  protocol: TCP
{{- end }}
{{- if and (include "sluice.dashboardInManager" .) (ne .component "webhooks") }}
- name: dashboard
  containerPort: 8444
  protocol: TCP
{{- end }}
{{- with include "sluice.healthPort" . }}
- name: health
  containerPort: {{ . }}
  protocol: TCP
{{- end }}
{{- if include "sluice.healthPort" . }}
readinessProbe:
  httpGet:
    path: /{{ (include "sluice.config.section" (list . "health") | fromJson).readinessEndpointName | default "readyz" }}
    port: health
  {{- toYaml .Values.controllerManager.readinessProbe | nindent 2 }}
livenessProbe:
  httpGet:
    path: /{{ (include "sluice.config.section" (list . "health") | fromJson).livenessEndpointName | default "healthz" }}
    port: health
  {{- toYaml .Values.controllerManager.livenessProbe | nindent 2 }}
{{- end }}
resources:
  {{- toYaml (and (eq .component "webhooks") .Values.webhooks.resources | default $manager.resources) | nindent 2 }}
securityContext:
  {{- toYaml $manager.containerSecurityContext | nindent 2 }}
volumeMounts:
- name: manager-config
  mountPath: /controller_manager_config.yaml
  subPath: controller_manager_config.yaml
  readOnly: true
- name: manager-config
  mountPath: /etc/kueue-manager-config
  readOnly: true
{{- if and (include "sluice.servesVisibility" .) (ne .component "webhooks") }}
- name: leader-token
  mountPath: /var/run/secrets/sluice.dev/leader
  readOnly: true
{{- end }}
{{- if .Values.enableCertManager }}
- name: cert
  mountPath: /tmp/k8s-webhook-server/serving-certs
  readOnly: true
{{- end }}
{{- if .Values.webhookClientCA.configMap }}
- name: webhook-client-ca
  mountPath: /etc/kueue-webhook-client-ca
  readOnly: true
{{- end }}
{{- end }}

{{/* Volumes of the pods. */}}
{{- define "sluice.manager.volumes" -}}
- name: manager-config
  configMap:
    name: {{ include "sluice.fullname" . }}-manager-config
{{- if and (include "sluice.servesVisibility" .) (ne .component "webhooks") }}
- name: leader-token
  projected:
    sources:
    - serviceAccountToken:
        audience: leader.visibility.sluice.dev
        expirationSeconds: 3600
        path: token
{{- end }}
{{- if .Values.enableCertManager }}
- name: cert
  secret:
    secretName: {{ include "sluice.webhookSecretName" . }}
{{- end }}
{{- with .Values.webhookClientCA.configMap }}
- name: webhook-client-ca
  configMap:
    name: {{ . }}
{{- end }}
{{- end }}

{{/* The pod template. */}}
{{- define "sluice.manager.podTemplate" -}}
metadata:
  labels:
    {{- include "sluice.selectorLabels" . | nindent 4 }}
    {{- include "sluice.kueueLabel" . | nindent 4 }}
    {{- if include "sluice.servesWebhooks" . }}
    {{- include "sluice.servingLabel" . | nindent 4 }}
    {{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: manager
    # A change of the configuration replaces the pods.
    sluice.dev/config-checksum: {{ include "sluice.configFile" . | sha256sum }}
    {{- with .Values.controllerManager.manager.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "sluice.componentName" . }}
  {{- with include "sluice.manager.priorityClass" . }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- if .Values.controllerManager.hostNetwork }}
  hostNetwork: true
  {{- end }}
  {{- with .Values.controllerManager.dnsPolicy }}
  dnsPolicy: {{ . }}
  {{- end }}
  {{- with .Values.controllerManager.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  terminationGracePeriodSeconds: 30
  securityContext:
    {{- toYaml .Values.controllerManager.manager.podSecurityContext | nindent 4 }}
  {{- with .Values.controllerManager.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.controllerManager.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  affinity:
    {{- include "sluice.manager.affinity" . | nindent 4 }}
  {{- with .Values.controllerManager.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
  - {{- include "sluice.manager.container" . | nindent 4 }}
  volumes:
    {{- include "sluice.manager.volumes" . | nindent 4 }}
{{- end }}
