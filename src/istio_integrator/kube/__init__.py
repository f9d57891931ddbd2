"""The API server: the client, bounded reading, manifests, owners and what may go wrong."""
