"""Several processes, forks, threads and signals."""

import gc
import os
import signal
import struct
import threading
import time
from collections.abc import Callable

import pytest
from arena import FORK, parse, payload

from headrace import Queue
from headrace.errors import HeadraceError, QueueDamagedError
from support.waiting import is_asleep, until


def run(target: Callable[[], None], seconds: float = 240) -> int | None:
    """Run in a forked process; its exit code, or None if it hung."""
    worker = FORK.Process(target=target)
    worker.start()
    worker.join(seconds)
    if worker.exitcode is None:
        worker.kill()
        worker.join()
        return None
    return worker.exitcode


def test_a_reader_receives_what_another_process_puts(queue: Queue) -> None:
    def put() -> None:
        with Queue.open(queue.path) as other:
            for number in range(100):
                other.put(payload(0, number), feed="a")

    worker = FORK.Process(target=put)
    worker.start()
    numbers: list[int] = []
    for batch in queue.follow("oldest", timeout=60):
        numbers += [parse(bytes(product.payload))[1] for product in batch]
        if len(numbers) == 100:
            break
    worker.join()
    assert numbers == list(range(100))


def test_a_queue_opened_before_a_fork_works_on_both_sides(queue: Queue) -> None:
    queue.put(payload(0, 0), feed="a")

    def child() -> None:
        for number in range(1, 50):
            queue.put(payload(1, number), feed="b")
        assert len(queue.read_batch("oldest", "b")) == 49
        assert queue.statistics().writers == 2
        queue.close()

    worker = FORK.Process(target=child)
    worker.start()
    for number in range(1, 50):
        queue.put(payload(0, number), feed="a")
    worker.join()
    assert worker.exitcode == 0
    assert queue.next == 100
    assert queue.statistics().attached == [os.getpid()]


def test_a_view_taken_before_a_fork_is_valid_in_each_process_until_it_releases_it(
    make_queue: Callable[..., Queue],
) -> None:
    queue = make_queue(size="1MiB")
    queue.put(b"A" * 1000, feed="a")
    view = queue.read_batch()[0].payload
    go, done = os.pipe(), os.pipe()

    def child() -> None:
        os.read(go[0], 1)
        assert bytes(view) == b"A" * 1000
        os.write(done[1], b"x")

    worker = FORK.Process(target=child)
    worker.start()
    path = queue.path
    queue.close()
    assert run(lambda: None) == 0  # another child that inherits the view and drops it
    with Queue.open(path) as writer:
        for number in range(3000):
            writer.put(payload(0, number), feed="a")
        assert writer.oldest > 1
    assert bytes(view) == b"A" * 1000
    os.write(go[1], b"x")
    worker.join(240)
    assert worker.exitcode == 0


