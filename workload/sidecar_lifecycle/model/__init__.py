"""Slim types of the objects that the workload reads."""
