"""Strict TOML: files that people write, read key by key, with the line and the remedy of every mistake.

    document.py ──► reading.py ──► structs
    TOML, places    keys, kinds    plain data
            └── report.py: every complaint ──┘

`layout.py` says which tables and keys a file may have; each package that has such a file (`site`, `pipeline.rules`)
describes its own, and what contradicts what in it.
"""
