"""The model's mesh membership, and the other namespaces that the application serves."""
