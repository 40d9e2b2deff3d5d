#!/bin/sh
# Writes 15,000 bare Workloads on 30 ClusterQueues in 5 cohorts, each of which runs 5 to 11 minutes.
awk 'BEGIN { k = "---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: "
  printf k "ResourceFlavor\nmetadata: {name: f}\n"
  for (q = 0; q < 30; q++) {
    printf k "ClusterQueue\nmetadata: {name: q%d}\nspec: {cohortName: c%d, namespaceSelector: {}, resourceGroups: [", q, q % 5
    printf "{coveredResources: [cpu], flavors: [{name: f, resources: [{name: cpu, nominalQuota: 50}]}]}]}\n"
    printf k "LocalQueue\nmetadata: {name: q%d}\nspec: {clusterQueue: q%d}\n", q, q
  }
  for (i = 0; i < 15000; i++) {
    printf k "Workload\nmetadata: {name: w%05d, annotations: {sluice.dev/run-for: %dm}}\n", i, 5 + i % 7
    printf "spec: {queueName: q%d, podSets: [{name: main, count: %d, template: {spec: {", i % 30, 1 + i % 3
    printf "containers: [{name: c, image: x, resources: {requests: {cpu: %d}}}]}}}]}\n", 1 + i % 4
  } }'
