"""What the charm and the image of its workload both know, each fact once.

Packed with the charm and copied into the image; both may import it, and it imports the standard
library alone. Its dataclasses hold plain values and check their limits themselves, so whoever
decodes them (pydantic in the charm, msgspec in the workload) refuses the same.
"""

SCHEMA = 1
"""Which revision of the contract this is; the charm and its image need the same.

It rises when either would misunderstand the other: an option of `sidecar-lifecycle run` that is
new or gone, a setting of the pods that is new, an answer that the charm needs. An answer that may
be left out, and a setting that nobody writes any more, need no new number.
"""
