"""The model's place in the mesh, and which other namespaces are ours to serve."""
