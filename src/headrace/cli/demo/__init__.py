"""`headrace demo`: generator, queue, two watchers and the three workers of a station, each in a process of its own.

command.py      options, and the result as a table or JSON
plan.py         who takes part, and the limits within which nothing that a watcher needs is evicted
stage.py        starts the processes, listens to them, kills one half way, and ends them whatever happens
actors.py       what runs in them: the feeder and the watchers
workers.py      and the consumers of the station
outcome.py      what the oracle says of it all
view.py         the live table, or a line now and then
"""
