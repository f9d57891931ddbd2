"""Relations: access to their data bags, and the wire format of each interface."""
