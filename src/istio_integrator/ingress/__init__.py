"""Ingress of the model: gateway, routes, guard and certificate."""
