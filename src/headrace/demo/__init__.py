"""The demonstration: two sites and a link that is cut, a generator, watchers, workers and a pipeline, all processes.

plan.py         what the processes must agree on: sites, watchers, workers, rates, and limits so that nothing is evicted
processes.py    what runs in them: the feeder, the watchers, and the workers that share a station
sites.py        the two sites, and the link between them
pipeline.py     the pipeline on Spark, and its rules
run.py          starts the processes, kills one, cuts the link, collects reports, and ends them all
outcome.py      the verdict of the oracle on watchers, workers, tables, files, alerts and dead letters
plot.py         a plot of latencies and of the hourly table

The command `headrace demo` and what it shows are in cli/demo.py.
"""
