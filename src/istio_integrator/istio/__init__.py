"""The Istio that is there: its injectors, its installation, and what a dry-run pod tells of it."""
