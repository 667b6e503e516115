{{/* Labels by which a program's pods are found: `dict "root" $ "name" "web"`. */}}
{{- define "portal.labels" -}}
app.kubernetes.io/name: gpu-portal
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end }}

{{/* What every pod has: no root, no rights, nothing to write to but /tmp. */}}
{{- define "portal.pod" -}}
automountServiceAccountToken: false
# A program is not process 1, which its watchdog could not end.
shareProcessNamespace: true
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: tmp
    emptyDir: {}
{{- end }}

{{- define "portal.container" -}}
image: {{ required "image is needed" .Values.image | quote }}
imagePullPolicy: {{ .Values.imagePullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
volumeMounts:
  - name: tmp
    mountPath: /tmp
{{- end }}

{{- define "portal.env" -}}
- name: PUBLIC_URL
  value: {{ required "publicUrl is needed" .Values.publicUrl | quote }}
- name: AGENTS_REDIS_PUBLIC_URL
  value: {{ required "agentsRedisPublicUrl is needed" .Values.agentsRedisPublicUrl | quote }}
- name: BEHIND_TLS_PROXY
  value: {{ ternary "1" "0" (hasPrefix "https://" .Values.publicUrl) | quote }}
- name: TRUSTED_PROXIES
  value: {{ .Values.trustedProxies | quote }}
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{- define "portal.probe" -}}
httpGet:
  path: {{ .path }}
  port: http
  httpHeaders:
    - name: Host
      value: {{ .host | quote }}
    - name: X-Forwarded-Proto
      value: https
{{- end }}
