module sluice.dev/e2e/controlplane/frameworks/mpi-operator

go 1.26.0

require github.com/kubeflow/mpi-operator v0.8.2
