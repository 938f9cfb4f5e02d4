"""Files: only regular ones are opened, and new ones get the rights of their folder."""

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.files import (
    IrregularFileError,
    exposure,
    file_mode,
    lock_mode,
    make_folder,
    open_regular,
    read_regular,
    write_regular,
)


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT])
def test_what_is_no_regular_file_is_named_and_nothing_waits(tmp_path: Path, flags: int) -> None:
    os.mkfifo(tmp_path / "a FIFO")
    (tmp_path / "a directory").mkdir()
    (tmp_path / "a symbolic link").symlink_to("/etc/hostname")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "a socket"))
    for name in ("a FIFO", "a directory", "a symbolic link", "a socket"):
        with pytest.raises(IrregularFileError, match=f"it is {name}, not a regular file") as raised:
            open_regular(tmp_path / name, flags)
        assert raised.value.filename == str(tmp_path / name)
    if flags == os.O_RDONLY:
        with pytest.raises(IrregularFileError, match="it is a device"):
            open_regular("/dev/zero", flags)


def test_a_link_is_followed_where_a_user_chose_the_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_regular(tmp_path / "link", follow=True) == b"x"
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "other").symlink_to(tmp_path / "fifo")
    with pytest.raises(IrregularFileError, match="FIFO"):
        read_regular(tmp_path / "other", follow=True)


def test_nothing_is_created_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IrregularFileError):
        write_regular(tmp_path / "link", b"x")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(("folder", "file", "lock"), [
    (0o700, 0o600, 0o600), (0o750, 0o640, 0o600), (0o2770, 0o660, 0o660), (0o755, 0o644, 0o600),
    (0o777, 0o600, 0o600), (0o1777, 0o600, 0o600),
])  # fmt: skip
def test_a_new_file_has_the_rights_of_its_folder_and_a_lock_those_of_writers(
    tmp_path: Path, folder: int, file: int, lock: int
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder").chmod(folder)
    assert (file_mode(tmp_path / "folder"), lock_mode(tmp_path / "folder")) == (file, lock)
    write_regular(tmp_path / "folder" / "file", b"x")
    assert mode_of(tmp_path / "folder" / "file") == file
    make_folder(tmp_path / "folder" / "inner")
    assert mode_of(tmp_path / "folder" / "inner") == folder


def test_a_file_that_exists_keeps_its_rights(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "private").touch()
    (tmp_path / "private").chmod(0o600)
    write_regular(tmp_path / "private", b"x")
    os.close(open_regular(tmp_path / "private", os.O_RDWR | os.O_CREAT))
    assert mode_of(tmp_path / "private") == 0o600


@pytest.mark.parametrize(("mode", "said"), [
    (0o600, ""), (0o400, ""), (0o640, ""), (0o644, "open to every user"), (0o601, "open to every user"),
    (0o660, "may be changed by its group"),
])  # fmt: skip
def test_a_secret_that_others_may_read_is_exposed(tmp_path: Path, mode: int, said: str) -> None:
    (tmp_path / "key").touch()
    (tmp_path / "key").chmod(mode)
    assert said in exposure(tmp_path / "key")
    assert bool(exposure(tmp_path / "key")) is bool(said)
