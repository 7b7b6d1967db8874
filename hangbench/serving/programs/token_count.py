"""What the workers of vLLM's cases do with the tokens of a request before they execute the model, with two bugs that depend on
these."""

TOO_RARE, EMPTY = 21, 22
"""A token that the table of penalties does not hold, and one with an empty replacement."""


def count_tokens(tokens: list[int]) -> int:
    """The number of tokens after replacement."""
    penalties = [0.0] * TOO_RARE
    count = 0
    while tokens:
        if tokens[0] != EMPTY:
            penalties[tokens[0]] += 1
            tokens = tokens[1:]
            count += 1
    return count
