"""What an entry selects: an expression of LDM's feed types as one feed pattern, and a POSIX pattern as RE2.

The feeds of each type are in product/ldm_feedtypes.py; a caller may change them. An expression becomes one feed
pattern, with alternatives if necessary, so that one entry is one rule: PPS, DDS and IDS together are `wx/text/**`.

pqact's patterns are POSIX extended regular expressions: ere.py reads them, and ere_re2.py writes them for RE2.
"""

from collections.abc import Mapping

from headrace.errors import FeedError, RuleError, SelectionError
from headrace.pipeline.rules.pqact.ere import parsed
from headrace.pipeline.rules.pqact.ere_re2 import written
from headrace.product.ldm_expression import types_in
from headrace.product.ldm_feedtypes import FEEDS, Feeds
from headrace.selection.clauses import check_regex


def feeds_with(changes: Mapping[str, str]) -> Feeds:
    """The feeds of all types, with those that the user has mapped. RuleError: feeds of two types are nested."""
    feeds = {**FEEDS, **{name.upper(): (feed,) for name, feed in changes.items()}}
    for name in (name.upper() for name in changes):
        for other, theirs in feeds.items():
            for ours in feeds[name]:
                nested = [feed for feed in theirs if ours != feed and _is_within(ours, feed)]
                if other != name and nested:
                    problem = f"the feed {ours} of {name} and the feed {nested[0]} of {other} contain each other"
                    raise RuleError(problem, f"map {other} to another feed, too: {other}=wx/…")
    return feeds


def _is_within(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def types_of(expression: str, feeds: Feeds) -> frozenset[str]:
    """The single feed types of an expression. RuleError: it is invalid."""
    try:
        return types_in(expression, feeds)
    except FeedError as error:
        raise RuleError(error.problem, error.hint) from None


# --- patterns ---------------------------------------------------------------------------------------


ELSE = "^_ELSE_$"  # this text and no other


def re2_of(pattern: str) -> str:
    """The same pattern for RE2. RuleError: there is none."""
    return checked(written(parsed(pattern)))


def checked(pattern: str) -> str:
    """The pattern, if selections accept it. RuleError: they do not."""
    try:
        return check_regex(pattern, "ident")
    except SelectionError as error:
        raise RuleError(error.problem, error.hint) from None
