"""Sites find each other by multicast, in a network namespace that has nothing else in it."""

import os
import shutil
import subprocess
import sys

import pytest

PROGRAM = """
import fcntl, os, struct, subprocess, time
from headrace.link.session import SessionTerms, open_session

card = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(card, 0x400454CA, struct.pack("16sH", b"card", 0x1002))  # a network card that leads nowhere
for words in ("link set lo up", "addr add 10.9.0.1/24 dev card", "link set card up", "route add 224.0.0.0/4 dev card"):
    subprocess.run(["ip", *words.split()], check=True)
print("network", flush=True)
first, second = (open_session(SessionTerms("router", listen=("tcp/10.9.0.1:0",), scouting="link")) for _ in range(2))
end = time.monotonic() + 60
while not (first.info.routers_zid() and second.info.routers_zid()) and time.monotonic() < end:
    time.sleep(0.01)
user = open_session(SessionTerms("client", scouting="link"))
print(len(first.info.routers_zid()), len(second.info.routers_zid()), len(user.info.routers_zid()))
for session in (user, second, first):
    session.close()
"""


def test_sites_and_users_find_each_other_by_multicast_and_connect_once() -> None:
    if not shutil.which("unshare") or not shutil.which("ip"):
        pytest.skip("needs the commands unshare and ip")
    done = subprocess.run(
        ["unshare", "--map-root-user", "--net", sys.executable, "-c", PROGRAM],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "HEADRACE_SCOUTING": ""},
    )  # fmt: skip
    if "network" not in done.stdout:
        pytest.skip("this machine allows no network of its own")
    assert done.stdout.splitlines()[-1] == "1 1 1", done.stderr
