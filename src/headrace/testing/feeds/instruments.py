"""Instruments: events of a detector and monitor frames of a telescope.

Detector event, little endian:

    offset  0  u64  event number
            8  u64  time, ns since 1970
           16  u32  hits
           20  for each hit: u16 channel, u16 ADC value, both under 4096

Monitor frame, little endian:

    offset  0  4s   `HRMF`
            4  u16  points
            6  u16  subsystem
            8  u64  frame number, counted in each subsystem
           16  u64  time, ns since 1970
           24  for each point: 24s name padded with NUL, f64 value

A subsystem sends a frame every half second. Frames and events count up, so no two are equal.
Values scatter around the mean of their quantity.
"""

import random
import struct

import numpy as np
import numpy.typing as npt

from headrace.testing.feeds.content import Content, Noise

EVENT_FEED = "daq/events"
MONITOR_FEED = "telescope/monitor"

EVENT_HEADER = struct.Struct("<QQI")
HIT = struct.Struct("<HH")
FRAME_HEADER = struct.Struct("<4sHHQQ")
POINT = np.dtype([("name", "S24"), ("value", "<f8")])
FRAME_MAGIC = b"HRMF"

_NS_PER_S = 1_000_000_000
_RUN = 4271
_ADC_MASK = 0x0FFF
_HITS_POOL_BYTES = 1 << 18
_POINTS_MAX = 0xFFFF  # that the header can count: frames of 2 MB
_SCATTER = 1 << 14
_SUBSYSTEMS = (
    *(f"antenna{number:02d}" for number in range(1, 7)),
    "correlator",
    "receiver",
    "timing",
    "weather",
)
_QUANTITIES = ("temperature_c", "voltage_v", "current_a", "phase_deg", "power_dbm", "pressure_hpa")


class EventMaker:
    """Triggered events of a run, with the hits of each."""

    def __init__(self, source: random.Random, noise: Noise) -> None:
        self._random = source
        self._event = 0
        drawn = noise.between(b"", _HITS_POOL_BYTES)
        self._hits = (np.frombuffer(drawn, dtype="<u2") & _ADC_MASK).astype("<u2").tobytes()

    def make(self, time_s: float, serial: int, size: int) -> Content:
        del serial  # events have a number of their own
        self._event += 1
        hits = max(size - EVENT_HEADER.size, 0) // HIT.size
        first = int(self._random.random() * (_HITS_POOL_BYTES // 2 // HIT.size)) * HIT.size
        header = EVENT_HEADER.pack(self._event, int(time_s * _NS_PER_S), hits)
        end = first + hits * HIT.size
        payload = header + (self._hits * (end // _HITS_POOL_BYTES + 1))[first:end]
        return Content(EVENT_FEED, f"run{_RUN:06d}/event{self._event:010d}", payload, 4)


class MonitorMaker:
    """Frames of every subsystem in turn."""

    def __init__(self, source: random.Random, noise: Noise) -> None:
        self._random = source
        self._frames = 0
        self._means = [round(source.gauss(20, 15), 3) for _ in _QUANTITIES]
        self._points = np.empty(0, dtype=POINT)
        drawn = np.frombuffer(noise.between(b"", _SCATTER * 4), dtype="<u4")
        self._scatter = drawn / 2**32 - 0.5

    def make(self, time_s: float, serial: int, size: int) -> Content:
        del serial  # frames have a number of their own
        frame, subsystem = divmod(self._frames, len(_SUBSYSTEMS))
        self._frames += 1
        wanted = min(max((size - FRAME_HEADER.size) // POINT.itemsize, 1), _POINTS_MAX)
        points = self._points_of(wanted)[:wanted].copy()
        start = int(self._random.random() * _SCATTER)
        points["value"] += np.take(self._scatter, range(start, start + wanted), mode="wrap")
        time_ns = int(time_s * _NS_PER_S)
        header = FRAME_HEADER.pack(FRAME_MAGIC, len(points), subsystem, frame, time_ns)
        name = _SUBSYSTEMS[subsystem]
        payload = header + points.tobytes()
        return Content(f"{MONITOR_FEED}/{name}", f"{name}/frame/{frame:010d}", payload, 5)

    def _points_of(self, count: int) -> npt.NDArray[np.void]:
        """At least `count` points; more are made when a larger frame is asked for."""
        if count > len(self._points):
            rows = [
                (f"{quantity}.{unit:02d}".encode(), mean)
                for unit in range(2 * count // len(_QUANTITIES) + 1)
                for quantity, mean in zip(_QUANTITIES, self._means, strict=True)
            ]
            self._points = np.array(rows, dtype=POINT)
        return self._points
