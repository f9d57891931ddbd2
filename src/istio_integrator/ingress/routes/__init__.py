"""The routes of the model, from what applications request to what the gateway has."""
