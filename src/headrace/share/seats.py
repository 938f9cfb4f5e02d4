"""Seats: the place of each node in a table, and how a node proves that a seat is its own."""

from typing import cast

import numpy as np

from headrace.errors import SeatLostError
from headrace.share.layout import SEATS, Table


def is_taken(table: Table, seat: int) -> bool:
    return 0 <= seat < SEATS and bool(table.seats[seat]["instance"])


def check_taken(table: Table, seat: int) -> None:
    """SeatLostError if there is no node."""
    if not is_taken(table, seat):
        raise SeatLostError(f"there is no node at seat {seat}", "list the nodes: headrace slices status")


def check_seat(table: Table, seat: int, instance: int) -> np.void:
    """The seat of this very node; SeatLostError if it was taken away."""
    if not 0 <= seat < SEATS or not instance or int(table.seats[seat]["instance"]) != instance:
        raise seat_lost()
    return cast(np.void, table.seats[seat])


def seat_lost() -> SeatLostError:
    return SeatLostError(
        "the node was not heard of for too long, and its slices went to others", "join the group again"
    )
