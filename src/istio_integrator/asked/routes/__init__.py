"""The routes of the model, from relations' requests to their order."""
