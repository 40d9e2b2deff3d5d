{{- /* Written by make chart from the table of frameworks. */ -}}
{{- define "sluice.frameworks.mutatingWebhooks" -}}
{{- if has "batch/job" (include "sluice.frameworks" . | fromJsonArray) }}
- name: mjob.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-batch-v1-job
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [batch]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [jobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: mjob-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-batch-v1-job
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [batch]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [jobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: mjob-default-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-batch-v1-job
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [batch]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [jobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "jobset.x-k8s.io/jobset" (include "sluice.frameworks" . | fromJsonArray) }}
- name: mjobset.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-jobset-x-k8s-io-v1alpha2-jobset
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [jobset.x-k8s.io]
    apiVersions: [v1alpha2]
    operations: [CREATE]
    resources: [jobsets]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: mjobset-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-jobset-x-k8s-io-v1alpha2-jobset
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [jobset.x-k8s.io]
    apiVersions: [v1alpha2]
    operations: [CREATE]
    resources: [jobsets]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: mjobset-default-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-jobset-x-k8s-io-v1alpha2-jobset
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [jobset.x-k8s.io]
    apiVersions: [v1alpha2]
    operations: [CREATE]
    resources: [jobsets]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "kubeflow.org/pytorchjob" (include "sluice.frameworks" . | fromJsonArray) }}
