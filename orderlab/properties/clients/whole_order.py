"""Clients one after the other on a real server: each is whole, and so are its threads, calls of its pools and tasks.

As on the kernel (``oracle``): a client goes on until it has ended, its sleeps included; another comes where it waits
for that one. Of the threads of one client another comes where one cannot go on, or before it has begun; ``picks`` say
which. Who can go on is known when all others stand still. An exported test is the text of this file too.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from orderlab.properties.clients.gate import Lane, Run
from orderlab.properties.clients.stillness import Stillness

LONGEST_S = 90.0
"""How long the clients may take in one order, their sleeps included."""
ENDED_S = 0.2
"""How long all have to stand still, with nothing that ends a wait ahead, until they are said to wait for ever."""


class WholeOrder:
    """One order of whole clients, and of the threads of each."""

    def __init__(self, clients: Sequence[int], picks: Sequence[int] = (), is_patient: bool = False) -> None:
        """``picks``: which thread comes, each time that there are several; 0 where they end. ``is_patient``: what
        is awaited with a timeout does not come, and who awaits it goes on without."""
        self.clients, self.picks, self.is_patient = clients, picks, is_patient
        self.widths: list[int] = []
        """How many threads there were to pick from."""
        self.crossed: set[Lane] = set()
        """Who waited with a timeout, and is to go on without what does not come, while another client made a step."""
        self.is_parted = False
        """Such a wait was in vain: that is no order of whole clients."""
        self.is_unsure = False
        """There were fewer threads to pick from than before."""
        self._rank = {str(number): place for place, number in enumerate(clients)}
        self._last: Lane | None = None
        self._seen: dict[Lane, int] = {}
        """What each had begun when it was last chosen."""
        self._stillness = Stillness()

    def next(self) -> list[WholeOrder]:
        """The same order of clients with the next order of their threads; none after the last."""
        picks = [*self.picks, *[0] * (len(self.widths) - len(self.picks))]
        while picks and picks[-1] + 1 >= self.widths[len(picks) - 1]:
            picks.pop()
        return [WholeOrder(self.clients, [*picks[:-1], picks[-1] + 1])] if picks else []

    def drive(self, run: Run) -> None:
        """Let pass one step after the other, until all have ended or wait for ever."""
        with run.turn:
            moved = time.monotonic()
            last = moved + LONGEST_S
            while any(not lane.is_over and not lane.is_daemon for lane in run.lanes.values()):
                lane = None if run.is_busy else self._chosen(run)
                if lane is not None:
                    lane.comes, run.is_busy, self._last = False, True, lane
                    run.turn.notify_all()
                if run.is_busy:
                    moved = time.monotonic()
                elif time.monotonic() > last:
                    self.is_unsure = True
                    return
                elif time.monotonic() > moved + ENDED_S and not run.goes_on_by_itself() and self._are_still(run):
                    return
                run.turn.wait(0.02 if run.is_busy else 0.0007)

    def has_tried(self, lane: Lane, is_in_vain: bool) -> None:
        """A wait with a timeout is over."""
        if lane in self.crossed:
            self.is_parted |= is_in_vain

    def _chosen(self, run: Run) -> Lane | None:
        """Who makes the next step; None while that is not settled, or none can."""
        lanes = list(run.lanes.values())
        coming = [lane for lane in lanes if lane.comes]
        if not coming:
            return None
        best = min(coming, key=lambda lane: (self._rank[lane.client], lane is not self._last))
        ahead = [lane for lane in lanes if self._is_ahead(run, lane, best)]
        is_next = best is self._last and self._begun(run, best) == self._seen.get(best)
        if is_next and not ahead and best.courier is None:
            return best
        if not self._are_still(run):
            return None
        if not ahead:
            return self._picked(run, [lane for lane in coming if lane.client == best.client], best)
        if any(lane.is_pausing() for lane in ahead):
            return None
        trying = [lane for lane in ahead if lane.tries]
        if trying and self.is_patient:
            return None
        self.crossed.update(trying)
        return best

    def _is_ahead(self, run: Run, lane: Lane, best: Lane) -> bool:
        """Whether a lane belongs to a client before that of ``best``, and has not ended."""
        if lane.is_over or self._rank[lane.client] >= self._rank[best.client]:
            return False
        return not (lane.is_daemon and run.lanes[lane.client].is_over)

    def _begun(self, run: Run, lane: Lane) -> int:
        """How many threads and tasks a lane has begun, or calls of a pool ended: others may come after it."""
        return lane.children + lane.calls + (lane.courier.owner.children if lane.courier is not None else 0)

    def _picked(self, run: Run, own: list[Lane], best: Lane) -> Lane:
        is_next = best is self._last and self._begun(run, best) == self._seen.get(best)
        if len(own) > 1 and not is_next:
            own.sort(key=lambda lane: lane is not self._last)
            at = len(self.widths)
            self.widths.append(len(own))
            pick = self.picks[at] if at < len(self.picks) else 0
            self.is_unsure |= pick >= len(own)
            best = own[min(pick, len(own) - 1)]
        self._seen[best] = self._begun(run, best)
        return best

    def _are_still(self, run: Run) -> bool:
        """Whether nobody goes on before the next step, unless time goes by."""
        lanes = [lane for lane in run.lanes.values() if not lane.comes and not lane.is_over]
        if any(lane.courier.load if lane.courier is not None else not lane.thread or lane.asides for lane in lanes):
            return False
        if any(lane.tries or lane.asked for lane in lanes):
            run.server.ping()  # whom the last step served has been sent what it waits for
        return self._stillness.of(lane.thread for lane in lanes if lane.thread is not None and lane.courier is None)
