{{- define "sluice.historyName" -}}
{{ include "sluice.fullname" . }}-history
{{- end }}

{{- define "sluice.historyLabels" -}}
{{ include "sluice.labels" . }}
app.kubernetes.io/component: history
{{- end }}

{{/* Labels that select the pod of the recorder. */}}
{{- define "sluice.historySelector" -}}
{{ include "sluice.selectorLabels" (set (omit . "component") "component" "history") }}
{{- end }}

{{/* Name of the volume claim. */}}
{{- define "sluice.historyClaim" -}}
{{ .Values.history.existingClaim | default (include "sluice.historyName" .) }}
{{- end }}

{{/* Flags of the manager beside a recorder. */}}
{{- define "sluice.historyManagerArgs" -}}
{{- if .Values.history.enabled }}
{{- if not (include "sluice.servesVisibility" .) }}
{{- fail "history.enabled: the visibility API, by which the record is read, is off" }}
{{- end }}
- --history-address={{ include "sluice.historyName" . }}:{{ include "sluice.visibilityPort" . }}
- --history-service={{ include "sluice.historyName" . }}
- --leader-caller={{ include "sluice.historyName" . }}
- --observer-certificate={{ include "sluice.historyName" . }}-server-cert={{ include "sluice.historyName" . }}
{{- end }}
{{- end }}

{{/* Security context of the pod: the volume belongs to the group of the process. */}}
{{- define "sluice.historySecurityContext" -}}
{{- $context := deepCopy .Values.controllerManager.manager.podSecurityContext }}
{{- if and $context.runAsGroup (not (hasKey $context "fsGroup")) }}
{{- $_ := set $context "fsGroup" $context.runAsGroup }}
{{- end }}
{{- toYaml $context }}
{{- end }}
