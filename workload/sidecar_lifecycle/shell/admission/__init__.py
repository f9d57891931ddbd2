"""The admission webhook: what new pods get where no policy can do it."""
