"""Figures of other systems, to stand beside ours.

Measured on one two-core machine on which `hashlib.md5` of 150 bytes takes 1.08 µs, or published where it says so. They
are not measured again here: compare by the yardstick, which every run measures.
"""

MD5_150_US = 1.08

LDM = "LDM 6.15 (C)"
ET = "ET 16 (C)"
NARADA = "NaradaBrokering (published, 2005)"

ANCHORS: dict[str, str] = {
    "put-20k": f"{LDM}: 107,000-148,000/s with 20,000 held",
    "put-1m": f"{LDM}: 94,000-112,000/s with 1,000,000 held",
    "many-none": f"{ET}: 6.8 million/s, 100 B in arrays of 100, no duplicate check",
    "put-13k": f"{LDM}: 20,800-27,400/s",
    "put-1mb": f"{ET}: 8-10 GB/s into hot buffers, nothing kept",
    "read-feed": f"{LDM}: 250,000-350,000/s in order by feed and pattern",
    "read-ident": f"{LDM}: 250,000-350,000/s in order by feed and pattern",
    "wake": f"{ET}: 62 µs p50, 329 µs p99 at 100/s; {LDM}: 190 µs alone, 60 ms p50 at 200/s between two hosts",
    "station-8": f"{ET}: 6.6 million/s copied in and read",
    "station-100": f"{ET}: 6.1 million/s copied in and read",
    "station-512": f"{ET}: 5.0 million/s copied in and read",
    "station-5000": f"{ET}: 1.4-1.9 million/s copied in and read",
    "station-34000": f"{ET}: 0.25 million/s copied in and read",
    "station-1000000": f"{ET}: 8,000/s copied in and read",
    "array-1": f"{ET}: 0.8-1.4 million/s, nothing copied",
    "array-10": f"{ET}: 4.6 million/s, nothing copied",
    "array-100": f"{ET}: 7.2 million/s, nothing copied",
    "array-1000": f"{ET}: 9.6 million/s, nothing copied",
    "consumers-8-one": f"{ET}: 6.2 million/s in all, nothing copied",
    "consumers-8-each": f"{ET}: 3.2 million/s through the chain, nothing copied",
    "station-latency": f"{ET}: 62 µs p50, 329 µs p99",
    "backlog-150": f"{LDM}: 80,000-170,000/s",
    "backlog-13600": f"{LDM}: 41,000-93,000/s",
    "live-150": f"{LDM}: 43,000-88,000/s, with a stall of 30 s in one run of three",
    "relay-1": f"{LDM}: 0.19 ms",
    "relay-200": f"{LDM}: 60 ms p50, 30 s at worst",
    "audio": f"{NARADA}: 1,500 clients of one broker under 20 ms",
    "space": "LDM 5.1: 68 B without the ident (published, 2001)",
    "match-integer": f"{NARADA}: 6 µs",
    "match-string": f"{NARADA}: 7 µs",
    "match-tags": f"{NARADA}: 18 µs",
    "match-regex": f"{NARADA}: 242 ms with 20,000, 1.178 s with 100,000",
}
