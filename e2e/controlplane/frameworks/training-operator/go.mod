module sluice.dev/e2e/controlplane/frameworks/training-operator

go 1.26.0

require github.com/kubeflow/training-operator v1.9.4
