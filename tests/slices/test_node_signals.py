"""Signals that reach the main thread while it waits for a node."""

import signal
import threading
from pathlib import Path

from headrace import Queue
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
