"""The outermost command: help, exit codes, and how errors are shown."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from headrace.cli.main import COMMANDS, headrace
from support.commandline import Run, objects


def commands(group: click.Group, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command below a group but those of `bench`, which are described beside the benchmarks."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if (*names, name)[0] == "bench":
            continue
        if isinstance(command, click.Group):
            yield from commands(command, (*names, name))
        else:
            yield (*names, name), command


ALL = dict(commands(headrace))
GROUPS = sorted({names[0] for names in ALL if len(names) > 1})


@pytest.mark.parametrize("names", ALL, ids=" ".join)
def test_every_command_shows_an_example_in_its_help(run: Run, names: tuple[str, ...]) -> None:
    result = run(*names, "--help")
    assert result.exit_code == 0
    assert "  Example:\n    headrace " in result.stdout
    assert f"headrace {' '.join(names)}" in result.stdout.partition("Example:")[2]


@pytest.mark.parametrize("names", ALL, ids=" ".join)
def test_every_command_has_a_json_option(names: tuple[str, ...]) -> None:
    assert any("--json" in parameter.opts for parameter in ALL[names].params)


def test_the_main_help_has_one_line_for_each_command(run: Run) -> None:
    listed = run("--help").stdout.partition("Commands:")[2]
    for name in headrace.list_commands(click.Context(headrace)):
        assert COMMANDS[name].help in listed


@pytest.mark.parametrize("name", GROUPS)
def test_the_help_of_a_group_has_one_whole_line_for_each_command(run: Run, name: str) -> None:
    listed = run(name, "--help").stdout.partition("Commands:")[2]
    assert listed.strip()
    assert "..." not in listed


def test_without_a_command_the_help_is_shown(run: Run) -> None:
    assert run().stdout == run("--help").stdout
    assert run().exit_code == 0


def test_the_main_help_lists_the_exit_codes(run: Run) -> None:
    assert "Exit codes:\n    0    success" in run("--help").stdout


def test_the_version_is_shown(run: Run) -> None:
    assert run("--version").stdout.startswith("headrace 0.")


def test_the_main_help_imports_no_command() -> None:
    """Only what the main page needs; a command is imported when it is called."""
    program = (
        "import sys; from headrace.cli.main import headrace\n"
        "try: headrace.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(*sorted(sys.modules), sep=chr(10), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True)
    loaded = {
        name for name in done.stderr.splitlines() if name.startswith(("headrace.cli.", "rich", "headrace.testing"))
    }
    assert loaded == {"headrace.cli.main", "headrace.cli.failure", "headrace.cli.group"}


@pytest.mark.parametrize("words", [["queue", "info"], ["watch", "--timeout", "0s"], ["station", "list"]], ids=" ".join)
def test_a_command_on_a_local_queue_loads_neither_spark_nor_zenoh_nor_matplotlib(path: Path, words: list[str]) -> None:
    program = (
        "import sys; from headrace.cli.main import headrace\n"
        "try: headrace.main(sys.argv[1:])\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}), sep=chr(10), file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, *words, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    assert not {"pyspark", "py4j", "zenoh", "matplotlib"} & set(done.stderr.split())


def test_an_unknown_command_is_a_usage_error(run: Run) -> None:
    result = run("nosuch")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "headrace: there is no command 'nosuch'\n  try: headrace --help\n"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["qeue"], "'queue'"), (["queue", "crate"], "'create'"), (["station", "add"], "'create'"),
        (["station", "remove"], "'delete'"), (["channel", "remove"], "'delete'"), (["cursor", "rm"], "'delete'"),
        (["station", "ls"], "'list'"), (["queue", "show"], "'info'"), (["context", "rm"], "'delete'"),
        (["info"], "'queue info'"), (["pause"], "'station pause'"),
    ],
    ids=str,
)  # fmt: skip
def test_an_unknown_command_suggests_the_one_that_was_meant(run: Run, words: list[str], meant: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"headrace: there is no command {words[-1]!r}; did you mean {meant}?\n")


@pytest.mark.parametrize("names", ALL, ids=" ".join)
def test_no_command_has_a_verb_of_another_habit(names: tuple[str, ...]) -> None:
    assert not {"add", "remove", "rm", "new"} & set(names)


def test_an_unknown_option_suggests_the_one_that_was_meant(run: Run) -> None:
    result = run("watch", "wx.queue", "--selct", "wx/**")
    assert result.exit_code == 2
    assert result.stderr.startswith("headrace: there is no option '--selct'; did you mean '--select'?\n")


@pytest.mark.parametrize("words", [[], ["queue"], ["queue", "info"], ["watch"]], ids=" ".join)
def test_h_shows_the_help(run: Run, words: list[str]) -> None:
    assert run(*words, "-h").stdout == run(*words, "--help").stdout
    assert "-h, --help" in run(*words, "-h").stdout


@pytest.mark.parametrize("group", [*GROUPS, "bench"])
def test_a_group_without_a_command_is_a_usage_error(run: Run, group: str) -> None:
    assert run(group).stderr == f"headrace: Missing command\n  try: headrace {group} --help\n"


def test_a_missing_queue_is_two_lines_and_exit_code_3(run: Run) -> None:
    result = run("watch", "nowhere")
    assert (result.exit_code, result.stdout) == (3, "")
    problem, hint = result.stderr.splitlines()
    assert problem.startswith("headrace: there is no queue at ")
    assert hint.startswith("  try: create it with: headrace queue create ")


def test_a_file_is_not_a_queue(run: Run) -> None:
    result = run("cat", __file__)
    assert result.exit_code == 3
    assert "is a file, not a queue" in result.stderr


def test_an_error_of_the_operating_system_has_a_remedy(run: Run) -> None:
    result = run("select", "check", "wx/**", "--sample", "nowhere.txt")
    assert result.exit_code == 2
    assert result.stderr == "headrace: nowhere.txt: No such file or directory\n  try: check the path\n"


def test_errors_are_json_for_programs(run: Run) -> None:
    result = run("cat", "nowhere", "--json")
    (told,) = objects(result.stderr)
    assert (told["error"], told["exit"], result.exit_code) == ("QueueMissingError", 3, 3)
    assert told["problem"]
    assert told["hint"]


def test_usage_errors_are_json_for_programs(run: Run) -> None:
    result = run("cat", "--json", "--nonsense")
    (told,) = objects(result.stderr)
    assert (told["error"], told["exit"], result.exit_code) == ("NoSuchOption", 2, 2)
    assert "--nonsense" in told["problem"]


def test_control_characters_in_an_error_are_escaped(run: Run) -> None:
    assert "\\x1b[31m" in run("cat", "\x1b[31mred").stderr
