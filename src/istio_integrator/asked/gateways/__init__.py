"""The gateways that can serve a model: its own, a named one, and a managed one."""
