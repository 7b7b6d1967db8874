"""Regular expressions that are compiled on first use. A diagnose of two ranks imports a hundred, whose compilation takes 15 ms,
and uses half of them."""

import re
from typing import Any, AnyStr, Generic, cast


class _Later(Generic[AnyStr]):
    def __init__(self, text: AnyStr, flags: int) -> None:
        self._text: AnyStr = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # `copy` and others look up special methods
            raise AttributeError(name)
        attribute = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, attribute)  # the next access does not come here
        return attribute


def regex(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As `re.compile`, but compiled on first use."""
    return cast("re.Pattern[AnyStr]", _Later(text, flags))
