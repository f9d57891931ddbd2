"""The controller's side: what a model is, who may change it, and its objects on the cluster."""
