"""headrace sites --follow: one line for each change, until Ctrl-C."""

import logging
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import headrace
from headrace.cli.failure import show_warnings
from headrace.cli.sites import sites
from headrace.cli.sites_follow import event_text
from headrace.queue import Member, MemberEvent
from support.commandline import PROGRAM, Run, objects
from support.daemon import Daemon

LIMIT_S = 240


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The configuration of a running site, and its endpoint."""
    file = tmp_path_factory.mktemp("follow") / "site.toml"
    file.write_text('[site]\nqueue = "hub"\nname = "hub"\nlisten = ["tcp/127.0.0.1:0"]\n')
    with Daemon(file) as daemon:
        endpoint = daemon.wait_until_ready()
        file.write_text(
            file.read_text().replace("tcp/127.0.0.1:0", endpoint)
        )  # known in advance, for those who read it
        yield file, endpoint


def test_changes_are_shown_line_by_line_until_ctrl_c(site: tuple[Path, str]) -> None:
    command = [*PROGRAM, "sites", site[1], "--follow", "--programs", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        (first,) = objects(follower.stdout.readline())
        assert (first["event"], first["reason"], first["role"], first["name"]) == ("joined", "present", "site", "hub")
        with headrace.connect(site[1]) as queue, queue.channel("radar", "wx/radar/**").supplier():
            events = []
            while "supplier" not in [event["role"] for event in events]:
                events += objects(follower.stdout.readline())
        assert (events[-1]["name"], events[-1]["site"], events[-1]["feeds"]) == ("radar", "hub", ["wx/radar/**"])
        follower.send_signal(signal.SIGINT)
        _, errors = follower.communicate(timeout=LIMIT_S)
        assert (follower.returncode, errors.strip()) == (130, "")


def test_the_file_of_a_site_names_it_as_well(run: Run, site: tuple[Path, str]) -> None:
    result = run("sites", site[0], "--follow", "--timeout", "0.5s")
    assert (result.exit_code, result.stderr) == (0, "")
    assert re.fullmatch(r"\S+Z  joined   site hub  \(present\)\n", result.stdout)


def test_a_follower_shows_no_map_and_a_map_follows_nothing(
    run: Run, site: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for options in (("--follow", "--dot"), ("--follow", "--check"), ("--follow", "--flows"), ("--programs",),
                    ("--timeout", "1s")):  # fmt: skip
        assert run("sites", site[1], *options).exit_code == 2
    monkeypatch.setattr("headrace.cli.sites.CONNECT_S_MAX", 0.5)
    assert run("sites", f"{site[1]}?site=nobody", "--follow").exit_code == 3


def test_a_line_says_who_and_where_and_hides_no_control_characters() -> None:
    def line(member: Member, kind: str = "joined", reason: str = "new") -> str:
        return event_text(MemberEvent(kind, reason, member, 0)).partition("Z  ")[2]  # type: ignore[arg-type]

    feeds = tuple(f"f/{number}" for number in range(7))
    assert line(Member("site", "b", "b", "1", feeds)) == "joined   site b  (new)  f/0, f/1, f/2, f/3, f/4 and 2 more"
    assert line(Member("site", "b", "b", "1", feeds), "left", "lost") == "left     site b  (lost)"
    assert line(Member("client", "", "b", "1")) == "joined   client without a name at b  (new)"
    assert line(Member("supplier", "c", "b", "1-1", ("x",), "ada")) == "joined   supplier c of ada at b  (new)  x"
    assert line(Member("consumer", "s", "b", "1-1", ("x",), "", 7)) == "joined   consumer s, process 7 at b  (new)  x"
    assert "\x1b" not in line(Member("client", "\x1b[31m", "b", "1"))


def test_a_duplicate_is_shown_with_its_session() -> None:
    event = MemberEvent("joined", "duplicate", Member("site", "denver", "denver", "7f3a"), 0)
    assert event_text(event).endswith("joined   site denver, session 7f3a  (duplicate)")


def test_a_map_that_waits_for_a_site_says_so_as_other_commands_do(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.link.session._NOTICE_S", 0.0)
    told = objects(run("sites", "tcp/127.0.0.1:1", "--json").stderr)
    assert [next(iter(each)) for each in told] == ["warning", "error"]
    assert run("sites", "tcp/127.0.0.1:1").stderr.startswith("headrace: waiting for tcp/127.0.0.1:1")


@pytest.mark.parametrize(("as_json", "line"), [(True, '{"warning":"no reply"}\n'), (False, "headrace: no reply\n")])
def test_warnings_of_any_thread_are_shown_as_the_command_shows_its_own(
    capsys: pytest.CaptureFixture[str], as_json: bool, line: str
) -> None:
    context = click.Context(sites)
    context.params["as_json"] = as_json
    with context:
        show_warnings()
    warner = threading.Thread(target=lambda: logging.getLogger("headrace.remote").warning("no reply"))
    warner.start()
    warner.join()
    assert capsys.readouterr().err == line
