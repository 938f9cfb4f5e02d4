"""Document: TOML with the place of every key."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.site.config import LAYOUT
from headrace.toml.document import Document, KeyPath, Problem, read_document
from headrace.toml.kinds import toml_lines

Write = Callable[[str], Path]

TEXT = """\
# a remark
log.level = "info"

[site]  # another
queue = "wx.queue"
listen = [
  "tcp/127.0.0.1:1",  # [not a table]
  "tcp/é:2", "tcp/x:3",
]
[[request]]
select = "é wx/**"
"a key".'b c' = { x = 1, y.z = [2, { w = 3 }] }
[[request]]
  select = '''
more # no remark
[not.a.table]'''
[request.sub]
key = 5
[[allow]]
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / "site.toml"
        path.write_text(text)
        return path

    return write


def document(path: Path) -> Document:
    found = read_document(path, LAYOUT)
    assert isinstance(found, Document), found
    return found


def problem_of(path: Path) -> Problem:
    found = read_document(path, LAYOUT)
    assert isinstance(found, Problem)
    return found


def test_every_key_has_its_line(write: Write) -> None:
    lines = {
        ("log", "level"): 2, ("log",): 2, ("site",): 4, ("site", "queue"): 5, ("site", "listen"): 6,
        ("site", "listen", 0): 7, ("site", "listen", 1): 8, ("site", "listen", 2): 8, ("request", 0): 10,
        ("request", 0, "select"): 11, ("request", 0, "a key", "b c", "x"): 12,
        ("request", 0, "a key", "b c", "y", "z", 1, "w"): 12, ("request", 1): 13, ("request", 1, "select"): 14,
        ("request", 1, "sub"): 17, ("request", 1, "sub", "key"): 18, ("allow", 0): 19,
    }  # fmt: skip
    read = document(write(TEXT))
    assert {path: read.line(path) for path in lines} == lines


def test_long_files_are_read_to_their_end(write: Write) -> None:
    text = "".join(f'[[request]]\nselect = "wx/{number}"\n[request.sub]\nkey = {number}\n' for number in range(1000))
    read = document(write(text))
    assert read.line(("request", 999, "sub", "key")) == 4000


def test_a_missing_key_has_the_line_of_its_table(write: Write) -> None:
    read = document(write(TEXT))
    assert read.line(("site", "name")) == 4
    assert read.line(("request", 1, "from")) == 13
    assert read.line(("tls",)) == 1


def test_a_place_within_a_text_is_a_column_of_the_file(write: Write) -> None:
    read = document(write(TEXT))
    assert read.place_within(("request", 0, "select"), 3) == (11, 13)
    assert TEXT.splitlines()[10][12] == "w"
    assert read.place_within(("site", "listen", 1), 5) == (8, 8)


def test_a_place_within_a_text_with_escapes_is_where_the_text_begins(write: Write) -> None:
    read = document(write('a = "x\\ty z"\n[[request]]\nselect = """\nwx"""\n'))
    assert read.place_within(("a",), 4) == (1, 5)
    assert read.place_within(("request", 0, "select"), 2) == (3, 10)


def test_windows_line_endings_and_a_byte_order_mark_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_bytes(b"\xef\xbb\xbf[site]\r\nqueue = 'q'\r\nbeat = '1s'\r\n")
    assert document(path).line(("site", "beat")) == 3


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("[site]\nbeat = 1h\n", 2, 9),
        ("[site]\n[log]\n[site]\n", 3, 6),
        ("[site]\na = 1\na = 2\n", 3, 6),
        ("[site]\nqueue\n", 2, 6),
        ("[[request]\n", 1, 10),
        ("[site]\nqueue = '''wx\n", 2, 14),
        ("x = [1,\n\n", 1, 8),
    ],
)
def test_invalid_toml_is_reported_with_line_and_column(write: Write, text: str, line: int, column: int) -> None:
    found = problem_of(write(text))
    assert found.problem.startswith("not TOML: ")
    assert found.hint
    assert (found.line, abs((found.column or 0) - column) <= 1) == (line, True), found
    shown, caret = found.excerpt.split("\n")
    assert shown.strip() == text.split("\n")[line - 1].strip()
    assert caret.strip() == "^"


def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    assert problem_of(tmp_path / "none.toml").problem == "the file does not exist"
    assert problem_of(tmp_path).problem.startswith("it is not readable")
    path = tmp_path / "site.toml"
    path.write_bytes(b"[site]\nqueue = '\xff'\n")
    assert (problem_of(path).line, problem_of(path).problem) == (2, "this line is not UTF-8")
    path.write_bytes(b"#" * (2 << 20))
    assert "longer than" in problem_of(path).problem


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = " + "1" * 10_000, "a = " + "{b=" * 5000])
def test_a_hostile_file_is_refused(write: Write, text: str) -> None:
    assert problem_of(write(text)).problem


def paths_of(value: Any, at: KeyPath = ()) -> set[KeyPath]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {at} | {path for key, each in inner for path in paths_of(each, (*at, key))}


texts = st.text(st.characters(codec="utf-8"), max_size=8)
values = st.recursive(
    st.integers(-5, 5) | st.booleans() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, max_examples=60)
@given(tables=st.lists(st.dictionaries(texts, values, max_size=3), max_size=3), top=st.dictionaries(texts, values))
def test_every_value_of_a_file_has_a_place(
    tables: list[dict[str, Any]], top: dict[str, Any], tmp_path_factory: Any
) -> None:
    top.pop("t", None)
    blocks = [toml_lines(top), *(["[[t]]", *toml_lines(table)] for table in tables)]
    path = tmp_path_factory.mktemp("toml") / "site.toml"
    path.write_text("\n".join(line for block in blocks for line in block), "utf-8", newline="")
    read = document(path)
    expected = {**top, **({"t": tables} if tables else {})}
    assert read.data == expected
    assert paths_of(expected) - {(), ("t",)} == set(read.spots)
