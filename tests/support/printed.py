"""The examples of a documentation page, as they are printed.

A block with a title (```toml title="site.toml") is a file; the text tells the reader to save it under that name. A block of
bash is run, and so is a block of Python without a title. Blocks of other languages, or of none, are only shown.
"""

import re
import shutil
import socket
import tempfile
from pathlib import Path
from typing import NamedTuple

from support.shell import Shell

FENCE = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', re.S | re.M)
PORTS = ("7447", "7448")


class Block(NamedTuple):
    language: str
    title: str
    text: str


def blocks_of(text: str) -> list[Block]:
    return [Block(*groups) for groups in FENCE.findall(text)]


def steps_of(text: str) -> dict[str, list[Block]]:
    """The blocks below each numbered heading."""
    parts = re.split(
        r"^#+ (?:(\d+)\. .*|.*)$", FENCE.sub(lambda block: block[0].replace("\n#", "\n\0"), text), flags=re.M
    )
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    return {number: blocks_of(part.replace("\n\0", "\n#")) for number, part in pairs if number}


def perform(shell: Shell, blocks: list[Block], folder: Path) -> str:
    """Save the files, run the rest, and return the output. Ports are the only thing that is not as printed."""
    output = []
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    run = tempfile.mkdtemp(prefix="headrace-run-")  # the path is short, as sockets require it
    known = {"HEADRACE_SITES": f"local,tcp/127.0.0.1:{ports['7447']}", "XDG_RUNTIME_DIR": run}
    for block in blocks:
        text = re.sub(r":(7447|7448)\b", lambda found: f":{ports[found[1]]}", block.text)
        if block.title:
            (folder / block.title).write_text(text)
        elif block.language == "bash":
            output.append(shell.run(text, folder, **known))
        elif block.language == "python":
            (folder / "example.py").write_text(text)
            output.append(shell.run("python example.py", folder, **known))
    shutil.rmtree(run)
    return "".join(output)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
