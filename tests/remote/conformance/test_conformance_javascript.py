"""A client in another language, without any package: javascript/client.mjs, written from docs/protocol.md."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from support.serving import Router, Served

CLIENT = Path(__file__).parent / "javascript" / "client.mjs"
NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
def test_a_client_in_javascript_puts_reads_and_consumes(served: Served, router: Router) -> None:
    large = "large " * 50_000  # more than one message of the link can carry
    served.queue.put(large.encode(), feed="a", ident="large")
    host, _, port = router[1].removeprefix("tcp/").rpartition(":")
    ran = subprocess.run(
        [str(NODE), str(CLIENT), host, port, served.name], capture_output=True, text=True, timeout=240, check=False
    )
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)
    assert (seen["site"], seen["dedup"]) == (served.name, "identity")
    assert (seen["put"], seen["twice"]) == ([2, 3], [4, 4])
    payloads = [large, "METAR KDEN", "TAF", "x"]
    assert [(one["sequence"], one["ident"], one["payload"]) for one in seen["read"]] == [
        (number, ident, payload)
        for number, ident, payload in zip((1, 2, 3, 4), ("large", "KDEN", "", "once"), payloads, strict=True)
    ]
    assert {one["origin"] for one in seen["read"]} == {served.name}
    assert seen["got"] == [payloads, payloads]
    assert (seen["settled"], seen["left"]) == ("done", "done")
    assert "the call is invalid" in seen["refused"]
    assert seen["failed"].startswith("FeedError: ")
    assert served.queue.station("js").statistics().acknowledged == 4
    assert served.queue.station("js").consumers() == []
