"""The contract between the charm and the image of its workload, each fact once.

It is packed with the charm and copied into the image. It imports only the standard library and
PyYAML. Its dataclasses hold plain values and check their own limits, so that pydantic in the charm
and msgspec in the workload reject the same values.
"""
