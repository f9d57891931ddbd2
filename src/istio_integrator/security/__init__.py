"""Who may talk to whom in the model: policies from relations, mutual TLS, and their preview."""
