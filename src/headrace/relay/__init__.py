"""Relay: products on their way from site to site.

messages/       what travels: pages, beats, queries and replies, descriptions
examine.py      what of a range of the log another site gets, and what is left out
send.py         the live path, sending side: streams
serve.py        the log path, serving side: replies to queries
inventory.py    the log path, serving side: what the log holds, without payloads
site_client.py  the log path, asking side: a client of another site's log
receive/        requests, and the upstreams that serve them: live, catch-up, repair, fail-over
islands.py      sites that take a request from each other only
flows.py        how the products of each origin and feed arrive
hops.py         through which site each product came
quench.py       which feeds have subscribers elsewhere
"""
