"""A site that reaches nobody, or cannot do its work, says so: in its log, in `headrace sites`, and by the exit code of --check."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from siteconfig import Serve

from headrace import Queue
from headrace.cli.sites import read_map
from headrace.link.certificates import make_authority, make_certificate
from headrace.relay.messages.description import Problem
from headrace.site.problems import map_problems
from headrace.site.watch import Watch
from support.commandline import PROGRAM
from support.daemon import Daemon
from support.fleet import free_port
from support.waiting import until


class Place:
    """The files of one site."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.folder, self.port = name, folder / name, free_port()
        self.folder.mkdir()
        self.file = self.folder / "site.toml"

    def write(self, protocol: str = "tcp", connect: str = "", more: str = "") -> Path:
        """A site of 4 MiB that requests everything, if it connects."""
        request = '[[request]]\nname = "all"\nselect = "**"\nfrom = "oldest"\n' if connect else ""
        self.file.write_text(
            f'[site]\nqueue = "q"\nname = "{self.name}"\nlisten = ["{protocol}/127.0.0.1:{self.port}"]\n'
            f'connect = [{json.dumps(connect) if connect else ""}]\n[queue]\nsize = "4MiB"\n{request}{more}'
        )
        return self.file

    def problems(self, *kinds: str, since_s: float = 1e9) -> list[str]:
        """The texts of the problems that this site has now, as --check sees them; of these kinds, or all."""
        return [
            found.problem.text for found in map_problems(read_map(str(self.file)))
            if (found.problem.kind in kinds or not kinds) and found.problem.age_s <= since_s
        ]  # fmt: skip

    def check(self, *options: str) -> tuple[int, str]:
        """The exit code of `sites --check`, and what it wrote."""
        done = subprocess.run(
            [*PROGRAM, "sites", str(self.file), "--check", *options], capture_output=True, text=True, timeout=60
        )
        assert done.stdout, done.stderr
        return done.returncode, done.stdout


@pytest.fixture
def place(tmp_path: Path) -> Callable[[str], Place]:
    return lambda name: Place(tmp_path, name)


MakePlace = Callable[[str], Place]


def has_one_line(process: Daemon, text: str) -> bool:
    """Wait until the log has the text, which must not be there twice."""
    until(lambda: text in process.log.read_text(), f"the log says: {text}")
    assert process.log.read_text().count(text) == 1, process.log.read_text()
    return True


def expect(here: Place, process: Daemon, text: str) -> None:
    """One line in the log, and a check that fails with the same text."""
    until(lambda: any(text in each for each in here.problems("link")), f"the problems have: {text}")
    assert has_one_line(process, text)
    code, shown = here.check()
    assert code == 1, shown
    assert f"site {here.name}: {text}" in shown
    assert "request all is served by no site\n    try: " in shown


def test_a_port_that_refuses_and_a_site_that_appears_there(place: MakePlace, serve: Serve) -> None:
    here, there = place("here"), place("there")
    process = serve(here.write(connect=f"tcp/127.0.0.1:{there.port}"))
    process.wait_until_ready()
    expect(here, process, f"no link to tcp/127.0.0.1:{there.port}: connection refused")
    serve(there.write()).wait_until_ready()
    until(lambda: here.problems() == [], "all is well once the other site runs")
    until(lambda: here.check()[0] == 0, "the check passes")
    until(lambda: process.log.read_text().count("solved: ") == 2, "the log says so")
    assert "solved: no link to" in process.log.read_text()
    assert "solved: request all is served by no site" in process.log.read_text()


def test_a_host_that_is_unknown(place: MakePlace, serve: Serve) -> None:
    here = place("here")
    process = serve(here.write(connect="tcp/nowhere.invalid:7447"))
    process.wait_until_ready()
    expect(here, process, "no link to tcp/nowhere.invalid:7447: host nowhere.invalid is unknown")


def test_a_site_whose_own_rules_keep_out_its_request_blames_nobody_else(place: MakePlace, serve: Serve) -> None:
    here, there = place("here"), place("there")
    serve(there.write()).wait_until_ready()
    receive_only = '[[allow]]\nwho = ["*"]\nreceive = ["**"]\n'
    serve(here.write(connect=f"tcp/127.0.0.1:{there.port}", more=receive_only)).wait_until_ready()
    until(lambda: here.problems("forbidden"), "the request gets nothing")
    code, shown = here.check()
    assert code == 1
    assert shown.partition("problems:\n")[2].splitlines() == [
        "  site here: request all gets nothing: no [[allow]] rule of this site lets another one publish **",
        '    try: add publish = ["**"] to a rule that names the site which serves the request, not to one for "*"',
    ]


def certificates(folder: Path, authority: str, name: str) -> str:
    """[tls] with a certificate of an authority, which is created if it does not exist."""
    if not (folder / authority).exists():
        make_authority(folder / authority)
    make_certificate(folder / authority, name, ["127.0.0.1"])
    files = {"authority": "authority.crt", "certificate": f"{name}.crt", "key": f"{name}.key"}
    return "[tls]\n" + "".join(f'{key} = "{folder / authority / file}"\n' for key, file in files.items())


