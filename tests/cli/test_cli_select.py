"""headrace select check: forms, samples and errors; and selections as options of other commands."""

from pathlib import Path

import pytest

from headrace import Queue
from support.commandline import Run, fill, objects


def test_a_selection_is_shown_in_its_forms(run: Run) -> None:
    result = run("select", "check", "wx/+/# ident ~ '^SA' priority >= 5 where level>3")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == 'selection: wx/*/** ident ~ "^SA" priority 5.. where level > 3'
    assert '  feed = "wx/*/**"' in lines
    assert '  priority = "5.."' in lines
    places = {
        line.split()[0]: line.split("  ")[-1].strip() for line in lines if line.startswith("  ") and "=" not in line
    }
    assert (places["feed"], places["ident"], places["priority"]) == ("index row", "ident", "index row")


def test_the_forms_of_a_selection_are_json_for_programs(run: Run) -> None:
    (told,) = objects(run("select", "check", "wx/** tag 7 xpath //a every 3", "--json").stdout)
    assert told["selection"] == 'wx/** tag 7 every 3 xpath "//a"'
    assert told["arguments"] == {"feed": "wx/**", "tags": [7], "every": 3, "xpath": "//a"}
    assert [(clause["clause"], clause["decided_by"]) for clause in told["clauses"]] == [
        ("feed", "index row"), ("tag", "record"), ("xpath", "payload"), ("every", "counting"),
    ]  # fmt: skip


def test_a_selection_error_is_shown_with_a_caret(run: Run) -> None:
    result = run("select", "check", "wx/** priority 9")
    assert (result.exit_code, result.stdout) == (2, "")
    problem, text, caret, hint = result.stderr.splitlines()
    assert problem == "headrace: priority '9' is out of range"
    assert text == "  wx/** priority 9"
    assert caret.index("^") == text.index("9")
    assert hint.startswith("  try: ")


def test_the_json_of_a_selection_error_has_its_column(run: Run) -> None:
    (told,) = objects(run("select", "check", "wx/** where f(x)", "--json").stderr)
    assert (told["error"], told["column"], told["exit"]) == ("SelectionError", 13, 2)
    assert told["excerpt"].endswith("^")


def test_a_selection_is_tried_on_payloads(run: Run, tmp_path: Path) -> None:
    (tmp_path / "alert.xml").write_text("<alert severity='3'/>")
    (tmp_path / "other.xml").write_text("<alert severity='2'/>")
    words = ("select", "check", "wx/** tag run=5 xpath //alert[@severity='3']", "--feed", "wx/a", "--property", "run=5")
    result = run(*words, "--sample", "alert.xml", "--sample", "other.xml")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-2:] == [
        "wanted: alert.xml  wx/a  alert.xml",
        "refused by xpath (the expression finds nothing): other.xml  wx/a  other.xml",
    ]
    assert run(*words, "--sample", "other.xml").exit_code == 1


def test_a_selection_is_tried_on_the_output_of_watch_and_cat(run: Run, path: Path, tmp_path: Path) -> None:
    fill(path, 3)
    with Queue.open(path) as queue:
        queue.put(b"<alert/>", feed="wx/alert", ident="x", properties={"level": 5})
    (tmp_path / "watched").write_text(run("watch", path, "--from", "oldest", "--count", "4", "--json").stdout)
    (tmp_path / "written").write_text(run("cat", path, "--json").stdout)
    (told,) = objects(run("select", "check", "where size = 9", "--sample", "watched", "--json").stdout)
    assert [sample["wanted"] for sample in told["samples"]] == [True, True, True, False]
    (told,) = objects(run("select", "check", "xpath //alert where level = 5", "--sample", "written", "--json").stdout)
    assert [sample["refused_by"] for sample in told["samples"]] == ["where", "where", "where", None]
    (told,) = objects(run("select", "check", "xpath //alert", "--sample", "watched", "--json").stdout)
    assert {sample["reason"] for sample in told["samples"]} == {"the sample has no payload"}


def test_a_selection_is_tried_on_a_queue(run: Run, path: Path) -> None:
    fill(path, 5)
    result = run("select", "check", "wx/text ident ~ [12]$ where level > 3", "--queue", path)
    assert result.exit_code == 1
    assert "5 products, 0 wanted, 3 refused by ident, 2 refused by where" in result.stdout
    assert "no sample has the property 'level'" in result.stdout
    assert run("select", "check", "wx/text ident ~ [12]$", "--queue", path).exit_code == 0


@pytest.mark.parametrize(
    "content", ['{"feed": "a"}\nno product\n', '{"feed": "a"}\n{"feed": "a", "created": "noon"}\n']
)
def test_an_invalid_sample_is_an_error_with_its_line(run: Run, tmp_path: Path, content: str) -> None:
    (tmp_path / "sample").write_text(content)
    result = run("select", "check", "**", "--sample", "sample")
    assert result.exit_code == 2
    assert "sample:2 is not a product" in result.stderr


def test_other_commands_accept_the_whole_language(run: Run, path: Path) -> None:
    with Queue.open(path) as queue:
        queue.put_many([b"%d" % n for n in range(10)], feed="a", properties=[{"n": n} for n in range(10)])
    shown = objects(
        run("watch", path, "--from", "oldest", "--timeout", "0", "--select", "a where n > 6", "--json").stdout
    )
    assert [one["properties"]["n"] for one in shown] == [7, 8, 9]
    assert run("cat", path, "--select", "tag n=3,5", "--separator", " ").stdout == "3 5"
    assert run("cat", path, "--select", "every 4", "--separator", " ").stdout == "3 7"
    assert "deleted 2 products" in run("queue", "delete", path, "--select", "where n >= 8").stdout
    assert run("cat", path, "--select", "ident ~ a", "--ident", "b").exit_code == 2


def test_an_empty_selection_deletes_nothing(run: Run, path: Path) -> None:
    fill(path, 3)
    assert run("queue", "delete", path, "--select", "").exit_code == 2
    with Queue.open(path) as queue:
        assert len(queue.read_batch()) == 3


def test_a_prescale_counts_through_a_long_queue(run: Run, path: Path) -> None:
    with Queue.open(path) as queue:
        for start in range(0, 12_000, 4000):
            queue.put_many([b"%d" % n for n in range(start, start + 4000)], feed="a")
    assert run("cat", path, "--select", "every 7", "--separator", " ").stdout.split() == [
        str(n) for n in range(6, 12_000, 7)
    ]
