"""One rule for exit codes, with failures of every group of commands; and what --verbose tells.

1: the answer is no. 2: the input is invalid. 3: it failed. 4: a bug.
"""

import errno
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headrace import Queue
from headrace.cli.failure import explain
from headrace.cli.main import COMMANDS, headrace
from support.commandline import Run, fill, objects, spoil

# Words of a command, by exit code. `Q` is a queue with three products, a station `s`, a cursor `c` and a channel `ch`.
FAILURES = {
    1: [
        "lag Q s --max-products 0", "select check other/** --queue Q", "station delete Q s", "queue delete Q",
        "channel validate --reliability persistent --discard fifo", "station retry Q s 99", "verify Q --oracle sent.jsonl",
    ],
    2: [
        "queue create Q --size nonsense", "queue info 127.0.0.1:7447", "queue create 127.0.0.1:7447",
        "queue repair 127.0.0.1:7447", "queue delete 127.0.0.1:7447", "queue check tcp/127.0.0.1:1", "put Q nofile --feed a",
        "put Q --feed a//b", "watch Q --count 1 --select every", "watch 127.0.0.1:7447", "cat Q --from 12x", "cat Q --nonsense",
        "select check every", "select check a --sample nofile", "cursor seek Q c 12x", "cursor nonsense",
        "station create Q s2 --order nonsense", "station seek Q", "lag Q --max-products x", "top Q --once --interval 0s",
        "channel create Q ch2 a//b", "channel validate --order nonsense", "hop tcp/127.0.0.1:1 1", "hop site:a 1", "cat site:a/b", "serve nofile",
        "serve bad.toml", "sites nofile", "sites 127.0.0.1:7447", "clock Q --source ntp", "hop Q x", "wanted Q a//b", "config check nofile",
        "config check bad.toml", "config show nofile", "certs show nofile", "certs show bad.toml",
        "certs site certs name --days 0", "pipeline check nofile", "pipeline check bad.toml", "pipeline status nofile",
        "pipeline import nofile", "pipeline compact nofile", "archive list", "archive restore table Q --since x",
        "generate --feeds nonsense", "verify Q --oracle nofile", "verify Q --oracle bad.toml", "context show nonsense",
        "context use", "completion show nonsense", "station take Q s --count 0", "station take Q s --exec-timeout 1s", "context create a.b Q", "demo --seconds x", "bench queue --scale x", "bench nonsense",
        "cat site:nowhere", "sites site:nowhere", "slices run nocolon Q --stream ch", "slices run nosuch:f Q --stream ch",
        "slices run json:loads Q", "slices move Q node", "slices balance Q --stream ch --algorithm nonsense",
        "replay", "replay Q --speed fast", "replay Q --onto a", "replay Q Q --onto a//b", "replay --run x", "replay Q --from 12x",
        "replay Q --from 3 --to 1", "replay --control pause", "replay Q --by nonsense",
        "audit Q --since x", "keys show nofile", "users create users a:b", "send nofile Q", "send bad.toml Q --feed a//b", "receive in", "receive in --from Q --feed a//b",
    ],
    3: [
        "queue info nowhere", "queue check nowhere", "queue repair nowhere", "queue delete nowhere --yes",
        "queue create Q", "put nowhere --feed a", "watch nowhere", "cat bad.toml", "select check a --queue nowhere",
        "cursor seek Q nosuch oldest", "cursor delete Q nosuch", "station show Q nosuch", "station delete Q nosuch",
        "lag Q nosuch", "top nowhere --once", "channel show Q nosuch", "channel list tcp/127.0.0.1:1", "channel delete Q nosuch", "hop Q 99",
        "wanted nowhere a", "certs site nowhere name", "archive list nowhere", "generate nowhere", "verify nowhere --oracle sent.jsonl",
        "clock nowhere", "clock tcp/127.0.0.1:1", "sites tcp/127.0.0.1:1", "watch tcp/127.0.0.1:1", "station take Q nosuch", "slices status nowhere", "slices status Q", "slices status Q --stream ch",
        "slices run json:loads Q --stream ch", "slices drain Q node", "slices delete Q", "slices parked Q",
        "replay nowhere", "replay Q nowhere", "replay bad.toml", "replay --run 00000000000000aa", "replay --run 00000000000000aa --control pause",
        "audit nowhere", "users list nowhere", "send bad.toml nowhere", "receive in --from nowhere",
    ],
}  # fmt: skip