- name: mpytorchjob.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-kubeflow-org-v1-pytorchjob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [pytorchjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: mpytorchjob-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-kubeflow-org-v1-pytorchjob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [pytorchjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: mpytorchjob-default-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-kubeflow-org-v1-pytorchjob
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [pytorchjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "kubeflow.org/tfjob" (include "sluice.frameworks" . | fromJsonArray) }}
- name: mtfjob.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-kubeflow-org-v1-tfjob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [tfjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: mtfjob-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-kubeflow-org-v1-tfjob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [tfjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: mtfjob-default-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-kubeflow-org-v1-tfjob
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [tfjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "kubeflow.org/xgboostjob" (include "sluice.frameworks" . | fromJsonArray) }}
- name: mxgboostjob.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-kubeflow-org-v1-xgboostjob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [xgboostjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: mxgboostjob-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-kubeflow-org-v1-xgboostjob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [xgboostjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: mxgboostjob-default-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-kubeflow-org-v1-xgboostjob
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [xgboostjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "kubeflow.org/paddlejob" (include "sluice.frameworks" . | fromJsonArray) }}
- name: mpaddlejob.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-kubeflow-org-v1-paddlejob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [paddlejobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: mpaddlejob-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-kubeflow-org-v1-paddlejob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [paddlejobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: mpaddlejob-default-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-kubeflow-org-v1-paddlejob
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [paddlejobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "kubeflow.org/jaxjob" (include "sluice.frameworks" . | fromJsonArray) }}
- name: mjaxjob.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-kubeflow-org-v1-jaxjob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [jaxjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: mjaxjob-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-kubeflow-org-v1-jaxjob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [jaxjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: mjaxjob-default-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-kubeflow-org-v1-jaxjob
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [jaxjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "kubeflow.org/mpijob" (include "sluice.frameworks" . | fromJsonArray) }}
- name: mmpijob.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-kubeflow-org-v2beta1-mpijob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v2beta1]
    operations: [CREATE]
    resources: [mpijobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: mmpijob-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-kubeflow-org-v2beta1-mpijob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v2beta1]
    operations: [CREATE]
    resources: [mpijobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: mmpijob-default-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-kubeflow-org-v2beta1-mpijob
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v2beta1]
    operations: [CREATE]
    resources: [mpijobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "trainer.kubeflow.org/trainjob" (include "sluice.frameworks" . | fromJsonArray) }}
- name: mtrainjob.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-trainer-kubeflow-org-v1alpha1-trainjob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [trainer.kubeflow.org]
    apiVersions: [v1alpha1]
    operations: [CREATE]
    resources: [trainjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: mtrainjob-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-trainer-kubeflow-org-v1alpha1-trainjob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [trainer.kubeflow.org]
    apiVersions: [v1alpha1]
    operations: [CREATE]
    resources: [trainjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: mtrainjob-default-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-trainer-kubeflow-org-v1alpha1-trainjob
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [trainer.kubeflow.org]
    apiVersions: [v1alpha1]
    operations: [CREATE]
    resources: [trainjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "ray.io/rayjob" (include "sluice.frameworks" . | fromJsonArray) }}
- name: mrayjob.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-ray-io-v1-rayjob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [ray.io]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [rayjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: mrayjob-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-ray-io-v1-rayjob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [ray.io]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [rayjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: mrayjob-default-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-ray-io-v1-rayjob
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [ray.io]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [rayjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "ray.io/raycluster" (include "sluice.frameworks" . | fromJsonArray) }}
- name: mraycluster.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-ray-io-v1-raycluster
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [ray.io]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [rayclusters]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: mraycluster-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-ray-io-v1-raycluster
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [ray.io]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [rayclusters]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: mraycluster-default-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-ray-io-v1-raycluster
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [ray.io]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [rayclusters]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "ray.io/rayservice" (include "sluice.frameworks" . | fromJsonArray) }}
- name: mrayservice.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-ray-io-v1-rayservice
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [ray.io]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [rayservices]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: mrayservice-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-ray-io-v1-rayservice
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [ray.io]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [rayservices]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: mrayservice-default-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-ray-io-v1-rayservice
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [ray.io]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [rayservices]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if or (has "pod" (include "sluice.frameworks" . | fromJsonArray)) (has "deployment" (include "sluice.frameworks" . | fromJsonArray)) (has "statefulset" (include "sluice.frameworks" . | fromJsonArray)) (has "leaderworkerset.x-k8s.io/leaderworkerset" (include "sluice.frameworks" . | fromJsonArray)) }}
- name: mpod.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate--v1-pod
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)) || (has(object.metadata.annotations) && 'kueue.x-k8s.io/pod-suspending-parent' in object.metadata.annotations)
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [""]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [pods]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: mpod-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate--v1-pod
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)) || (has(object.metadata.annotations) && 'kueue.x-k8s.io/pod-suspending-parent' in object.metadata.annotations))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [""]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [pods]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
{{- if include "sluice.queuesAllPods" . }}
- name: mpod-default-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate--v1-pod
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)) || (has(object.metadata.annotations) && 'kueue.x-k8s.io/pod-suspending-parent' in object.metadata.annotations))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [""]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [pods]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 2
{{- end }}
{{- end }}
{{- end }}
{{- if has "deployment" (include "sluice.frameworks" . | fromJsonArray) }}
- name: mdeployment.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-apps-v1-deployment
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [apps]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [deployments]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: mdeployment-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-apps-v1-deployment
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [apps]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [deployments]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: mdeployment-default-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-apps-v1-deployment
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [apps]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [deployments]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "statefulset" (include "sluice.frameworks" . | fromJsonArray) }}
- name: mstatefulset.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-apps-v1-statefulset
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [apps]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [statefulsets]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: mstatefulset-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-apps-v1-statefulset
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [apps]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [statefulsets]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: mstatefulset-default-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-apps-v1-statefulset
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [apps]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [statefulsets]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "leaderworkerset.x-k8s.io/leaderworkerset" (include "sluice.frameworks" . | fromJsonArray) }}
- name: mleaderworkerset.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-leaderworkerset-x-k8s-io-v1-leaderworkerset
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [leaderworkerset.x-k8s.io]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [leaderworkersets]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: mleaderworkerset-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-leaderworkerset-x-k8s-io-v1-leaderworkerset
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [leaderworkerset.x-k8s.io]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [leaderworkersets]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: mleaderworkerset-default-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-leaderworkerset-x-k8s-io-v1-leaderworkerset
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [leaderworkerset.x-k8s.io]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [leaderworkersets]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "workload.codeflare.dev/appwrapper" (include "sluice.frameworks" . | fromJsonArray) }}
- name: mappwrapper.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-workload-codeflare-dev-v1beta2-appwrapper
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [workload.codeflare.dev]
    apiVersions: [v1beta2]
    operations: [CREATE]
    resources: [appwrappers]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: mappwrapper-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-workload-codeflare-dev-v1beta2-appwrapper
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [workload.codeflare.dev]
    apiVersions: [v1beta2]
    operations: [CREATE]
    resources: [appwrappers]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: mappwrapper-default-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-workload-codeflare-dev-v1beta2-appwrapper
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [workload.codeflare.dev]
    apiVersions: [v1beta2]
    operations: [CREATE]
    resources: [appwrappers]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "sparkoperator.k8s.io/sparkapplication" (include "sluice.frameworks" . | fromJsonArray) }}
