"""`headrace demo`: two sites and a link that is cut, a generator, watchers, workers and a pipeline, all processes.

command.py      options, and the result as a table or JSON
plan.py         who takes part, and the limits within which nothing that a watcher needs is evicted
stage.py        starts the processes, listens to them, kills one, cuts the link half way, and ends them whatever happens
sites.py        what runs in them: the two sites
link.py         the link between them
actors.py       the feeder and the watchers
workers.py      and the consumers of the station
pipeline.py     and the pipeline on Spark
rules.py        the rules that it runs
events.py       what was killed and cut, and how it was got over
outcome.py      what the oracle says of it all
tables.py       and of the pipeline's tables, files, alerts and dead letters
plot.py         a picture of it
view.py         the live table, or a line now and then
"""
