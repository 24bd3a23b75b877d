"""A pack: the messages of one poll that are worked on together, and when all of them are done."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import simpy

from orderlab.sim.kafka.broker import AppendError


class Pack:
    """Counts down ``left``; ``done`` is triggered at zero. ``failed`` holds what has to go again."""

    def __init__(
        self, env: simpy.Environment, left: int, resend: Callable[[Sequence[int], Pack], None] | None
    ) -> None:
        self.env = env
        self.left = left
        self.failed: list[int] = []
        self.done = env.event()
        self._resend = resend
        self.answered = self._on_answered  # one object, so that the producer can tell its batches belong together

    def expect(self, more: int) -> None:
        """There are ``more`` to wait for (or fewer)."""
        self.left += more
        self._check()

    def count(self, answered: int, failed: Sequence[int] = ()) -> None:
        """``answered`` are done, ``failed`` of them in vain."""
        self.failed.extend(failed)
        self.left -= answered
        self._check()

    def renew(self, left: int) -> None:
        """Wait again, for ``left``."""
        self.left = left
        self.done = self.env.event()

    def retry(self) -> None:
        """Send again what failed."""
        assert self._resend is not None
        again, self.failed = self.failed, []
        self.renew(len(again))
        self._resend(again, self)

    def _on_answered(self, records: Sequence[int], error: AppendError | None) -> None:
        self.count(len(records), () if error is None else records)

    def _check(self) -> None:
        if self.left == 0 and not self.done.triggered:
            self.done.succeed()
