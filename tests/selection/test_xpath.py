"""XPath over payloads: meaning, namespaces, limits, and hostile documents."""

import socket
from pathlib import Path

import pytest

from headrace.errors import SelectionError
from headrace.selection.xpath import DEGREE_MAX, DEPTH_MAX, DOCUMENT_BYTES_MAX, NODES_MAX, XPath, parse_path

ALERT = b"""<?xml version="1.0" encoding="UTF-8"?>
<alert xmlns="urn:oasis:names:tc:emergency:cap:1.2" xmlns:x="urn:x">
  <info severity="3" x:k="v"><event>Tornado</event><n>5</n><or>1</or></info><!-- a comment -->
</alert>"""


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("//alert", True), ("/alert/info", True), ("/info", False), ("info", True), ("self::alert", True), ("//info[@severity='3']", True),
        ("//info[@severity='4']", False), ("//event='Tornado'", True), ("//event = 'Hail'", False), ("count(//info) = 1", True), ("count(//hail)", False),
        ("string(//event)", True), ("string(//hail)", False), ("//n - 5", False), ("//n * 2 = 10", True), ("number('x')", False), ("-1", True), ("''", False),
        ("//info[event='Tornado' and n > 4]", True), ("//info[not(hail)]", True), ("//or or //and", True), ("//and or //div", False), ("//*[or]", True),
        ("//info[n div 5 = 1]", True), ("//@severity", True), ("//@k", False), ("//@*[local-name()='k']", True), ("//event/..", True), ("//event|//hail", True),
        ("//alert[namespace-uri()='urn:oasis:names:tc:emergency:cap:1.2']", True), ("//alert[namespace-uri()='urn:other']", False), ("//comment()", False),
        ("//text()[contains(., 'Torn')]", True), ("//info[1]/event[last()]", True), ("descendant::event", True), ("//info/attribute::severity > 2", True),
        ("starts-with(//event, 'Tor')", True), ("boolean(//event[string-length(.) = 7])", True),
    ],
)  # fmt: skip
def test_a_result_is_true_as_xpath_defines_it(path: str, found: bool) -> None:
    assert XPath(path).test(memoryview(ALERT)) is found


def test_names_match_in_any_namespace_and_in_none() -> None:
    for document in (
        b"<a><b/></a>",
        b"<a xmlns='urn:1'><b/></a>",
        b"<x:a xmlns:x='urn:1'><y:b xmlns:y='urn:2'/></x:a>",
    ):
        assert XPath("/a/b").test(document)


@pytest.mark.parametrize(
    ("path", "column", "words"),
    [
        ("//cap:alert", 3, "prefixes"), ("//a[$x]", 5, "variables"), ("//a/following::b", 5, "axis 'following'"), ("//a/ancestor::b", 5, "axis 'ancestor'"),
        ("//a/preceding-sibling::b", 5, "axis"), ("document('x')", 1, r"document\(\)"), ("translate(a, 'b', 'c')", 1, "translate"), ("re:test(a)", 1, "prefixes"),
        ("//a[", 5, "not closed"), ("//a]", 4, "has no matching"), ("a b", 3, "not an XPath"), ("//", 2, "not an XPath"), ("a = 'x", 5, "is not allowed"), ("//a[.//b[.//c[.//d]]]", 16, "4 times"),
        ("//a//b//c//d", 10, "4 times"), ("a[" * 17 + "b" + "]" * 17, 34, "nests too deeply"), ("a = '" + "x" * 129 + "'", 5, "128 characters"),
        ("a ^ b", 3, "is not allowed"),
    ],
)  # fmt: skip
def test_an_error_has_its_column(path: str, column: int, words: str) -> None:
    with pytest.raises(SelectionError, match=words) as caught:
        XPath(path)
    assert caught.value.column == column


@pytest.mark.parametrize(
    ("path", "degree"),
    [
        ("//a[@b='c']", 1), ("/a/b[c='d']", 1), ("//a and //b and //c and //d", 1), ("concat(//a, //b)", 1), ("//a//b", 2), ("//a[.//b]", 2),
        ("//a[.//b or .//c]", 2), ("//a|//b|//c", 2), ("/a/*[count(../*) = 1]", 2), ("/a/*[. = /a/*]", 2), ("//a = //b", 2), ("//a[.//b[.//c]]", 3),
        ("//a/parent::b/descendant::c", 3),
    ],
)  # fmt: skip
def test_the_degree_is_the_number_of_nested_walks_of_the_document(path: str, degree: int) -> None:
    assert parse_path(path).degree == degree <= DEGREE_MAX


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"   ",
        b"plain text",
        b"<a>",
        b"<a></b>",
        b"{}",
        b"\x89PNG\r\n",
        b"<",
        b"<a/><b/>",
        b"\xff\xfe",
        bytes(range(256)),
    ],
)
def test_a_payload_that_is_not_xml_does_not_match(payload: bytes) -> None:
    assert not XPath("true()").test(payload)


