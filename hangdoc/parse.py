"""Numbers in texts that come from elsewhere: processes, bundles, command lines."""


def integer(text: str | None) -> int | None:
    """A decimal integer of at most 18 digits, or None for anything else (also for what `str.isdigit` alone lets by)."""
    digits = (text or "").removeprefix("-")
    return int(text or "") if digits.isascii() and digits.isdigit() and len(digits) <= 18 else None


def natural(text: str | None) -> int | None:
    """As `integer`, without negative ones."""
    number = integer(text)
    return number if number is not None and number >= 0 else None
