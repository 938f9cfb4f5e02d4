"""Example: an annotated configuration, printed by `headrace config example` and repeated in contrib/site.toml."""

EXAMPLE = """\
# A Headrace site: its queue, its links to other sites, and what it requests from them.
#
#   headrace config check site.toml               every problem, with its line and its remedy
#   headrace config show site.toml --effective    every value in force
#   headrace serve site.toml
#
# docs/site.md is the reference. To use a key or table that begins with "#" and no blank, remove the "#". Only [site]
# with queue is required. Paths are relative to this file.

[site]
queue = "wx.queue"                      # its directory; created on the terms of [queue] if it does not exist
#name = "site1"                         # its id in the fabric, and the origin of products put here
listen = ["local"]                      # a socket for those who may write to the queue; for others: tls/[::]:7447, …
connect = ["tcp/upstream.example.org:7447"]
mode = "router"                         # or "peer"; or "client" of a router elsewhere: a client does not listen
scouting = "answer"                     # programs nearby find it by name; "link": it also links to sites; or "off"
gossip = false                          # learn of other sites from connected ones, and link to them
compression = false                     # of the links; worth it on slow ones
shared_memory = false                   # true: pages to sites on this machine that use it too go through memory
beat = "500ms"                          # interval of the heartbeat that names the newest product of each feed

[queue]                                 # the terms on which it is created; an existing queue keeps its own
size = "2GiB"                           # limit of what it holds; the oldest products are evicted first
age = "1h"                              # products older than this are evicted too
durability = "process"                  # what a product survives: "process" a crash, "disk" a power failure too
dedup = "identity"                      # duplicates: equal feed, ident and payload; "payload": as in LDM; or "none"
hash = "blake3"                         # of the signatures: "blake3", "xxh3" (trusted sources only) or "md5"
mode = "0640"                           # of its files: its group reads; "0600", "0660" (the group puts, too), "0644"
#group = "meteo"                        # that owns its files; by default, that of this process

# Where the time of this site comes from. "auto": the clock of the system if a daemon such as chronyd disciplines it,
# otherwise the servers, if there are any. docs/time.md explains it.
[clock]
source = "auto"                         # or "system", or "ntp": the servers below, with our own client
#servers = ["ntp1.example.org", "ntp2.example.org", "192.0.2.7"]    # three or more, so that one may lie
poll = "64s"                            # how often each server is asked

# Channels that the queue is to have: feed subtrees with terms (docs/channels.md). Missing ones are created.
#[[channel]]
#name = "surface"
#feed = "wx/surface/**"
#slices = 256                           # the stream is cut into so many slices, for processing nodes
#assign = "property:station"            # what gives each product its slice
#compress = "zstd"                      # products are compressed where they enter the queue; "zstd:9": smaller
#dictionary = "3f2a91c0"                # for small ones, from headrace queue train

#[[channel]]
#name = "radar"
#feed = "wx/radar/**"
#reliability = "best_effort"            # "persistent": suppliers wait while a station is full
#connections = "persistent"             # "best_effort": a station ends with its last consumer
#order = "fifo"                         # of delivery: "fifo", "priority", "deadline" or "any"
#discard = "fifo"                       # what a full station drops
#max_per_consumer = 1000                # products that may wait at a station
#max_queue = 2000                       # a push is rejected while so many wait
#timeout = "10s"                        # older products are not delivered
#start_time = "2026-11-15T12:00Z"       # nothing is delivered before
#stop_time = "2036-11-15T12:00Z"        # nothing is pushed or delivered from then on
#batch_max = 50                         # products that a consumer gets at once
#pacing = "100ms"                       # how long a delivery waits for its batch to fill
#suppliers_max = 50                     # at a time
#consumers_max = 10                     # at a time, of each station
#home = "denver"                        # the site whose queue decides the order; consumers take products there

[[request]]                             # what is requested from other sites; repeat it for more
select = "wx/radar/**"                  # a feed pattern, or any selection (docs/selections.md)
ident = "^L2-BZIP2/K"                   # and any clause of a selection as a key of its own
from = "1h"                             # "now", "oldest", or how far back
name = "radar"                          # in logs and in `headrace sites`

[[request]]
select = 'wx/text/** ident ~ "^SA.. K" priority 5..'
sites = ["site2", "site3"]              # from these sites; from any, if left out
#start_time = "2026-11-15T12:00Z"       # nothing is requested before
redundancy = "failover"                 # one of them at a time; "all": all at once, duplicates are dropped
#compress = "zstd"                      # pages, for a slow link

# Who may do what here. Without any [[allow]], the site is open to this machine and to clients that authenticate.
#[[allow]]
#who = ["site2", "site3"]               # names in certificates, or user names; or "*" for everybody
#receive = ["wx/**"]                    # feed patterns that they may receive from here
#publish = ["wx/text/**"]               # feed patterns that they may put here
#station = ["wx/**"]                    # feed patterns of which they may have stations of their own, not blocking ones
#manage = []                            # feed patterns of which they may change and remove all stations and cursors
#consume = ["decode"]                   # stations of the site, or of others, that they may take products from
#relay = false                          # may they pass on what other sites publish and request?

# What they may not do, whatever [[allow]] says.
#[[deny]]
#who = "*"
#receive = ["wx/internal/**"]
#publish = ["wx/warnings/**"]
#station = []
#manage = []
#consume = []

# How much each of them may use here; a name that has no value of its own has that of everybody.
#[[quota]]
#who = "*"
#sessions = 256                         # clients that are connected at a time
#streams = 32                           # of this site, for the selections of other sites
#stations = 64                          # that it has created
#cursors = 64                           # that it has created
#feeds = 20000                          # whose first product it put since the site was started
#origins = 256                          # the same
#dictionaries = 16                      # that it has added since the site was started
#consumers = 512                        # and suppliers, attached at a time
#calls_per_s = 5000                     # calls
#bytes_per_s = "1GB"                    # of payloads that it puts
#waiting_bytes = "256MiB"               # of payloads that it has put and that wait for room
#selection_s = 0.5                      # seconds of processor time in a second, for its selections and reads

# This site signs what is put here, and refuses products that their origin has not signed. `headrace keys` makes keys.
#[sign]
#key = "site1.sign.key"                 # the private key of this site
#revoked = "revoked.keys"               # ids of keys that count no more: headrace keys revoke
#[[key]]
#origin = "site2"                       # whose products it signs
#public = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
#[[key]]
#origin = "site3"
#file = "site3.pem"                     # instead of public: a certificate or key of Ed25519
#from = "2026-01-01T00:00:00Z"          # products that were put before do not count
#until = "2028-01-01T00:00:00Z"
#[[verify]]
#feeds = ["wx/warnings/**"]
#mode = "require"                       # require, accept, off

# Certificates, for tls and quic endpoints. `headrace certs` creates them.
#[tls]
#authority = "authority.pem"            # the authority that signs trusted certificates
#certificate = "site1.pem"              # the certificate of this site
#key = "site1.key"                      # its private key
#mutual = true                          # clients must show a certificate too; [[allow]] can use its name

# User names and passwords, with or without certificates.
#[users]
#name = "site1"                         # the name by which this site connects to others
#password_file = "site1.password"       # one line
#dictionary_file = "users.txt"          # the users that may connect here: headrace users create users.txt NAME

# Python functions that selections of remote clients may name: "wx/** function strong_wind".
#[functions]
#strong_wind = "my_site.filters:strong_wind"    # module:function; its folder is in PYTHONPATH

[log]
level = "info"                          # "debug", "info", "warning" or "error"
#file = "site.log"                      # instead of standard error
per_second = 5                          # messages of one kind; more are counted and left out
"""
