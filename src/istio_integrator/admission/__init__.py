"""Changes of pods at their creation, by a webhook."""
