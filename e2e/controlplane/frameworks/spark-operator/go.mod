module sluice.dev/e2e/controlplane/frameworks/spark-operator

go 1.26.0

require github.com/kubeflow/spark-operator/v2 v2.5.2
