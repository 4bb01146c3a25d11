"""Words for the person who waits, on standard error."""

import sys
import time


class Progress:
    """One line that replaces itself on a terminal; elsewhere a line per case."""

    def __init__(self) -> None:
        self._in_place = sys.stderr.isatty()
        self._start = time.monotonic()

    def case(self, text: str) -> None:
        self.done()
        seconds = time.monotonic() - self._start
        print(f"{seconds:4.0f} s  {text}", file=sys.stderr, flush=True)

    def step(self, text: str) -> None:
        if self._in_place:
            print(f"\r\033[K  {text}", end="", file=sys.stderr, flush=True)

    def result(self, text: str) -> None:
        """What came out, in case the end is never reached."""
        self.done()
        print(f"        {text}", file=sys.stderr, flush=True)

    def turn(self, number: int, turns: int) -> None:
        self.step(f"round {number + 1} of {turns}")

    def done(self) -> None:
        if self._in_place:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
