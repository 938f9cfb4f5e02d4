"""Example: an annotated configuration, which `headrace config example` prints and contrib/site.toml repeats."""

EXAMPLE = """\
# A site of Headrace: its queue, its place in the fabric, and what it wants from others.
#
#   headrace config check site.toml               every mistake, with its line and its remedy
#   headrace config show site.toml --effective    every value in force
#   headrace serve site.toml
#
# docs/site.md is the reference. Lines that begin with "#" and no blank are keys and tables to be switched on. Only
# [site] with queue is needed. Paths are relative to this file.

[site]
queue = "wx.queue"                      # the folder of the queue; made on the terms of [queue] if it is not there
#name = "site1"                         # its id in the fabric, and the origin of what is put here
listen = ["tcp/127.0.0.1:7447"]         # where others may connect: tcp, tls, quic, udp, ws or unixsock-stream
connect = ["tcp/upstream.example.org:7447"]
mode = "router"                         # or "peer"; or "client", of a router elsewhere: a client listens to nobody
scouting = false                        # true: find other sites by multicast
gossip = false                          # learn of other sites from those that are connected, and link to them
compression = false                     # of the links; worth it on slow ones
shared_memory = false                   # true: pages to sites on this machine, which want it too, go through memory
beat = "500ms"                          # how often others are told the newest product of each feed

[queue]                                 # the terms on which it is made; one that exists keeps its own
size = "2GiB"                           # what it may hold; the oldest goes first
age = "1h"                              # products older than this go, too
durability = "process"                  # what a product survives: "process" a crash, "disk" a power failure too
dedup = "blake3"                        # how duplicates are known: "blake3", "xxh3", "md5" or "none"

[[request]]                             # what is wanted from other sites; there may be many
select = "wx/radar/**"                  # a feed pattern, or any selection (docs/selections.md)
ident = "^L2-BZIP2/K"                   # and any clause of a selection as a key of its own
from = "1h"                             # "now", "oldest", or how far back
name = "radar"                          # in logs and in `headrace sites`

[[request]]
select = 'wx/text/** ident ~ "^SA.. K" priority 5..'
sites = ["site2", "site3"]              # from these; any, if there are none
redundancy = "failover"                 # one of them at a time; "all": all at once, duplicates are dropped

# Who may do what here. Without any [[allow]], the site is open to this machine and to those who prove who they are.
#[[allow]]
#who = ["site2", "site3"]               # names in certificates, or user names; or "*" for everybody
#receive = ["wx/**"]                    # feed patterns that they may have from here
#publish = ["wx/text/**"]               # feed patterns that they may put here
#relay = false                          # may they pass on what other sites publish and ask?

# Certificates, for endpoints of tls and quic. `headrace certs` makes them.
#[tls]
#authority = "authority.pem"            # who signs the certificates that are believed
#certificate = "site1.pem"              # what this site shows
#key = "site1.key"                      # goes with it
#mutual = true                          # who connects to here must show one too; [[allow]] can go by its name

# User names and passwords, with or without certificates.
#[users]
#name = "site1"                         # as whom this site connects to others
#password_file = "site1.password"       # one line
#dictionary_file = "users.txt"          # who may connect here: lines of user:password

[log]
level = "info"                          # "debug", "info", "warning" or "error"
#file = "site.log"                      # instead of standard error
per_second = 5                          # messages of one kind; more are counted and left out
"""
