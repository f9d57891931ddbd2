"""What the charm and the image of its workload both know, each fact once.

Packed with the charm and copied into the image; both may import it, and it imports the standard
library alone. Its dataclasses hold plain values and check their limits themselves, so whoever
decodes them (pydantic in the charm, msgspec in the workload) refuses the same.
"""
