"""The data bags of relations: how they are reached, and a wire format for each family."""
