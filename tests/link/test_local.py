"""The socket in the directory of a queue: who may enter its folder, and how programs find it."""

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import FabricError
from headrace.link.endpoint import PATH_BYTES_MAX
from headrace.link.local import admit, links_folder, local_endpoint, local_endpoints, prepare_socket
from support.links import Open


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short path, as those of queues and the runtime folder commonly are."""
    with tempfile.TemporaryDirectory(prefix="run-") as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def run(short: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runtime folder of the test."""
    monkeypatch.setattr("headrace.link.local._SYSTEM", short / "system")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    return short / "headrace"


@pytest.fixture
def queue(short: Path) -> Path:
    (short / "q").mkdir()
    return short / "q"


@pytest.mark.parametrize(
    ("mode", "folder"),
    [(0o700, 0o700), (0o755, 0o700), (0o750, 0o700), (0o770, 0o710), (0o2775, 0o710), (0o777, 0o711)],
)
def test_who_may_write_to_the_queue_may_enter_the_folder_of_its_socket(queue: Path, mode: int, folder: int) -> None:
    queue.chmod(mode)
    prepare_socket(queue)
    status = (queue / "socket").stat()
    assert (stat.S_IMODE(status.st_mode) & 0o777, status.st_gid) == (folder, queue.stat().st_gid)


def test_a_later_start_follows_the_mode_of_the_queue(queue: Path) -> None:
    for mode, folder in ((0o777, 0o711), (0o700, 0o700)):
        queue.chmod(mode)
        prepare_socket(queue)
        assert stat.S_IMODE((queue / "socket").stat().st_mode) == folder


def test_a_socket_with_a_long_path_is_reached_through_the_link(tmp_path: Path, run: Path, opened: Open) -> None:
    queue = tmp_path / ("long" * 30) / "q"
    queue.mkdir(parents=True)
    prepare_socket(queue)
    endpoint = local_endpoint(queue)
    assert endpoint.startswith(f"unixsock-stream/{run}/")
    assert len(endpoint.partition("/")[2]) <= PATH_BYTES_MAX
    opened("router", listen=(endpoint,))
    admit(queue)
    assert stat.S_ISSOCK((queue / "socket/site").stat().st_mode)
    assert local_endpoints() == [endpoint]
    assert opened("client", connect=(endpoint,)).info.routers_zid()


def test_a_path_that_is_too_long_even_through_the_link_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = tmp_path / ("long" * 30)
    queue.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / ("run" * 30)))
    with pytest.raises(FabricError, match="has more than 100 bytes") as raised:
        prepare_socket(queue)
    assert "XDG_RUNTIME_DIR" in raised.value.hint


def test_a_folder_that_others_can_change_leads_nobody(
    queue: Path, run: Path, opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    prepare_socket(queue)
    opened("router", listen=(local_endpoint(queue),))
    assert len(local_endpoints()) == 1
    run.chmod(0o777)
    assert local_endpoints() == []
    prepare_socket(queue)
    assert "other users can change that folder" in caplog.text


def test_links_of_queues_that_are_gone_are_removed(tmp_path: Path, run: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        prepare_socket(tmp_path / name)
    assert len(os.listdir(run)) == 2
    (tmp_path / "one/socket").rmdir()
    prepare_socket(tmp_path / "two")
    assert [os.readlink(run / name) for name in os.listdir(run)] == [str(tmp_path / "two/socket")]


def test_the_folder_of_links_is_that_of_the_service_or_of_the_login_session() -> None:
    service = {"RUNTIME_DIRECTORY": "/run/headrace:/run/other", "XDG_RUNTIME_DIR": "/run/user/7"}
    assert str(links_folder(service)) == "/run/headrace"
    assert str(links_folder({"XDG_RUNTIME_DIR": "/run/user/7"})) == "/run/user/7/headrace"
    assert links_folder({"XDG_RUNTIME_DIR": "relative"}) == links_folder({})
