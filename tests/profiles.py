"""Istio's compatibility profiles that are tried, with whether istiod then makes sidecars native.

The end-to-end tier runs these, and the pages about versions name them.
"""

NATIVE = {
    **dict.fromkeys(("1.25", "1.26"), False),
    **dict.fromkeys(("1.27", "1.28", "1.29", "1.30"), True),
}
