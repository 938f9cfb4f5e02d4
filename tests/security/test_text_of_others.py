"""Text of others reaches neither a terminal nor the log of a site as it is."""

import os
import pty
import subprocess
from pathlib import Path

import pytest

from headrace import Queue
from headrace.link.keys import beat_key, live_key
from headrace.relay.messages.query import Identify
from support.commandline import PROGRAM
from support.hostile import MakeHostile
from support.realm import Allow, Realm
from support.waiting import until

FEED = "wx/\x9b31m\u202etxt\u2066/\u200bKFTG"
IDENT = "one\x1b[2J\x1b]0;title\a\u2028two\u202e"
REQUEST = 'name = "wx"\nselect = "wx/**"\nfrom = "oldest"'
ACTING = ("\x9b", "\x85", "\u202e", "\u2066", "\u200b", "\u2028", "\x1b", "\a")


def on_a_terminal(*words: object) -> str:
    """What a command writes to a terminal, standard error included."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    process = subprocess.Popen(
        [*PROGRAM, *map(str, words)], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    pieces = []
    try:
        while piece := os.read(ours, 65536):
            pieces.append(piece)
    except OSError:  # how a terminal says that all have closed it
        pass
    process.wait()
    os.close(ours)
    return b"".join(pieces).decode()


def in_a_pipe(*words: object) -> str:
    done = subprocess.run([*PROGRAM, *map(str, words)], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_names_from_another_site_cannot_command_the_terminal(realm: Realm, hostile: MakeHostile) -> None:
    hub = realm.site("hub", Allow("evil", publish=["wx/**"]), Allow("hub", receive=["**"]), requests=[REQUEST])
    evil = hostile("evil", hub)
    evil.hold("evil", (FEED, IDENT))
    evil.appear()
    until(lambda: hub.idents() == [IDENT], lambda: hub.log)
    path = realm.folder / "hub.queue"
    commands = [
        ("watch", path, "--from", "oldest", "--timeout", "0s"),
        ("queue", "info", path),
        ("sites", hub.file),
        ("wanted", path, FEED),
        ("hop", hub.file, "evil", FEED),
        ("cat", path, "--json"),
    ]
    for command in commands:
        shown = in_a_pipe(*command)
        assert not [char for char in ACTING if char in shown], (command, shown)
    shown = on_a_terminal(*commands[0]) + on_a_terminal(*commands[1])
    assert r"wx/\x9b31m\u202etxt\u2066/\u200bKFTG" in shown
    assert r"one\x1b[2J\x1b]0;title\x07\u2028two\u202e" in shown
    assert "\x1b[2J" not in shown
    assert not [char for char in ACTING[:6] if char in shown]


def test_a_payload_stays_as_it_is_when_it_is_asked_for(tmp_path: Path) -> None:
    with Queue.create(tmp_path / "q", size="4MiB") as queue:
        queue.put("\x1b[2J\u202e".encode(), feed="wx/a")
    done = subprocess.run([*PROGRAM, "cat", str(tmp_path / "q")], capture_output=True, check=True)
    assert done.stdout == "\x1b[2J\u202e".encode()


@pytest.mark.parametrize("answer", ["card", "error"])
def test_texts_of_a_peer_forge_no_line_of_the_log(realm: Realm, hostile: MakeHostile, answer: str) -> None:
    forged = "\n2026-01-01T00:00:00Z INFO headrace.site: all is well \x1b[2J\x9b\u202e"
    hub = realm.site("hub", Allow("evil", publish=["wx/**"]), Allow("hub", receive=["**"]), requests=[REQUEST])
    evil = hostile("evil", hub)
    if answer == "card":
        evil.answers[Identify] = lambda _: b"\x81\xa4evil" + b"\xd9" + bytes([len(forged.encode())]) + forged.encode()
    else:
        evil.answers.pop(Identify)
        evil.refusal = forged.encode()
    evil.appear()
    until(lambda: len(evil.asked) > 3, lambda: hub.log)
    lines = hub.log.splitlines()
    assert not [line for line in lines if line.startswith("2026-01-01T00:00:00Z")]
    assert not [char for char in ACTING if char in hub.log]
    assert len(lines) < 100


def test_a_flood_of_nonsense_is_a_few_lines_of_the_log_and_is_counted(realm: Realm, hostile: MakeHostile) -> None:
    hub = realm.site("hub", Allow("evil", publish=["wx/**"]), Allow("hub", receive=["**"]), requests=[REQUEST])
    evil = hostile("evil", hub)
    evil.hold("evil", ("wx/a", "first"))
    evil.appear()
    until(lambda: hub.idents() == ["first"], lambda: hub.log)
    for number in range(3000):
        evil.session.put(beat_key("evil", "own"), b"\x81\xa4\x1b[2J" + str(number).encode())
        evil.session.put(live_key("evil", "own", "wx/a"), b"\xff" * 8, attachment=b"nonsense %d\n" % number)
    evil.hold("evil", ("wx/a", "last"))
    until(lambda: hub.idents() == ["first", "last"], lambda: hub.log)
    assert len(hub.log.splitlines()) < 200
    assert not [char for char in ACTING if char in hub.log]
