"""Documents that cost a careless reader much."""

DEEP = "[" * 1000 + "]" * 1000


def bomb(first: str, form: str) -> str:
    """Write few bytes that a reader which resolves aliases turns into 43 million."""
    return first + "".join(
        f"{name}: &{name} {form.format(', '.join([f'*{last}'] * 9))}\n"
        for last, name in zip("abcdefgh", "bcdefghi", strict=True)
    )


MERGED = bomb("a: &a {x: 1}\n", "{{<<: [{}]}}")
