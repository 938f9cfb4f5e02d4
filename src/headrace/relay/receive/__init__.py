"""Receiving from other sites: requests, and for each request and site an upstream that serves it.

receiver.py         all requests of a site, which upstreams there are, and their progress
upstream.py         the state machine of one upstream: begin, catch up, live, repair; no threads, no Zenoh, no clock
actions.py          what the state machine asks its driver to do
driver.py           performs these actions: the session, the live buffer, the clients of other logs
pool.py             the threads of all drivers: a fixed number, whatever other sites say
meeting.py          asks a site that appears who it is
admission.py        which products of a page may enter
track.py            what has arrived of one stream, as numbers; finds gaps and lost tails
holders.py          other sites that have an origin's products, while the origin is away or has evicted them
permitted.py        feeds that a site lets us receive now, and did not before
left_out.py         what a site left out of its pages, counted once
counts.py           what came, what did not, and why; kept when requests change
live_buffer.py      live messages that wait for the upstream
intake.py           what they bring, on its way into the queue
failover.py         one request, served by one of several sites at a time; failover_thread.py runs it
standby.py          the state machine of a site that could take over: what it has is compared with what has arrived
remembered.py       what has arrived lately, also what the queue has evicted since
progress.py         how far each request is at each site, kept over restarts
arrived.py          what the queue itself says has arrived
"""
