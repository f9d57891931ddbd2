"""What authenticates requests before a route of the model can match."""
