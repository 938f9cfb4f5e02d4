"""`headrace send` and `headrace receive`."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from headrace import Queue
from support.commandline import Run, objects


def _prepared(tmp_path: Path) -> None:
    Queue.create(tmp_path / "q", size="4MiB", origin="here").close()
    (tmp_path / "a.txt").write_text("hello")
    (tmp_path / "run" / "sub").mkdir(parents=True)
    (tmp_path / "run" / "sub" / "b.bin").write_bytes(os.urandom(200_000))


def test_files_that_were_sent_are_received_once(run: Run, tmp_path: Path) -> None:
    _prepared(tmp_path)
    sent = run("send", "a.txt", "run", "q", "--no-wait")
    assert sent.exit_code == 0
    assert "put" in sent.stdout
    assert "run/sub/b.bin" in sent.stdout
    received = run("receive", "in", "--from", "q", "--once")
    assert received.exit_code == 0, received.output
    assert "received 4 files" in received.stdout
    assert (tmp_path / "in" / "a.txt").read_text() == "hello"
    assert (tmp_path / "in/run/sub/b.bin").read_bytes() == (tmp_path / "run/sub/b.bin").read_bytes()


def test_json_names_each_file_and_ends_with_totals(run: Run, tmp_path: Path) -> None:
    _prepared(tmp_path)
    *files, totals = objects(run("send", "a.txt", "run", "q", "--no-wait", "--json").stdout)
    assert [each["name"] for each in files] == ["a.txt", "run", "run/sub", "run/sub/b.bin"]
    assert totals["finished"] == 4
    assert totals["sent_bytes"] == 200_005
    *files, totals = objects(run("receive", "in", "--from", "q", "--once", "--json").stdout)
    assert {each["state"] for each in files} == {"done"}
    assert totals["finished"] == 4


def test_exit_codes_say_what_went_wrong(run: Run, tmp_path: Path) -> None:
    _prepared(tmp_path)
    assert run("send", "missing", "q").exit_code == 2
    assert run("send", "a.txt").exit_code == 2
    silent = run("send", "a.txt", "q", "--timeout", "0.1s")
    assert silent.exit_code == 3
    assert "no receiver of feed files has answered" in silent.stderr
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("mine")
    refused = run("receive", "in", "--from", "q", "--once")
    assert refused.exit_code == 1
    assert "is not overwritten" in refused.stderr
    assert run("receive", "in", "--from", "q", "--existing", "maybe").exit_code == 2
    assert run("receive", "in", "--from", "absent", "--once").exit_code == 3


def test_two_sources_with_one_name_are_refused(run: Run, tmp_path: Path) -> None:
    _prepared(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt").write_text("two")
    result = run("send", "a.txt", "other/a.txt", "q")
    assert result.exit_code == 3
    assert "would have the same name" in result.stderr


def test_links_in_a_directory_are_named_and_left_out(run: Run, tmp_path: Path) -> None:
    _prepared(tmp_path)
    (tmp_path / "run" / "link").symlink_to("/etc/passwd")
    result = run("send", "run", "q", "--no-wait")
    assert result.exit_code == 0
    assert "run/link is not sent" in result.stderr


def test_files_that_cannot_be_sent_are_named_and_the_exit_code_tells(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _prepared(tmp_path)
    for name in (b"line\nbreak", b"tab\tstop", b"not utf-8 \xff", b"secret"):
        Path(os.fsdecode(bytes(tmp_path / "run") + b"/" + name)).write_text("x")
    (tmp_path / "run" / "closed").mkdir()
    _without_permission(monkeypatch)
    text = run("send", "run", "q", "--no-wait")
    assert text.exit_code == 1
    assert "5 left out" in text.stdout
    assert "not utf-8 \\udcff is not sent: " in text.stderr
    told = run("send", "run", "q", "--no-wait", "--json")
    assert told.exit_code == 1
    lines = {each["left_out"].rpartition("/")[2]: each["problem"] for each in objects(told.stderr)}
    assert sorted(lines) == ["closed", "line\\nbreak", "not utf-8 \\udcff", "secret", "tab\\tstop"]
    assert lines["secret"] == "Permission denied"
    assert "Permission denied" in lines["closed"]
    *files, totals = objects(told.stdout)
    assert totals["left_out"] == 5
    assert "run/sub/b.bin" in {each["name"] for each in files}


def _without_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a user who is not root, whoever runs the test."""
    access, scandir = os.access, os.scandir

    def listed(path: Any = ".") -> Any:
        if Path(path).name == "closed":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return scandir(path)

    monkeypatch.setattr(
        os, "access", lambda path, mode, **rest: "secret" not in str(path) and access(path, mode, **rest)
    )
    monkeypatch.setattr(os, "scandir", listed)


def test_fewer_files_than_asked_for_are_a_failure(run: Run, tmp_path: Path) -> None:
    _prepared(tmp_path)
    nothing = run("receive", "in", "--from", "q", "--count", "3", "--timeout", "0.1s")
    assert nothing.exit_code == 3
    assert "0 of 3 files came" in nothing.stderr
    assert run("send", "a.txt", "q", "--no-wait").exit_code == 0
    one = run("receive", "in", "--from", "q", "--count", "3", "--timeout", "0.1s")
    assert one.exit_code == 3
    assert "1 of 3 files came" in one.stderr


def test_a_file_is_no_directory_to_receive_into(run: Run, tmp_path: Path) -> None:
    _prepared(tmp_path)
    result = run("receive", "a.txt", "--from", "q", "--once")
    assert result.exit_code == 2
    assert "'a.txt' is a file" in result.stderr
