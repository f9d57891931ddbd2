"""The plan of convergence: a pure function of the facts about a model's pods."""
