"""headrace slices: list, status, move, drain, parked, plot and delete, with nodes that run in this process."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Queue
from headrace.cli.slices_status import Look, problems_of, still_s
from headrace.errors import SiteUnreachableError
from headrace.share.interface import Load, Progress, Sample
from headrace.share.share import Share
from headrace.slices import ProcessingNode
from headrace.slices.plot import figure_of
from headrace.units import format_time
from support.commandline import Run, fill, objects
from support.waiting import until

Start = Callable[..., ProcessingNode]
WORK = """
def work(product):
    return product.ident

async def awaited(product):
    return product.ident

def fail(product):
    raise ValueError("again")

number = 3
"""


@pytest.fixture
def stream(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A queue with a stream of eight slices, and a module of functions in the directory of the command."""
    with Queue.open(path) as queue:
        queue.channel("surface", "wx/**", slices=8)
    (tmp_path / "slices_cli_work.py").write_text(WORK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return path


@pytest.fixture
def start(stream: Path) -> Iterator[Start]:
    """Starts nodes, which stop after the test."""
    with ExitStack() as nodes:

        def start(name: str, work: Any = lambda product: None, **options: Any) -> ProcessingNode:
            node = ProcessingNode(stream, "surface", work, name=name, retry="10ms", **options)
            return nodes.enter_context(node)

        yield start


def shared(start: Start) -> tuple[ProcessingNode, ProcessingNode]:
    """Two nodes, each with some of the slices."""
    one, two = start("one"), start("two")
    until(lambda: one.statistics().slices + two.statistics().slices == 8 and two.statistics().slices > 0)
    return one, two


def status(run: Run, path: Path) -> dict[str, Any]:
    (told,) = objects(run("slices", "status", path, "--json").stdout)
    return told


def test_a_group_is_listed_and_shown(run: Run, stream: Path, start: Start) -> None:
    assert "has no groups of nodes" in run("slices", "list", stream).stdout
    node = start("one")
    fill(stream, 20, "wx/a")
    until(lambda: node.statistics().products == 20)
    until(lambda: status(run, stream)["products"] == 20)
    (listed,) = objects(run("slices", "list", stream, "--json").stdout)
    assert (listed["stream"], listed["group"], listed["nodes"], listed["slices"]) == ("surface", "main", 1, 8)
    assert "surface" in run("slices", "list", stream).stdout
    told = status(run, stream)
    assert [(each["name"], each["owned"], each["is_alive"]) for each in told["nodes"]] == [("one", "0-7", True)]
    assert (told["unowned"], told["parked"], told["problems"]) == ("", 0, [])
    assert [(each["giver"], each["taker"], each["reason"]) for each in told["sessions"]] == [("", "one", "join")]
    shown = run("slices", "status", stream).stdout
    assert "group main of stream surface: 8 slices, 1 node, balancer one." in shown
    assert "counters: confirmed 20, sessions 1, " in shown
    followed = run("slices", "status", stream, "--follow", "--every", "10ms", "--count", 3, "--json")
    assert len(objects(followed.stdout)) == 3


def test_a_group_without_nodes_says_so(run: Run, stream: Path, start: Start) -> None:
    start("one").stop()
    assert "problem: no node is alive" in run("slices", "status", stream).stdout


def test_slices_are_moved_by_hand(run: Run, stream: Path, start: Start) -> None:
    start("one", balance=False)
    start("two", balance=False)
    until(lambda: len(status(run, stream)["nodes"]) == 2)
    assert run("slices", "move", stream, "one", "--slices", "0-7").exit_code == 0
    moved = run("slices", "move", stream, "two", "--slices", "0-2,5", "--json")
    (told,) = objects(moved.stdout)
    assert (moved.exit_code, told["moved"], told["left"]) == (0, 4, [])
    assert "one has 1 slice more" in run("slices", "move", stream, "one", "--from", "two", "--count", 1).stdout
    now = status(run, stream)
    assert {each["name"]: each["owned"] for each in now["nodes"]} == {"one": "0,3-4,6-7", "two": "1-2,5"}
    assert [each["reason"] for each in now["sessions"]] == ["hand"] * 3
    assert now["problems"][0]["problem"] == "there is no balancer: no slice changes its owner"


def test_a_slice_whose_product_takes_long_has_not_moved_before_the_timeout(
    run: Run, stream: Path, start: Start
) -> None:
    import threading

    begun, go_on = threading.Event(), threading.Event()
    start("one", lambda product: (begun.set(), go_on.wait(60)))
    fill(stream, 1, "wx/a")
    begun.wait(60)
    start("two", balance=False)
    until(lambda: len(status(run, stream)["nodes"]) == 2)
    result = run("slices", "move", stream, "two", "--slices", "0-7", "--timeout", "100ms", "--json")
    go_on.set()
    (told,) = objects(result.stdout)
    assert result.exit_code == 1
    assert len(told["left"]) == 1


def test_a_move_counts_what_moved_and_says_what_it_waits_for(run: Run, stream: Path) -> None:
    with Queue.open(stream) as queue:
        share = queue.share("surface", dead_after="1min")
        one, two, three = (share.join(name).number for name in ("one", "two", "three"))
        share.give(0, one, np.arange(7, dtype=np.uint32), "hand")
        share.give(0, two, np.array([7], np.uint32), "hand")
        share.begin(0, one, three, np.arange(2, dtype=np.uint32), "load")
        (told,) = objects(run("slices", "move", stream, "two", "--slices", "7", "--json").stdout)
        assert (told["moved"], told["left"]) == (0, [])
        result = run("slices", "move", stream, "two", "--slices", "5-7", "--timeout", "50ms")
        assert (result.exit_code, result.stdout.startswith("two has 0 slices more")) == (1, True)
        assert "2 slices did not move within 50 ms: node one is in session 3 with three, which has 2 slices left" in (
            result.stderr
        )


def test_a_drain_that_takes_long_says_what_to_do(run: Run, stream: Path) -> None:
    with Queue.open(stream) as queue:
        share = queue.share("surface", dead_after="1min")
        one, _ = share.join("one").number, share.join("two")
        share.give(0, one, np.arange(8, dtype=np.uint32), "hand")
        result = run("slices", "drain", stream, "one", "--timeout", "50ms")
    assert (result.exit_code, result.stdout) == (1, "one still has 8 slices\n")
    assert "  try: wait: it goes on" in result.stderr


def test_a_follower_goes_on_when_the_site_does_not_reply(
    run: Run, stream: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Queue.open(stream) as queue:
        queue.share("surface")
    replies, state = iter([True, False, True]), Share.state

    def look(share: Share) -> Any:
        if not next(replies):
            raise SiteUnreachableError("site 'denver' does not reply", "start it")
        return state(share)

    monkeypatch.setattr(Share, "state", look)
    result = run("slices", "status", stream, "--follow", "--every", "10ms", "--count", 3, "--json")
    assert (result.exit_code, len(objects(result.stdout))) == (0, 2)
    assert "site 'denver' does not reply" in result.stderr


def test_a_node_that_does_nothing_although_products_wait_is_a_problem(stream: Path) -> None:
    def sample(second: int, busy: float, waiting: int) -> Sample:
        return Sample(second * 10**9, "one", 0.0, busy, waiting, 8)

    assert still_s([]) == still_s([sample(1, 0.0, 0)]) == still_s([sample(1, 0.0, 5), sample(20, 0.5, 5)]) == 0
    assert still_s([sample(1, 0.5, 5), sample(2, 0.0, 5), sample(14, 0.0, 7)]) == 12
    with Queue.open(stream) as queue:
        share = queue.share("surface", dead_after="1min")
        share.join("one").exchange(Progress(load=Load(waiting=7)))
        look = Look(0.0, share.terms, share.state(), [], {"one": 12.3})
        told = [problem for problem, _ in problems_of(look)]
        assert "node one has done nothing for 12.3 s, and has 7 products to do" in told
        share.drain(share.state().nodes[0].seat)
        share.lead("b", 60.0)
        leaving = dict(problems_of(Look(0.0, share.terms, share.state(), [], {})))
        assert "start a node" in leaving["all nodes are leaving: nobody takes their slices"]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("move", "@", "one", "--from", "one"), 2, "node 'one' cannot give slices to itself"),
        (("status", "@", "--count", "3"), 2, "--count has no effect without --follow"),
        (("status", "@", "--stream", "surface", "--group", "zz"), 3, "choose one that exists: main"),
        (("move", "@", "two"), 2, "either --slices or --from is required"),
        (("move", "@", "two", "--slices", "1", "--count", "1"), 2, "--count has no effect with --slices"),
        (("move", "@", "nobody", "--slices", "1"), 3, "has no node 'nobody'"),
        (("move", "@", "one", "--slices", "8"), 2, "slice 8 is out of range"),
        (("drain", "@", "one"), 3, "no other node of group 'main' of 'surface' could take the slices"),
        (("delete", "@", "--yes"), 3, "group 'main' has nodes: one"),
        (("status", "@", "--stream", "nope"), 3, "has no channel 'nope'"),
        (("status", "@", "--group", "nope"), 3, "choose one that exists: main of surface"),
        (("plot", "@", "load.txt"), 2, "load.txt has no format that can be drawn"),
        (("parked", "@", "--sequence", "7"), 3, "product 7 is not parked"),
        (("parked", "@", "--retry", "a:b", "--forget"), 2, "--retry contradicts --forget"),
        (("parked", "@", "--publish", "a"), 2, "--publish has no effect without --retry"),
    ],
)
def test_an_error_names_the_thing_and_the_remedy(
    run: Run, stream: Path, start: Start, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int, text: str
) -> None:
    monkeypatch.setenv("HEADRACE_QUEUE", str(stream))
    node = start("one")
    until(lambda: node.statistics().slices == 8)
    result = run("slices", *words)
    assert (result.exit_code, text in result.stderr) == (code, True), result.stderr
    assert "\n  try: " in result.stderr