@pytest.fixture
def folder(run: Run, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("headrace.cli.options.CONNECT_S_MAX", 0.5)
    fill(path, 3)
    with Queue.open(path) as queue:
        queue.station("s", "wx/**", start="oldest")
        queue.cursor("c")
        queue.channel("ch", "wx/radar/**")
    (tmp_path / "bad.toml").write_text("x = [")
    run("generate", "--products", "2", "--feeds", "metar", "--oracle", "sent.jsonl")
    return tmp_path


@pytest.mark.parametrize("code", FAILURES)
def test_every_failure_has_the_exit_code_of_its_kind(run: Run, folder: Path, path: Path, code: int) -> None:
    differ = {}
    for line in FAILURES[code]:
        result = run(*(path if word == "Q" else word for word in line.split()), stdin="n\n")
        if result.exit_code != code:
            differ[line] = (result.exit_code, result.output)
    assert differ == {}
    assert path.exists()
    assert not Path("127.0.0.1:7447").exists()


def test_every_command_has_a_failure_in_the_table() -> None:
    assert {line.split()[0] for lines in FAILURES.values() for line in lines} == set(COMMANDS)


@pytest.mark.parametrize("line", FAILURES[3])
def test_a_failure_in_json_has_its_exit_code(run: Run, folder: Path, path: Path, line: str) -> None:
    result = run(*(path if word == "Q" else word for word in line.split()), "--json", stdin="n\n")
    assert objects(result.stderr)[-1]["exit"] == result.exit_code == 3


def test_damage_is_a_negative_answer(run: Run, folder: Path, path: Path) -> None:
    spoil(path, b"product 2")
    assert run("queue", "check", path).exit_code == 1
    assert run("cat", path).exit_code == 1


def test_the_rule_is_documented(run: Run) -> None:
    codes = run("--help").stdout.partition("Exit codes:")[2]
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
    for code in range(5):
        assert f"\n    {code}    " in codes
        assert f"\n| {code} | " in page


# --- a bug, and --verbose -----------------------------------------------------------------------------


@click.command()
def broken() -> None:
    raise KeyError("nonsense")


@pytest.mark.parametrize("words", [["broken"], ["broken", "--json"], ["--verbose", "broken"]], ids=" ".join)
def test_a_bug_has_an_exit_code_of_its_own_and_a_traceback_only_with_verbose(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    broken.params = [click.Option(["--json", "as_json"], is_flag=True, expose_value=False)]
    monkeypatch.setattr(headrace, "get_command", lambda ctx, name: broken)
    result = CliRunner().invoke(headrace, words)
    assert result.exit_code == 4
    assert ("Traceback" in result.stderr) == ("--verbose" in words)
    assert "internal error: KeyError: 'nonsense'" in result.stderr
    assert "this is a bug in Headrace" in result.stderr


def test_a_service_logs_the_traceback_of_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headrace, "get_command", lambda ctx, name: broken)
    assert "Traceback" in CliRunner().invoke(headrace, ["serve"]).stderr


def test_a_path_that_is_not_on_the_command_line_is_a_failure_and_no_invalid_input() -> None:
    """systemd does not start a site again after exit code 2."""
    gone = FileNotFoundError(errno.ENOENT, "No such file or directory", "segments/1")
    assert explain(gone, ["serve", "site.toml"]).exit == 3
    assert explain(gone, ["select", "check", "a", "--sample", "segments/1"]).exit == 2


@pytest.mark.parametrize("words", [["--verbose", "lag"], ["lag", "--verbose"]], ids=" ".join)
def test_verbose_tells_before_or_after_the_command_where_it_looks(
    run: Run, path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("HEADRACE_QUEUE", str(path))
    result = run(*words)
    assert f"the queue is {path}, from HEADRACE_QUEUE" in result.stderr
    assert "took " in result.stderr
    assert run("lag").stderr == ""  # the next one in this process is silent again
    assert result.stdout == run("lag").stdout


def test_verbose_names_the_context_its_file_and_its_user_but_no_password(run: Run, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("correct horse")
    run("context", "create", "lab", "tcp/127.0.0.1:1", "--user", "ada", "--password-file", "secret")
    result = run("lag", "@lab", "--verbose")
    assert result.exit_code == 3
    assert "from the context lab in " in result.stderr
    assert "logs in with user ada, password file " in result.stderr
    assert "correct horse" not in result.stderr
