"""The five lines of the README are a site that works."""

import re
from pathlib import Path

from headrace import Queue
from support.daemon import Daemon
from support.waiting import until

ROOT = Path(__file__).parent.parent.parent


def test_the_five_lines_of_the_readme_are_a_site_that_gets_what_it_requests(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    (block,) = [block for block in blocks if "[site]" in block]
    assert len(block.splitlines()) == 5
    upstream, site = tmp_path / "upstream.toml", tmp_path / "site.toml"
    upstream.write_text('[site]\nqueue = "up.queue"\nname = "up"\nlisten = ["tcp/127.0.0.1:0"]\n')
    with Daemon(upstream) as first:
        text = block.replace("tcp/upstream.example.org:7447", first.wait_until_ready())
        assert text != block
        site.write_text(text.replace("[[request]]", 'listen = ["tcp/127.0.0.1:0"]\n[[request]]'))  # 7447 may be taken
        with Daemon(site) as second:
            second.wait_until_ready()
            with Queue.open(tmp_path / "up.queue") as there, Queue.open(tmp_path / "wx.queue") as here:
                until(lambda: arrived(there, here), "a product of the request arrives")
                assert {product.feed for product in here.read_batch()} == {"wx/text"}


def arrived(there: Queue, here: Queue) -> bool:
    """Put two more products there; the request starts with products that are put once it listens."""
    there.put(b"product %d" % there.next, feed="wx/text")
    there.put(b"other %d" % there.next, feed="tel/frames")
    return here.next > 1
