"""A child process for C libraries that a hostile payload can crash, hang, or make use all memory.

    executor ── payload ──────────► child: read(payload)
             ◄── rows, or problem ──

The child starts at the first payload and is kept for the next ones. It gets one payload at a time, so that the cause is
known if it dies or does not reply: that product is an error, and a new child continues with the next one. After
`DEATHS_MAX` products of a batch have ended a child, the rest of the batch is an error without an attempt. So a batch
takes bounded time, whatever it contains.

The child may use `MEMORY_BYTES_MAX`, and ends when its standard input does, so at the latest with its parent. Output of
libraries is discarded.

Messages, both ways: u8 kind, u64 length, then as many bytes. To the child: a payload. Back: a record batch of Arrow, or
the text of a problem.
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
BYTES_PER_S_MIN = 5_000_000  # a large payload gets more time
MEMORY_BYTES_MAX = 2 << 30
START_SECONDS_MAX = 60.0

FRAME = struct.Struct("<BQ")
ROWS, PROBLEM = 0, 1

Read = Callable[[memoryview], "pa.RecordBatch | str"]  # rows without `place`, or the problem

_READ_BYTES = 1 << 20


class ChildError(Exception):
    """The child died or did not reply in time."""


def decode_in_child(target: str, schema: pa.Schema, products: pa.RecordBatch) -> Decoded:
    """Read each payload in the child, by the function `target` ("module:function", of type Read)."""
    parts, errors, deaths = list[tuple[int, Decoded]](), Errors(), 0
    with _child(target, os.getpid()).taken() as child:
        for place, payload in payload_buffers(products):
            if deaths >= DEATHS_MAX:
                errors.append((place, f"not tried: {deaths} earlier products of this batch crashed the decoder"))
                continue
            try:
                reply = child.ask(payload, schema)
            except ChildError as error:
                deaths += 1
                reply = str(error)
            if isinstance(reply, str):
                errors.append((place, reply))
            else:
                parts.append((place, Decoded(_placed(reply, schema), [])))
    return Decoded(joined(schema, parts).rows, errors)


def _placed(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    zeros = pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows)
    return pa.RecordBatch.from_arrays([zeros, *rows.columns], schema=with_place(schema))


@lru_cache(16)
def _child(target: str, pid: int) -> "Child":
    """The child of this process for a target. A forked process has children of its own."""
    del pid
    return Child(target)


class Child:
    """A process that reads payloads, started on first use."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] = lambda: None

    @contextmanager
    def taken(self) -> "Iterator[Child]":
        """Reserve the child for one thread."""
        with self._lock:
            yield self

    def ask(self, payload: memoryview, schema: pa.Schema) -> pa.RecordBatch | str:
        """The reply of the child to a payload. ChildError: the child died, or was killed after a timeout."""
        fresh = self._process is None
        process = self._process or self._start()
        seconds = SECONDS_MAX + len(payload) / BYTES_PER_S_MIN + (START_SECONDS_MAX if fresh else 0)
        try:
            return self._converse(process, payload, schema, time.monotonic() + seconds)
        except (BrokenPipeError, EOFError):
            code = process.wait(SECONDS_MAX)
            self.stop()
            raise ChildError(f"the decoding library crashed (exit code {code})") from None
        except TimeoutError:
            self.stop()
            raise ChildError(f"not read within {seconds:.0f} s") from None
        except BaseException:
            self.stop()  # requests and replies would no longer match
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
        replies = process.stdout.fileno()
        kind, length = FRAME.unpack(_read(replies, FRAME.size, deadline))
        reply = _read(replies, length, deadline)
        return pa.ipc.read_record_batch(pa.py_buffer(reply), schema) if kind == ROWS else reply.decode()


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _wait_for(pipe: int, event: int, deadline: float) -> None:
    """TimeoutError if it has not happened by then. Not `select`, which knows no descriptor above 1,023."""
    poll = select.poll()
    poll.register(pipe, event)
    if not poll.poll(max(deadline - time.monotonic(), 0) * 1000):
        raise TimeoutError


def _write(pipe: int, data: "bytes | memoryview", deadline: float) -> None:
    rest = memoryview(data)
    os.set_blocking(pipe, False)
    while rest:
        _wait_for(pipe, select.POLLOUT, deadline)
        rest = rest[os.write(pipe, rest[:_READ_BYTES]) :]


def _read(pipe: int, size: int, deadline: float) -> bytes:
    parts: list[bytes] = []
    while size:
        _wait_for(pipe, select.POLLIN, deadline)
        part = os.read(pipe, min(size, _READ_BYTES))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


# --- in the child -----------------------------------------------------------------------------------


def main(target: str) -> None:
    """python -m headrace.pipeline.decoders.child_process module:function"""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not mix with replies
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    module, name = target.split(":")
    serve(getattr(importlib.import_module(module), name), sys.stdin.buffer, replies)


def serve(read: Read, requests: BinaryIO, replies: BinaryIO) -> None:
    while head := requests.read(FRAME.size):
        _, length = FRAME.unpack(head)
        kind, reply = _reply(read, memoryview(requests.read(length)))
        replies.write(FRAME.pack(kind, len(reply)))
        replies.write(reply)
        replies.flush()


def _reply(read: Read, payload: memoryview) -> "tuple[int, bytes | memoryview]":
    try:
        rows = read(payload)
    except Exception as error:  # noqa: BLE001 - the parent reports every error
        return PROBLEM, reason(error).encode()
    return (PROBLEM, rows.encode()) if isinstance(rows, str) else (ROWS, memoryview(rows.serialize()))


if __name__ == "__main__":
    main(sys.argv[1])
