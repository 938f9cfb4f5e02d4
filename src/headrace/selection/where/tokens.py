"""Tokens: the text of a condition, bounded before it is parsed.

A parser that descends recursively must not be given everything: characters, tokens and nesting are counted first, on
the tokens, which come one after the other. Unclosed quotes and parentheses are reported here, where it is known which;
`explain` reports what else sqlglot does not accept.
"""

from typing import Any

import sqlglot
from sqlglot import Token, TokenType
from sqlglot.errors import ParseError, TokenError

from headrace.errors import SelectionError

TEXT_MAX, TOKENS_MAX, DEPTH_MAX = 8192, 2000, 50
KNOWN = "conditions have = <> < <= > >=, IN, BETWEEN, LIKE, ILIKE, IS NULL, AND, OR, NOT and + - * /"
_UNARY = {TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE}


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text; SelectionError if it exceeds a limit, or if a quote or parenthesis is not closed."""
    if not isinstance(text, str):
        raise SelectionError(f"where {text!r} is not text", "write a condition, such as level > 3")
    if len(text) > TEXT_MAX:
        raise SelectionError(f"the condition has {len(text)} characters, more than {TEXT_MAX}", "shorten it")
    try:
        tokens = sqlglot.tokenize(text)
    except TokenError:
        raise SelectionError.at(
            "a quote is not closed", "end it with the same quote", text, _open_quote(text)
        ) from None
    if not tokens:
        raise SelectionError.at("the condition is empty", "write one after where, such as level > 3", text, 0)
    if len(tokens) > TOKENS_MAX:
        problem = f"the condition has {len(tokens)} tokens, more than {TOKENS_MAX}"
        raise SelectionError.at(problem, "shorten it", text, tokens[TOKENS_MAX].start)
    _check_nesting(text, tokens)
    return tokens


def _check_nesting(text: str, tokens: list[Token]) -> None:
    """Parentheses match, and neither they nor the signs before an operand exceed the limit."""
    opened: list[int] = []
    run = 0
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            raise SelectionError.at("';' is not allowed", "write one condition", text, token.start)
        if token.token_type == TokenType.L_PAREN:
            opened.append(token.start)
        elif token.token_type == TokenType.R_PAREN and not opened:
            raise SelectionError.at("')' has no matching '('", "remove it", text, token.start)
        elif token.token_type == TokenType.R_PAREN:
            opened.pop()
        run = run + 1 if token.token_type in _UNARY else 0
        if max(len(opened), run) > DEPTH_MAX:
            raise SelectionError.at("the condition nests too deeply", "remove parentheses", text, token.start)
    if opened:
        raise SelectionError.at("'(' is not closed", "close it", text, opened[-1])


def _open_quote(text: str) -> int:
    """Where the unclosed quote begins."""
    place, opened = 0, -1
    while place < len(text):
        if opened < 0 and text[place] in "'\"":
            opened = place
        elif opened >= 0 and text[place] == text[opened]:
            opened = -1
        place += 1
    return max(0, opened)


def explain(error: ParseError, text: str, tokens: list[Token]) -> SelectionError:
    """A ParseError as ours; sqlglot names the token by line and column of its end."""
    found: dict[str, Any] = error.errors[0] if error.errors else {}
    at = next((t for t in tokens if (t.line, t.col) == (found.get("line"), found.get("col"))), tokens[-1])
    rest = text[at.start : at.end + 1]
    if "Required keyword" in str(found.get("description")) or "Expected" in str(found.get("description")):
        return SelectionError.at(f"something is missing after {rest!r}", KNOWN, text, at.end + 1)
    return SelectionError.at(f"{rest!r} is not allowed here", KNOWN, text, at.start)
