"""Documents that cost a careless reader much, and values of any structure."""

from hypothesis import strategies as st

DEEP = "[" * 1000 + "]" * 1000
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)


def bomb(first: str, form: str) -> str:
    """Write few bytes that a reader which resolves aliases turns into 43 million."""
    return first + "".join(
        f"{name}: &{name} {form.format(', '.join([f'*{last}'] * 9))}\n"
        for last, name in zip("abcdefgh", "bcdefghi", strict=True)
    )


MERGED = bomb("a: &a {x: 1}\n", "{{<<: [{}]}}")
