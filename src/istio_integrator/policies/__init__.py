"""AuthorizationPolicies of the model's workloads, from relations, and their preview."""
