"""The classic group protocol: members join, their leader assigns partitions, and the coordinator hands out the
assignments."""
