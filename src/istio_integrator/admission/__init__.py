"""What pods get when they are created, by a policy or by a webhook."""
