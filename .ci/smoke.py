"""Tries an installation: a queue, a station, the command line, and the sentence for a missing extra.

Runs with the Python of that installation, from any directory, without the source tree and without tests.
"""

import importlib.util
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        samples()
        library()
        commands()
        missing_extras()
    size_mb = (
        sum(file.stat().st_size for file in Path(sysconfig.get_path("purelib")).rglob("*") if file.is_file()) >> 20
    )
    print(f"ok: Python {sys.version.split()[0]}, {size_mb} MB of packages")


def samples() -> None:
    """The sample files of the tutorial are in the package."""
    done = subprocess.run(
        [sys.executable, "-m", "headrace.samples", "--queue", "samples.queue"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "4 bulletins, 4 of them new" in done.stdout, done.stderr


def library() -> None:
    from headrace import Queue

    with Queue.create("wx.queue", size="16MiB") as queue:
        station = queue.station("s", 'wx/** ident ~ "^a" where size > 1', start="oldest")
        queue.put_many([b"one", b"two"], feed="wx/text", ident=["a 1", "b 1"])
        with station.attach() as consumer:
            assert [bytes(product.payload) for product in consumer.get(2, timeout=0)] == [b"one"]
        assert queue.read_batch("oldest").to_arrow().num_rows == 2
        assert not queue.check()


def commands() -> None:
    assert run("--version").stdout.startswith("headrace ")
    assert "products" in run("queue", "info", "wx.queue").stdout
    assert run("select", "check", 'wx/** xpath "//a"').returncode == 0
    assert run("generate", "wx.queue", "--products", "20", "--fast", "--no-giants").returncode == 0


def missing_extras() -> None:
    """Only in an environment without extras."""
    if importlib.util.find_spec("zenoh") is None:
        assert "pip install 'headrace[sites]'" in run("watch", "tcp/127.0.0.1:7447", code=3).stderr
    if importlib.util.find_spec("pyspark") is None:
        assert "pip install 'headrace[spark]'" in run("pipeline", "prepare", code=3).stderr


def run(*words: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run([sys.executable, "-m", "headrace", *words], capture_output=True, text=True, check=False)
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done


if __name__ == "__main__":
    main()
