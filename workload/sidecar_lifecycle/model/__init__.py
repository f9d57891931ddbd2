"""What the workload reads: slim types of the objects."""
