"""The command line. A command is imported only when it is called.

main.py             `headrace`: the list of commands, and how every error is shown
queue.py            create, info, check, repair, resize, delete
put.py, watch.py, cat.py, cursor.py
select.py           check a selection; samples.py reads the samples to try it on
station.py          create, change, seek, pause, resume, delete, parked, retry, forget
station_show.py     list, show, and `headrace lag`
station_take.py     take: a consumer on the command line
station_terms.py    the options for the terms of a station
station_chain.py    how the stations of a queue are chained
channel.py, top/
serve.py            serve and wanted; certs.py; keys.py; config.py, whose config_values.py shows a configuration
sites.py            sites and hop; sites_map.py renders the map
pipeline.py, archive.py
generate.py, verify.py, bench.py
demo.py             `headrace demo`; demo_view.py shows it while it runs, demo_show.py its result
failure.py          exit codes, errors, problems in files, questions
options.py          options that commands share, and the queue that they open
group.py            commands and groups: --verbose, suggestions, a queue that is left out
completion.py       what the shell completes
place.py            the queue that a word names; contexts.py keeps contexts, context.py has their commands
output.py           JSON, tables, progress bars
stream.py           gaps in a stream, a reader that goes away, signals

Commands hold no logic of their own: they parse options with the library's parsers, call the library, and show the
result. Nothing imports this package. A module here that defines a command imports nothing that takes long to load
(Zenoh, Spark, Arrow, cryptography) before the command runs, so that `--help` answers at once and without any extra.
"""
