"""The classic group protocol: members join, a leader among them assigns, the coordinator passes it on."""
