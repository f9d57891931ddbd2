"""The routes of the model, from relations' requests to objects of the gateway."""