- name: msparkapplication.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-sparkoperator-k8s-io-v1beta2-sparkapplication
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [sparkoperator.k8s.io]
    apiVersions: [v1beta2]
    operations: [CREATE]
    resources: [sparkapplications]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: msparkapplication-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-sparkoperator-k8s-io-v1beta2-sparkapplication
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [sparkoperator.k8s.io]
    apiVersions: [v1beta2]
    operations: [CREATE]
    resources: [sparkapplications]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: msparkapplication-default-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-sparkoperator-k8s-io-v1beta2-sparkapplication
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}
  rules:
  - apiGroups: [sparkoperator.k8s.io]
    apiVersions: [v1beta2]
    operations: [CREATE]
    resources: [sparkapplications]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- end }}
{{- define "sluice.frameworks.validatingWebhooks" -}}
{{- if has "batch/job" (include "sluice.frameworks" . | fromJsonArray) }}
- name: vjob.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-batch-v1-job
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [batch]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [jobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: vjob-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-batch-v1-job
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [batch]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [jobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: vjob-no-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-batch-v1-job
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [batch]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [jobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "jobset.x-k8s.io/jobset" (include "sluice.frameworks" . | fromJsonArray) }}
- name: vjobset.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-jobset-x-k8s-io-v1alpha2-jobset
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [jobset.x-k8s.io]
    apiVersions: [v1alpha2]
    operations: [CREATE, UPDATE]
    resources: [jobsets]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: vjobset-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-jobset-x-k8s-io-v1alpha2-jobset
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [jobset.x-k8s.io]
    apiVersions: [v1alpha2]
    operations: [CREATE, UPDATE]
    resources: [jobsets]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: vjobset-no-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-jobset-x-k8s-io-v1alpha2-jobset
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [jobset.x-k8s.io]
    apiVersions: [v1alpha2]
    operations: [CREATE, UPDATE]
    resources: [jobsets]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "kubeflow.org/pytorchjob" (include "sluice.frameworks" . | fromJsonArray) }}
