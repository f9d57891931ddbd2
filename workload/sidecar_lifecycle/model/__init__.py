"""What the workload reads: slim types of the objects, the names, and texts within bounds."""
