"""Kinds of feed: what the products of each look like, inside and out.

    content ── what a maker is        stations, weather, metar ── aviation weather
    noise ── bulk bytes               bulletin ── text of forecast offices
    moments, headings ── names        radar, grid, bufr, satellite, lightning, instruments

Each module makes one kind of product, and knows neither rates nor arrivals: those are in
`headrace.testing.profiles` and `headrace.testing.generator`.
"""
