"""Commands that get the endpoint of a site instead of a directory."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace import Queue
from headrace.link.session import SessionTerms, open_session
from headrace.queue import AnyQueue
from headrace.remote.client.connect import connect_within
from headrace.site.site import Site
from support.commandline import Run, fill
from support.fleet import free_port
from support.waiting import until


@pytest.fixture
def there(path: Path) -> Iterator[str]:
    """The endpoint of a site that serves the queue at `path`."""
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    with Queue.open(path) as queue, open_session(SessionTerms("router", listen=(endpoint,))) as session:
        site = Site(session, queue, [])
        yield endpoint
        site.close()


def test_products_put_through_a_site_are_read_through_it(run: Run, there: str, tmp_path: Path) -> None:
    (tmp_path / "f1").write_bytes(b"one")
    (tmp_path / "f2").write_bytes(b"two")
    put = run("put", there, "f1", "f2", "f1", "--feed", "wx/text", "--property", "run=06")
    assert (put.exit_code, put.output.count("duplicate of 1")) == (0, 1)
    lines = run("put", there, "--lines", "--feed", "site/log", stdin="three\n\nfour\n")
    assert "put 2 products" in lines.output
    assert run("cat", there, "--separator", "\\n").stdout == "one\ntwo\nthree\nfour"
    shown = [json.loads(line) for line in run("cat", there, "--select", "wx/**", "--json").stdout.splitlines()]
    assert [(each["ident"], each["properties"]) for each in shown] == [("f1", {"run": "06"}), ("f2", {"run": "06"})]
    assert run("verify", there, "--oracle", "none").exit_code == 2


def test_a_watch_with_a_cursor_continues_at_its_position(run: Run, there: str, path: Path) -> None:
    fill(path, 3)
    first = run("watch", there, "--from", "oldest", "--cursor", "c", "--count", "2", "--json")
    assert [json.loads(line)["sequence"] for line in first.stdout.splitlines()] == [1, 2]
    second = run("watch", there, "--cursor", "c", "--timeout", "0.2s")
    assert (second.exit_code, second.stdout.count("ident 3")) == (0, 1)
    assert json.loads(run("cursor", "list", there, "--json").stdout)["position"] == 4


def test_stations_are_managed_through_a_site(run: Run, there: str, path: Path) -> None:
    assert "created decode" in run("station", "create", there, "decode", "--select", "wx/**", "--capacity", "10").output
    run("station", "create", there, "archive", "--after", "decode")
    fill(path, 3)
    shown = json.loads(run("station", "show", there, "archive", "--json").stdout)
    assert (shown["after"], shown["terms"]["selection"]) == (["decode"], "**")
    listed = [json.loads(line) for line in run("station", "list", there, "--json").stdout.splitlines()]
    assert [(each["name"], each["waiting"]) for each in listed] == [("decode", 3), ("archive", 0)]
    lag = run("lag", there, "decode", "--max-products", "2")
    assert (lag.exit_code, "3 products behind" in lag.stderr) == (1, True)
    assert "paused decode" in run("station", "pause", there, "decode").output
    assert "changed decode" in run("station", "change", there, "decode", "--capacity", "20").output
    assert "3 products forgotten" in run("station", "seek", there, "decode", "next", "--yes").output
    assert "deleted decode" in run("station", "delete", there, "decode", "--yes").output
    missing = run("station", "show", there, "decode")
    assert (missing.exit_code, "its stations are: archive" in missing.stderr) == (3, True)


def test_a_site_is_named_wherever_an_endpoint_is_accepted(
    run: Run, there: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_SITES", there)
    assert "put 2 products" in run("put", "site:here", "--lines", "--feed", "a", stdin="1\n2\n").output
    assert json.loads(run("sites", "site:here", "--json").stdout)["nodes"][0]["name"] == "here"
    run("context", "create", "lab", "site:here", "--use")
    for words in ([], ["site:here"], ["@lab"]):
        assert json.loads(run("queue", "info", *words, "--json").stdout)["statistics"]["held_products"] == 2
    assert run("watch", "site:here", "--from", "oldest", "--count", "2").exit_code == 0
    monkeypatch.setattr("headrace.cli.options.CONNECT_S_MAX", 1.5)
    missing = run("cat", "site:there")
    assert (missing.exit_code, "reachable sites: here" in missing.stderr) == (3, True)
    refused = run("queue", "check", "site:here")
    assert (refused.exit_code, "site:here is a site, and this command needs the directory" in refused.stderr) == (
        2,
        True,
    )


def test_a_context_is_an_endpoint_where_sites_are_found(run: Run, there: str, path: Path) -> None:
    fill(path, 2)
    run("context", "create", "door", there)
    assert len(run("cat", "site:here", "--json").stdout.splitlines()) == 2


def test_errors_are_the_same_as_for_a_directory(run: Run, there: str) -> None:
    for words in (["watch", there, "--select", "wx/** where ("], ["put", f"{there}?size=1", "--feed", "a"],
                  ["cat", "tcp/nowhere"]):  # fmt: skip
        result = run(*words, stdin="x")
        assert (result.exit_code, "try:" in result.stderr) == (2, True), words


def test_an_unreachable_site_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.cli.options.CONNECT_S_MAX", 0.5)
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    result = run("put", endpoint, "--feed", "a", stdin="x")
    assert (result.exit_code, endpoint in result.stderr, "try:" in result.stderr) == (3, True, True)


def test_a_command_that_fails_before_its_first_product_sums_up_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.cli.options.CONNECT_S_MAX", 0.5)
    result = run("put", f"tcp/127.0.0.1:{free_port()}", "--lines", "--feed", "a", stdin="x\n")
    assert (result.exit_code, result.stdout) == (3, "")


@pytest.mark.parametrize(("timeout", "patience_s"), [(None, 10), ("1h", 10), ("4s", 4), ("0s", 2)])
def test_the_timeout_of_a_put_bounds_connecting_too(
    run: Run, there: str, monkeypatch: pytest.MonkeyPatch, timeout: str | None, patience_s: float
) -> None:
    asked: list[float] = []

    def connect(where: str, patience: float, *rest: Any) -> AnyQueue:
        asked.append(patience)
        return connect_within(where, patience, *rest)

    monkeypatch.setattr("headrace.remote.client.connect.connect_within", connect)
    options = [] if timeout is None else ["--timeout", timeout]
    assert run("put", there, "--feed", "a", *options, stdin="x").exit_code == 0
    assert asked == [patience_s]


def test_credentials_come_from_the_environment(run: Run, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_USER", "ann")
    assert "HEADRACE_PASSWORD_FILE" in run("cat", there).stderr
    monkeypatch.setenv("HEADRACE_PASSWORD_FILE", "nowhere")
    result = run("cat", there)
    assert (result.exit_code, "nowhere is not readable" in result.stderr) == (3, True)


@pytest.mark.parametrize("set_alone", ["PASSWORD_FILE", "CERTIFICATE", "KEY"])
def test_incomplete_credentials_are_refused(
    run: Run, there: str, monkeypatch: pytest.MonkeyPatch, set_alone: str
) -> None:
    monkeypatch.setenv(f"HEADRACE_{set_alone}", "file")
    result = run("cat", there)
    assert (result.exit_code, "as well" in result.stderr) == (2, True)


def test_a_password_file_that_is_not_text_is_an_error(
    run: Run, there: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "password").write_bytes(b"\xff\xfe")
    monkeypatch.setenv("HEADRACE_USER", "ann")
    monkeypatch.setenv("HEADRACE_PASSWORD_FILE", str(tmp_path / "password"))
    result = run("cat", there)
    assert (result.exit_code, "it is not text" in result.stderr) == (3, True)


@pytest.mark.parametrize(
    "words",
    [["queue", "check"], ["queue", "resize", "--age", "1h"], ["queue", "delete", "--select", "a"]],
)  # fmt: skip
def test_a_command_that_needs_the_files_of_a_queue_refuses_an_endpoint(run: Run, there: str, words: list[str]) -> None:
    result = run(*words, there)
    assert (result.exit_code, "run it on the machine of the queue" in result.stderr) == (2, True)


def test_commands_that_look_also_look_at_an_endpoint_and_at_a_context(run: Run, there: str, path: Path) -> None:
    fill(path, 3)
    run("station", "create", there, "decode")
    run("context", "create", "lab", there)
    for where in (there, "lab", "@lab"):
        info = json.loads(run("queue", "info", where, "--json").stdout)
        assert (info["statistics"]["held_products"], info["processes"]) == (3, [])
        assert "wx/text" in run("queue", "info", where).stdout
        frame = json.loads(run("top", where, "--once", "--interval", "0.1s", "--json").stdout)
        assert (frame["queue"]["held_products"], [each["name"] for each in frame["stations"]]) == (3, ["decode"])
        assert "decode" in run("top", where, "--once", "--interval", "0.1s").stdout
        assert "decode" in run("lag", where).stdout
        assert run("sites", where).exit_code == 0


def test_a_remote_command_ends_by_itself_or_by_a_signal(start: Callable[..., object], there: str, path: Path) -> None:
    fill(path, 1)
    whole = start("cat", there)
    out, err = whole.communicate(timeout=240)  # type: ignore[attr-defined]
    assert (out, err, whole.returncode) == (b"product 1", b"", 0)  # type: ignore[attr-defined]
    endless = start("watch", there, "--from", "oldest")
    assert b"ident 1" in endless.stdout.readline()  # type: ignore[attr-defined]
    endless.terminate()  # type: ignore[attr-defined]
    assert endless.wait(240) == 143  # type: ignore[attr-defined]


def test_channels_are_managed_through_an_endpoint(run: Run, there: str, path: Path) -> None:
    assert "created radar" in run("channel", "create", there, "radar", "wx/radar", "--timeout", "10s").stdout
    assert run("station", "create", there, "decode", "--channel", "radar", "--timeout", "5s").exit_code == 0
    assert "radar" in run("channel", "list", there).stdout
    told = json.loads(run("channel", "show", there, "radar", "--json").stdout)
    assert (told["feed"], list(told["stations"])) == ("wx/radar/**", ["decode"])
    assert run("channel", "change", there, "radar", "--timeout", "20s").exit_code == 0
    assert run("station", "change", there, "decode", "--timeout", "6s").exit_code == 0
    assert run("channel", "delete", there, "radar").exit_code == 3
    assert "deleted radar" in run("channel", "delete", there, "radar", "--force").stdout
    assert run("channel", "list", there).stdout == run("channel", "list", path).stdout.replace(str(path), there)


def test_a_watch_waits_for_a_site_that_is_away_for_longer_than_commands_do(
    run: Run, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.cli.options.CONNECT_S_MAX", 0.5)
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    with Queue.open(path) as queue:

        @contextmanager
        def site() -> Iterator[Site]:
            with open_session(SessionTerms("router", listen=(endpoint,))) as session:
                served = Site(session, queue, [])
                yield served
                served.close()

        with ThreadPoolExecutor(1) as threads:
            with site() as served:
                watch = threads.submit(run, "watch", endpoint, "--from", "oldest", "--count", "2", "--json")
                queue.put(b"1", feed="wx", ident="one")
                until(lambda: served.statistics().remote.waiting, "the watch waits for another product")
            time.sleep(2)  # longer than a command's patience
            with site():
                queue.put(b"2", feed="wx", ident="two")
                shown = watch.result(240)
    assert [json.loads(line)["ident"] for line in shown.stdout.splitlines()] == ["one", "two"]


def test_a_group_of_nodes_is_run_and_steered_through_a_site(
    run: Run, there: str, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slices_remote_work.py").write_text("def work(product):\n    return product.ident\n")
    assert run("channel", "create", there, "surface", "wx/**", "--slices", "4").exit_code == 0
    fill(path, 6, "wx/a")
    ran = run("slices", "run", "slices_remote_work:work", there, "--stream", "surface", "--publish", "out",
              "--timeout", "300ms", "--json")  # fmt: skip
    assert (ran.exit_code, json.loads(ran.stdout)["products"]) == (0, 6), ran.output
    shown = json.loads(run("slices", "status", there, "--json").stdout)
    assert (shown["products"], shown["nodes"], shown["parked"]) == (6, [], 0)
    assert run("slices", "parked", there).stdout == "group 'main' of 'surface' has no parked products\n"
    assert run("slices", "plot", there, "load.png").exit_code == 0
    assert run("slices", "delete", there, "--yes").exit_code == 0
    assert run("slices", "list", there, "--json").stdout == ""
