"""Keeper: the thread that keeps the clock of one queue, in its site or by `headrace clock --keep`.

One keeper at a time: it holds a lock, and another one waits until that is free. If it dies, nothing else changes: the
words in the control file go on, and their bound grows until the next keeper continues from them.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.files import make_folder
from headrace.guard import GuardedThread
from headrace.log.locks import FileLockedError, locked
from headrace.timing.clock.association import BURST_S
from headrace.timing.clock.machine import Machine, RealMachine
from headrace.timing.clock.state import FILE, SAVE_S, ClockState, read_state, remove_state, save_state
from headrace.timing.clock.steering import SharedClock, Steering
from headrace.timing.clock.terms import ClockTerms

_RETRY_S = 1.0
_ANOTHER = "another process keeps the clock"

OnChange = Callable[["Keeper", ClockState | None], None]

log = logging.getLogger("headrace.clock")


class Keeper:
    """Keeps the clock from its construction until `close`."""

    def __init__(
        self, queue: Path, clock: SharedClock, terms: ClockTerms, machine: Machine | None = None,
        burst_s: float = BURST_S, on_change: OnChange | None = None,
    ) -> None:  # fmt: skip
        """`on_change` is called by the thread of the keeper: when it begins to keep the clock (`is_keeping`), when it
        has looked at its source for the first time (with the state), and when it cannot keep it (`failure`).
        """
        self._tell: OnChange = on_change or (lambda keeper, state: None)
        self._queue, self._clock, self._terms, self._burst_s = queue, clock, terms, burst_s
        self._machine: Machine = machine or RealMachine()
        self._steering: Steering | None = None
        self._state: ClockState | None = None
        self._stopped = threading.Event()
        self.failure = ""  # why the clock cannot be kept now
        self.is_keeping = False
        self._thread = GuardedThread(self._run, "headrace-clock", until=self._stopped.is_set, daemon=True)
        self._thread.start()

    @property
    def state(self) -> ClockState | None:
        """The last one; that of another process while it keeps the clock. None at first."""
        return self._state

    def close(self) -> None:
        self._stopped.set()
        if self._steering is not None:
            self._steering.wake()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._keep()
            except FileLockedError as error:
                self._fail(f"process {error.holder} keeps the clock" if error.holder else _ANOTHER)
                with suppress(HeadraceError, OSError):
                    self._state = read_state(self._queue)
            except Exception as error:  # noqa: BLE001 whatever it is, the next attempt may succeed
                if str(error) != self.failure:
                    log.error("the clock of %s is not kept: %s", self._queue, error)
                self._fail(str(error))
            self._stopped.wait(_RETRY_S)

    def _fail(self, why: str) -> None:
        was, self.failure, self.is_keeping = self.failure, why, False
        if why != was:
            self._tell(self, None)

    def _keep(self) -> None:
        make_folder((self._queue / FILE).parent)
        with ExitStack() as parts:
            parts.enter_context(locked(self._queue / FILE.with_suffix(".lock"), wait=False))
            self.failure, self.is_keeping = "", True
            self._tell(self, None)
            steering = self._steering = Steering(self._clock, self._terms, self._machine, self._burst_s)
            parts.callback(steering.close)
            parts.callback(remove_state, self._queue)
            saved_s, saved = 0.0, None
            while not self._stopped.is_set():
                steering.act()
                self._state = state = steering.state()
                verdicts = (state.situation, state.source, state.steps, [each.verdict for each in state.servers])
                if saved is None:
                    self._tell(self, state)
                if verdicts != saved or time.monotonic() - saved_s >= SAVE_S:
                    save_state(self._queue, state)
                    saved, saved_s = verdicts, time.monotonic()
                steering.wait()
