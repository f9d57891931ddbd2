"""The API server: the client, manifests, owners and what may go wrong."""
