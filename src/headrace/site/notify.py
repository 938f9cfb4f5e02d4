"""Notify: tell systemd (or whoever started us in that way) how we are.

A datagram to the socket named by NOTIFY_SOCKET; nothing at all if there is none.
"""

import os
import socket


def notify(state: str) -> None:
    """`state` as in sd_notify(3): READY=1, RELOADING=1, STOPPING=1, STATUS=…"""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as target:
        try:
            target.sendto(state.encode(), address)
        except OSError:
            return  # whoever asked to be told has gone; the site runs on
