{{/* Not empty if there is a dashboard. Kueue's chart has another name for it. */}}
{{- define "sluice.dashboard" -}}
{{- if or .Values.dashboard.enabled .Values.enableKueueViz }}true{{ end }}
{{- end }}

{{/* Not empty if the dashboard is a Deployment of its own. */}}
{{- define "sluice.dashboardComponent" -}}
{{- if and (include "sluice.dashboard" .) (not .Values.dashboard.inManager) }}true{{ end }}
{{- end }}

{{/* Not empty if the manager's replicas serve the dashboard. */}}
{{- define "sluice.dashboardInManager" -}}
{{- if and (include "sluice.dashboard" .) .Values.dashboard.inManager }}true{{ end }}
{{- end }}

{{- define "sluice.dashboardName" -}}
{{ include "sluice.fullname" . }}-dashboard
{{- end }}

{{- define "sluice.dashboardLabels" -}}
{{ include "sluice.labels" . }}
app.kubernetes.io/component: dashboard
{{- end }}

{{/* Labels that select the pods that serve the dashboard. */}}
{{- define "sluice.dashboardSelector" -}}
app.kubernetes.io/name: {{ include "sluice.name" . }}
app.kubernetes.io/component: {{ ternary "controller" "dashboard" (not (not (include "sluice.dashboardInManager" .))) }}
{{- end }}

{{/* Flags of the process that serves the dashboard. */}}
{{- define "sluice.dashboardArgs" -}}
- --dashboard-bind-address=:8444
{{- if ne .Values.dashboard.pathPrefix "/" }}
- {{ printf "--dashboard-path-prefix=%s" .Values.dashboard.pathPrefix | quote }}
{{- end }}
{{- if ne .Values.dashboard.audience "sluice-dashboard" }}
- {{ printf "--dashboard-audience=%s" .Values.dashboard.audience | quote }}
{{- end }}
{{- end }}

{{/* Flags of the manager beside a dashboard of its own, or of the manager that serves it. */}}
{{- define "sluice.dashboardManagerArgs" -}}
{{- if include "sluice.dashboardComponent" . }}
- --leader-caller={{ include "sluice.dashboardName" . }}
- --observer-certificate={{ include "sluice.dashboardName" . }}-server-cert={{ include "sluice.dashboardName" . }}
{{- else if include "sluice.dashboardInManager" . }}
{{- include "sluice.dashboardArgs" . | nindent 0 }}
- --dashboard-service={{ include "sluice.dashboardName" . }}
{{- end }}
{{- end }}

{{/* Settings of the Ingress as JSON: those of the dashboard, or Kueue's for its front end. Its annotations are not taken over: they
rewrite every path to the first page. */}}
{{- define "sluice.dashboardIngress" -}}
{{- $ingress := .Values.dashboard.ingress }}
{{- $other := dict }}
{{- if and .Values.enableKueueViz .Values.kueueViz }}
{{- $other = dig "frontend" "ingress" dict .Values.kueueViz }}
{{- end }}
{{- if and $other.host (ne (toString $other.enabled) "false") (not $ingress.enabled) }}
{{- dict "enabled" true "host" $other.host "className" ($other.ingressClassName | default "") "tlsSecretName" ($other.tlsSecretName | default "") "annotations" $ingress.annotations | toJson }}
{{- else }}
{{- toJson $ingress }}
{{- end }}
{{- end }}

{{/* Source of connections to the dashboard. No labels would select all namespaces. */}}
{{- define "sluice.dashboardIngressRule" -}}
{{- with .Values.dashboard.allowFrom }}
- from:
  - namespaceSelector:
      matchLabels:
        {{- toYaml . | nindent 8 }}
  ports:
  - port: dashboard
    protocol: TCP
{{- end }}
{{- end }}