def test_other_encodings_are_read() -> None:
    for encoding in ("utf-8", "utf-16", "iso-8859-1"):
        text = f'<?xml version="1.0" encoding="{encoding}"?><a>é</a>'
        assert XPath("/a = 'é'").test(text.encode(encoding)), encoding


def _entities(declared: str, content: str) -> list[bytes]:
    return [f"<!DOCTYPE a [{declared}]>{content}".encode(encoding) for encoding in ("utf-8", "utf-16")]


LAUGHS = '<!ENTITY l0 "lol">' + "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
LONG = f'<!ENTITY l "{"x" * 50_000}">'


@pytest.mark.parametrize(
    "payload",
    [*_entities(LAUGHS, "<a>&l9;</a>"), *_entities(LAUGHS, "<a b='&l9;'/>"), *_entities(LONG, "<a>" + "&l;" * 20_000 + "</a>"),
     *_entities(LONG, "<a b='" + "&l;" * 20_000 + "'/>"), *_entities('<!ENTITY e "x">', "<a>&e;</a>")],
    ids=lambda payload: f"{len(payload)} bytes",
)  # fmt: skip
@pytest.mark.timeout(60)
def test_a_document_with_entities_does_not_match(payload: bytes) -> None:
    assert not XPath("//node()").test(payload)


def test_external_entities_open_no_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("<!ELEMENT a ANY>treasure")
    for declared in (f'<!ENTITY e SYSTEM "{secret.as_uri()}">', f'<!ENTITY % e SYSTEM "{secret.as_uri()}"> %e;'):
        for payload in _entities(declared, "<a>&e;</a>"):
            assert XPath("true()").refusal(payload) is not None
    payload = f'<!DOCTYPE a SYSTEM "{secret.as_uri()}"><a xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="{secret.as_uri()}" parse="text"/></a>'
    assert not XPath("contains(/, 'treasure')").test(payload.encode())


def test_external_entities_open_no_connection() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.setblocking(False)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/x.dtd"
        for payload in (f'<!DOCTYPE a SYSTEM "{url}"><a/>', f'<!DOCTYPE a [<!ENTITY e SYSTEM "{url}">]><a>&e;</a>'):
            XPath("//a").test(payload.encode())
        with pytest.raises(BlockingIOError):  # no connection waits
            server.accept()


def test_a_document_over_a_limit_is_refused() -> None:
    everything = XPath("true()")
    assert everything.test(b"<a>" * DEPTH_MAX + b"</a>" * DEPTH_MAX)
    assert "nests" in str(everything.refusal(b"<a>" * (DEPTH_MAX + 1) + b"</a>" * (DEPTH_MAX + 1)))
    assert everything.refusal(b"<a>" * 100_000 + b"</a>" * 100_000) is not None
    assert "nodes" in str(everything.refusal(b"<a>" + b"<b/>" * NODES_MAX + b"</a>"))
    assert "bytes" in str(everything.refusal(b"<a>" + b" " * DOCUMENT_BYTES_MAX + b"</a>"))
    assert everything.refusal(b"<a " + b" ".join(b"a%d=''" % n for n in range(NODES_MAX)) + b"/>") is not None


FLAT = b"<r>" + b"<a s='1'><b/></a>" * 12_000 + b"</r>"
DEEP = b"<r>" + (b"<a>" * 30 + b"</a>" * 30) * 1200 + b"</r>"
TEXT = b"<r>" + b"<a>" * 30 + b"x" * 260_000 + b"</a>" * 30 + b"</r>"


@pytest.mark.parametrize("payload", [FLAT, DEEP, TEXT], ids=["flat", "deep", "text"])
@pytest.mark.parametrize(
    "path",
    ["//*//*//*", "//*[.//*[.//*]]", "//*[count(//*[count(//*) = 3]) = 3]", "//*/../*/..", "//*|//*", "//*=//*", "/*/*[. = /*/*]", "//*[count(../*) = 1]",
     "//*[contains(., '" + "x" * 100 + "y')]", "//*[normalize-space(.) = 'x']", "//*[@s = '1' and @s = '2']/*/*", "//*[sum(*) > 1]", "//*[* = *]"],
)  # fmt: skip
@pytest.mark.timeout(60)
def test_every_expression_ends_in_bounded_time(path: str, payload: bytes) -> None:
    """Without limits some of these take hours."""
    XPath(path).test(payload)


def test_a_document_that_is_too_large_for_the_expression_is_refused_with_a_reason() -> None:
    assert "too many" in str(XPath("//a//b").refusal(FLAT))
    assert XPath("//a/b").refusal(FLAT) is None


def test_equal_texts_are_equal() -> None:
    assert XPath(" //a ") == XPath("//a")
    assert len({XPath("//a"), XPath("//a"), XPath("//b")}) == 2
