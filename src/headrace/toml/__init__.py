"""Strict TOML: files that people write, read key by key, with the line and the remedy of every problem.

    document.py ──► tables.py ──► structs
    TOML, places    keys, kinds   plain data
            └── report.py: every problem ──┘

`layout.py` says which tables and keys a file may have. Each package that has such a file (`site`, `pipeline.rules`)
describes its own, and which of its values contradict each other.
"""
