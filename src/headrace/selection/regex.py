"""Regular expressions over idents: RE2's syntax, searched for anywhere, a column at a time by Arrow.

RE2 runs in time linear in the ident, but a pattern with large repetitions (`.{999}`) makes every byte dear. So the size
of the program that RE2 makes of a pattern is bounded. One ident alone is matched by RE2 without Arrow's detour.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import re2

from headrace.errors import SelectionError

TEXT_MAX = 1024
INSTRUCTIONS_MAX = 2000
_KEPT_MAX = 256


def check_regex(pattern: str, what: str) -> str:
    """Return a pattern that can be matched; SelectionError says what is wrong with it."""
    if not isinstance(pattern, str):
        raise SelectionError(f"{what} pattern {pattern!r} is not text", "write a regular expression (RE2)")
    if len(pattern) > TEXT_MAX:
        raise SelectionError(f"the {what} pattern has {len(pattern)} characters, more than {TEXT_MAX}", "shorten it")
    try:
        pc.match_substring_regex(pa.array(["x"]), pattern)
    except pa.ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        raise SelectionError(
            f"{what} pattern {pattern!r} is not a regular expression: {reason}",
            "see the RE2 syntax; it has no look-around and no back-references",
        ) from None
    except UnicodeEncodeError:
        raise SelectionError(
            f"{what} pattern {pattern!r} cannot be written as UTF-8", "remove lone surrogates"
        ) from None
    if compiled(pattern).programsize > INSTRUCTIONS_MAX:
        raise SelectionError(
            f"{what} pattern {pattern!r} is too large with its repetitions written out",
            "use smaller numbers in {…} and fewer classes of letters, or + and *",
        )
    return pattern


def found_in(pattern: str, texts: Any) -> npt.NDArray[np.bool_]:
    """For an Arrow string array: where the pattern is found."""
    found: npt.NDArray[np.bool_] = pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False)
    return found


@lru_cache(_KEPT_MAX)
def compiled(pattern: str) -> Any:
    """The pattern for single idents; those that were needed last stay compiled."""
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    return re2.compile(pattern, options)