def test_a_certificate_of_another_authority(place: MakePlace, serve: Serve, tmp_path: Path) -> None:
    here, there = place("here"), place("there")
    serve(there.write("tls", more=certificates(tmp_path, "theirs", "there"))).wait_until_ready()
    endpoint = f"tls/127.0.0.1:{there.port}"
    process = serve(here.write("tls", endpoint, certificates(tmp_path, "ours", "here")))
    process.wait_until_ready()
    expect(here, process, f"no link to {endpoint}: its certificate is not from our authority")
    trusted = place("trusted")
    serve(trusted.write("tls", endpoint, certificates(tmp_path, "theirs", "trusted"))).wait_until_ready()
    until(lambda: trusted.problems() == [], "a certificate of the right authority is admitted")


def users(folder: Path, name: str, password: str, *admitted: str) -> str:
    (folder / f"{name}.password").write_text(password)
    (folder / f"{name}.users").write_text("".join(f"{line}\n" for line in admitted))
    return (
        f'[users]\nname = "{name}"\npassword_file = "{folder / name}.password"\n'
        f'dictionary_file = "{folder / name}.users"\n'
    )


def test_a_wrong_password(place: MakePlace, serve: Serve, tmp_path: Path) -> None:
    here, there = place("here"), place("there")
    serve(there.write(more=users(tmp_path, "there", "T", "here:right", "there:T", "friend:F"))).wait_until_ready()
    endpoint = f"tcp/127.0.0.1:{there.port}"
    process = serve(here.write(connect=endpoint, more=users(tmp_path, "here", "wrong", "here:wrong", "there:T")))
    process.wait_until_ready()
    expect(here, process, f"no link to {endpoint}: it refused user here")
    friend = place("friend")
    serve(friend.write(connect=endpoint, more=users(tmp_path, "friend", "F", "friend:F", "there:T"))).wait_until_ready()
    until(lambda: friend.problems() == [], "the right password is admitted")


def test_a_site_without_any_right_is_served_by_nobody(place: MakePlace, serve: Serve, tmp_path: Path) -> None:
    here, there = place("here"), place("there")
    rule = '[[allow]]\nwho = ["other"]\nreceive = ["**"]\n'
    serve(there.write("tls", more=certificates(tmp_path, "ca", "there") + rule)).wait_until_ready()
    process = serve(here.write("tls", f"tls/127.0.0.1:{there.port}", certificates(tmp_path, "ca", "here")))
    process.wait_until_ready()
    assert has_one_line(process, "request all is served by no site")
    assert "[[allow]] rule for this one" in process.log.read_text()
    assert here.problems() == ["request all is served by no site"]
    assert here.check()[0] == 1


def test_a_request_for_more_than_is_permitted_is_a_problem_of_the_receiver(
    place: MakePlace,
    serve: Serve,
    tmp_path: Path,
) -> None:
    here, there = place("here"), place("there")
    rule = '[[allow]]\nwho = ["here"]\nreceive = ["open/**"]\npublish = ["**"]\n'
    serve(there.write("tls", more=certificates(tmp_path, "ca", "there") + rule)).wait_until_ready()
    process = serve(here.write("tls", f"tls/127.0.0.1:{there.port}", certificates(tmp_path, "ca", "here")))
    process.wait_until_ready()
    with Queue.open(there.folder / "q") as sending, Queue.open(here.folder / "q") as receiving:
        for number in range(6):
            sending.put(b"%d" % number, feed="open/a" if number % 2 else "secret/b", ident=f"n{number}")
        until(lambda: receiving.next == 4, "what is permitted arrives")
        until(lambda: here.problems("rights") != [], "the rest is not")
        assert receiving.next == 4
    problem = "request all asks site there for **, which lets this site receive open/**"
    assert here.problems("rights") == [problem]
    assert here.problems("left out") == []
    assert "secret" not in process.log.read_text()
    code, shown = here.check("--json")
    assert code == 1
    (description,) = (node["description"] for node in json.loads(shown)["nodes"] if node["name"] == "here")
    assert description["upstreams"][0]["left_out"] == description["requests"][0]["left_out"] == {}


def test_a_lost_range_fails_the_check_for_as_long_as_asked(place: MakePlace, serve: Serve) -> None:
    here, there = place("here"), place("there")
    endpoint = f"tcp/127.0.0.1:{there.port}"
    serve(there.write()).wait_until_ready()
    first = serve(here.write(connect=endpoint))
    first.wait_until_ready()
    with Queue.open(there.folder / "q") as sending, Queue.open(here.folder / "q") as receiving:
        sending.put(b"first", feed="x")
        until(lambda: receiving.next == 2, "the first arrives")
        until(lambda: '"base": 1' in (here.folder / "q" / "site" / "progress.json").read_text(), "progress is saved")
        first.stop()
        for number in range(12):
            sending.put(bytes([number]) * 900_000, feed="x")
        process = serve(here.file)
        process.wait_until_ready()
        until(lambda: "are lost (evicted there)" in process.log.read_text(), "the loss is logged")
    (text,) = here.problems("lost")
    assert re.fullmatch(r"request all lost 2-\d+ \(evicted\) of site there", text)
    assert here.check()[0] == 1
    until(lambda: here.problems(since_s=0.5) == [], "it was longer ago than that")
    assert here.check("--since", "500ms")[0] == 0
    here.file.write_text(here.file.read_text().replace("listen = [", 'listen = ["tcp/127.0.0.1:0", '))
    process.reload("is loaded")  # with a new session
    assert here.problems("lost") == [text]


@pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/usr/bin/mount").exists(), reason="needs root to mount a small tmpfs"
)
def test_a_full_disk(place: MakePlace, serve: Serve) -> None:
    here, there = place("here"), place("there")
    endpoint = f"tcp/127.0.0.1:{there.port}"
    serve(there.write()).wait_until_ready()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(here.folder)], capture_output=True)
    if mount.returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        process = serve(here.write(connect=endpoint))
        process.wait_until_ready()
        (here.folder / "filler").write_bytes(b"")
        with Queue.open(there.folder / "q") as sending:
            status = os.statvfs(here.folder)
            (here.folder / "filler").write_bytes(bytes(max(0, status.f_bavail - 4) * status.f_frsize))
            for number in range(8):
                sending.put(bytes([number]) * 300_000, feed="x")
            until(lambda: here.problems("full") != [], "the disk is full")
            assert here.check()[0] == 1
            assert has_one_line(process, "the disk has ")
            until(lambda: "products of request all wait" in process.log.read_text(), "the log says that they wait")
            (here.folder / "filler").unlink()
            until(lambda: here.problems() == [], "there is room again")
            with Queue.open(here.folder / "q") as receiving:
                until(lambda: receiving.next == sending.next, "everything arrives")
        process.stop()
    finally:
        process.kill()
        subprocess.run(["umount", "-l", str(here.folder)], check=True)


# --- how the log is written ------------------------------------------------------------------------------


class Silent(Watch):
    """A Watch without a thread."""

    def __init__(self) -> None:
        self._seen = {}


@pytest.fixture
def watch(caplog: pytest.LogCaptureFixture) -> Silent:
    caplog.set_level("INFO", "headrace")
    return Silent()


def test_a_problem_that_lasts_is_logged_once_and_when_it_changes(
    watch: Silent, caplog: pytest.LogCaptureFixture
) -> None:
    def link(text: str) -> list[Problem]:
        return [Problem("link", "tcp/h:1", text, "do it")]

    watch.note(link("refused"), 10.0)
    assert caplog.messages == []  # it may be over in a moment
    for second in range(20):
        watch.note(link("refused"), 13.0 + second)
    assert caplog.messages == ["refused (do it)"]
    watch.note(link("unknown host"), 40.0)
    watch.note([], 41.0)
    watch.note([], 42.0)
    assert caplog.messages == ["refused (do it)", "unknown host (do it)", "solved: unknown host"]


def test_something_that_happens_again_and_again_is_logged_once_a_minute(
    watch: Silent, caplog: pytest.LogCaptureFixture
) -> None:
    for second in range(130):
        watch.note([Problem("left out", "r at a", f"{second} expired", "look", 0.5)], float(second + 10))
    assert caplog.messages == ["0 expired (look)", "60 expired (look)", "120 expired (look)"]


def test_a_problem_whose_numbers_change_is_logged_once_an_hour(watch: Silent, caplog: pytest.LogCaptureFixture) -> None:
    for second in range(7300):
        watch.note([Problem("clock", "liar", f"it lies: +0.{second:06} s", "ask")], float(second))
    assert caplog.messages == [f"it lies: +0.{second:06} s (ask)" for second in (3, 3603, 7203)]


def test_a_queue_that_is_moved_away_is_a_problem_of_its_site_and_nothing_is_created_in_its_place(
    place: MakePlace, serve: Serve
) -> None:
    """Also when the set of subscribers changes, and when the site stops."""
    here, there = place("here"), place("there")
    process = serve(here.write())
    process.wait_until_ready()
    subscriber = serve(there.write(connect=f"tcp/127.0.0.1:{here.port}"))
    subscriber.wait_until_ready()
    until(lambda: read_map(str(there.file)) and not there.problems())
    (here.folder / "q").rename(here.folder / "moved")
    assert has_one_line(process, f"the queue {here.folder / 'q'} was moved to {here.folder / 'moved'}")
    code, text = here.check()
    assert code == 1
    assert "move it back, or restart the program with the new path" in text
    assert "debugger" not in text
    subscriber.stop()
    assert process.stop() == 0
    assert not (here.folder / "q").exists()
    (here.folder / "moved").rename(here.folder / "q")
    again = serve(here.file)
    again.wait_until_ready()
    until(lambda: here.check()[0] == 0, "the check passes")