- name: vpytorchjob.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-kubeflow-org-v1-pytorchjob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [pytorchjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: vpytorchjob-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-kubeflow-org-v1-pytorchjob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [pytorchjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: vpytorchjob-no-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-kubeflow-org-v1-pytorchjob
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [pytorchjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "kubeflow.org/tfjob" (include "sluice.frameworks" . | fromJsonArray) }}
- name: vtfjob.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-kubeflow-org-v1-tfjob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [tfjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: vtfjob-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-kubeflow-org-v1-tfjob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [tfjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: vtfjob-no-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-kubeflow-org-v1-tfjob
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [tfjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "kubeflow.org/xgboostjob" (include "sluice.frameworks" . | fromJsonArray) }}
- name: vxgboostjob.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-kubeflow-org-v1-xgboostjob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [xgboostjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: vxgboostjob-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-kubeflow-org-v1-xgboostjob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [xgboostjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: vxgboostjob-no-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-kubeflow-org-v1-xgboostjob
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [xgboostjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "kubeflow.org/paddlejob" (include "sluice.frameworks" . | fromJsonArray) }}
- name: vpaddlejob.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-kubeflow-org-v1-paddlejob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [paddlejobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: vpaddlejob-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-kubeflow-org-v1-paddlejob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [paddlejobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: vpaddlejob-no-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-kubeflow-org-v1-paddlejob
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [paddlejobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "kubeflow.org/jaxjob" (include "sluice.frameworks" . | fromJsonArray) }}
- name: vjaxjob.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-kubeflow-org-v1-jaxjob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [jaxjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: vjaxjob-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-kubeflow-org-v1-jaxjob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [jaxjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: vjaxjob-no-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-kubeflow-org-v1-jaxjob
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [jaxjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "kubeflow.org/mpijob" (include "sluice.frameworks" . | fromJsonArray) }}
- name: vmpijob.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-kubeflow-org-v2beta1-mpijob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v2beta1]
    operations: [CREATE, UPDATE]
    resources: [mpijobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: vmpijob-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-kubeflow-org-v2beta1-mpijob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v2beta1]
    operations: [CREATE, UPDATE]
    resources: [mpijobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: vmpijob-no-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-kubeflow-org-v2beta1-mpijob
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v2beta1]
    operations: [CREATE, UPDATE]
    resources: [mpijobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "trainer.kubeflow.org/trainjob" (include "sluice.frameworks" . | fromJsonArray) }}
- name: vtrainjob.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-trainer-kubeflow-org-v1alpha1-trainjob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [trainer.kubeflow.org]
    apiVersions: [v1alpha1]
    operations: [CREATE, UPDATE]
    resources: [trainjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: vtrainjob-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-trainer-kubeflow-org-v1alpha1-trainjob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [trainer.kubeflow.org]
    apiVersions: [v1alpha1]
    operations: [CREATE, UPDATE]
    resources: [trainjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: vtrainjob-no-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-trainer-kubeflow-org-v1alpha1-trainjob
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [trainer.kubeflow.org]
    apiVersions: [v1alpha1]
    operations: [CREATE, UPDATE]
    resources: [trainjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "ray.io/rayjob" (include "sluice.frameworks" . | fromJsonArray) }}
- name: vrayjob.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-ray-io-v1-rayjob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [ray.io]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [rayjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: vrayjob-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-ray-io-v1-rayjob
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [ray.io]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [rayjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: vrayjob-no-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-ray-io-v1-rayjob
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [ray.io]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [rayjobs]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "ray.io/raycluster" (include "sluice.frameworks" . | fromJsonArray) }}
- name: vraycluster.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-ray-io-v1-raycluster
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [ray.io]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [rayclusters]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: vraycluster-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-ray-io-v1-raycluster
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [ray.io]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [rayclusters]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: vraycluster-no-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-ray-io-v1-raycluster
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [ray.io]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [rayclusters]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "ray.io/rayservice" (include "sluice.frameworks" . | fromJsonArray) }}
- name: vrayservice.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-ray-io-v1-rayservice
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [ray.io]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [rayservices]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: vrayservice-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-ray-io-v1-rayservice
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [ray.io]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [rayservices]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: vrayservice-no-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-ray-io-v1-rayservice
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [ray.io]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [rayservices]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if or (has "pod" (include "sluice.frameworks" . | fromJsonArray)) (has "deployment" (include "sluice.frameworks" . | fromJsonArray)) (has "statefulset" (include "sluice.frameworks" . | fromJsonArray)) (has "leaderworkerset.x-k8s.io/leaderworkerset" (include "sluice.frameworks" . | fromJsonArray)) }}
- name: vpod.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate--v1-pod
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)) || (has(object.metadata.annotations) && 'kueue.x-k8s.io/pod-suspending-parent' in object.metadata.annotations)
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [""]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [pods]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: vpod-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate--v1-pod
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)) || (has(object.metadata.annotations) && 'kueue.x-k8s.io/pod-suspending-parent' in object.metadata.annotations))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [""]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [pods]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
{{- if include "sluice.queuesAllPods" . }}
- name: vpod-no-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate--v1-pod
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)) || (has(object.metadata.annotations) && 'kueue.x-k8s.io/pod-suspending-parent' in object.metadata.annotations))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [""]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [pods]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 2
{{- end }}
{{- end }}
{{- end }}
{{- if has "deployment" (include "sluice.frameworks" . | fromJsonArray) }}
- name: vdeployment.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-apps-v1-deployment
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [apps]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [deployments]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: vdeployment-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-apps-v1-deployment
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [apps]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [deployments]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: vdeployment-no-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-apps-v1-deployment
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [apps]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [deployments]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "statefulset" (include "sluice.frameworks" . | fromJsonArray) }}
- name: vstatefulset.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-apps-v1-statefulset
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [apps]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [statefulsets]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: vstatefulset-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-apps-v1-statefulset
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [apps]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [statefulsets, statefulsets/scale]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: vstatefulset-no-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-apps-v1-statefulset
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [apps]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [statefulsets, statefulsets/scale]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "leaderworkerset.x-k8s.io/leaderworkerset" (include "sluice.frameworks" . | fromJsonArray) }}
- name: vleaderworkerset.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-leaderworkerset-x-k8s-io-v1-leaderworkerset
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [leaderworkerset.x-k8s.io]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [leaderworkersets]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: vleaderworkerset-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-leaderworkerset-x-k8s-io-v1-leaderworkerset
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [leaderworkerset.x-k8s.io]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [leaderworkersets]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: vleaderworkerset-no-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-leaderworkerset-x-k8s-io-v1-leaderworkerset
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [leaderworkerset.x-k8s.io]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [leaderworkersets]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "workload.codeflare.dev/appwrapper" (include "sluice.frameworks" . | fromJsonArray) }}
- name: vappwrapper.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-workload-codeflare-dev-v1beta2-appwrapper
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [workload.codeflare.dev]
    apiVersions: [v1beta2]
    operations: [CREATE, UPDATE]
    resources: [appwrappers]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: vappwrapper-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-workload-codeflare-dev-v1beta2-appwrapper
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [workload.codeflare.dev]
    apiVersions: [v1beta2]
    operations: [CREATE, UPDATE]
    resources: [appwrappers]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: vappwrapper-no-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-workload-codeflare-dev-v1beta2-appwrapper
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [workload.codeflare.dev]
    apiVersions: [v1beta2]
    operations: [CREATE, UPDATE]
    resources: [appwrappers]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- if has "sparkoperator.k8s.io/sparkapplication" (include "sluice.frameworks" . | fromJsonArray) }}
