"""What a search is given: model profiles, a cluster, a workload and options."""
