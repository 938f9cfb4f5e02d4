"""The link to other sites.

session.py       opens a Zenoh session by checked terms; settings.py has Zenoh's settings for them
endpoint.py      where a site listens or connects to; address.py also has the names of sites
known.py         endpoints at which a site is looked for by its name; contexts.py has those that were saved
scouting.py      who answers by multicast; answer.py asks whether anything answers at an endpoint
presence.py      which sites a session sees
credentials.py   certificates, users and passwords that a session shows and checks
certificates.py  a small certificate authority for a group of sites
access.py        who may receive and publish which feeds
keys.py          the keys under which things travel
declarations.py  declarations that are repeated when a router joins
diagnosis.py     why a session could not be opened
reach.py         which endpoints have no link, and why
"""
