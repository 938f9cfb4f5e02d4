"""Standard output and standard error of a command: the last place where text that acts or hides is escaped.

Commands make foreign text visible where they put it into a line. What one of them forgets is caught here: a character
that no command writes on purpose (a C1 control, a bidirectional control, a zero-width one) leaves no command as it is.
Line feeds and the sequences of colours are written on purpose, and pass. Bytes, such as the payloads that `headrace
cat` writes, do not come this way.
"""

import io
import sys

from headrace.text import harmless


class HarmlessOutput(io.TextIOWrapper):
    """A text stream that escapes what acts or hides."""

    def write(self, text: str, /) -> int:
        super().write(harmless(text))
        return len(text)


def make_output_harmless() -> None:
    """Put such streams in the place of standard output and standard error."""
    sys.stdout, sys.stderr = _harmless(sys.stdout), _harmless(sys.stderr)


def _harmless(stream: object) -> "HarmlessOutput | object":
    if not isinstance(stream, io.TextIOWrapper) or isinstance(stream, HarmlessOutput):
        return stream
    encoding, buffers_lines, buffers_nothing = stream.encoding, stream.line_buffering, stream.write_through
    return HarmlessOutput(
        stream.detach(), encoding, "backslashreplace", line_buffering=buffers_lines, write_through=buffers_nothing
    )