def test_slices_are_not_moved_to_a_node_that_leaves(run: Run, stream: Path) -> None:
    with Queue.open(stream) as queue:
        share = queue.share("surface")
        share.drain(share.join("one").number)
        result = run("slices", "move", stream, "one", "--slices", "0")
    assert (result.exit_code, "node 'one' is draining" in result.stderr) == (3, True)


def test_of_several_groups_one_must_be_chosen(run: Run, stream: Path) -> None:
    with Queue.open(stream) as queue:
        queue.share("surface")
        queue.share("surface", "trial")
    result = run("slices", "status", stream)
    assert result.exit_code == 2
    assert "choose one: --stream surface --group main, --stream surface --group trial" in result.stderr
    assert "group trial of stream surface" in run("slices", "status", stream, "--group", "trial").stdout


def test_a_channel_without_slices_is_named(run: Run, path: Path) -> None:
    run("channel", "create", path, "plain", "a/**")
    result = run("slices", "status", path, "--stream", "plain")
    assert (result.exit_code, "channel 'plain' has no slices" in result.stderr) == (3, True)


def test_a_drained_node_gives_its_slices_away_and_ends(run: Run, stream: Path, start: Start) -> None:
    _, two = shared(start)
    result = run("slices", "drain", stream, "two")
    assert (result.exit_code, result.stdout) == (0, "two has left\n")
    assert two.wait(60)
    assert [(each["name"], each["slices"]) for each in status(run, stream)["nodes"]] == [("one", 8)]


