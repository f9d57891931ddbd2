"""The way into the model: gateway, routes, guard and certificate."""
