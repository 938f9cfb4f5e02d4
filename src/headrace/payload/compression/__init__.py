"""Compression: products that are stored smaller than they were put, and messages that travel smaller.

    coding.py      one payload, or many: compress if that is worthwhile
    packing.py     the channels of a queue that compress, and the products that enter it
    training.py    dictionaries from products of a queue
    link.py        whole messages between sites, and between a site and its clients

Compressed products expand where a program looks at their payload (kernel/log/expand.pxi). docs/compression.md explains
when to use what.
"""