def test_a_group_is_deleted_after_a_question(run: Run, stream: Path) -> None:
    with Queue.open(stream) as queue:
        queue.share("surface")
    assert run("slices", "delete", stream, stdin="n\n").exit_code == 1
    assert objects(run("slices", "delete", stream, "--yes", "--json").stdout) == [
        {"stream": "surface", "group": "main", "deleted": True}
    ]
    assert run("slices", "status", stream).exit_code == 3


def parked_of(run: Run, stream: Path, start: Start, count: int = 3) -> list[dict[str, Any]]:
    def fail(product: Any) -> None:
        raise ValueError("bad weather")

    node = start("one", fail, tries_max=1)
    fill(stream, count, "wx/a")
    until(lambda: node.statistics().parked == count)
    node.stop()
    return objects(run("slices", "parked", stream, "--json").stdout)


def test_parked_products_are_listed_tried_again_and_forgotten(run: Run, stream: Path, start: Start) -> None:
    assert [(each["sequence"], each["error"], each["ident"]) for each in parked_of(run, stream, start)] == [
        (number, "ValueError: bad weather", f"ident {number}") for number in (1, 2, 3)
    ]
    assert "wx/a ident 2" in run("slices", "parked", stream).stdout
    assert run("slices", "parked", stream, "--sequence", 1, "--forget").stdout == "forgot 1 product\n"
    failed = run("slices", "parked", stream, "--retry", "slices_cli_work:fail")
    assert (failed.exit_code, "product 2: ValueError: again" in failed.stderr) == (1, True)
    assert "2 products tried: 0 done, 2 still parked" in failed.stdout
    shown = run("slices", "parked", stream, "--retry", "slices_cli_work:work", "--sequence", 2)
    assert (shown.exit_code, shown.stdout.splitlines()[0]) == (0, "product 2 done: 'ident 2'")
    put = run("slices", "parked", stream, "--retry", "slices_cli_work:awaited", "--publish", "out", "--json")
    assert objects(put.stdout) == [{"sequence": 3, "done": True, "result": "'ident 3'"}]
    assert "has no parked products" in run("slices", "parked", stream).stdout
    with Queue.open(stream) as queue:
        assert [bytes(product.payload) for product in queue.read("oldest", "out")] == [b"ident 3"]


