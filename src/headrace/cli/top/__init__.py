"""`headrace top`: a queue as it works, on a terminal or as JSON lines.

command.py      options, and the three ways to show frames: live, once, JSON
snapshot.py     reads a queue: one moment, nothing but counters
frame.py        two moments make a frame: rates and rows, plain data
view.py         a frame drawn for a terminal of a given size
"""
