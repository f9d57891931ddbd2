"""The cluster's Istio: its injectors, its settings, its policies and the dry-run pod."""
