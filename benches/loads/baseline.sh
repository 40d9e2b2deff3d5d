#!/bin/sh
# Writes the baseline load of `make bench-cluster`: 15,000 Workloads of three classes that arrive on 30 ClusterQueues, with preemptions.
awk 'BEGIN { k = "---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: "
  split("small medium large", class); split("350 100 50", many); split("1 5 20", cpu); split("200 500 1000", run)
  split("50 100 200", priority); split("100 500 1200", every)
  printf k "ResourceFlavor\nmetadata: {name: f}\n"
  for (q = 0; q < 30; q++) {
    printf k "ClusterQueue\nmetadata: {name: q%d}\nspec: {cohortName: c%d, namespaceSelector: {}, resourceGroups: [", q, q % 5
    printf "{coveredResources: [cpu], flavors: [{name: f, resources: [{name: cpu, nominalQuota: 20, borrowingLimit: 100}]}]}], "
    printf "preemption: {reclaimWithinCohort: Any, withinClusterQueue: LowerPriority}}\n"
    printf k "LocalQueue\nmetadata: {name: q%d}\nspec: {clusterQueue: q%d}\n", q, q
    for (c = 1; c <= 3; c++) for (i = 0; i < many[c]; i++) {
      printf k "Workload\nmetadata: {name: %s-%d-%d, annotations: {", class[c], q, i
      printf "sluice.dev/run-for: %dms, sluice.dev/arrives-after: %dms}}\n", run[c], every[c] * i
      printf "spec: {queueName: q%d, priority: %d, podSets: [{name: main, count: 1, template: {spec: {", q, priority[c]
      printf "containers: [{name: c, image: x, resources: {requests: {cpu: %d}}}]}}}]}\n", cpu[c]
    } } }'
