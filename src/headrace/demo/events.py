"""Events: what is done to the processes of a demonstration on purpose, and how they got over it."""

from dataclasses import dataclass

from headrace.cli.output import format_short_age, many


@dataclass(slots=True)
class Kill:
    """What became of the worker that was killed, and of what it had in hand."""

    pid: int
    after_s: float  # since the feeder began
    at_s: float  # time.monotonic
    held: int
    back_after_s: float | None = None  # until another worker had put them

    def __str__(self) -> str:
        told = f"killed at {self.after_s:.1f} s with {self.held} in hand"
        return told if self.back_after_s is None else f"{told}, back in {format_short_age(self.back_after_s)}"


@dataclass(slots=True)
class Cut:
    """What became of the link that was cut, and of what could not come over it."""

    after_s: float  # since the feeder began
    at_s: float  # time.monotonic
    at_ns: int  # time of day
    mended_s: float | None = None  # time.monotonic
    missing: int = 0  # products that the second site lacked when the link was mended
    level_s: float | None = None  # when it had them
    level_ns: int = 0

    @property
    def lasted_s(self) -> float:
        return 0.0 if self.mended_s is None else self.mended_s - self.at_s

    @property
    def caught_up_after_s(self) -> float | None:
        """Since the link was mended."""
        return None if self.level_s is None or self.mended_s is None else self.level_s - self.mended_s

    def __str__(self) -> str:
        told = f"cut at {self.after_s:.1f} s"
        if self.mended_s is None:
            return told
        told = f"{told} for {self.lasted_s:.1f} s, {many(self.missing, 'product')} missing"
        after_s = self.caught_up_after_s
        return told if after_s is None else f"{told}, caught up {format_short_age(after_s)} later"
