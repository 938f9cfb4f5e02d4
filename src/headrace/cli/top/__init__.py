"""`headrace top`: a queue at work, on a terminal or as JSON lines.

command.py      options, reading the queue, and the three ways to show frames: live, once, JSON
frame.py        two snapshots make a frame: rates and rows, plain data
view.py         a frame drawn for a terminal of a given size
"""
