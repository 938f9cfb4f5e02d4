"""Images of a geostationary satellite, as netCDF-4 files.

    wx/satellite/goes16/C13
    OR_ABI-L2-CMIPC-M6C13_G16_s20200060001170_e20200060003543_c20200060004020.nc

A payload opens as an HDF5 file does, with a superblock whose end-of-file address is the true
size, and a number unique in the stream behind it. The rest is random; no reader will find a data
set in it.
"""

import random
import struct

from headrace.testing.feeds.content import Content, Noise, day_of_year_stamp

FEED = "wx/satellite/goes16"

_SUPERBLOCK = struct.Struct("<8s8BHHIQQQQQ")  # version 0, up to the addresses; then our number
_UNDEFINED = 0xFFFFFFFFFFFFFFFF
_SECTORS = (("C", 156.3), ("M1", 57.4), ("F", 570.0))  # name, seconds that a scan takes
_CHANNELS = 16


class SatelliteMaker:
    """One file per channel and sector."""

    def __init__(self, source: random.Random, noise: Noise) -> None:
        self._random = source
        self._noise = noise

    def make(self, time_s: float, serial: int, size: int) -> Content:
        channel = f"C{1 + int(self._random.random() * _CHANNELS):02d}"
        sector, scan_s = _SECTORS[int(self._random.random() * len(_SECTORS))]
        start, end = day_of_year_stamp(time_s - scan_s - 30), day_of_year_stamp(time_s - 30)
        times = f"s{start}_e{end}_c{day_of_year_stamp(time_s)}"
        ident = f"OR_ABI-L2-CMIP{sector}-M6{channel}_G16_{times}.nc"
        payload = self._noise.between(_superblock(size, serial), size)
        return Content(f"{FEED}/{channel}", ident, payload, 3)


def _superblock(size: int, serial: int) -> bytes:
    signature = b"\x89HDF\r\n\x1a\n"
    versions = (0, 0, 0, 0, 0, 8, 8, 0)
    addresses = (0, _UNDEFINED, size, _UNDEFINED)
    return _SUPERBLOCK.pack(signature, *versions, 4, 16, 0, *addresses, serial)