def test_a_fork_beside_busy_threads_does_not_hang(queue: Queue) -> None:
    ending = threading.Event()

    def write() -> None:
        number = 0
        while not ending.is_set():
            queue.put(payload(0, number), feed="a")
            number += 1

    def read() -> None:
        while not ending.is_set():
            queue.read_batch("oldest", limit=50)

    threads = [threading.Thread(target=work) for work in (write, read, read)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(25):
            pid = os.fork()
            if pid == 0:
                queue.read_batch("oldest", limit=5)
                os._exit(0)
            until(lambda pid=pid: os.waitpid(pid, os.WNOHANG) != (0, 0), "the child ends")  # type: ignore[misc]
    finally:
        ending.set()
        for thread in threads:
            thread.join()


def test_many_threads_share_one_queue(queue: Queue) -> None:
    def write(writer: int) -> None:
        for number in range(300):
            queue.put(payload(writer, number), feed=f"w/{writer}")

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    seen: list[tuple[int, int]] = []
    for thread in threads:
        thread.start()
    for batch in queue.follow("oldest", timeout=60):
        seen += [parse(bytes(product.payload)) for product in batch]
        if len(seen) == 1200:
            break
    for thread in threads:
        thread.join()
    assert sorted(seen) == [(writer, number) for writer in range(4) for number in range(300)]


def test_an_interrupt_during_the_wait_for_the_lock_leaves_it_free(queue: Queue) -> None:
    """A child is interrupted while another process holds the lock; afterwards the lock is free for all."""
    begin, calling, ready, go, stay = (os.pipe() for _ in range(5))

    def wait_and_be_interrupted() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.write(calling[1], b"x")
        os.read(begin[0], 1)
        try:
            os.write(calling[1], b"x")
            queue.cursor("c")
        except KeyboardInterrupt:
            os.read(stay[0], 1)  # alive, and not holding the lock
            os._exit(7)

    def hold() -> None:
        other = Queue.open(queue.path)
        with other._log.locked():
            os.write(ready[1], b"x")
            os.read(go[0], 1)

    worker, holder = FORK.Process(target=wait_and_be_interrupted), FORK.Process(target=hold)
    worker.start()
    assert worker.pid is not None
    os.read(calling[0], 1)  # before another process takes the lock, because a child takes it when it starts
    holder.start()
    os.read(ready[0], 1)
    os.write(begin[1], b"x")
    os.read(calling[0], 1)
    until(lambda: is_asleep(worker.pid), "the child waits for the lock")
    os.kill(worker.pid, signal.SIGINT)
    os.write(go[1], b"x")
    holder.join(240)
    assert isinstance(queue.put(b"after", feed="a"), int)
    assert worker.is_alive(), "the put waited for the end of the child"
    os.write(stay[1], b"x")
    worker.join(240)
    assert worker.exitcode == 7


def test_a_view_in_a_garbage_cycle_is_collected(queue: Queue) -> None:
    queue.put(b"x", feed="a")

    def cycle() -> None:
        product = queue.read_batch()[0]
        try:
            raise ValueError(product)
        except ValueError as error:
            keep = error
            assert keep

    def work() -> None:
        gc.freeze()  # garbage of other tests, such as sessions of Zenoh, cannot be collected in a forked child
        for _ in range(10):
            cycle()
            gc.collect()

    assert run(work) == 0


_WORDS = [
    "tail",
    "head",
    "oldest",
    "segment_oldest",
    "segment_newest",
    "feeds_end",
    "origins_end",
    "segment_bytes",
    "size_bytes",
]


@pytest.mark.parametrize("bit", [0, 20, 40, 63])
@pytest.mark.parametrize("word", _WORDS)
def test_an_invalid_word_in_the_control_file_is_an_error_and_not_a_crash(
    make_queue: Callable[..., Queue], word: str, bit: int
) -> None:
    """A word is altered while no process is attached; every use then succeeds or raises an error with a hint."""
    queue = make_queue()
    for number in range(500):
        queue.put(payload(0, number), feed=f"f/{number % 3}")
    queue.close()
    (queue.path / "spoilt").touch()
    control = queue.path / "control"
    value = queue._log.kernel.state[word]  # type: ignore[literal-required]
    data = control.read_bytes()[:1024]
    places = [p for p in range(0, 1024, 8) if struct.unpack_from("<Q", data, p)[0] == value]
    assert places
    (queue.path / "spoilt").unlink()

    def use() -> None:
        for act in (open_and_use, lambda: Queue.repair(queue.path), open_and_use):
            try:
                act()
            except HeadraceError as error:
                assert error.hint

    def open_and_use() -> None:
        with Queue.open(queue.path) as again:
            for product in again.read_batch("oldest", limit=100):
                parse(bytes(product.payload))
            again.put(b"more", feed="f/1")
            again.check()
            again.delete("f/1")

    for place in places:
        with control.open("r+b") as handle:
            handle.seek(place)
            handle.write(struct.pack("<Q", value ^ (1 << bit)))
        assert run(use) == 0, f"{word} at {place}"
    (queue.path / "spoilt").touch()


@pytest.mark.parametrize("name", ["cursors", "names", "control"])
def test_a_file_truncated_while_in_use_is_detected(make_queue: Callable[..., Queue], name: str) -> None:
    queue = make_queue()
    queue.put(b"x", feed="a")
    queue.cursor("c")
    (queue.path / "spoilt").touch()

    def use() -> None:
        os.truncate(queue.path / name, 0)
        if name == "cursors":
            acts: list[Callable[[], object]] = [lambda: queue.cursor("c").position]
        else:
            acts = [lambda: queue.put(b"y", feed="a"), lambda: queue.read_batch("oldest", limit=1)]
        for act in acts:
            act_raises(act)
        os._exit(0)

    def act_raises(act: Callable[[], object]) -> None:
        for _ in range(2):  # the first use may be the one that finds the hole
            try:
                act()
            except QueueDamagedError:
                return
            except HeadraceError:
                continue
        raise AssertionError(f"{name} was truncated, and no error was raised")

    assert run(use) == 0


def test_a_put_after_a_damaged_last_row_overwrites_no_product(queue: Queue) -> None:
    for number in range(50):
        queue.put(payload(0, number), feed="a")
    queue.close()
    (segment,) = (queue.path / "segments").glob("*.segment")
    with segment.open("r+b") as handle:
        handle.seek(segment.stat().st_size - 50 * 32 + 8)
        old = handle.read(1)
        handle.seek(-1, os.SEEK_CUR)
        handle.write(bytes([old[0] ^ 0x20]))
    with Queue.open(queue.path) as again:
        for number in range(100, 106):
            again.put(payload(0, number), feed="a")
        intact = [parse(bytes(p.payload))[1] for p in again.read_batch("oldest", limit=49)]
        assert intact == list(range(49))
        assert again.read_batch(51).idents == [""] * 6
    Queue.repair(queue.path)
    with Queue.open(queue.path) as again:
        assert [parse(bytes(p.payload))[1] for p in again.read_batch()] == [*range(50), *range(100, 106)]


def test_the_next_open_finishes_a_killed_repair(queue: Queue) -> None:
    for number in range(300):
        queue.put(payload(0, number), feed="a")
    queue.close()

    def die_in_repair() -> None:
        from headrace.log import recovery

        def die(*_: object) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        recovery._enter = die  # type: ignore[assignment]
        Queue.repair(queue.path)

    assert run(die_in_repair) == -signal.SIGKILL
    with Queue.open(queue.path) as again:
        assert [parse(bytes(p.payload))[1] for p in again.read_batch()] == list(range(300))


def test_a_repair_succeeds_while_other_threads_try_to_open_the_queue(queue: Queue) -> None:
    for number in range(300):
        queue.put(payload(0, number), feed="a")
    queue.close()
    os.truncate(queue.path / "control", 100)
    ending, refused = threading.Event(), threading.Semaphore(0)

    def knock() -> None:
        while not ending.is_set():
            try:
                Queue.open(queue.path).close()
            except HeadraceError:
                refused.release()

    threads = [threading.Thread(target=knock) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert refused.acquire(timeout=240)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            Queue.repair(queue.path)
            break
        except HeadraceError:
            time.sleep(0.001)
    ending.set()
    for thread in threads:
        thread.join()
    with Queue.open(queue.path) as again:
        assert [parse(bytes(p.payload))[1] for p in again.read_batch()] == list(range(300))


def test_a_reader_in_another_process_sees_a_batch_as_a_whole_or_not_at_all(queue: Queue) -> None:
    def write() -> None:
        other = Queue.open(queue.path)
        for batch in range(200):
            other.put_many([payload(0, batch * 7 + i) for i in range(7)], feed="a")

    worker = FORK.Process(target=write)
    worker.start()
    heads = set()
    while worker.is_alive():
        heads.add(queue.next)
    worker.join()
    assert (worker.exitcode, queue.next) == (0, 1401)
    assert {head % 7 for head in heads} == {1}
