"""Signals that reach the main thread while it waits for a node."""

import signal
import threading
from pathlib import Path

import pytest

from headrace import Queue
from headrace.share.interface import NOBODY
from headrace.slices import ProcessingNode
from support.commandline import interruptible
from support.waiting import until


def test_a_node_that_is_interrupted_while_it_is_waited_for_leaves_before_stop_returns(tmp_path: Path) -> None:
    with Queue.create(tmp_path / "q", size="4MiB") as queue:
        queue.channel("s", "a/**", slices=4)
        node = ProcessingNode(queue, "s", lambda product: None, name="one")
        main = threading.main_thread().ident
        assert main is not None
        with interruptible():
            try:
                with node:
                    until(lambda: node.statistics().slices == 4)
                    threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT)).start()
                    node.wait()
            except KeyboardInterrupt:
                pass
        assert queue.share("s").state().nodes == []
        assert queue.check() == []


def test_the_last_node_takes_no_slices_again_while_it_leaves(tmp_path: Path) -> None:
    """Its own balancer must not give them back, not even while a product is in work."""
    with Queue.create(tmp_path / "q", size="4MiB") as queue:
        queue.channel("s", "a/**", slices=4)
        begun, go_on = threading.Event(), threading.Event()
        node = ProcessingNode(queue, "s", lambda product: (begun.set(), go_on.wait(60)), name="one").start()
        queue.put(b"x", feed="a", ident="1")
        assert begun.wait(60)
        share = queue.share("s")
        stopping = threading.Thread(target=node.stop)
        stopping.start()
        until(lambda: int((share.state().owners == NOBODY).sum()) == 3)
        before = share.state()
        go_on.set()
        stopping.join(60)
        after = share.state()
        assert (after.nodes, int(after.products.sum()), len(after.sessions)) == ([], 1, len(before.sessions))
        assert len(before.sessions) == 1
        assert queue.check() == []


def test_sigterm_ends_a_node_that_runs_in_order(tmp_path: Path) -> None:
    with Queue.create(tmp_path / "q", size="4MiB") as queue:
        queue.channel("s", "a/**", slices=4)
        node = ProcessingNode(queue, "s", lambda product: None, name="one")
        main = threading.main_thread().ident
        assert main is not None

        def terminate() -> None:
            until(lambda: signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL and node.statistics().slices == 4)
            signal.pthread_kill(main, signal.SIGTERM)

        before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            threading.Thread(target=terminate).start()
            with pytest.raises(SystemExit) as ended:
                node.run()
        finally:
            signal.signal(signal.SIGTERM, before)
        assert ended.value.code == 143
        assert queue.share("s").state().nodes == []
