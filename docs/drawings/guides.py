"""Drawings for readers who know another system, and of the command line."""

from draw import Drawing


def commands() -> Drawing:
    d = Drawing("Commands, by what they act on", 860, 190)
    groups = [
        ("products\nput, watch, cat,\nselect, cursor", "program"), ("queues\nqueue, channel,\ntop, hop", "queue"),
        ("work\nstation, lag,\nslices, wanted", "station"), ("sites\nserve, sites,\nconfig, certs", "fabric"),
        ("pipelines\npipeline, archive", "table"), ("trying\ngenerate, verify,\ndemo, bench", "program"),
    ]  # fmt: skip
    for number, (text, colour) in enumerate(groups):
        d.box(16 + number * 140, 40, 128, 90, text, colour)
    d.text(430, 165, "Every command has --help with an example, and --json.", "quiet")
    return d


def _pair(title: str, left: str, right: str, rows: list[tuple[str, str]]) -> Drawing:
    """The words of another system, and the thing here that each corresponds to."""
    d = Drawing(title, 860, 60 + len(rows) * 54)
    d.text(200, 34, left, "ink bold")
    d.text(660, 34, right, "ink bold")
    for number, (there, here) in enumerate(rows):
        y = 50 + number * 54
        d.box(60, y, 280, 42, there, "program")
        d.box(520, y, 280, 42, here, "queue")
        d.arrow((340, y + 21), (520, y + 21))
    return d


def from_ldm() -> Drawing:
    return _pair("LDM and Headrace", "LDM", "Headrace", [
        ("product queue, pqcreate", "queue, headrace queue create"),
        ("ldmd, ldmd.conf", "site, headrace serve site.toml"),
        ("REQUEST, ALLOW", "[[request]], [[allow]]"), ("feed type, product id", "feed, ident"),
        ("pqact, pqact.conf", "headrace pipeline run rules.toml"), ("notifyme, pqcat, pqmon", "watch, cat, queue info"),
    ])  # fmt: skip


def from_kafka() -> Drawing:
    return _pair("Kafka and Headrace", "Kafka", "Headrace", [
        ("broker, cluster", "no broker: a queue, and sites"), ("topic", "feed, with levels"),
        ("record, key, value", "product, ident, payload"), ("offset", "sequence"), ("consumer group", "station"),
        ("MirrorMaker", "[[request]]"),
    ])  # fmt: skip


def from_et() -> Drawing:
    return _pair("ET and Headrace", "ET", "Headrace", [
        ("ET system, memory-mapped file", "queue, a directory"), ("event, control integers", "product, properties"),
        ("station, cue", "station, capacity"), ("attachment", "consumer"), ("et_events_get, et_events_put", "get, ack"),
        ("GRAND_CENTRAL", "the log: products stay readable"),
    ])  # fmt: skip


def replace_pqact() -> Drawing:
    d = Drawing("From pqact.conf to running rules", 860, 150)
    parts = [
        ("pqact.conf", "program"),
        ("rules.toml", "program"),
        ("every problem\nwith its line", "station"),
        ("files, tables,\nprograms", "table"),
    ]
    for number, (text, colour) in enumerate(parts):
        d.box(20 + number * 225, 45, 145, 60, text, colour)
    for number, label in enumerate(["import", "check", "run"]):
        d.arrow((165 + number * 225, 75), (245 + number * 225, 75), label=label)
    d.text(430, 135, "headrace pipeline import, check, run", "quiet")
    return d


DRAWINGS = [commands, from_ldm, from_kafka, from_et, replace_pqact]