def test_a_parked_product_that_was_evicted_stays_on_the_list(run: Run, stream: Path, start: Start) -> None:
    parked_of(run, stream, start, 1)
    with Queue.open(stream) as queue:
        for number in range(6):
            queue.put(b"x" * (900 << 10), feed="other", ident=str(number))
    result = run("slices", "parked", stream, "--retry", "slices_cli_work:work")
    assert (result.exit_code, "it is no longer in the queue" in result.stderr) == (1, True)
    assert "no longer in the queue" in run("slices", "parked", stream).stdout


def test_a_picture_tells_when_it_began_and_shows_each_line_as_its_legend(stream: Path) -> None:
    with Queue.open(stream) as queue:
        share = queue.share("surface", dead_after="1min")
        one, two = share.join("one").number, share.join("two").number
        share.give(0, one, np.arange(8, dtype=np.uint32), "join")
        share.begin(0, one, two, np.arange(4, dtype=np.uint32), "join")
        state = share.state()
    begun_ns = state.sessions[0].begun_ns
    samples = [Sample(begun_ns + second * 10**9, "one", 0.1, 0.1, 0, 8) for second in (-1, 1)]
    axes = figure_of(samples, state).axes[-1]
    assert axes.get_xlabel() == f"seconds since {format_time(samples[0].time_ns)}"
    legend = axes.get_legend()
    shown = {
        text.get_text(): line.get_linestyle() for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)
    }
    assert shown == {"join": "-", "join, no owner before": ":"}


def test_the_history_is_drawn(run: Run, stream: Path, start: Start, tmp_path: Path) -> None:
    with Queue.open(stream) as queue:
        queue.share("surface")
    assert "has no history" in run("slices", "plot", stream, tmp_path / "a.png").stderr
    shared(start)
    result = run("slices", "plot", stream, tmp_path / "a.png", "--json")
    (told,) = objects(result.stdout)
    assert (told["nodes"], told["samples"] > 0) == (["one", "two"], True)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
