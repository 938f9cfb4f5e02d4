"""Kinds of feed: what the products of each look like, inside and out.

    content ── what all makers share      stations, weather, metar ── aviation weather
    headings ── names of bulletins        bulletin ── text of forecast offices
    makers ── the kinds by name           radar, grid, bufr, satellite, lightning, instruments

Each module makes one kind of product, and knows neither rates nor arrivals: those are in
`headrace.testing.profiles` and `headrace.testing.generator`.
"""
