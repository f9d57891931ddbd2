"""What options and relations ask of the gateway, and how the cluster can serve it; read only."""