- name: vsparkapplication.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-sparkoperator-k8s-io-v1beta2-sparkapplication
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: queue-named
    expression: >-
      (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [sparkoperator.k8s.io]
    apiVersions: [v1beta2]
    operations: [CREATE, UPDATE]
    resources: [sparkapplications]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- if include "sluice.managesAllJobs" . }}
- name: vsparkapplication-managed.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-sparkoperator-k8s-io-v1beta2-sparkapplication
  failurePolicy: Fail
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [sparkoperator.k8s.io]
    apiVersions: [v1beta2]
    operations: [CREATE, UPDATE]
    resources: [sparkapplications]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- else }}
- name: vsparkapplication-no-queue.kb.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "sluice.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /validate-sparkoperator-k8s-io-v1beta2-sparkapplication
  failurePolicy: Ignore
  matchConditions:
  - name: not-deleting
    expression: >-
      !has(object.metadata.deletionTimestamp)
  - name: no-queue-named
    expression: >-
      !((has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels)))
  matchPolicy: Equivalent
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
  rules:
  - apiGroups: [sparkoperator.k8s.io]
    apiVersions: [v1beta2]
    operations: [CREATE, UPDATE]
    resources: [sparkapplications]
    scope: "*"
  sideEffects: None
  timeoutSeconds: 3
{{- end }}
{{- end }}
{{- end }}
{{- define "sluice.frameworks.managerRules" -}}
{{- if has "batch/job" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, patch, watch]
- apiGroups: [batch]
  resources: [jobs/status]
  verbs: [patch]
- apiGroups: [batch]
  resources: [jobs/finalizers]
  verbs: [update]
{{- end }}
{{- if has "jobset.x-k8s.io/jobset" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets]
  verbs: [get, list, patch, watch]
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets/status]
  verbs: [patch]
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets/finalizers]
  verbs: [update]
{{- end }}
{{- if has "kubeflow.org/pytorchjob" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs]
  verbs: [get, list, patch, watch]
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs/status]
  verbs: [patch]
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs/finalizers]
  verbs: [update]
{{- end }}
{{- if has "kubeflow.org/tfjob" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [kubeflow.org]
  resources: [tfjobs]
  verbs: [get, list, patch, watch]
- apiGroups: [kubeflow.org]
  resources: [tfjobs/status]
  verbs: [patch]
- apiGroups: [kubeflow.org]
  resources: [tfjobs/finalizers]
  verbs: [update]
{{- end }}
{{- if has "kubeflow.org/xgboostjob" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [kubeflow.org]
  resources: [xgboostjobs]
  verbs: [get, list, patch, watch]
- apiGroups: [kubeflow.org]
  resources: [xgboostjobs/status]
  verbs: [patch]
- apiGroups: [kubeflow.org]
  resources: [xgboostjobs/finalizers]
  verbs: [update]
{{- end }}
{{- if has "kubeflow.org/paddlejob" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [kubeflow.org]
  resources: [paddlejobs]
  verbs: [get, list, patch, watch]
- apiGroups: [kubeflow.org]
  resources: [paddlejobs/status]
  verbs: [patch]
- apiGroups: [kubeflow.org]
  resources: [paddlejobs/finalizers]
  verbs: [update]
{{- end }}
{{- if has "kubeflow.org/jaxjob" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [kubeflow.org]
  resources: [jaxjobs]
  verbs: [get, list, patch, watch]
- apiGroups: [kubeflow.org]
  resources: [jaxjobs/status]
  verbs: [patch]
- apiGroups: [kubeflow.org]
  resources: [jaxjobs/finalizers]
  verbs: [update]
{{- end }}
{{- if has "kubeflow.org/mpijob" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [kubeflow.org]
  resources: [mpijobs]
  verbs: [get, list, patch, watch]
- apiGroups: [kubeflow.org]
  resources: [mpijobs/status]
  verbs: [patch]
- apiGroups: [kubeflow.org]
  resources: [mpijobs/finalizers]
  verbs: [update]
{{- end }}
{{- if has "trainer.kubeflow.org/trainjob" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [trainer.kubeflow.org]
  resources: [trainjobs]
  verbs: [get, list, patch, watch]
- apiGroups: [trainer.kubeflow.org]
  resources: [trainjobs/status]
  verbs: [patch]
- apiGroups: [trainer.kubeflow.org]
  resources: [trainjobs/finalizers]
  verbs: [update]
- apiGroups: [trainer.kubeflow.org]
  resources: [trainingruntimes]
  verbs: [get, list, watch]
- apiGroups: [trainer.kubeflow.org]
  resources: [clustertrainingruntimes]
  verbs: [get, list, watch]
{{- end }}
{{- if has "ray.io/rayjob" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [ray.io]
  resources: [rayjobs]
  verbs: [get, list, patch, watch]
- apiGroups: [ray.io]
  resources: [rayjobs/status]
  verbs: [patch]
- apiGroups: [ray.io]
  resources: [rayjobs/finalizers]
  verbs: [update]
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [get, list, watch]
{{- end }}
{{- if has "ray.io/raycluster" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [get, list, patch, watch]
- apiGroups: [ray.io]
  resources: [rayclusters/status]
  verbs: [patch]
- apiGroups: [ray.io]
  resources: [rayclusters/finalizers]
  verbs: [update]
{{- end }}
{{- if has "ray.io/rayservice" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [ray.io]
  resources: [rayservices]
  verbs: [get, list, patch, watch]
- apiGroups: [ray.io]
  resources: [rayservices/status]
  verbs: [patch]
- apiGroups: [ray.io]
  resources: [rayservices/finalizers]
  verbs: [update]
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [get, list, watch]
{{- end }}
{{- if or (has "pod" (include "sluice.frameworks" . | fromJsonArray)) (has "deployment" (include "sluice.frameworks" . | fromJsonArray)) (has "statefulset" (include "sluice.frameworks" . | fromJsonArray)) (has "leaderworkerset.x-k8s.io/leaderworkerset" (include "sluice.frameworks" . | fromJsonArray)) }}
- apiGroups: [""]
  resources: [pods]
  verbs: [delete, get, list, patch, watch]
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [pods/finalizers]
  verbs: [update]
{{- end }}
{{- if has "deployment" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch]
{{- end }}
{{- if has "statefulset" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch]
{{- end }}
{{- if has "leaderworkerset.x-k8s.io/leaderworkerset" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: [get, list, watch]
{{- end }}
{{- if has "workload.codeflare.dev/appwrapper" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [workload.codeflare.dev]
  resources: [appwrappers]
  verbs: [get, list, patch, watch]
- apiGroups: [workload.codeflare.dev]
  resources: [appwrappers/status]
  verbs: [patch]
- apiGroups: [workload.codeflare.dev]
  resources: [appwrappers/finalizers]
  verbs: [update]
{{- end }}
{{- if has "sparkoperator.k8s.io/sparkapplication" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications]
  verbs: [get, list, patch, watch]
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications/status]
  verbs: [patch]
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications/finalizers]
  verbs: [update]
{{- end }}
{{- end }}
{{- define "sluice.frameworks.retentionRules" -}}
{{- if has "batch/job" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [batch]
  resources: [jobs]
  verbs: [delete]
{{- end }}
{{- if has "jobset.x-k8s.io/jobset" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets]
  verbs: [delete]
{{- end }}
{{- if has "kubeflow.org/pytorchjob" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs]
  verbs: [delete]
{{- end }}
{{- if has "kubeflow.org/tfjob" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [kubeflow.org]
  resources: [tfjobs]
  verbs: [delete]
{{- end }}
{{- if has "kubeflow.org/xgboostjob" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [kubeflow.org]
  resources: [xgboostjobs]
  verbs: [delete]
{{- end }}
{{- if has "kubeflow.org/paddlejob" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [kubeflow.org]
  resources: [paddlejobs]
  verbs: [delete]
{{- end }}
{{- if has "kubeflow.org/jaxjob" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [kubeflow.org]
  resources: [jaxjobs]
  verbs: [delete]
{{- end }}
{{- if has "kubeflow.org/mpijob" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [kubeflow.org]
  resources: [mpijobs]
  verbs: [delete]
{{- end }}
{{- if has "trainer.kubeflow.org/trainjob" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [trainer.kubeflow.org]
  resources: [trainjobs]
  verbs: [delete]
{{- end }}
{{- if has "ray.io/rayjob" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [ray.io]
  resources: [rayjobs]
  verbs: [delete]
{{- end }}
{{- if has "ray.io/raycluster" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [delete]
{{- end }}
{{- if has "ray.io/rayservice" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [ray.io]
  resources: [rayservices]
  verbs: [delete]
{{- end }}
{{- if or (has "pod" (include "sluice.frameworks" . | fromJsonArray)) (has "deployment" (include "sluice.frameworks" . | fromJsonArray)) (has "statefulset" (include "sluice.frameworks" . | fromJsonArray)) (has "leaderworkerset.x-k8s.io/leaderworkerset" (include "sluice.frameworks" . | fromJsonArray)) }}
{{- end }}
{{- if has "deployment" (include "sluice.frameworks" . | fromJsonArray) }}
{{- end }}
{{- if has "statefulset" (include "sluice.frameworks" . | fromJsonArray) }}
{{- end }}
{{- if has "leaderworkerset.x-k8s.io/leaderworkerset" (include "sluice.frameworks" . | fromJsonArray) }}
{{- end }}
{{- if has "workload.codeflare.dev/appwrapper" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [workload.codeflare.dev]
  resources: [appwrappers]
  verbs: [delete]
{{- end }}
{{- if has "sparkoperator.k8s.io/sparkapplication" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications]
  verbs: [delete]
{{- end }}
{{- end }}
{{- define "sluice.frameworks.webhookRules" -}}
{{- if has "batch/job" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch]
{{- end }}
{{- if has "jobset.x-k8s.io/jobset" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets]
  verbs: [get, list, watch]
{{- end }}
{{- if has "kubeflow.org/pytorchjob" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs]
  verbs: [get, list, watch]
{{- end }}
{{- if has "kubeflow.org/tfjob" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [kubeflow.org]
  resources: [tfjobs]
  verbs: [get, list, watch]
{{- end }}
{{- if has "kubeflow.org/xgboostjob" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [kubeflow.org]
  resources: [xgboostjobs]
  verbs: [get, list, watch]
{{- end }}
{{- if has "kubeflow.org/paddlejob" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [kubeflow.org]
  resources: [paddlejobs]
  verbs: [get, list, watch]
{{- end }}
{{- if has "kubeflow.org/jaxjob" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [kubeflow.org]
  resources: [jaxjobs]
  verbs: [get, list, watch]
{{- end }}
{{- if has "kubeflow.org/mpijob" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [kubeflow.org]
  resources: [mpijobs]
  verbs: [get, list, watch]
{{- end }}
{{- if has "trainer.kubeflow.org/trainjob" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [trainer.kubeflow.org]
  resources: [trainjobs]
  verbs: [get, list, watch]
- apiGroups: [trainer.kubeflow.org]
  resources: [trainingruntimes]
  verbs: [get, list, watch]
- apiGroups: [trainer.kubeflow.org]
  resources: [clustertrainingruntimes]
  verbs: [get, list, watch]
{{- end }}
{{- if has "ray.io/rayjob" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [ray.io]
  resources: [rayjobs]
  verbs: [get, list, watch]
{{- end }}
{{- if has "ray.io/raycluster" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [get, list, watch]
{{- end }}
{{- if has "ray.io/rayservice" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [ray.io]
  resources: [rayservices]
  verbs: [get, list, watch]
{{- end }}
{{- if or (has "pod" (include "sluice.frameworks" . | fromJsonArray)) (has "deployment" (include "sluice.frameworks" . | fromJsonArray)) (has "statefulset" (include "sluice.frameworks" . | fromJsonArray)) (has "leaderworkerset.x-k8s.io/leaderworkerset" (include "sluice.frameworks" . | fromJsonArray)) }}
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
{{- end }}
{{- if has "deployment" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch]
{{- end }}
{{- if has "statefulset" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch]
{{- end }}
{{- if has "leaderworkerset.x-k8s.io/leaderworkerset" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: [get, list, watch]
{{- end }}
{{- if has "workload.codeflare.dev/appwrapper" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [workload.codeflare.dev]
  resources: [appwrappers]
  verbs: [get, list, watch]
{{- end }}
{{- if has "sparkoperator.k8s.io/sparkapplication" (include "sluice.frameworks" . | fromJsonArray) }}
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications]
  verbs: [get, list, watch]
{{- end }}
{{- end }}
