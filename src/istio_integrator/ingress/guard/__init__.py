"""The guard, which authenticates requests before a route of the model can match."""
