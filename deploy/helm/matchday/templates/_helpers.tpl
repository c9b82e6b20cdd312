{{- define "matchday.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "matchday.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "matchday.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "matchday.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "matchday.selector" -}}
app.kubernetes.io/name: {{ include "matchday.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "matchday.labels" -}}
{{ include "matchday.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "matchday.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "matchday.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "matchday.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}

{{- define "matchday.secret" -}}
{{- if .Values.existingSecret -}}
{{- .Values.existingSecret -}}
{{- else if .Values.secrets -}}
{{- include "matchday.fullname" . -}}
{{- else -}}
{{- fail "neither existingSecret nor secrets is set: the service needs MATCHDAY_DATABASE__URL, MATCHDAY_REDIS__URL, MATCHDAY_NATS__URL and MATCHDAY_CODES__KEYS" -}}
{{- end -}}
{{- end -}}

{{/* The settings file: TOML sections with scalars and lists, which is all that settings need. */}}
{{- define "matchday.toml" -}}
{{- range $section, $keys := .Values.settings }}
{{- if $keys }}
[{{ $section }}]
{{- range $key, $value := $keys }}
{{- if or (kindIs "bool" $value) (kindIs "int" $value) (kindIs "int64" $value) }}
{{ $key }} = {{ $value }}
{{- else if kindIs "float64" $value }}
{{- /* Numbers in a values file are floats; large ones would be printed with an exponent. */}}
{{ $key }} = {{ if eq (floor $value) $value }}{{ int64 $value }}{{ else }}{{ $value }}{{ end }}
{{- else if kindIs "slice" $value }}
{{ $key }} = {{ toJson $value }}
{{- else if ne (toString $value) "" }}
{{ $key }} = {{ toJson $value }}
{{- end }}
{{- end }}
{{ end }}
{{- end }}
{{- end -}}

{{/* Not empty if the settings enable the console. */}}
{{- define "matchday.hasConsole" -}}
{{- with .Values.settings.console }}{{ if .enabled }}yes{{ end }}{{ end -}}
{{- end -}}

{{- define "matchday.env" -}}
- {name: MATCHDAY_ENV, value: {{ .Values.environment | quote }}}
- {name: MATCHDAY_CONFIG, value: /etc/matchday/matchday.toml}
- {name: MATCHDAY_HTTP__LISTEN, value: "0.0.0.0:8080"}
- {name: MATCHDAY_HTTP__PRIVATE_LISTEN, value: "0.0.0.0:9090"}
{{- if include "matchday.hasConsole" . }}
- {name: MATCHDAY_CONSOLE__LISTEN, value: "0.0.0.0:9092"}
{{- end }}
- {name: MATCHDAY_SHUTDOWN__NOTICE, value: "{{ .Values.shutdown.notice }}s"}
- {name: MATCHDAY_SHUTDOWN__DRAIN, value: "{{ .Values.shutdown.drain }}s"}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "matchday.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "matchday.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* A pod that runs the service; `matchday/private` marks pods with the private listener, which jobs do not have. */}}
{{- define "matchday.pod" -}}
{{- $root := .root -}}
metadata:
  labels:
    {{- include "matchday.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    matchday/private: "true"
    {{- with $root.Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # Restart pods when settings change.
    checksum/settings: {{ include "matchday.toml" $root | sha256sum }}
    {{- if not $root.Values.existingSecret }}
    checksum/secrets: {{ toJson $root.Values.secrets | sha256sum }}
    {{- end }}
    {{- with $root.Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "matchday.serviceAccount" $root }}
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: {{ add $root.Values.shutdown.notice $root.Values.shutdown.drain 5 }}
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  securityContext: {{- include "matchday.podSecurity" $root | nindent 4 }}
  containers:
    - name: matchday
      image: {{ include "matchday.image" $root }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args: {{ toJson .args }}
      env: {{- include "matchday.env" $root | nindent 8 }}
      envFrom:
        - secretRef: {name: {{ include "matchday.secret" $root }}}
      ports:
        {{- if eq .component "serve" }}
        - {name: public, containerPort: 8080}
        {{- end }}
        - {name: private, containerPort: 9090}
        {{- if include "matchday.hasConsole" $root }}
        - {name: console, containerPort: 9092}
        {{- end }}
      # At the private listener, which responds under any load and announces the shutdown of a process.
      startupProbe:
        httpGet: {path: /healthz, port: private}
        {{- toYaml $root.Values.probes.startup | nindent 8 }}
      livenessProbe:
        httpGet: {path: /healthz, port: private}
        {{- toYaml $root.Values.probes.liveness | nindent 8 }}
      readinessProbe:
        httpGet: {path: /readyz, port: private}
        {{- toYaml $root.Values.probes.readiness | nindent 8 }}
      resources: {{- toYaml .resources | nindent 8 }}
      securityContext: {{- include "matchday.containerSecurity" $root | nindent 8 }}
      volumeMounts:
        - {name: settings, mountPath: /etc/matchday, readOnly: true}
  volumes:
    - name: settings
      configMap: {name: {{ include "matchday.fullname" $root }}}
  {{- if $root.Values.topologySpread }}
  topologySpreadConstraints:
    {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "matchday.selector" $root | nindent 10 }}
          app.kubernetes.io/component: {{ $.component }}
    {{- end }}
  {{- end }}
  {{- with $root.Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
