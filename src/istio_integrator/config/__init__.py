"""The options of the charm, validated and typed."""
