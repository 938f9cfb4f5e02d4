"""When: the clock, the release buffer, the pacer, replay."""
