"""The plan of convergence: a pure function of what is known about the pods of a model."""
