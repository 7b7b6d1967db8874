"""Regular expressions that are compiled when they are first used. One look at two ranks loads a hundred, which takes 15 ms to
compile, and uses half of them."""

import re
from typing import Any, AnyStr, Generic, cast


class _Later(Generic[AnyStr]):
    def __init__(self, text: AnyStr, flags: int) -> None:
        self._text: AnyStr = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked for by `copy` and the like
            raise AttributeError(name)
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)  # from now on it is found without coming here
        return found


def regex(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As `re.compile`, later."""
    return cast("re.Pattern[AnyStr]", _Later(text, flags))
