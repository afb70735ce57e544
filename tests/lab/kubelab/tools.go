//go:build tools

package main

// helm's command is a main package: it cannot be linked into kubelab, but a mention
// here makes it a second binary of the same module and so of the same versions.
import _ "helm.sh/helm/v3/cmd/helm"
