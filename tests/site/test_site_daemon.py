"""headrace serve: a failed start ends the process, and a failed reload leaves the site unchanged."""

import signal
import socket
import subprocess
import time
from pathlib import Path

import msgspec
from siteconfig import Serve, Write

import headrace
from headrace import Queue
from headrace.link.certificates import make_authority, make_certificate
from support.commandline import PROGRAM
from support.fleet import free_port
from support.waiting import until

HERE = '[site]\nqueue = "q"\nname = "here"\nlisten = ["tcp/127.0.0.1:{port}"]\n'


def test_a_site_that_fails_to_start_ends(write: Write, serve: Serve, tmp_path: Path) -> None:
    Queue.create(tmp_path / "q", size="4MiB", origin="here").close()
    (tmp_path / "q" / "site" / "progress.json").mkdir(parents=True)
    process = serve(write(HERE.format(port=0)))
    assert process.wait() == 3
    assert "progress.json" in process.log.read_text()


def test_a_site_whose_output_and_log_share_a_file_says_once_that_it_is_ready(write: Write, tmp_path: Path) -> None:
    words = [*PROGRAM, "serve", str(write(HERE.format(port=0)))]
    with (tmp_path / "both").open("wb") as both, subprocess.Popen(words, stdout=both, stderr=both) as process:
        until(lambda: "is ready at" in (tmp_path / "both").read_text(), "it is ready")
        process.terminate()
    assert (tmp_path / "both").read_text().count("is ready at") == 1
    with (
        (tmp_path / "out").open("wb") as out,
        subprocess.Popen(words, stdout=out, stderr=subprocess.DEVNULL) as process,
    ):
        until(lambda: "is ready at" in (tmp_path / "out").read_text(), "it is ready")
        process.terminate()


def test_a_reload_with_a_port_in_use_leaves_the_site_unchanged(write: Write, serve: Serve, tmp_path: Path) -> None:
    port = free_port()
    process = serve(write(HERE.format(port=port)))
    endpoint = process.wait_until_ready()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        write(HERE.format(port=taken.getsockname()[1]))
        process.reload("site.toml is not loaded: cannot listen on")
    with headrace.connect(endpoint) as remote:
        assert remote.put(b"x", feed="a") == 1
    other = free_port()
    write(HERE.format(port=other))
    process.reload("site.toml is loaded")
    with headrace.connect(f"tcp/127.0.0.1:{other}") as remote:
        assert remote.put(b"y", feed="a") == 2
    assert process.stop() == 0


def test_a_site_survives_reload_signals_in_rapid_succession(write: Write, serve: Serve) -> None:
    process = serve(write(HERE.format(port=0)))
    process.wait_until_ready()
    for beat in range(100, 120):
        write(HERE.format(port=0) + f'beat = "{beat}ms"\n')
        process.process.send_signal(signal.SIGHUP)
        time.sleep(0.02)
    process.reload("site.toml is loaded")
    assert process.stop() == 0


def test_a_reload_with_the_key_of_another_certificate_leaves_the_site_unchanged(
    write: Write, serve: Serve, tmp_path: Path
) -> None:
    make_authority(tmp_path)
    for name in ("here", "other"):
        make_certificate(tmp_path, name, ["127.0.0.1"])
    text = HERE.format(port=0).replace("tcp/", "tls/") + (
        "[tls]\nauthority = 'authority.crt'\ncertificate = 'here.crt'\nkey = 'here.key'\n"
    )
    process = serve(write(text))
    process.wait_until_ready()
    write(text.replace("here.key", "other.key"))
    process.reload("other.key does not match the certificate")
    assert process.stop() == 0


def test_a_client_with_the_certificate_of_the_site_may_read_its_map(write: Write, serve: Serve, tmp_path: Path) -> None:
    make_authority(tmp_path)
    for name in ("here", "stranger"):
        make_certificate(tmp_path, name, ["127.0.0.1"])
    text = HERE.format(port=free_port()).replace("tcp/", "tls/") + (
        "[tls]\nauthority = 'authority.crt'\ncertificate = 'here.crt'\nkey = 'here.key'\n"
        "[[allow]]\nwho = ['there']\nreceive = ['wx/**']\n"
    )
    file = write(text)
    process = serve(file)
    process.wait_until_ready()
    assert [place["name"] for place in msgspec.json.decode(map_of(file))["nodes"]] == ["here"]
    other = text.replace("here.", "stranger.").replace('"here"', '"stranger"').replace('"q"', '"other"')
    assert [place["name"] for place in msgspec.json.decode(map_of(write(other)))["nodes"]] == []
    assert process.stop() == 0


def map_of(file: Path) -> bytes:
    told = subprocess.run([*PROGRAM, "sites", str(file), "--json"], capture_output=True, check=False, timeout=60)
    return told.stdout


def test_a_reload_reads_a_changed_or_moved_password_file(write: Write, serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "users").write_text("here:good\nthere:any\n")
    (tmp_path / "p").write_text("bad\n")
    there = tmp_path / "there.toml"
    there.write_text(
        '[site]\nqueue = "up"\nname = "there"\nlisten = ["tcp/127.0.0.1:0"]\n[users]\ndictionary_file = "users"\n'
    )
    endpoint = serve(there).wait_until_ready()
    text = (
        HERE.format(port=0)
        + f'connect = ["{endpoint}"]\n[[request]]\nselect = "**"\nfrom = "oldest"\n'
        + ('[users]\nname = "here"\ndictionary_file = "users"\npassword_file = "p"\n')
    )
    process = serve(write(text))
    process.wait_until_ready()
    with Queue.open(tmp_path / "up") as upstream, Queue.open(tmp_path / "q") as queue:
        upstream.put(b"x", feed="a")
        (tmp_path / "p").write_text("good\n")
        process.reload("site.toml is loaded")
        until(lambda: queue.next == 2, "the product arrives with the new password")
        (tmp_path / "p").rename(tmp_path / "moved")
        write(text.replace('"p"', '"moved"'))
        process.reload("site.toml is loaded")
    assert process.stop() == 0


def test_a_queue_is_available_after_its_site_was_killed(write: Write, serve: Serve, tmp_path: Path) -> None:
    file = write(HERE.format(port=0))
    first = serve(file)
    first.wait_until_ready()
    second = serve(file)
    assert second.wait() == 3
    told = msgspec.json.decode(second.log.read_text())
    assert told["problem"] == f"{tmp_path / 'q'} has a running site already, process {first.process.pid}"
    first.kill()
    third = serve(file)
    third.wait_until_ready()
    assert third.stop() == 0
