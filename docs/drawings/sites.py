"""Drawings of several machines: sites, links, remote programs, rights."""

from draw import Drawing


def remote() -> Drawing:
    d = Drawing("A program uses the queue of a site as if it were local", 860, 240)
    d.area(20, 20, 350, 180, "another machine")
    d.box(50, 70, 150, 90, 'your program\nconnect(\n"site:denver")', "program")
    d.text(285, 110, "the same code,\nthe same errors", "quiet")
    d.area(490, 20, 350, 180, "site")
    d.box(520, 75, 120, 80, "headrace\nserve", "fabric")
    d.box(700, 75, 120, 80, "queue")
    d.arrow((200, 140), (520, 140))
    d.text(430, 132, "call", "quiet")
    d.arrow((520, 165), (200, 165), dashed=True)
    d.text(430, 184, "reply", "quiet")
    d.arrow((640, 115), (700, 115))
    d.text(430, 226, "A broken link is restored; a call is executed once.", "quiet")
    return d


def protocol() -> Drawing:
    d = Drawing("Token, hello, and numbered calls: a call that is repeated is executed once", 860, 500)
    d.area(190, 20, 310, 460, "Zenoh link")
    d.box(20, 20, 130, 460, "client\nchooses its id,\nnumbers its calls", "program")
    d.box(540, 20, 130, 460, "site\nkeeps its replies,\nby number", "fabric")
    d.box(750, 250, 90, 110, "queue\nholds the\nproduct\nonce")
    d.arrow((150, 80), (540, 80), label="liveliness token: I am connected")
    d.arrow((150, 130), (540, 130), label="hello: the versions that I speak")
    d.arrow((540, 160), (150, 160), label="welcome: the version to use", dashed=True)
    d.arrow((150, 210), (540, 210), label="who: which queue is this?")
    d.arrow((540, 240), (150, 240), label="here: its id and configuration", dashed=True)
    d.arrow((150, 290), (540, 290), label="call 1: put, with the payload")
    d.arrow((670, 290), (750, 290), label="executed")
    d.arrow((540, 320), (345, 320), label="the reply is lost", colour="bad", dashed=True)
    d.arrow((150, 370), (540, 370), label="call 1 again, after a timeout")
    d.arrow((540, 400), (150, 400), label="the reply that was kept", dashed=True)
    d.arrow((150, 450), (540, 450), label="call 2, and so on")
    d.text(682, 405, "not executed again", "quiet", "start")
    return d


def site() -> Drawing:
    d = Drawing("One file describes a site", 860, 250)
    d.box(20, 60, 170, 120, "site.toml\n[site] [queue]\n[[request]] [[allow]]\n[tls] [users] [log]", "program")
    d.arrow((190, 120), (270, 120), label="serve")
    d.area(270, 30, 300, 190, "the site")
    d.box(295, 65, 110, 50, "[queue]\nsize, age")
    d.box(440, 65, 110, 50, "[[request]]\nwhat it wants", "station")
    d.box(295, 145, 110, 50, "[[allow]]\nwho may", "fabric")
    d.box(440, 145, 110, 50, "[tls] [users]\nwho it is", "fabric")
    d.box(690, 50, 140, 56, "connect\nother sites", "program")
    d.box(690, 150, 140, 56, "listen\nsites, programs", "program")
    d.arrow((570, 78), (690, 78))
    d.arrow((690, 178), (570, 178))
    return d


def operating() -> Drawing:
    d = Drawing("Sites linked in any shape, and what to watch", 860, 270)
    for x, y, name in [(60, 50, "denver"), (360, 20, "boulder"), (360, 120, "madison"), (660, 80, "oslo")]:
        d.box(x, y, 140, 60, f"{name}\nqueue, site", "fabric")
    d.arrow((200, 70), (360, 50))
    d.arrow((200, 95), (360, 150))
    d.arrow((500, 50), (660, 95), colour="bad", dashed=True)
    d.arrow((500, 150), (660, 125))
    d.text(610, 55, "a cut link: another path,", "bad", "start")
    d.text(610, 73, "or the log afterwards", "bad", "start")
    d.box(60, 200, 230, 50, "headrace sites --check\nlinks, requests, losses", "program")
    d.box(315, 200, 230, 50, "headrace lag\nstations, requests", "program")
    d.box(570, 200, 230, 50, "headrace queue info\nage of the oldest", "program")
    return d


