"""The container files: their commands run, with their configurations, as plain processes. Docker itself is not needed."""

import json
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace import Queue
from support.commandline import PROGRAM
from support.daemon import Daemon
from support.waiting import until

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
HOME, FILE = "/var/lib/headrace", "/etc/headrace/site.toml"
PRODUCTS = 30


def instruction(begin: str) -> list[str]:
    """The words of the instruction that begins like this in the Dockerfile."""
    (found,) = re.findall(rf"^{begin} (\[.*\])$", DOCKERFILE, re.M)
    words: list[str] = json.loads(found)
    return words


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.mark.processes
def test_two_sites_and_a_generator_run_with_the_commands_of_the_files(tmp_path: Path) -> None:
    ports = {"one": free_port(), "two": free_port()}
    files = {name: _placed(name, tmp_path, ports) for name in ports}
    assert instruction("ENTRYPOINT") == ["headrace"]
    assert instruction("CMD") == ["serve", FILE]
    with Daemon(files["one"]) as one:
        one.wait_until_ready()
        _check_health(files["one"])
        with Daemon(files["two"]) as two:
            two.wait_until_ready()
            here = {"tcp/one:7447": f"tcp/127.0.0.1:{ports['one']}"}
            _run(
                *(here.get(word, word) for word in _service("generator")["command"]),
                "--fast",
                "--products",
                str(PRODUCTS),
            )
            with (
                Queue.open(tmp_path / "one" / "wx.queue") as first,
                Queue.open(tmp_path / "two" / "wx.queue") as second,
            ):
                assert first.next > PRODUCTS // 2
                until(lambda: second.next == first.next, "everything is at the second site")
            _check_health(files["two"])


def test_the_image_is_slim_and_its_user_is_not_root() -> None:
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.M) == ["python:${PYTHON}-slim"] * 2
    last = DOCKERFILE.rindex("FROM ")
    assert "USER 10001:10001" in DOCKERFILE[last:]
    assert "apt-get" not in DOCKERFILE[last:]
    for copied in re.findall(r"^COPY ((?:[\w.]+ )+)\S+$", DOCKERFILE, re.M):
        assert all((ROOT / name).exists() for name in copied.split())


def test_the_files_that_the_image_is_made_of_are_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = {name for line in re.findall(r"^COPY ((?:[\w.]+ )+)\S+$", DOCKERFILE, re.M) for name in line.split()}
    assert {line[1:] for line in ignored if line.startswith("!")} == copied


def _service(name: str) -> dict[str, Any]:
    found: dict[str, Any] = COMPOSE["services"][name]
    return found


def _placed(name: str, folder: Path, ports: dict[str, int]) -> Path:
    """The configuration of a service, with paths and ports of this test."""
    mounted, volume = _service(name)["volumes"]
    source, target, mode = mounted.split(":")
    assert (target, mode) == (FILE, "ro")
    assert volume == f"{name}:{HOME}"
    assert name in COMPOSE["volumes"]
    text = (ROOT / source).read_text()
    assert text.count(HOME) == 1
    text = text.replace(HOME, str(folder / name)).replace("tcp/0.0.0.0:7447", f"tcp/127.0.0.1:{ports[name]}")
    file = folder / f"{name}.toml"
    file.write_text(text.replace("tcp/one:7447", f"tcp/127.0.0.1:{ports['one']}"))
    return file


def _check_health(file: Path) -> None:
    program, *words = [str(file) if word == FILE else word for word in instruction(" +CMD")]  # of HEALTHCHECK
    assert program == "headrace"
    _run(*words)


def _run(*words: str) -> None:
    done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, (words, done.stderr)
