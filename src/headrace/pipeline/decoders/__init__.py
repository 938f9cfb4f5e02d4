"""Decoders: from products to typed tables.

decoder.py            what a decoder is, and how its failures are contained
registry.py, own.py   found by name, or a user's function; ddl.py reads its schema
wmo, metar, text      bulletins; moment.py dates them
grib, bufr            by ecCodes, in a process apart (apart.py, child.py)
nexrad2, nexrad3      radar headers
monitor, events       instruments

decoded = decoder("metar").decode(products)
decoded.rows, decoded.errors
"""

from headrace.pipeline.decoders.decoder import Decoded, Decoder
from headrace.pipeline.decoders.registry import DECODERS, decoder

__all__ = ["DECODERS", "Decoded", "Decoder", "decoder"]
