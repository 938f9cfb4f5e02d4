"""Relay: products on their way from site to site.

messages/       what travels: pages, beats, queries and replies, descriptions
examine.py      what of a range of the log another site gets, and what is left out
audience.py     for whom a stream is: a principal, by its rights
stream.py       the live path, sending side: one stream
turns.py        in which order streams advance
send.py         all streams of a site
serve.py        the log path, serving side: replies to queries
plain.py        records for a client that may not have the dictionary that they need
holdings.py     totals and origins of the feeds that a client may receive
inventory.py    the log path, serving side: what the log holds, without payloads
site_client.py  the log path, asking side: a client of another site's log
receive/        requests, and the upstreams that serve them: live, catch-up, repair, fail-over
islands.py      sites that take a request from each other only
flows.py        how the products of each origin and feed arrive
hops.py         through which site each product came
quench.py       which feeds have subscribers elsewhere
"""
