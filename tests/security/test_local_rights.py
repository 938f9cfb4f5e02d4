"""Who on this machine may use the files of a queue, and which files with secrets are refused."""

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import Queue
from headrace.errors import ConfigError, FabricError, OptionError
from headrace.link.contexts import read_contexts
from headrace.link.login import Login
from support.commandline import PROGRAM
from support.daemon import Daemon
from support.fleet import free_port
from support.realm import Allow, Realm

LOCKS = ("lock",)


@pytest.fixture(params=[0o000, 0o077], ids=["open umask", "closed umask"])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes_of(queue: Path) -> dict[str, int]:
    """The mode of each file and folder, the sockets of a site and their folder apart."""
    found = [queue, *(each for each in queue.rglob("*") if "socket" not in each.parts)]
    return {str(each.relative_to(queue)): stat.S_IMODE(each.stat().st_mode) for each in found}


def fill(queue: Queue) -> None:
    """So much that files of each kind are made after the queue."""
    for number in range(40):
        queue.put(os.urandom(100_000), feed=f"f/{number}", ident=str(number))
    queue.cursor("c").save(2)
    queue.channel("sliced", "g/**", slices=8)
    queue.station("s", "f/**").attach().detach()
    with queue.channel("sliced").supplier():
        queue.put(b"x", feed="g/1")


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize(("mode", "folder", "file", "lock"), [
    ("0600", 0o700, 0o600, 0o600), ("0640", 0o750, 0o640, 0o600), ("0660", 0o770, 0o660, 0o660),
    ("0644", 0o755, 0o644, 0o600),
])  # fmt: skip
def test_every_file_of_a_queue_keeps_the_mode_that_it_was_created_with(
    tmp_path: Path, mode: str, folder: int, file: int, lock: int
) -> None:
    path = tmp_path / "q"
    with Queue.create(path, size="1MiB", mode=mode) as queue:
        fill(queue)
    with Queue.open(path) as queue:
        fill(queue)
    modes = modes_of(path)
    assert len(modes) > 12
    for name, found in modes.items():
        wanted = folder if (path / name).is_dir() else lock if Path(name).name in LOCKS else file
        assert found == wanted, f"{name} has {found:04o}, not {wanted:04o}"


def test_by_default_the_group_reads_and_others_do_nothing(tmp_path: Path) -> None:
    Queue.create(tmp_path / "q", size="1MiB").close()
    assert modes_of(tmp_path / "q")["."] == 0o750
    assert modes_of(tmp_path / "q")["control"] == 0o640


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files to any group")
def test_every_file_belongs_to_the_group_of_the_queue(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with Queue.create(path, size="1MiB", mode="0660", group="4242") as queue:
        fill(queue)
    assert {each.stat().st_gid for each in [path, *path.rglob("*")]} == {4242}
    assert stat.S_IMODE(path.stat().st_mode) == 0o2770


@pytest.mark.parametrize("mode", ["0666", "0777", "0400", "0620", "rw-r-----"])
def test_a_mode_that_makes_no_sense_or_lets_everybody_write_is_refused(tmp_path: Path, mode: str) -> None:
    with pytest.raises(OptionError, match=r"choose 0600|chmod does"):
        Queue.create(tmp_path / "q", size="1MiB", mode=mode)
    assert not (tmp_path / "q").exists()


@pytest.mark.usefixtures("umask")
def test_a_site_keeps_the_mode_of_its_queue(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(
        f'[site]\nqueue = "q"\nlisten = ["tcp/127.0.0.1:{free_port()}"]\nscouting = "off"\n'
        '[queue]\nsize = "4MiB"\nmode = "0600"\n'
    )
    with Daemon(file) as daemon:
        daemon.wait_until_ready()
    assert {mode & 0o077 for mode in modes_of(tmp_path / "q").values()} == {0}


# --- secrets ------------------------------------------------------------------------------------------


def refused(file: Path) -> str:
    done = subprocess.run([*PROGRAM, "serve", str(file)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (2, 3)
    return done.stderr


def test_a_site_refuses_a_private_key_that_others_may_read(realm: Realm) -> None:
    hub = realm.site("hub", Allow("hub", receive=["**"]))
    hub.daemon.stop()
    key = realm.certs / "hub.key"
    key.chmod(0o644)
    said = refused(hub.file)
    assert f"{key} is open to every user of this machine (mode 0644)" in said
    assert f"chmod 600 {key}" in said
    key.chmod(0o640)
    hub.restart()


@pytest.mark.parametrize(("mode", "said"), [(0o644, "is open to every user"), (0o660, "may be changed by its group")])
def test_a_site_refuses_users_and_passwords_that_others_may_use(tmp_path: Path, mode: int, said: str) -> None:
    site, users, password = tmp_path / "site.toml", tmp_path / "users", tmp_path / "password"
    users.write_text("ann:a long password\n")
    password.write_text("a long password\n")
    site.write_text(
        f'[site]\nqueue = "q"\nlisten = ["tcp/127.0.0.1:{free_port()}"]\nscouting = "off"\n'
        '[users]\nname = "ann"\npassword_file = "password"\ndictionary_file = "users"\n'
    )
    for file in (users, password):
        file.chmod(mode)
        shown = refused(site)
        assert said in shown
        assert f"chmod 600 {file}" in shown
        file.chmod(0o600)


def test_a_program_refuses_a_password_and_contexts_that_others_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    password.chmod(0o644)
    with pytest.raises(FabricError, match="chmod 600"):
        Login("ann", str(password)).read()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    contexts = tmp_path / "headrace" / "contexts.json"
    contexts.parent.mkdir()
    contexts.write_text('{"version":1}')
    contexts.chmod(0o666)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_contexts()
    contexts.chmod(0o600)
    assert not read_contexts().contexts
