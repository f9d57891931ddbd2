"""HTTP servers that anybody in the cluster can reach."""
