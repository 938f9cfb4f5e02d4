"""Feed patterns in the spelling of other systems, and the one that Headrace keeps.

    wx/radar/**              as it is kept: `*` is one level, `**` any number, none included
    mqtt:wx/+/#, wx/+/#      MQTT; a bare pattern with `+` or `#` is always MQTT
    nats:wx.*.>              NATS: levels separated by dots, `>` for one or more
    wx/text/**|wx/obs/*      alternatives: feeds that one of them matches; blanks around `|` are dropped

Patterns with the same meaning have one form: `a/**/**` as `a/**`, `**/*` as `*/**`, and `**` alone as no pattern.
Alternatives are sorted, and one that another covers is dropped: `a/b|a/**` as `a/**`.
The first level of a pattern must not begin with `mqtt:` or `nats:`.
"""

from headrace.errors import FeedError, SelectionError
from headrace.product.feed import ALTERNATIVES_MAX, FeedPattern

MQTT, NATS = "mqtt:", "nats:"


def canonical_pattern(text: str) -> FeedPattern | None:
    """The pattern, validated; None if it matches every feed. SelectionError says why it is invalid."""
    try:
        if not isinstance(text, str) or text.count("|") >= ALTERNATIVES_MAX:
            return FeedPattern(text)  # raises
        given = text.split("|")
        own = [FeedPattern(_own_spelling(each.strip() if len(given) > 1 else each)) for each in given]
        canonical = _without_covered({"/".join(_normalized(each.text.split("/"))) for each in own})
        return None if canonical == ["**"] else FeedPattern("|".join(canonical))
    except FeedError as error:
        raise SelectionError(error.problem, error.hint) from None


def _without_covered(alternatives: set[str]) -> list[str]:
    """In their order, without those that another one covers."""
    return sorted(
        one
        for one in alternatives
        if not any(other != one and FeedPattern(other).matches(one) for other in alternatives)
    )


def _own_spelling(text: str) -> str:
    if text.startswith(MQTT):
        return _from_mqtt(text.removeprefix(MQTT))
    if text.startswith(NATS):
        return _from_nats(text.removeprefix(NATS))
    if ">" in text or ".*" in text or "*." in text:
        raise SelectionError(f"feed pattern {text!r} looks like a NATS pattern", f"write nats:{text}")
    return _from_mqtt(text) if "+" in text or "#" in text else text


def _from_mqtt(text: str) -> str:
    if text.startswith("$share/"):
        raise SelectionError(f"{text!r} is a shared subscription", "leave out $share/NAME/; stations share products")
    levels = text.split("/")
    if "#" in levels[:-1] or any(level not in ("+", "#") and set(level) & set("+#*") for level in levels):
        raise SelectionError(
            f"{text!r} is not an MQTT pattern", "+ stands for a whole level, # for all levels at the end"
        )
    return "/".join({"+": "*", "#": "**"}.get(level, level) for level in levels)


def _from_nats(text: str) -> str:
    levels = text.split(".")
    odd = any(level not in ("*", ">") and set(level) & set("*>/") for level in levels)
    if odd or ">" in levels[:-1]:
        raise SelectionError(
            f"{text!r} is not a NATS pattern", "* stands for a whole level, > for one or more at the end"
        )
    return "/".join("*/**" if level == ">" else level for level in levels)


def _normalized(levels: list[str]) -> list[str]:
    """In each run of wildcards, single levels first and then at most one `**`."""
    normalized: list[str] = []
    pending = False
    for level in levels:
        if level == "**":
            pending = True
            continue
        if level != "*" and pending:
            normalized.append("**")
            pending = False
        normalized.append(level)
    return [*normalized, "**"] if pending else normalized
