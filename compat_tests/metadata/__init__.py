"""Topics, partitions, configurations, the cluster and its replicas."""