def security() -> Drawing:
    d = Drawing("Who may do what: certificate or password, then rules", 860, 190)
    d.box(20, 30, 150, 50, "certificate\nor password", "program")
    d.box(20, 110, 150, 50, "stranger", "program")
    d.box(270, 55, 130, 80, "the link\nwho is it?", "fabric")
    d.arrow((170, 55), (220, 55), (220, 80), (270, 80))
    d.arrow((170, 135), (220, 135), (220, 115), (270, 115), colour="bad")
    d.text(335, 158, "refused before it", "bad")
    d.text(335, 176, "can send anything", "bad")
    d.box(490, 55, 130, 80, "[[allow]]\nwhat may it?", "station")
    d.arrow((400, 95), (490, 95), label="name")
    d.box(710, 30, 130, 50, "receive\nthese feeds")
    d.box(710, 110, 130, 50, "publish\nthese feeds")
    d.arrow((620, 80), (660, 80), (660, 55), (710, 55))
    d.arrow((620, 110), (660, 110), (660, 135), (710, 135))
    return d


def two_sites_with_tls() -> Drawing:
    d = Drawing("Two sites with certificates of one authority", 860, 240)
    d.box(340, 20, 180, 56, "authority\nauthority.key stays here", "fabric")
    d.area(20, 100, 320, 120, "denver")
    d.box(40, 135, 120, 60, "denver.queue")
    d.box(195, 135, 120, 60, "denver.crt\ndenver.key", "fabric")
    d.area(520, 100, 320, 120, "boulder")
    d.box(545, 135, 120, 60, "boulder.crt\nboulder.key", "fabric")
    d.box(700, 135, 120, 60, "boulder.queue")
    d.arrow((340, 48), (255, 48), (255, 135))
    d.arrow((520, 48), (605, 48), (605, 135))
    d.arrow((340, 150), (520, 150), label="tls, both sides")
    d.arrow((520, 185), (340, 185))
    d.text(430, 205, "show a certificate", "quiet")
    return d


def follow_a_feed() -> Drawing:
    d = Drawing("Three ways to follow a feed from another machine", 860, 250)
    d.area(20, 20, 240, 210, "the site")
    d.box(60, 80, 150, 90, "queue\nwx/radar/**")
    d.box(560, 25, 270, 50, "headrace watch site:denver\nlook", "program")
    d.box(560, 95, 270, 56, "connect(…).cursor, station\na program, with a position", "program")
    d.box(560, 170, 270, 56, "a site of your own, [[request]]\na queue here, survives outages", "fabric")
    d.arrow((210, 105), (400, 105), (400, 50), (560, 50))
    d.arrow((210, 123), (560, 123))
    d.arrow((210, 145), (400, 145), (400, 198), (560, 198))
    return d


def containers() -> Drawing:
    d = Drawing("Two sites and a generator in containers", 860, 210)
    d.box(20, 75, 120, 56, "generator", "program")
    d.area(210, 20, 250, 170, "container one")
    d.box(240, 75, 120, 56, "site\nnot root", "fabric")
    d.box(380, 75, 70, 56, "volume", "queue")
    d.area(570, 20, 270, 170, "container two")
    d.box(600, 75, 120, 56, "site\nnot root", "fabric")
    d.box(750, 75, 70, 56, "volume", "queue")
    d.arrow((140, 103), (240, 103), label="put")
    d.arrow((360, 103), (380, 103))
    d.arrow((300, 131), (300, 165), (660, 165), (660, 131))
    d.text(515, 157, "7447", "quiet")
    d.arrow((720, 103), (750, 103))
    return d


DRAWINGS = [remote, protocol, site, operating, security, two_sites_with_tls, follow_a_feed, containers]
