"""The five lines of the README are a site that works."""

import re
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from headrace import Queue

ROOT = Path(__file__).parent.parent.parent
PROGRAM = [sys.executable, "-c", "from headrace.cli.main import main; main()"]


def serve(file: Path) -> tuple["subprocess.Popen[bytes]", str]:
    process = subprocess.Popen([*PROGRAM, "serve", str(file), "--json"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    return process, msgspec.json.decode(process.stdout.readline())["endpoints"][0]


def test_the_five_lines_of_the_readme_are_a_site_that_gets_what_it_requests(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    (block,) = [block for block in blocks if "[site]" in block]
    assert len(block.splitlines()) == 5
    upstream, site = tmp_path / "upstream.toml", tmp_path / "site.toml"
    upstream.write_text('[site]\nqueue = "up.queue"\nname = "up"\nlisten = ["tcp/127.0.0.1:0"]\n')
    first, endpoint = serve(upstream)
    text = block.replace("tcp/upstream.example.org:7447", endpoint)
    assert text != block
    site.write_text(text.replace("[[request]]", 'listen = ["tcp/127.0.0.1:0"]\n[[request]]'))  # 7447 may be taken
    second, _ = serve(site)
    try:
        with Queue.open(tmp_path / "up.queue") as there, Queue.open(tmp_path / "wx.queue") as here:
            end, number = time.monotonic() + 60, 0
            while here.next == 1:  # the request starts with products put from now on
                there.put(b"product %d" % number, feed="wx/text")
                there.put(b"other %d" % number, feed="tel/frames")
                number += 1
                time.sleep(0.05)
                assert time.monotonic() < end
            assert {product.feed for product in here.read()} == {"wx/text"}
    finally:
        for process in (second, first):
            process.terminate()
            process.communicate(timeout=60)
