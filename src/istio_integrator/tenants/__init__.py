"""The admission policy for routes, Gateways and pods of tenants."""
