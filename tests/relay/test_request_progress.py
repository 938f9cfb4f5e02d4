"""Progress of requests: it belongs to what they select, and is never ahead of the products in the queue."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from relaying import has_examined, is_live, put, texts

from headrace import Queue, Selection
from headrace.errors import QueueDamagedError, QueueError, QueueVersionError
from headrace.log import flush as flusher
from headrace.relay.receive.progress import KEPT_MAX, VERSION, Reached, RequestProgress, asked_text
from headrace.relay.receive.receiver import Request
from headrace.relay.receive.track import Known
from headrace.testing import PowerCut
from support.fleet import Fabric, want
from support.waiting import until

QUEUE = b"\7" * 16


def asked(text: str) -> str:
    return asked_text(Selection.parse(text), relayed=False)


def nothing() -> None:
    pass


def first(text: str, begin_at: str = "next") -> Request:
    """A request with the name that an unnamed one has by its place."""
    return want(text, begin_at, name="request 1")


def second(text: str, begin_at: str = "next") -> Request:
    return want(text, begin_at, name="request 2")


def change(fabric: Fabric, name: str, *requests: Request) -> None:
    """Change the requests for the next start."""
    fabric._terms[name] = (fabric._terms[name][0], list(requests))


def note(queue: Queue, what: str, base: int) -> None:
    """Save progress as if everything up to `base` had arrived from a."""
    progress = RequestProgress(queue.path / "site" / "progress.json")
    known = progress.known(what, "a")
    assert known is not None
    progress.note(queue.next, [(what, "a", known._replace(base=base))])
    progress.save(nothing)


def is_settled(fabric: Fabric, name: str, base: int) -> bool:
    return all(upstream.base >= base for upstream in fabric.sites[name].statistics().upstreams)


# --- requests that change -------------------------------------------------------------------------


def test_an_inserted_request_does_not_change_the_progress_of_others(fabric: Fabric) -> None:
    a = fabric.add("a")
    b = fabric.add("b", first("wx/a"), near=("a",))
    until(lambda: is_live(fabric, "b"), "b listens")
    put(a, "wx/a", "1")
    put(a, "wx/b", "history")
    until(lambda: is_settled(fabric, "b", 2), "b knows that it has everything")
    fabric.stop("b")
    put(a, "wx/a", "2", "3")
    change(fabric, "b", first("wx/b", "oldest"), second("wx/a"))
    fabric.start("b")
    until(lambda: is_live(fabric, "b", 2), "b listens")
    put(a, "wx/a", "4")
    until(lambda: b.next == 6, "everything arrives")
    assert texts(b, "wx/a") == ["1", "2", "3", "4"]
    assert texts(b, "wx/b") == ["history"]


def test_reordered_requests_keep_their_progress(fabric: Fabric) -> None:
    a = fabric.add("a", dedup="none")
    b = fabric.add("b", first("wx/a"), second("wx/b"), near=("a",), dedup="none")
    until(lambda: is_live(fabric, "b", 2), "b listens")
    put(a, "wx/a", "1", "2")
    until(lambda: is_settled(fabric, "b", 2), "b knows that it has everything")
    fabric.stop("b")
    put(a, "wx/b", "3", "4")
    put(a, "wx/a", "5")
    note(b, asked("wx/a"), 5)  # as if the second request had been slower
    change(fabric, "b", first("wx/b"), second("wx/a"))
    fabric.start("b")
    until(lambda: is_live(fabric, "b", 2) and has_examined(fabric, "b", "a"), "what came meanwhile arrives")
    assert texts(b) == ["1", "2", "3", "4"]


@pytest.mark.parametrize("text", ["wx/b", "wx/*", "wx/** priority 1.."])
def test_a_request_with_a_new_selection_starts_at_from(fabric: Fabric, text: str) -> None:
    a = fabric.add("a")
    b = fabric.add("b", want("wx/a", "oldest"), near=("a",))
    put(a, "wx/b", "0")
    put(a, "wx/a", "1")
    until(lambda: is_settled(fabric, "b", 2), "b knows that it has everything")
    fabric.sites["b"].change_requests([want(text, "oldest")])
    until(lambda: b.next == 3, "what was passed over before arrives")
    assert texts(b) == ["1", "0"]


def test_own_and_relayed_products_have_separate_progress(fabric: Fabric) -> None:
    a = fabric.add("a")
    b = fabric.add("b", want("**", "oldest"), near=("a",))
    put(a, "x", "1")
    receiver = fabric.sites["b"]._receiver
    until(lambda: is_live(fabric, "b") and not receiver._meeting, "b has met a, which has had no other origin yet")
    a.put(b"from elsewhere", feed="x", origin="c", origin_sequence=7)
    until(lambda: is_settled(fabric, "b", 2), "b knows that it has everything")
    assert texts(b) == ["1"]
    fabric.sites["b"].change_requests([want("**", "oldest", "a")])
    until(lambda: b.next == 3, "what a has from others arrives")


def test_a_request_that_is_added_again_keeps_its_progress(fabric: Fabric) -> None:
    a = fabric.add("a", dedup="none")
    b = fabric.add("b", want("wx/a"), near=("a",), dedup="none")
    until(lambda: is_live(fabric, "b"), "b listens")
    put(a, "wx/a", "1")
    until(lambda: is_settled(fabric, "b", 1), "b has it")
    fabric.sites["b"].change_requests([])
    put(a, "wx/a", "2")
    fabric.stop("b")
    fabric.start("b")
    until(lambda: is_live(fabric, "b") and has_examined(fabric, "b", "a"), "what came meanwhile arrives")
    assert texts(b) == ["1", "2"]


def test_of_two_equal_requests_the_slower_one_counts(tmp_path: Path) -> None:
    progress = RequestProgress(tmp_path / "p.json")
    progress.begin(["one", "one"], 1)
    progress.note(1, [("one", "a", Known(QUEUE, 9)), ("one", "a", Known(QUEUE, 4)), ("one", "b", Known(QUEUE, 7))])
    assert progress.known("one", "a") == Known(QUEUE, 4)
    assert progress.known("one", "b") == Known(QUEUE, 7)


def test_the_progress_of_removed_requests_is_bounded(tmp_path: Path) -> None:
    progress = RequestProgress(tmp_path / "p.json")
    for number in range(KEPT_MAX + 10):
        progress.begin([asked(f"wx/{number}")], 1)
        progress.note(1, [(asked(f"wx/{number}"), "a", Known(QUEUE, number))])
    progress.begin([asked("wx/20")], 1)
    progress.save(nothing)
    again = RequestProgress(tmp_path / "p.json")
    assert again.known(asked("wx/0"), "a") is None
    assert again.known(asked("wx/20"), "a") == Known(QUEUE, 20)
    assert again.known(asked(f"wx/{KEPT_MAX + 9}"), "a") == Known(QUEUE, KEPT_MAX + 9)


# --- products after the last save ----------------------------------------------------------------


def test_products_after_the_last_save_are_searched_only_for_the_same_requests(tmp_path: Path) -> None:
    progress = RequestProgress(tmp_path / "p.json")
    progress.begin(["one"], 5)
    assert progress.since(["one"]) == 5
    assert progress.since(["other"]) == progress.since(["one", "other"]) == 0
    progress.end()
    assert progress.since(["one"]) == 0


def test_products_after_the_last_save_are_not_searched_after_a_reboot(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    progress = RequestProgress(path)
    progress.begin(["one"], 5)
    progress.save(nothing)
    assert RequestProgress(path).since(["one"]) == 5
    path.write_text(json.dumps({**json.loads(path.read_text()), "boot": "00" * 16}))
    assert RequestProgress(path).since(["one"]) == 0


# --- power failures -------------------------------------------------------------------------------


def test_a_power_failure_leaves_no_progress_without_its_products(
    fabric: Fabric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher, "FLUSH_INTERVAL_S", 600)
    a = fabric.add("a")
    power = PowerCut(tmp_path / "b", tmp_path / "safe")
    b = fabric.add("b", want("**", "oldest"), near=("a",), storage=power)
    power.prime()
    file = b.path / "site" / "progress.json"
    put(a, "x", *map(str, range(40)))
    until(lambda: (RequestProgress(file).known(asked("**"), "a") or Known()).base == 40, "progress is saved")
    for seed in range(10):
        image = tmp_path / f"image-{seed}"
        (image / "site").mkdir(parents=True)
        power.image(image, seed)
        with Queue.open(image) as found:
            assert texts(found) == texts(a)


def test_products_are_flushed_before_the_file_and_the_file_before_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "site" / "p.json"
    progress = RequestProgress(path)
    progress.begin(["one"], 1)
    progress.save(nothing)
    done: list[str] = []
    for name in ("fsync", "fdatasync"):
        sync = getattr(os, name)

        def watched(descriptor: int, sync: Callable[[int], None] = sync) -> None:
            done.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
            sync(descriptor)

        monkeypatch.setattr(os, name, watched)
    progress.note(2, [("one", "a", Known(QUEUE, 1))])
    progress.save(lambda: done.append("products"))
    assert done == ["products", "p.json.part", "site"]
    progress.save(lambda: done.append("products"))
    assert len(done) == 3, "nothing has changed"


def test_progress_is_not_saved_while_products_cannot_be_flushed(tmp_path: Path) -> None:
    def refuse() -> None:
        raise QueueError("no")

    path = tmp_path / "p.json"
    progress = RequestProgress(path)
    progress.begin(["one"], 1)
    progress.note(2, [("one", "a", Known(QUEUE, 1))])
    progress.save(nothing)
    progress.note(3, [("one", "a", Known(QUEUE, 2))])
    with pytest.raises(QueueError):
        progress.save(refuse)
    assert RequestProgress(path).known("one", "a") == Known(QUEUE, 1)
    progress.save(nothing)
    assert RequestProgress(path).known("one", "a") == Known(QUEUE, 2)


def test_a_site_that_cannot_save_progress_keeps_receiving_and_logs_it(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    a = fabric.add("a")
    b = fabric.add("b", want("**", "oldest"), near=("a",))
    until(lambda: is_live(fabric, "b"), "b listens")

    def refuse() -> None:
        raise QueueError("no")

    with monkeypatch.context() as patch:
        patch.setattr(Queue, "flush", lambda _: refuse())
        put(a, "x", "1")
        until(lambda: "progress is not saved" in caplog.text, "the log says so")
        assert "progress" in [problem.kind for problem in fabric.sites["b"].problems()]
        put(a, "x", "2")
        until(lambda: b.next == 3, "both arrive")
    known = lambda: RequestProgress(b.path / "site" / "progress.json").known(asked("**"), "a")  # noqa: E731
    until(lambda: (known() or Known()).base == 2, "progress is saved once the disk works")


# --- files of older versions, and damaged ones --------------------------------------------------------------------


def write_by_names(path: Path, requests: dict[str, dict[str, Reached]]) -> None:
    file = {
        "version": 1,
        "next": 3,
        "ended": True,
        "requests": {
            name: {site: {"queue": reached.queue, "base": reached.base} for site, reached in sites.items()}
            for name, sites in requests.items()
        },
    }
    path.write_text(json.dumps(file))


def test_a_file_by_names_counts_by_its_lowest_base(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    mine = QUEUE.hex()
    write_by_names(path, {
        "request 1": {"a": Reached(mine, 9), "b": Reached(mine, 4)},
        "request 2": {"a": Reached(mine, 7)},
        "request 3": {"a": Reached("00" * 16, 1)},
    })  # fmt: skip
    progress = RequestProgress(path)
    assert progress.known("request 1", "a") is None
    progress.adopt("x", lambda site: site == "a")
    progress.begin(["x", "y"], 1)
    progress.save(nothing)
    again = RequestProgress(path)
    assert again.known("x", "a") == Known(QUEUE, 7)
    assert again.known("x", "b") is None
    assert again.known("y", "a") is None
    assert json.loads(path.read_text())["version"] == VERSION
    again.adopt("y", lambda _: True)
    assert again.known("y", "a") is None, "only once"


def test_a_site_continues_after_an_upgrade_with_renamed_requests(fabric: Fabric) -> None:
    a = fabric.add("a")
    b = fabric.add("b", want("wx/a", name="request 1"), near=("a",))
    until(lambda: is_live(fabric, "b"), "b listens")
    put(a, "wx/a", "1")
    put(a, "wx/b", "old")
    until(lambda: is_settled(fabric, "b", 2), "b knows that it has everything")
    fabric.stop("b")
    file = b.path / "site" / "progress.json"
    known = RequestProgress(file).known(asked("wx/a"), "a") or Known()
    write_by_names(file, {"request 1": {"a": Reached(known.queue.hex(), known.base)}})
    put(a, "wx/a", "2")
    change(fabric, "b", first("wx/b", "oldest"), second("wx/a"))
    fabric.start("b")
    until(lambda: b.next == 4, "what came meanwhile, and what was passed over")
    assert texts(b, "wx/a") == ["1", "2"]
    assert texts(b, "wx/b") == ["old"]


@pytest.mark.parametrize("whole_folder", [False, True])
def test_a_site_whose_progress_has_vanished_refuses_to_start_until_a_repair(fabric: Fabric, whole_folder: bool) -> None:
    a = fabric.add("a")
    b = fabric.add("b", want("wx/**"), near=("a",))
    until(lambda: is_live(fabric, "b"), "b listens")
    put(a, "wx/a", "1")
    until(lambda: is_settled(fabric, "b", 1), "it has arrived")
    fabric.stop("b")
    file = b.path / "site" / "progress.json"
    if whole_folder:
        shutil.rmtree(file.parent)
    else:
        file.unlink()
    put(a, "wx/a", "2")
    with pytest.raises(QueueDamagedError, match=r"progress\.json is missing") as raised:
        fabric.start("b")
    fabric.sessions.pop("b").close()
    assert "headrace queue repair" in raised.value.hint
    assert ["is missing" in finding.problem for finding in b.check()] == [True]
    b.close()
    assert ["begins again at its `from`" in done for done in Queue.repair(b.path)] == [True]
    fabric.queues["b"] = b = Queue.open(b.path)
    change(fabric, "b", want("wx/**", "oldest"))
    fabric.start("b")
    until(lambda: texts(b, "wx/a") == ["1", "2"], "what was put meanwhile has arrived")


def test_a_site_that_never_reached_another_one_starts_without_progress(fabric: Fabric) -> None:
    b = fabric.add("b", want("wx/**"))
    fabric.stop("b")
    (b.path / "site" / "progress.json").unlink()
    fabric.start("b")


@pytest.mark.parametrize("content", [b"", b'{"version": 2, "ne', b"\xff", b'{"version": 3, "more": 1}'])
def test_the_error_for_a_damaged_file_explains_the_consequence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "p.json"
    path.write_bytes(content)
    with pytest.raises(QueueDamagedError, match=r"p\.json") as raised:
        RequestProgress(path)
    assert "begins again at its `from`" in raised.value.hint
    assert 'Where that is "now", what was put elsewhere since' in raised.value.hint


def test_a_file_of_a_later_version_asks_for_an_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"version": VERSION + 1, "more": 1}))
    with pytest.raises(QueueVersionError, match="upgrade Headrace"):
        RequestProgress(path)


def test_a_file_without_beginnings_goes_on_at_its_bases(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"version": 2, "reached": {"one": {"a": {"queue": QUEUE.hex(), "base": 9}}}}))
    assert RequestProgress(path).known("one", "a") == Known(QUEUE, 9)


def test_where_a_request_began_and_what_it_may_receive_are_kept(tmp_path: Path) -> None:
    progress = RequestProgress(tmp_path / "p.json")
    progress.begin(["one"], 1)
    known = Known(QUEUE, 9, 4, ("wx/**", "tel/*"))
    progress.note(1, [("one", "a", known)])
    progress.save(nothing)
    assert RequestProgress(tmp_path / "p.json").known("one", "a") == known


def test_feeds_that_are_further_than_the_base_are_kept(tmp_path: Path) -> None:
    progress = RequestProgress(tmp_path / "site" / "progress.json")
    known = Known(QUEUE, 7, 1, ("**",), 0, {"wx/a": 9})
    progress.begin([asked("wx/**")], 1)
    progress.note(1, [(asked("wx/**"), "a", known)])
    progress.save(nothing)
    assert RequestProgress(tmp_path / "site" / "progress.json").known(asked("wx/**"), "a") == known


@pytest.mark.parametrize("sites", [(), ("a",)])
def test_after_kill_9_nothing_that_was_put_at_the_site_is_stored_twice(fabric: Fabric, sites: tuple[str, ...]) -> None:
    """Its queue recognises nothing: only what it holds says how far the request is."""
    there = fabric.add("a")
    here = fabric.add("b", want("wx/**", "oldest", *sites), near=("a",), dedup="none")
    put(there, "wx/x", "one")
    until(lambda: texts(here) == ["one"] and is_settled(fabric, "b", 1))
    fabric.sites["b"]._receiver._save()
    file = here.path / "site" / "progress.json"
    early = file.read_bytes()
    put(there, "wx/x", "two", "three", "four")
    until(lambda: len(texts(here)) == 4)
    fabric.stop("b")
    file.write_bytes(early)  # as if it had died before it saved
    fabric.start("b")
    put(there, "wx/x", "five")
    until(lambda: "five" in texts(here))
    assert texts(here) == ["one", "two", "three", "four", "five"]
