"""Numbers as short text, and bars: what cells of the live view are made of."""

from rich.text import Text

from headrace.units import format_size

UNKNOWN = "–"


def bar(fill: float, width: int, ascii_only: bool = False) -> Text:
    """A bar of `width` characters; red when it is nearly full, and not empty unless nothing is there."""
    style = "green" if fill < 0.6 else "yellow" if fill < 0.9 else "red"
    full = min(width, max(round(fill * width), 1 if fill > 0 else 0))
    block, rest = "#." if ascii_only else "█░"
    return Text(block * full, style=style).append(rest * (width - full), style="dim")


def short(number: int) -> str:
    """`9,999`, then `12.3k`, `4.56M`: at most five characters."""
    if number < 10_000:
        return f"{number:,}"
    for unit, size in (("k", 10**3), ("M", 10**6), ("G", 10**9)):
        if number < 999.5 * size:
            return f"{number / size:.3g}{unit}"
    return f"{number / 10**12:.3g}T"


def per_second(rate: float | None) -> str:
    """One decimal where it matters."""
    if rate is None:
        return UNKNOWN
    return f"{rate:.1f}" if 0 < rate < 99.95 else short(round(rate))


def bytes_per_second(rate: float | None) -> str:
    return UNKNOWN if rate is None else f"{format_size(rate)}/s"
