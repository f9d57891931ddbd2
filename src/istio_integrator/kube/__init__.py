"""The API server: its client, manifests, owners and errors."""
