"""The endpoint of a site that names none: a socket for those who may write to its queue, and for nobody else."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import headrace
from headrace import Queue
from support.daemon import Daemon

_NOBODY = 65534
_CONNECT = f"""
import os, socket, sys
os.setgroups([]); os.setgid({_NOBODY}); os.setuid({_NOBODY})
link = socket.socket(socket.AF_UNIX)
print(link.connect_ex(sys.argv[1]))
"""

_PORTS = """
import os, sys
inodes = set()
for fd in os.listdir(f"/proc/{sys.argv[1]}/fd"):
    target = os.readlink(f"/proc/{sys.argv[1]}/fd/{fd}")
    if target.startswith("socket:["):
        inodes.add(target[8:-1])
for name in ("tcp", "tcp6"):
    for line in open(f"/proc/{sys.argv[1]}/net/{name}").readlines()[1:]:
        words = line.split()
        if words[3] == "0A" and words[9] in inodes:
            print(words[1])
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "site.toml"
    file.write_text('[site]\nqueue = "wx.queue"\nname = "denver"\n')
    return file


def error_of_nobody(endpoint: str) -> int:
    """What the kernel tells another user who connects; 0: it lets him."""
    done = subprocess.run(
        [sys.executable, "-c", _CONNECT, endpoint.partition("/")[2]], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def opened_to_all(folder: Path) -> None:
    """Let everybody pass the directories above the queue, as those above /var/lib/headrace do."""
    for each in (folder, *folder.parents):
        if each.stat().st_uid == os.getuid() and each != Path("/"):
            each.chmod(each.stat().st_mode | 0o711)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(("mode", "may_connect"), [(0o755, False), (0o750, False), (0o777, True)])
def test_another_user_connects_only_if_he_may_write_to_the_queue(file: Path, mode: int, may_connect: bool) -> None:
    opened_to_all(file.parent)
    with Queue.create(file.parent / "wx.queue", size="16MiB", origin="denver") as queue:
        queue.path.chmod(mode)
        with Daemon(file) as site:
            endpoint = site.wait_until_ready()
            assert (error_of_nobody(endpoint) == 0) == may_connect
            with headrace.connect(endpoint) as own:
                own.put(b"1", feed="wx/text")
        assert queue.next == 2


def test_a_site_that_names_no_endpoint_listens_on_no_port(file: Path) -> None:
    with Daemon(file) as site:
        assert site.wait_until_ready() == f"unixsock-stream/{file.parent}/wx.queue/socket/site"
        listening = subprocess.run(
            [sys.executable, "-c", _PORTS, str(site.process.pid)], capture_output=True, text=True, check=True
        )
        assert listening.stdout == ""


def test_programs_find_it_by_the_name_of_the_site(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SITES", "local")
    with Daemon(file) as site:
        site.wait_until_ready()
        with headrace.connect("site:denver") as queue:
            assert queue.put(b"1", feed="wx/text") == 1


def test_a_socket_that_a_killed_site_left_is_replaced(file: Path) -> None:
    first = Daemon(file)
    endpoint = first.wait_until_ready()
    first.kill()
    left = socket.socket(socket.AF_UNIX)
    with left:
        assert left.connect_ex(endpoint.partition("/")[2]) != 0
    with Daemon(file) as again:
        assert again.wait_until_ready() == endpoint
        headrace.connect(endpoint).close()
