"""Contexts, the default queue, and which queue a word names."""

import json
import os
import stat
from pathlib import Path

import pytest

from headrace.link.contexts import contexts_path
from support.commandline import Run, fill, objects

PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_context_stands_for_its_queue_with_and_without_the_at_sign(run: Run, path: Path) -> None:
    fill(path, 3)
    assert run("context", "create", "lab", path).stdout == f"created lab: {path}\n"
    for word in ("lab", "@lab"):
        assert run("cat", word, "--count", "1").stdout == "product 1"
    assert objects(run("context", "list", "--json").stdout)[0]["where"] == str(path)


def test_a_directory_with_the_name_of_a_context_is_refused_until_the_user_chooses(run: Run, path: Path) -> None:
    run("context", "create", "q", path)
    os.rename(path, path.with_name("elsewhere"))
    Path("q").mkdir()
    result = run("lag", "q")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "  try: write @q or ./q" in result.stderr
    assert "is not a queue" in run("lag", "./q").stderr
    Path("q").rmdir()
    os.rename(path.with_name("elsewhere"), path)
    assert run("lag", "@q").exit_code == 0


def test_an_unknown_context_is_an_error_that_lists_the_known_ones(run: Run, path: Path) -> None:
    run("context", "create", "lab", path)
    result = run("watch", "@lba")
    assert result.exit_code == 2
    assert result.stderr == "headrace: there is no context 'lba'; did you mean 'lab'?\n  try: the contexts are: lab\n"


def test_a_password_is_neither_stored_nor_shown(run: Run, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(PASSWORD)
    words = ["tcp/127.0.0.1:7447", "--user", "ada", "--password-file", "secret", "--use"]
    shown = [run("context", "create", "lab", *words, "--json", "--verbose")]
    shown += [run("context", *each) for each in (["list"], ["show"], ["show", "lab", "--json"], ["list", "--json"])]
    assert all(each.exit_code == 0 for each in shown)
    assert PASSWORD not in "".join(each.output for each in shown) + contexts_path().read_text()
    assert json.loads(shown[3].stdout)["password_file"] == str(tmp_path / "secret")


def test_the_file_of_contexts_belongs_to_its_user_alone(run: Run, path: Path) -> None:
    before = os.umask(0)
    try:
        run("context", "create", "lab", path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(contexts_path().stat().st_mode) == 0o600
    assert stat.S_IMODE(contexts_path().parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "truncated"),
        (b'{"version": 2}', "version 2"),
        (b'{"contexts": {"lab": {"where": "q", "passwort": "x"}}}', "passwort"),
        (b'{"contexts": {"a/b": {"where": "q"}}}', "'a/b' is not the name"),
        (b'{"default": "lab"}', "default 'lab'"),
    ],
)
def test_an_invalid_file_of_contexts_is_named_with_the_reason(run: Run, content: bytes, reason: str) -> None:
    contexts_path().parent.mkdir(parents=True)
    contexts_path().write_bytes(content)
    result = run("context", "list")
    assert result.exit_code == 2
    assert str(contexts_path()) in result.stderr
    assert reason in result.stderr
    assert "correct the file, or move it away" in result.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["a.b", "q"], "'a.b' is not the name of a context"),
        (["lab", "127.0.0.1:7447"], "write tcp/127.0.0.1:7447"),
        (["lab", "tcp://host:7447"], "write tcp/host:7447"),
        (["lab", "tcp/host:7447", "--user", "ada"], "--user is set without --password-file"),
        (["lab", "tcp/host:7447", "--certificate", "c"], "--certificate is set without --key"),
        (["lab", "wx.queue", "--authority", "ca"], "needs no credentials"),
        (["lab", "@other"], "'@other' is a context"),
    ],
)
def test_an_invalid_context_is_refused_and_nothing_is_stored(run: Run, words: list[str], problem: str) -> None:
    result = run("context", "create", *words)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert not contexts_path().exists()


def test_a_context_is_replaced_only_on_request(run: Run) -> None:
    run("context", "create", "lab", "tcp/host:7447")
    assert run("context", "create", "lab", "tcp/host:7447").exit_code == 0
    result = run("context", "create", "lab", "tcp/other:7447")
    assert (result.exit_code, "give --replace" in result.stderr) == (2, True)
    assert run("context", "create", "lab", "tcp/other:7447", "--replace").stdout == "replaced lab: tcp/other:7447\n"


def test_a_deleted_context_is_no_longer_the_default(run: Run, path: Path) -> None:
    run("context", "create", "lab", path, "--use")
    assert run("lag").exit_code == 0
    assert run("context", "delete", "lab").stdout == "deleted 1 context: lab\n"
    assert run("lag").stderr.startswith("headrace: Missing argument 'QUEUE'\n")
    assert run("context", "delete", "lab").exit_code == 2


# --- the default queue ------------------------------------------------------------------------------


def test_a_queue_that_is_left_out_is_the_default(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path, 2)
    monkeypatch.setenv("HEADRACE_QUEUE", str(path))
    assert run("cat", "--count", "1").stdout == "product 1"
    assert "created decode" in run("station", "create", "decode", "--select", "wx/**").stdout
    assert run("station", "show", "decode").exit_code == 0
    assert run("cursor", "create", "c").exit_code == 0
    assert run("cursor", "seek", "c", "2").stdout == "c is at 2\n"
    assert run("wanted", "wx/text").stdout.startswith("wx/text is wanted by")
    assert "created radar" in run("channel", "create", "radar", "wx/radar/**").stdout
    assert run("queue", "check").exit_code == 0
    assert run("put", "--feed", "wx/text", stdin="new").exit_code == 0


def test_a_queue_that_is_written_takes_precedence_over_the_default(
    run: Run, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(path, 1)
    run("context", "create", "other", "tcp/127.0.0.1:1", "--use")
    monkeypatch.setenv("HEADRACE_QUEUE", "nowhere")
    assert run("cat", path).stdout == "product 1"
    assert "there is no queue at" in run("cat").stderr
    monkeypatch.setenv("HEADRACE_QUEUE", str(path))  # the variable takes precedence over the context in use
    assert run("cat").stdout == "product 1"


def test_where_words_are_optional_the_first_word_is_the_queue_and_an_at_sign_the_default(
    run: Run, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(b"one")
    monkeypatch.setenv("HEADRACE_QUEUE", str(path))
    result = run("put", "f", "--feed", "wx/text")
    assert result.exit_code == 3
    assert "f is a file, not a queue" in result.stderr
    assert "if you mean the default queue, write @ before f" in result.stderr
    assert run("put", "@", "f", "--feed", "wx/text").exit_code == 0
    run("station", "create", "decode")
    assert run("lag", "@", "decode").exit_code == 0
    assert run("cat").stdout == "one"


def test_the_whole_queue_is_deleted_only_if_it_is_written(
    run: Run, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_QUEUE", str(path))
    result = run("queue", "delete", "--yes")
    assert (result.exit_code, path.exists()) == (2, True)
    assert run("queue", "delete", "@", "--yes").exit_code == 0
    assert not path.exists()


def test_products_are_generated_into_the_default_queue_only_on_request(
    run: Run, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_QUEUE", str(path))
    words = ["--products", "3", "--fast", "--no-giants", "--feeds", "metar", "--duplicates", "0"]
    assert run("generate", *words).stdout.count("\n") == 3
    assert run("cat").stdout == ""
    assert "sent 3 products" in run("generate", "@", *words).stdout
