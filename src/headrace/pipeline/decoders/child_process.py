"""A process apart, for libraries in C that a hostile payload can crash, hang, or let eat all memory.

    executor ── payload ──► child: read(payload)
             ◄── rows, or why not ──

A child is started at the first payload and kept for the next ones. It gets one payload at a time, so that it is known
whose fault it was if it dies or does not answer: that product is an error, and a new child goes on with the next. A
batch of which `DEATHS_MAX` products have ended a child is given up on: what remains of it is an error without a try. So
a batch takes a bounded time, whatever is in it.

The child may use `MEMORY_BYTES_MAX` and ends when its parent does. What libraries print there is thrown away.

Wire, both ways: u8 what, u64 length, then as many bytes. To the child: a payload. Back: a record batch of Arrow, or
text that says what is wrong.
"""

import importlib
import os
import resource
import select
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import BinaryIO

import pyarrow as pa

from headrace.pipeline.decoders.decoder import Decoded, Errors, joined, payload_buffers, reason, with_place

DEATHS_MAX = 10
SECONDS_MAX = 10.0
BYTES_PER_S_MIN = 5_000_000  # a large payload gets time in proportion
MEMORY_BYTES_MAX = 2 << 30
START_SECONDS_MAX = 60.0

FRAME = struct.Struct("<BQ")
ROWS, PROBLEM = 0, 1

Read = Callable[[memoryview], "pa.RecordBatch | str"]  # rows without `place`, or why there are none

_READ_BYTES = 1 << 20


class ChildError(Exception):
    """The child died or did not answer in time."""


def decode_apart(target: str, schema: pa.Schema, products: pa.RecordBatch) -> Decoded:
    """Let the function `target` ("module:function", of type Read) read each payload in the child."""
    parts, errors, deaths = list[tuple[int, Decoded]](), Errors(), 0
    with _child(target, os.getpid()).taken() as child:
        for place, payload in payload_buffers(products):
            if deaths >= DEATHS_MAX:
                errors.append((place, f"not tried: {deaths} products before it in this batch broke its decoder"))
                continue
            try:
                answer = child.ask(payload, schema)
            except ChildError as error:
                deaths += 1
                answer = str(error)
            if isinstance(answer, str):
                errors.append((place, answer))
            else:
                parts.append((place, Decoded(_placed(answer, schema), [])))
    return Decoded(joined(schema, parts).rows, errors)


def _placed(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    zeros = pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows)
    return pa.RecordBatch.from_arrays([zeros, *rows.columns], schema=with_place(schema))


@lru_cache(16)
def _child(target: str, pid: int) -> "Child":
    """The child of this process for a target; a process that was forked has children of its own."""
    del pid
    return Child(target)


class Child:
    """A process that reads payloads; started when it is needed."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] = lambda: None

    @contextmanager
    def taken(self) -> "Iterator[Child]":
        """For one thread at a time."""
        with self._lock:
            yield self

    def ask(self, payload: memoryview, schema: pa.Schema) -> pa.RecordBatch | str:
        """What the child makes of a payload; ChildError if it ends or is ended over it."""
        fresh = self._process is None
        process = self._process or self._start()
        seconds = SECONDS_MAX + len(payload) / BYTES_PER_S_MIN + (START_SECONDS_MAX if fresh else 0)
        try:
            return self._converse(process, payload, schema, time.monotonic() + seconds)
        except (BrokenPipeError, EOFError):
            code = process.wait(SECONDS_MAX)
            self.stop()
            raise ChildError(f"the library that reads it crashed (exit code {code})") from None
        except TimeoutError:
            self.stop()
            raise ChildError(f"not read within {seconds:.0f} s") from None
        except BaseException:
            self.stop()  # whatever it was, question and answer would no longer belong together
            raise

    def stop(self) -> None:
        self._end()
        self._process = None

    def _start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "headrace.pipeline.decoders.child_process", self._target]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
        self._process = process
        self._end = weakref.finalize(self, _end, process)
        return process

    def _converse(
        self, process: "subprocess.Popen[bytes]", payload: memoryview, schema: pa.Schema, deadline: float
    ) -> pa.RecordBatch | str:
        if process.stdin is None or process.stdout is None:
            raise EOFError
        _write(process.stdin.fileno(), FRAME.pack(ROWS, len(payload)), deadline)
        _write(process.stdin.fileno(), payload, deadline)
        answers = process.stdout.fileno()
        what, length = FRAME.unpack(_read(answers, FRAME.size, deadline))
        answer = _read(answers, length, deadline)
        return pa.ipc.read_record_batch(pa.py_buffer(answer), schema) if what == ROWS else answer.decode()


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _write(pipe: int, data: "bytes | memoryview", deadline: float) -> None:
    rest = memoryview(data)
    os.set_blocking(pipe, False)
    while rest:
        _, ready, _ = select.select([], [pipe], [], max(deadline - time.monotonic(), 0))
        if not ready:
            raise TimeoutError
        rest = rest[os.write(pipe, rest[:_READ_BYTES]) :]


def _read(pipe: int, size: int, deadline: float) -> bytes:
    parts: list[bytes] = []
    while size:
        ready, _, _ = select.select([pipe], [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            raise TimeoutError
        part = os.read(pipe, min(size, _READ_BYTES))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


# --- in the child -----------------------------------------------------------------------------------


def main(target: str) -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries that print must not get in between
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    module, name = target.split(":")
    serve(getattr(importlib.import_module(module), name), sys.stdin.buffer, answers)


def serve(read: Read, questions: BinaryIO, answers: BinaryIO) -> None:
    while head := questions.read(FRAME.size):
        _, length = FRAME.unpack(head)
        what, answer = _answer(read, memoryview(questions.read(length)))
        answers.write(FRAME.pack(what, len(answer)))
        answers.write(answer)
        answers.flush()


def _answer(read: Read, payload: memoryview) -> "tuple[int, bytes | memoryview]":
    try:
        rows = read(payload)
    except Exception as error:  # noqa: BLE001 - the parent is told whatever it was
        return PROBLEM, reason(error).encode()
    return (PROBLEM, rows.encode()) if isinstance(rows, str) else (ROWS, memoryview(rows.serialize()))


if __name__ == "__main__":
    main(sys.argv[1])
