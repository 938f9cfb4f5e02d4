"""The child of `apart`: reads payloads from standard input, answers on standard output, ends when its input does.

python -m headrace.pipeline.decoders.child module:function
"""

import importlib
import os
import resource
import sys
from typing import BinaryIO

from headrace.pipeline.decoders.apart import FRAME, MEMORY_BYTES_MAX, PROBLEM, ROWS, Read
from headrace.pipeline.decoders.decoder import reason


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
