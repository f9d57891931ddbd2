"""The unit agent: standard library only, since it runs inside the charm image."""
