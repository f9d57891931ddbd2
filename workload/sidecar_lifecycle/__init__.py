"""What watches pods for istio-integrator: the reconciler, convergence, the webhook, the rules."""

__version__ = "1.0.0"
