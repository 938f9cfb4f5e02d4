"""Decoders: from products to typed tables.

decoder.py         what a decoder is, how its failures are contained, the columns that it reads
registry.py        decoders by name
user_function.py   decoders that users write; ddl.py reads their schemas
wmo, metar, text   bulletins; metar_opening.py finds where reports begin, metar_group.py reads a single group,
                   metar_sa.py Canadian SA reports, metar_table.py has the columns; day_of_month.py completes dates
grib, bufr         by ecCodes (eccodes_handle.py), in a process of its own (child_process.py); messages.py cuts
                   payloads into messages
nexrad2, nexrad3   radar headers; nexrad2_radial.py finds the first radial of a volume
monitor, events    frames of a telescope, events of a detector

decoded = decoder("metar").decode(products)
decoded.rows, decoded.errors
"""

from headrace.pipeline.decoders.decoder import Decoded, Decoder
from headrace.pipeline.decoders.registry import DECODERS, decoder

__all__ = ["DECODERS", "Decoded", "Decoder", "decoder"]
