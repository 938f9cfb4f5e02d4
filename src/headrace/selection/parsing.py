"""The text form of a selection: a feed pattern, then clauses.

    selection = [pattern{"|"pattern}] clause…           in any order, `where` last
    clause    = "ident" "~" text | "ident" "!~" text
              | "tag" integer{","integer} | "tag" name"="value{","value}
              | "priority" (n | [n]".."[n] | ">="n | "<="n)
              | "origin" name{","name} | "slice" (n | n"-"n){","…}
              | "created" [time]".."[time] | "age" "<" duration | "every" n
              | "replay" ["="] ("true" | "false" | run)
              | "xpath" text | "function" name | "where" condition up to the end
    text      = "…" or '…' with the quote doubled inside, or anything without blanks

`parse` returns the arguments of a Selection and validates each value in place, so that every problem has its column.
Not here: writing the text (writing.py), what the values mean (values.py and others), and how they are evaluated.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

from headrace.errors import SelectionError
from headrace.product.properties import PropertyValue
from headrace.selection import values
from headrace.selection.clauses import TAG, check_regex, tags_of
from headrace.selection.functions import check_function_name
from headrace.selection.pattern import canonical_pattern
from headrace.selection.values import number_in
from headrace.selection.writing import CLAUSES, KEYWORD, begins_with_clause

TEXT_MAX = 16384
_BLANKS = re.compile(r"\s*")
_BARE = re.compile(r"\S+")
_PATTERN = re.compile(r"[^\s|]+(?:\s*\|\s*[^\s|]+)*|\S+")
_ITEM = re.compile(r"[^\s,=\"']+")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LIST = re.compile(r"[^\s,]+(?:\s*,\s*[^\s,]+)*")
_BOUND = re.compile(r"[<>]=\s*\S+|\S+")


def parse(text: str) -> dict[str, Any]:
    """The arguments that the text means; SelectionError points at the first problem."""
    if not isinstance(text, str):
        raise SelectionError(f"{text!r} is not text", "write a feed pattern and clauses")
    if len(text) > TEXT_MAX:
        raise SelectionError(f"the selection has {len(text)} characters, more than {TEXT_MAX}", "shorten it")
    return _Parser(text).parse()


class _Parser:
    """Reads a text once, from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.found: dict[str, Any] = {}
        self._clauses: Mapping[str, Callable[[int], None]] = {
            "ident": self._ident, "tag": self._tag, "priority": self._priority, "origin": self._origin,
            "slice": self._slice, "created": self._created, "age": self._age, "replay": self._replay,
            "every": self._every, "xpath": self._xpath, "where": self._where, "function": self._function,
        }  # fmt: skip

    def parse(self) -> dict[str, Any]:
        self._skip()
        if self.place == len(self.text):
            raise self._error("the selection is empty", self.place, "write ** for everything")
        if not self._at_clause():
            self._pattern()
        while self._skip() < len(self.text):
            self._clause()
        return self.found

    # --- pieces -----------------------------------------------------------------------------------

    def _skip(self) -> int:
        found = _BLANKS.match(self.text, self.place)
        assert found is not None
        self.place = found.end()
        return self.place

    def _take(self, pattern: re.Pattern[str]) -> str:
        """The text that matches here; empty if there is none."""
        found = pattern.match(self.text, self.place)
        if found is None:
            return ""
        self.place = found.end()
        return found[0]

    def _sign(self, sign: str) -> bool:
        if not self.text.startswith(sign, self._skip()):
            return False
        self.place += len(sign)
        return True

    def _quoted(self) -> str:
        """The quoted text that begins here."""
        begin, quote = self.place, self.text[self.place]
        place = begin + 1
        parts = []
        while True:
            end = self.text.find(quote, place)
            if end < 0:
                raise self._error("the quote is not closed", begin, f"end it with {quote}")
            parts.append(self.text[place:end])
            if not self.text.startswith(quote, end + 1):
                self.place = end + 1
                return quote.join(parts)
            place = end + 2

    def _at_quote(self) -> bool:
        return self.text.startswith(('"', "'"), self._skip())

    def _value(self, pattern: re.Pattern[str], keyword: str, example: str) -> str:
        """The value after a keyword, which is required."""
        self._skip()
        value = self._take(pattern)
        if not value:
            problem = f"{keyword} has no value"
            quoting = f'; quote a feed of that name: "{keyword}"' if self.place == len(self.text) else ""
            raise self._error(problem, self.place, f"write {example}{quoting}")
        return value

    def _text(self, keyword: str, example: str) -> str:
        return self._quoted() if self._at_quote() else self._value(_BARE, keyword, example)

    def _set(self, name: str, begin: int, make: Callable[[], Any], value_at: int) -> None:
        """Keep a value; a problem in it is reported at its place in the whole text."""
        if name in self.found:
            raise self._error("the clause is given twice", begin, "keep one of them")
        try:
            self.found[name] = make()
        except SelectionError as error:
            place = value_at if error.column is None else self._within(value_at, error.column - 1)
            raise self._error(error.problem, place, error.hint) from None

    def _within(self, value_at: int, offset: int) -> int:
        """The place of the n-th character of a value; a doubled quote counts as one."""
        quote = self.text[value_at : value_at + 1]
        if quote not in ("'", '"'):
            return value_at + offset
        place = value_at + 1
        for _ in range(offset):
            place += 2 if self.text.startswith(quote * 2, place) else 1
        return place

    def _error(self, problem: str, place: int, hint: str) -> SelectionError:
        return SelectionError.at(problem, hint, self.text, place)

    # --- the pattern and the clauses --------------------------------------------------------------

    def _at_clause(self) -> bool:
        return begins_with_clause(self.text[self.place :])

    def _pattern(self) -> None:
        begin = self.place
        text = self._quoted() if self._at_quote() else self._take(_PATTERN)
        self._set("feed", begin, lambda: canonical_pattern(text) and text, begin)

    def _clause(self) -> None:
        begin = self.place
        word = self._take(KEYWORD)
        read = self._clauses.get(word.lower())
        if read is None:
            raise self._unknown(begin)
        read(begin)

    def _unknown(self, begin: int) -> SelectionError:
        found = _BARE.match(self.text, begin)
        word = found[0][:40] if found else ""
        known = f"the clauses are {', '.join(CLAUSES)}"
        near = difflib.get_close_matches(word.lower(), CLAUSES, 1)
        if near:
            known = f"did you mean {near[0]}? {known}"
        elif "=" in word:
            known = f"write tag {word} for a property; {known}"
        elif "/" in word or "*" in word:
            known = f"a selection has one feed pattern, and it comes first; {known}"
        return self._error(f"there is no clause {word!r}", begin, known)

    def _ident(self, begin: int) -> None:
        absent = self._sign("!~")
        if not absent and not self._sign("~"):
            raise self._error("ident has no ~", self.place, 'write ident ~ "^SA" or ident !~ "TEST"')
        self._skip()
        at = self.place
        pattern = self._text("ident", 'ident ~ "^SA"')
        self._set("not_ident" if absent else "ident", begin, lambda: check_regex(pattern, "ident"), at)

    def _tag(self, begin: int) -> None:
        self._skip()
        at = self.place
        quoted = self._at_quote()
        name = self._quoted() if quoted else self._value(_ITEM, "tag", "tag 7,9 or tag run=5")
        tags = self.found.setdefault("tags", {})
        if self._sign("="):
            listed = [self._tag_value()]
        elif quoted or not _INTEGER.fullmatch(name):
            raise self._error(f"tag {name!r} has no value", self.place, f"write tag {name}=5, or integers: tag 7,9")
        else:
            name, listed = TAG, [number_in(name)]
        while self._sign(","):
            listed.append(self._tag_value())
        if name in tags:
            raise self._error(f"tag {name!r} is given twice", begin, "list its values: tag 7,9")
        self.found.pop("tags")
        self._set("tags", begin, lambda: tags_of({**tags, name: listed}), at)
        self.found["tags"] = {**tags, name: listed}

    def _tag_value(self) -> PropertyValue:
        if self._at_quote():
            return self._quoted()
        item = self._value(_ITEM, "tag", "tag 7,9 or tag run=5")
        if _INTEGER.fullmatch(item):
            return number_in(item)
        if _NUMBER.fullmatch(item):
            return float(item)
        return {"true": True, "false": False}.get(item.lower(), item)

    def _simple(
        self, name: str, begin: int, pattern: re.Pattern[str], make: Callable[[Any], Any], example: str
    ) -> None:
        keyword = example.partition(" ")[0]
        self._skip()
        at = self.place
        value = self._value(pattern, keyword, example)
        self._set(name, begin, lambda: make(value) and value, at)

    def _priority(self, begin: int) -> None:
        self._simple("priority", begin, _BOUND, lambda value: values.priority_of(value) or True, "priority 5..7")

    def _origin(self, begin: int) -> None:
        self._simple("origin", begin, _LIST, values.origin_of, "origin site1,site2")

    def _slice(self, begin: int) -> None:
        self._simple("slices", begin, _LIST, values.slices_of, "slice 0-7,12")

    def _created(self, begin: int) -> None:
        self._simple(
            "created", begin, _BARE, lambda value: values.created_of(value) or True, "created 2026-01-01..2026-01-02"
        )

    def _every(self, begin: int) -> None:
        self._simple("every", begin, _BARE, values.every_of, "every 10")

    def _age(self, begin: int) -> None:
        if not self._sign("<"):
            raise self._error("age has no <", self.place, "write age < 1h")
        self._simple("max_age_s", begin, _BARE, values.max_age_of, "age < 1h")

    def _replay(self, begin: int) -> None:
        self._sign("=")
        self._simple("replay", begin, _BARE, lambda value: values.replay_of(value) is not None, "replay false")

    def _xpath(self, begin: int) -> None:
        from headrace.selection.xpath import XPath

        self._skip()
        at = self.place
        path = self._text("xpath", "xpath \"//alert[@severity='3']\"")
        self._set("xpath", begin, lambda: XPath(path), at)

    def _where(self, begin: int) -> None:
        from headrace.selection.where.where import Where

        at = self._skip()
        condition = self.text[at:]
        self.place = len(self.text)
        if not condition:
            raise self._error("where has no condition", at, "write where level > 3")
        try:
            self.found["where"] = Where(condition)
        except SelectionError as error:
            place = at + (error.column or 1) - 1
            word = KEYWORD.match(self.text, place)
            if word is not None and word[0].lower() in CLAUSES:
                hint = f"where takes everything up to the end: write {word[0]} before it"
                raise self._error(error.problem, place, hint) from None
            raise self._error(error.problem, place, error.hint) from None

    def _function(self, begin: int) -> None:
        self._skip()
        if self.text.startswith("<", self.place):
            raise self._error("a Python function has no text", self.place, "give it as Selection(function=…)")
        self._simple("function", begin, _BARE, check_function_name, "function strong_wind")
