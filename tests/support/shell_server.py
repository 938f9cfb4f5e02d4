"""The servers of `support.shell`: `forking` runs each command in a fork, `sequential` one after the other in itself."""

import json
import os
import runpy
import select
import signal
import socket
import sys
import traceback
from typing import Any


def main(kind: str, path: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if kind == "forking":
        import_much()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{path}.new")
        listener.listen(64)
        os.rename(f"{path}.new", path)
        while True:
            connection, _ = listener.accept()
            with connection:
                (serve_in_fork if kind == "forking" else serve_here)(connection)


def import_much() -> None:
    import headrace.cli.main
    import headrace.queue
    import headrace.remote
    import headrace.samples
    import headrace.selection
    import headrace.station

    for name in headrace.cli.main.headrace.list_commands(None):  # type: ignore[arg-type]
        headrace.cli.main.headrace.get_command(None, name)  # type: ignore[arg-type]


def received(connection: socket.socket) -> tuple[list[int], list[str], str, dict[str, str]]:
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile() as lines:
        words, folder, environment = json.loads(lines.readline())
    return descriptors, words, folder, environment


def serve_in_fork(connection: socket.socket) -> None:
    """Fork twice: a process for the command, and one that waits for it and kills it if its script was killed."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            break
    if os.fork():
        return
    descriptors, words, folder, environment = received(connection)
    pid = os.fork()
    if pid == 0:
        connection.close()
        os._exit(run(descriptors, words, folder, environment))
    for descriptor in descriptors:
        os.close(descriptor)
    connection.sendall(b"%d\n" % pid)
    process = os.pidfd_open(pid)
    ready, _, _ = select.select([process, connection], [], [])
    if process not in ready:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        connection.sendall(b"%d\n" % code)
    finally:
        os._exit(0)


def serve_here(connection: socket.socket) -> None:
    descriptors, words, folder, environment = received(connection)
    connection.sendall(b"%d\n" % os.getpid())
    before = [os.dup(number) for number in range(3)]
    code = run(descriptors, words, folder, environment)
    for number, descriptor in enumerate(before):
        os.dup2(descriptor, number)
        os.close(descriptor)
    connection.sendall(b"%d\n" % code)


def run(descriptors: list[int], words: list[str], folder: str, environment: dict[str, str]) -> int:
    """The exit code of a command in this process, with its descriptors, folder and environment."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)
    try:
        perform(words)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - whatever ends a program ends it alone
        traceback.print_exc()
        code = 1
    else:
        code = 0
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def perform(words: list[str]) -> None:
    if words[0] == "headrace":
        from headrace.cli.main import main as headrace

        sys.argv = words
        headrace()
    elif words[1] == "-m":
        sys.argv = words[2:]
        runpy.run_module(words[2], run_name="__main__", alter_sys=True)
    elif words[1] == "-c":
        sys.argv = words[1:]
        scope: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(words[2], "<string>", "exec"), scope)
    else:
        sys.argv = words[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_path(words[1], run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
