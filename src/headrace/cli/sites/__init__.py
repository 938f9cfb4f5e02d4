"""`headrace sites`: the map of a fabric.

command.py      options, the way into the fabric, and JSON
tables.py       the map as tables
trails.py       and as a small picture of the links
dot.py          and as a graph for Graphviz
"""
