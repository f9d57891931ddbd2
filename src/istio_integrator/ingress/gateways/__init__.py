"""The gateways that can serve a model: its own, the named one, and one that istiod deploys."""
