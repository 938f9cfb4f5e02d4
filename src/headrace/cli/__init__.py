"""The command line: one file per command, each loaded only when it is called.

    main.py         `headrace`: the list of commands, and the way every error is shown
    queue/          create, info, check, repair, delete, resize
    put.py          with lines.py and receipts.py
    watch.py, cat.py, cursor.py
    select.py       with samples.py and toml.py
    station/        add, list, show, change, seek, pause, remove, parked
    channel.py, lag.py, top/
    generate.py, verify.py, demo/
    lazy.py, failure.py, options.py, output.py, progress.py, stream.py, pacing.py, verdicts.py      what they share

Commands hold no logic of their own: they read options with the library's parsers, call the library, and show what it
answers. Nothing imports this package.
"""
