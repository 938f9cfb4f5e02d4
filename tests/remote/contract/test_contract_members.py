"""Suppliers and consumers as members: a queue here and a queue at a site tell the same."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from headrace.errors import HeadraceError, MemberAbsentError, OptionError, QueueClosedError
from headrace.queue import AnyQueue, MemberStream
from support.serving import Served
from support.waiting import until

LIMIT_S = 240

HOLDS_BOTH = """
import sys, headrace
queue = headrace.connect(sys.argv[1])
consumer, supplier = queue.station("decode").attach(keep="1s"), queue.channel("radar").supplier(keep="1s")
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def programs(queue: AnyQueue) -> MemberStream:
    """The events of suppliers and consumers; there is none yet."""
    queue.channel("radar", "wx/radar/**")
    queue.station("decode", "wx/**")
    return queue.members(timeout=LIMIT_S)


def program_events(stream: MemberStream, count: int) -> list[str]:
    """The next events of suppliers and consumers; those of one look in the order of the names."""
    events = []
    while len(events) < count:
        event = next(stream)
        if event.role in ("supplier", "consumer"):
            events.append(str(event))
    return sorted(events)


def test_programs_join_and_leave(queue: AnyQueue, programs: MemberStream) -> None:
    with queue.channel("radar").supplier(), queue.station("decode").attach():
        assert program_events(programs, 2) == ["consumer:decode joined (present)", "supplier:radar joined (present)"]
        second = queue.channel("radar").supplier()
        assert program_events(programs, 1) == ["supplier:radar joined (new)"]
        suppliers = [member for member in programs.here if member.role == "supplier"]
        assert [(member.name, member.feeds) for member in suppliers] == [("radar", ("wx/radar/**",))] * 2
        second.close()
        assert program_events(programs, 1) == ["supplier:radar left (stopped)"]
    assert program_events(programs, 2) == ["consumer:decode left (stopped)", "supplier:radar left (stopped)"]


def test_a_program_that_is_killed_is_lost(queue: AnyQueue, served: Served, programs: MemberStream) -> None:
    is_local = queue is served.queue
    where = str(served.queue.path) if is_local else f"{served.endpoint}?site={served.name}"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS_BOTH, where], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        assert program_events(programs, 2) == ["consumer:decode joined (present)", "supplier:radar joined (present)"]
        pids = {member.pid for member in programs.here if member.role != "client" and member.role != "site"}
        assert pids == ({child.pid} if is_local else {0})
        child.kill()
    assert program_events(programs, 2) == ["consumer:decode left (lost)", "supplier:radar left (lost)"]


def test_a_place_that_is_taken_again_at_once_does_not_hide_how_its_owner_left(
    queue: AnyQueue, programs: MemberStream
) -> None:
    first, attached = queue.channel("radar").supplier(), queue.station("decode").attach()
    program_events(programs, 2)
    first.close()
    attached.detach()
    with queue.channel("radar").supplier(), queue.station("decode").attach():
        events = program_events(programs, 4)
    assert [event for event in events if "left" in event] == [
        "consumer:decode left (stopped)",
        "supplier:radar left (stopped)",
    ]


def test_a_program_waits_for_a_supplier(queue: AnyQueue) -> None:
    channel = queue.channel("radar", "wx/radar/**")
    with ExitStack() as held:
        later = threading.Timer(0.3, lambda: held.enter_context(channel.supplier()))
        later.start()
        found = queue.wait_for("supplier:radar", LIMIT_S)
        later.join()
        assert (found.role, found.name, found.feeds) == ("supplier", "radar", ("wx/radar/**",))
        assert queue.wait_for("supplier:*", LIMIT_S) == found
        with pytest.raises(TimeoutError, match=r"there is no consumer, and none joined within 100 ms; start it"):
            queue.wait_for("consumer:*", 0.1)


def test_a_task_waits_for_a_supplier(queue: AnyQueue) -> None:
    channel = queue.channel("radar", "wx/radar/**")

    async def run() -> list[str]:
        with pytest.raises(MemberAbsentError):
            await queue.wait_for_async("supplier:radar", 0)
        waiting = asyncio.create_task(queue.wait_for_async("supplier:radar", LIMIT_S))
        await asyncio.sleep(0)
        with channel.supplier():
            found = [str(await waiting)]
            async for event in queue.members("supplier"):
                found.append(str(event))
                break
            return found

    assert asyncio.run(run()) == ["supplier:radar", "supplier:radar joined (present)"]


def test_a_cancelled_task_leaves_no_thread_behind(queue: AnyQueue) -> None:
    async def run() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.wait_for_async("supplier:none"), 0.2)

    def waiting() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "headrace-members-look"]

    asyncio.run(run())
    until(lambda: not waiting(), waiting)


def test_tasks_that_wait_for_members_of_a_site_have_no_threads(served: Served) -> None:
    queue = served.connect()

    async def run() -> None:
        waiting = [asyncio.create_task(queue.wait_for_async("supplier:radar", LIMIT_S)) for _ in range(20)]
        await asyncio.sleep(0)
        await asyncio.to_thread(until, lambda: served.site.statistics().remote.watching == 20)  # type: ignore[union-attr]
        before = threading.active_count()
        with served.queue.channel("radar", "wx/radar/**").supplier():
            await asyncio.gather(*waiting)
        assert before < 20 + idle  # the event loop has one for `until`

    idle = threading.active_count()
    asyncio.run(run())


def test_a_stream_is_ended_from_another_thread_and_by_its_timeout(queue: AnyQueue) -> None:
    stream = queue.members("consumer")
    threading.Timer(0.2, stream.stop).start()
    assert list(stream) == []
    assert list(queue.members("consumer", timeout=0.1)) == []
    assert list(queue.members("consumer", timeout=0)) == []


@pytest.mark.parametrize("act", [lambda queue: queue.members("host"), lambda queue: queue.wait_for("host:x")])
def test_an_unknown_role_is_refused(queue: AnyQueue, act: Callable[[AnyQueue], object]) -> None:
    with pytest.raises(OptionError):
        act(queue)


def test_a_queue_without_a_site_says_who_knows_sites(served: Served) -> None:
    for act in (lambda: served.queue.wait_for("site:denver"), lambda: served.queue.members("client")):
        with pytest.raises(OptionError, match="connect to its site"):
            act()


def test_a_closed_queue_has_no_members(served: Served) -> None:
    user = served.connect()
    stream = user.members()
    user.close()
    with pytest.raises(QueueClosedError):
        next(stream)
    with pytest.raises(HeadraceError):
        user.wait_for("site:x", 1)
