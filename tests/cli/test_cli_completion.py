"""Completion, through the protocol of click and through a real bash."""

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import Queue
from headrace.cli.completion import VARIABLE, Bash, script_for
from headrace.cli.main import COMMANDS, headrace
from support.commandline import Run, fill, objects

PROGRAM = "import sys; sys.argv[0] = 'headrace'; from headrace.cli.main import main; main()"


@pytest.fixture(autouse=True)
def full(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """A queue `q` with stations, cursors, a channel and feeds, a directory without a queue, and a context `lab`."""
    monkeypatch.chdir(tmp_path)
    fill(path, 1, feed="wx/text/metar")
    fill(path, 1, feed="wx/radar")
    with Queue.open(path) as queue:
        queue.station("decode", "wx/**")
        queue.station("archive", "wx/**")
        queue.cursor("printer")
        queue.channel("frames", "tel/frames", slices=4)
        queue.share("frames", "trial").join("node-1")
    (tmp_path / "quiet").mkdir()
    (tmp_path / "denver.toml").touch()
    run("context", "create", "lab", path)


def completed(line: str) -> list[str]:
    """The words that complete the last word of a line."""
    *words, last = line.split(" ")
    found = Bash(headrace, {}, "headrace", VARIABLE).get_completions(words[1:], last)
    return sorted(item.value for item in found if item.type == "plain")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("headrace st", ["station"]),
        ("headrace station ta", ["take"]),
        ("headrace watch --sel", ["--select"]),
        ("headrace watch q", ["q", "quiet/"]),
        ("headrace watch @", ["@lab"]),
        ("headrace watch la", ["lab"]),
        ("headrace station show q ", ["archive", "decode"]),
        ("headrace station take q de", ["decode"]),
        ("headrace station show @lab a", ["archive"]),
        ("headrace station create q ", []),
        ("headrace lag q decode a", ["archive"]),
        ("headrace cursor seek q ", ["printer"]),
        ("headrace channel show q ", ["frames"]),
        ("headrace slices run m:f q --stream ", ["frames"]),
        ("headrace slices status q --group ", ["trial"]),
        ("headrace slices drain q no", ["node-1"]),
        ("headrace slices move q node-1 --from ", ["node-1"]),
        ("headrace put q --feed wx/", ["wx/radar", "wx/text/metar"]),
        ("headrace watch q --select wx/t", ["wx/text/metar"]),
        ("headrace wanted q wx/r", ["wx/radar"]),
        ("headrace context use l", ["lab"]),
        ("headrace sites ", ["config/", "denver.toml", "lab", "quiet/"]),
        ("headrace sites ./de", ["./denver.toml"]),
        ("headrace sites @", ["@lab"]),
        ("headrace station show nowhere ", []),
        ("headrace station show tcp/127.0.0.1:1 ", []),
        ("headrace station show @nosuch ", []),
        ("headrace nosuch x", []),
    ],
)
def test_a_word_is_completed(line: str, words: list[str]) -> None:
    assert completed(line) == words


def test_sites_that_contexts_name_are_completed(run: Run) -> None:
    run("context", "create", "one", "site:denver")
    run("context", "create", "two", "tcp/h:1?site=boulder")
    for command in ("cat", "sites"):
        assert completed(f"headrace {command} site:") == ["site:boulder", "site:denver"]
    assert completed("headrace cat site:d") == ["site:denver"]


def test_with_a_default_queue_its_stations_are_completed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert completed("headrace station show d") == []
    monkeypatch.setenv("HEADRACE_QUEUE", "q")
    assert completed("headrace station show d") == ["decode"]


def test_every_command_is_completed_without_importing_it() -> None:
    program = (
        "import sys; from headrace.cli.main import headrace; from headrace.cli.completion import Bash\n"
        "found = Bash(headrace, {}, 'headrace', '').get_completions([], '')\n"
        "print(*(item.value for item in found))\n"
        "assert not {'numpy', 'headrace.cli.put', 'headrace.queue', 'zenoh'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout.split() == list(COMMANDS)


def test_completing_creates_nothing_and_survives_damage(path: Path, tmp_path: Path) -> None:
    before = sorted(file.relative_to(tmp_path) for file in tmp_path.rglob("*"))
    for kind in ("station show", "cursor seek", "channel show", "wanted"):
        completed(f"headrace {kind} q ")
        assert completed(f"headrace {kind} nowhere ") == []
    assert sorted(file.relative_to(tmp_path) for file in tmp_path.rglob("*")) == before
    (path / "spoilt").touch()
    (path / "stations.json").write_bytes(b"{")
    (tmp_path / "config" / "headrace" / "contexts.json").write_bytes(b"{")
    assert completed("headrace station show q ") == []
    assert completed("headrace watch @") == []


def test_the_program_answers_a_shell_and_writes_no_error(tmp_path: Path) -> None:
    def ask(line: str) -> tuple[str, str]:
        environment = {**os.environ, VARIABLE: "bash_complete", "COMP_LINE": line, "COMP_WORDBREAKS": " \t\n@:="}
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
        return done.stdout.strip(), done.stderr

    assert ask("headrace station show q d") == ("plain,decode", "")
    assert ask("headrace watch @l") == ("plain,@lab", "")  # bash replaces the @ too
    assert ask("headrace station show nowhere d") == ("", "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_a_real_bash_completes_a_context_behind_its_at_sign(run: Run, tmp_path: Path) -> None:
    (tmp_path / "headrace").write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{PROGRAM}" "$@"\n')
    (tmp_path / "headrace").chmod(0o755)
    script = f"""{script_for("bash")}
    COMP_LINE='headrace station show @lab d'; COMP_POINT=${{#COMP_LINE}}
    _headrace_completion ./headrace
    printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout == "decode\n", done.stderr


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_the_tab_key_of_a_real_terminal_keeps_the_at_sign(tmp_path: Path) -> None:
    """Only readline shows what a completion replaces, and it breaks words in its own way."""
    (tmp_path / "headrace").write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{PROGRAM}" "$@"\n')
    (tmp_path / "headrace").chmod(0o755)
    (tmp_path / "rc").write_text(f"PS1='ready> '\nPATH={tmp_path}:$PATH\n{script_for('bash')}")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe("bash", ["bash", "--noprofile", "--rcfile", "rc", "-i"], {**os.environ, "TERM": "dumb"})
    shown = b""

    def read_until(text: bytes) -> None:
        nonlocal shown
        while text not in shown:
            assert select.select([terminal], [], [], 60)[0], shown
            shown += os.read(terminal, 65536)

    try:
        read_until(b"ready> ")
        os.write(terminal, b"headrace lag @l\t")
        read_until(b"lab ")
        assert b"headrace lag @lab " in shown
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


@pytest.mark.parametrize(("shell", "start"), [("bash", ".bashrc"), ("zsh", ".zshrc"), ("fish", None)])
def test_one_command_installs_completion_once(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str, start: str | None
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("XDG_DATA_HOME", "ZDOTDIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    if start is not None:
        (tmp_path / start).write_text("alias l=ls")
    (first,) = objects(run("completion", "install", "--json").stdout)
    assert run("completion", "install", shell).exit_code == 0
    assert Path(first["script"]).read_text() == script_for(shell) == run("completion", "show", shell).stdout
    if start is not None:
        lines = (tmp_path / start).read_text().splitlines()
        assert (lines[0], len(lines)) == ("alias l=ls", 2)
        assert first["script"] in lines[1]


def test_an_unknown_shell_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    result = run("completion", "install")
    assert (result.exit_code, "give bash, zsh, fish" in result.stderr) == (2, True)
