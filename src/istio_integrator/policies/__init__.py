"""Who may call whom in the model: AuthorizationPolicies from relations, and their preview."""
