{{- define "plimsoll.name" -}}
{{- default .Chart.Name .Values.nameOverride }}
{{- end }}

{{- /*
At most 50 characters, so that -ingest and others fit behind it; a Service's name has no
dots and begins with a letter. What is chosen is never cut: values.schema.json refuses it.
*/}}
{{- define "plimsoll.fullname" -}}
{{- $name := include "plimsoll.name" . }}
{{- $release := .Release.Name | replace "." "-" }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride }}
{{- else if regexMatch "^[0-9]" $release }}
{{- fail (printf "the release %s begins with a digit, which no Service may: install it under another name, or set fullnameOverride" .Release.Name) }}
{{- else if contains $name $release }}
{{- $release | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" $release $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "plimsoll.selector" -}}
app.kubernetes.io/name: {{ include "plimsoll.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "plimsoll.labels" -}}
{{ include "plimsoll.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: plimsoll
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "plimsoll.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "plimsoll.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- if not .Values.serviceAccount.name }}
{{- fail "serviceAccount.create: false needs serviceAccount.name: without one the account `default` of the namespace, and so every pod there, would get the operator's rights" }}
{{- end }}
{{- .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- /* In: dict "image" (repository, tag, digest) "root" (the top scope). */}}
{{- define "plimsoll.image" -}}
{{- if .image.digest }}
{{- printf "%s@%s" .image.repository .image.digest }}
{{- else }}
{{- printf "%s:%s" .image.repository (default .root.Chart.AppVersion .image.tag) }}
{{- end }}
{{- end }}

{{- define "plimsoll.claim" -}}
{{- default (include "plimsoll.fullname" .) .Values.database.sqlite.existingClaim }}
{{- end }}

{{- define "plimsoll.usesSqlite" -}}
{{- if not .Values.database.existingSecret }}true{{ end }}
{{- end }}

{{- define "plimsoll.leaseName" -}}
{{- default (include "plimsoll.fullname" .) .Values.leaderElection.leaseName }}
{{- end }}
