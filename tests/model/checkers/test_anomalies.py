"""Each anomaly in one line with its exact witness, and beside it the near miss that must not fire."""

import pytest

from orderlab.model.checkers.findings import VACUOUS
from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.history.notation import parse_history
from orderlab.model.verdict import Outcome


def verdict(law, line, **options):
    history = parse_history(line)
    question = Question(laws=(law,), drain_bound_us=10_000, **options)
    (found,), _ = judge(in_memory("a line", history.batches, history.names), question)
    return found


# law, known-bad, (event that breaks it, sequence, subscriber, other event), near miss
ANOMALIES = [
    # An overtaken first delivery; a repeat of an old message is no reordering.
    ("fifo", "P1 P2 D2 D1", (3, 1, "s", 2), "P1 P2 D1 D2 D1!"),
    ("fifo", "P1 P2 P3 D3 D1 D2", (4, 1, "s", 3), "P1 P2 P3 D1 D3"),
    # Order is promised within one publisher, topic and QoS, to each subscriber alone.
    ("fifo", "P1:x P2:x D2:x D1:x", (3, 1, "s", 2), "P1:x P2:y D2:y D1:x"),
    ("fifo", "P1q2 P2q2 D2q2 D1q2", (3, 1, "s", 2), "P1q2 P2 D2 D1q2"),
    ("fifo", "P1 P2 D2>a D1>a", (3, 1, "a", 2), "P1 P2 D2>a D1>b"),
    ("fifo", "P1 P2 D2 D1", (3, 1, "s", 2), "P1 P2 D2 D1~"),
    # What is published again comes in its order of arrival; a session is owed no copy from before it began.
    ("fifo", "S P1 P2 P1! P2! D2 D1", (6, 1, "s", 5), "S P1 C S P2 P1! P2! D2 D1 D2"),
    ("fifo", "P1 S P1! P2 P1! D2 D1", (6, 1, "s", 5), "P1 S P2 P1! D2 D1"),
    ("fifo", "P1 S P2 D2 D1 P1!", (4, 1, "s", 3), "P1 S P2 D2 P1! D1"),
    ("fifo", "S:# P1 S:t P2 P1! D2 D1", (6, 1, "s", 5), "S:x P1 S:t P2 P1! D2 D1"),
    ("fifo", "S P1 S P2 P1! D2 D1", (6, 1, "s", 5), "P1 P2 D2 S P1! D1"),  # a SUBACK may follow the first messages
    # Packets of another QoS, for another filter or another grant, go their own way; a copy that was trimmed need not
    # come before the next.
    ("fifo", "P1q2 P2q2 D2q2d1 D1q2d1", (3, 1, "s", 2), "P1q2 P2q2 D2q2d1 D1q2"),
    ("fifo", "S P1 P2 P1! P2! D2 D1", (6, 1, "s", 5), "S P1 P2 T1 P1! D2 D1 P2!"),
    # Nor need one at QoS 0, or one that a shared subscription may have given to another client.
    ("fifo", "Sq0 P1 P2 D2d0 D1d0", (4, 1, "s", 3), "Sq0 P1 P2 P1! P2! D2d0 D1d0 D2d0!"),
    ("fifo", "S:t P1 P2 P1! P2! D2 D1", (6, 1, "s", 5), "S:$share/g/t P1 P2 P1! P2! D2 D1 D2!"),
    ("fifo", "S:$share/g/t P1 P2 D2 D1", (4, 1, "s", 3), "S:$share/g/t P1 P2 P1! D2 D1"),
    # What another member of a shared subscription had may come late once that one has gone.
    ("fifo", "S:$share/g/t S>a:$share/g/t P1 P2 D2 D1", (5, 1, "s", 4), "S:$share/g/t S>a:$share/g/t P1 P2 D2 ->a D1"),
    (
        "fifo",
        "S:$share/g/t S>a:$share/g/t C>a P1 P2 D2 D1",
        (6, 1, "s", 5),
        "S:$share/g/t S>a:$share/g/t P1 C>a P2 D2 D1",
    ),
    (
        "fifo",
        "S:$share/g/t S>a:$share/h/t P1 P2 D2 U>a:$share/h/t D1",
        (6, 1, "s", 4),
        "S:$share/g/t S>a:$share/g/t P1 P2 D2 U>a:$share/g/t D1",
    ),
    (
        "fifo",
        "S:$share/g/t S>a:$share/g/t ->a P1 P2 D2 +>a D1",
        (7, 1, "s", 5),
        "S:$share/g/t S>a:$share/g/t P1 P2 D2 +>a D1",
    ),
    ("fifo", "S:t S>a:$share/g/t P1 P2 D2 ->a D1", (6, 1, "s", 4), "S:$share/g/+ S>a:$share/g/+ P1 P2 D2 ->a D1"),
    ("fifo", "S P1 P2 T1 P1! D2 D1", (6, 1, "s", 5), "S P1 P2 T1 P1! P2! D2 D1 D2!"),
    # A session is owed packets of one QoS from when that was granted, and none by a filter below the highest grant.
    ("fifo", "Sq1:# P1 P2 P1! P2! D2 D1", (6, 1, "s", 5), "Sq0:t P1 D1d0 Sq1:# P2 P1! P2! D2 D1 D2"),
    ("fifo", "Sq1 P1 Sq2 P2 P1! P2! D2 D1", (7, 1, "s", 6), "Sq0 P1 D1d0 Sq1 P2 P1! P2! D2 D1 D2"),
    (
        "fifo",
        "Sq1 P1q2 P2q2 P1q2! P2q2! D2q2d1 D1q2d1",
        (6, 1, "s", 5),
        "Sq1:t Sq2:# P1q2 D1q2 U:# P2q2 P1q2! P2q2! D2q2d1 D1q2d1 D2q2d1",
    ),
    ("fifo", "S P1 P2 U P1! P2! D2 D1", (7, 1, "s", 6), "S U P1 P2 P1! P2! D2 S D1"),  # a late SUBACK
    ("fifo", "P1 P2 P1! P2! D2 D1", (5, 1, "s", 4), "P1 D1d0 P2 P1! P2! D2 D1 D2"),  # no row says what was granted
    # Nor one whose deadline may have passed, though no row says that it expired.
    ("fifo", "S P1%99 P2 P1!%99 P2! D2 D1", (6, 1, "s", 5), "S P1%2 P2 P1!%99 P2! D2 D1 D2!"),
    ("fifo", "S P1 P2%2 P1! P2!%9 D2 D1", (6, 1, "s", 5), "S P1%2 P2%2 P1!%9 P2!%9 D2 D1"),
    # Acknowledged and gone; trimmed, expired, cleared, unsubscribed, unacknowledged, offline or cut is something else.
    ("at-least-once", "P1 A1 P2 A2 D2", (None, 1, "s", None), "P1 A1 P2 A2 T1 D2"),
    ("at-least-once", "S P1 A1", (None, 1, "s", None), "P1 A1 S"),
    ("at-least-once", "S P1 A1", (None, 1, "s", None), "S P1"),
    ("at-least-once", "S P1 A1", (None, 1, "s", None), "S P1 A1 U"),
    ("at-least-once", "S P1 A1", (None, 1, "s", None), "S P1 A1 C"),
    ("at-least-once", "S P1 A1 -  +", (None, 1, "s", None), "S P1 A1 -"),
    ("at-least-once", "S P1 A1 X>a", (None, 1, "s", None), "S P1 A1 X>s"),
    ("at-least-once", "S P1 A1 X>s - +", (None, 1, "s", None), "S P1 A1 - + X>s"),
    ("at-least-once", "S P1 A1 P2 A2 D2 X>s", (None, 1, "s", None), "S P1 A1 P2 A2 D1 X>s"),
    ("at-least-once", "S P1 A1 P2 A2 D2 X", (None, 1, "s", None), "S P1 A1 P2 A2 D1 X"),
    ("at-least-once", "S P1%30 A1 @20 -  +", (None, 1, "s", None), "S P1%30 A1 @30 - +"),
    ("at-least-once", "S P1%30 A1", (None, 1, "s", None), "S P1 A1 E1"),
    # An interval whose deadline lies beyond the clock says "never".
    ("at-least-once", "@999999 S P1%9223372036854775 A1", (None, 1, "s", None), "@999999 S P1%9223372036854775 A1 E1"),
    ("at-least-once", "S:a/+ P1:a/b A1:a/b", (None, 1, "s", None), "S:a/+ P1:a/b/c A1:a/b/c"),
    ("at-least-once", "S:# P1:a A1:a", (None, 1, "s", None), "S:# P1:$SYS A1:$SYS"),
    ("at-least-once", "S P1 A1", (None, 1, "s", None), "Sq0 P1 A1"),
    # Granted QoS 0 nothing is owed, whatever is granted later; with Retain As Published a message arrives retained.
    ("at-least-once", "Sq1:t P1 A1 Sq1:t", (None, 1, "s", None), "Sq0:t P1 A1 Sq1:t"),
    ("at-least-once", "Sq1:t P1 A1 Sq1:#", (None, 1, "s", None), "Sq0:t P1 A1 Sq1:#"),
    ("at-least-once", "Sq1:t P1 A1 P2 A2 D2 Sq0:t", (None, 1, "s", None), "Sq1:t P1 A1 P2 A2 Sq0:t D2d0"),
    ("at-least-once", "S P1 A1", (None, 1, "s", None), "S P1 A1 D1~"),
    # Handed over twice: the receiver knows a retransmission by its identifier until PUBREL frees it.
    ("exactly-once", "P1q2 D1q2#7 D1q2#8!", (2, 1, "s", None), "P1q2 D1q2#7 D1q2#7!"),
    ("exactly-once", "P1q2 D1q2#7 L#7 D1q2#7!", (3, 1, "s", None), "P1q2 D1q2#7 D1q2#7! L#7"),
    ("exactly-once", "P1q2 D1q2 D1q2", (2, 1, "s", None), "P1q2 D1q2 D1q2!"),
    ("exactly-once", "P1q2 D1q2 D1q2", (2, 1, "s", None), "P1q2 D1q2d1 D1q2d1"),
    ("exactly-once", "P1q2 D1q2 D1q2", (2, 1, "s", None), "P1 D1 D1"),
    # For each filter that matches a server may send a copy, with the QoS that was granted for it.
    ("exactly-once", "S:t S:u P1q2 D1q2#7 D1q2#8", (4, 1, "s", None), "S:t S:# P1q2 D1q2#7 D1q2#8"),
    ("exactly-once", "S:t S:# P1q2 D1q2#7 D1q2#8 D1q2#9", (5, 1, "s", None), "S:t S:# S:+ P1q2 D1q2#7 D1q2#8 D1q2#9"),
    ("exactly-once", "Sq1:t S:# P1q2 D1q2#7 D1q2#8", (4, 1, "s", None), "Sq1:t S:# P1q2 D1q2#7 D1q2d1#8"),
    ("exactly-once", "S:t S:# C S:t P1q2 D1q2#7 D1q2#8", (6, 1, "s", None), "S:t S:$share/g/# P1q2 D1q2#7 D1q2#8"),
    # What befell the reader itself excuses a repeat, and what its publisher sent again; what befell another, or a node,
    # does not.
    ("no-repeat", "P1 D1>a D1>a", (2, 1, "a", None), "P1 D1>a D1>b"),
    ("no-repeat", "P1 D1>a F D1>a", (3, 1, "a", None), "P1 D1>a F ->a +>a D1>a"),
    ("no-repeat", "P1 D1>a ->b +>b D1>a", (4, 1, "a", None), "P1 D1>a ->a +>a D1>a"),
    ("no-repeat", "P1 ->a +>a D1>a D1>a", (4, 1, "a", None), "P1 D1>a ->a +>a D1>a"),
    ("no-repeat", "P1 D1 D1 P1!", (2, 1, "s", None), "P1 D1 P1! D1"),
    # Never published, published later, or published to a session that has been cleared.
    ("no-phantom", "P1 D1 D2", (2, 2, "s", None), "P1 P2 D1 D2"),
    ("no-phantom", "D1 P1", (0, 1, "s", None), "P1 D1"),
    ("no-phantom", "P1 A1 C D1", (3, 1, "s", None), "C P1 A1 D1"),
    ("no-phantom", "P1 A1 C>s D1>s", (3, 1, "s", None), "P1 A1 C>a D1>s"),
    ("no-phantom", "P1 C=4 D1=4", (2, 1, "s", None), "P1 C=4 D1=5"),
    ("no-phantom", "P1 C=4 C D1=4", (3, 1, "s", None), "P1 C C=4 D1=5"),
    ("no-phantom", "P1 A1 C D1", (3, 1, "s", None), "P1 A1 C D1~"),
    ("no-phantom", "P1 P1! A1 C D1 P1!", (4, 1, "s", None), "P1 A1 C P1! D1"),
    # Deadlines are exact: at the deadline is too late, and a repeat of what had begun is not.
    ("expiry", "P1%30 @30 D1", (1, 1, "s", None), "P1%30 @29 D1"),
    ("expiry", "P1%30 @999999 D1", (1, 1, "s", None), "@9 P1%9223372036854775 @999999 D1"),
    ("expiry", "P1%30 @29 D1>a @30 D1", (2, 1, "s", None), "P1%30 @29 D1 @40 D1!"),
    # Delivery has begun where DUP says so (MQTT-3.3.2-5); not where the flag cannot be true: at QoS 0, and of one that
    # was away since the publish.
    ("expiry", "P1%30 @31 D1", (1, 1, "s", None), "P1%30 @31 D1!"),
    ("expiry", "P1q0%30 @31 D1q0!", (1, 1, "s", None), "P1%30 @31 D1!"),
    ("expiry", "P1q2%30 @31 D1q2d0!", (1, 1, "s", None), "P1q2%30 @31 D1q2d1!"),
    ("expiry", "P1%30 @31 + D1!", (2, 1, "s", None), "+ P1%30 @31 D1!"),
    ("expiry", "+ - P1%30 @31 + D1!", (4, 1, "s", None), "+ P1%30 - @31 + D1!"),
    ("expiry", "+ - P1%30 @31 + D1!", (4, 1, "s", None), "+ P1%30 @31 + D1!"),
    ("expiry", "+ - P1%30 @31 + D1!", (4, 1, "s", None), "P1%30 + - @31 + - + D1!"),
    ("expiry", "P1%30 @31 D1~#1", (1, 1, "s", None), "P1%30 @29 D1~#1 - @31 + D1~#1!"),
    ("expiry", "P1%30 @29 E1", (1, 1, "s", None), "P1%30 @30 E1"),
    ("expiry", "P1%5000 @1000 D1%3000", (1, 1, "s", None), "P1%5000 @1000 D1%3001"),
    # Resent without DUP, under another identifier, out of order, after PUBREC, unasked, or not at all.
    ("retransmission", "+ D1#1 - + D1#1", (4, 1, "s", 1), "+ D1#1 - + D1#1!"),
    ("retransmission", "+ D1#1 - + D1#2!", (4, 1, "s", 1), "+ D1#1 K#1 - + D2#2!"),
    # A second copy of QoS 1 comes behind the message itself; what comes in its place is none, nor is one of the same
    # connection, nor is there one of QoS 2.
    ("retransmission", "+ D1#1 - + D1#2! D1#1!", (4, 1, "s", 1), "+ D1#1 - + D1#1! D1#2!"),
    ("retransmission", "+ D2#1 - + D2#1! D1#2 D1#3!", (6, 1, "s", 5), "+ D1#1 D2#2 - + D1#1! D2#2! D1#3!"),
    ("retransmission", "+ D2#1! D2#2 - + D2#3!", (5, 2, "s", 2), "+ D1#1! D1#2!"),
    ("retransmission", "+ D1q2#1 - + D1q2#1! D1q2#2!", (5, 1, "s", 1), "+ D1#1 - + D1#1! D1#2! - + D1#1! D1#2!"),
    # What a SUBSCRIBE is answered with is another message than the one that was sent on when it was published.
    ("retransmission", "+ D1#1 - + D1#2!", (4, 1, "s", 1), "+ D1#1 D1#2~ - + D1#1! D1#2~!"),
    ("retransmission", "+ D1#1~ - + D1#1~", (4, 1, "s", 1), "+ D1#1 - + D1#2~! D1#1!"),
    ("retransmission", "+ D1#1 D2#2 - + D2#2! D1#1!", (6, 1, "s", 1), "+ D1#1 D2#2 - + D1#1! D2#2!"),
    ("retransmission", "+ D1#1 D2#2 - + D2#2! -", (6, 1, "s", 1), "+ D1#1 D2#2 - + D1#1! -"),
    ("retransmission", "+ D1#1 - +", (None, 1, "s", 1), "+ D1#1 - + X"),
    ("retransmission", "+ D1#1 - + X>a", (None, 1, "s", 1), "+ D1#1 - + X>s"),
    ("retransmission", "+ D1#1 - +", (None, 1, "s", 1), "+ D1#1 - C +"),
    ("retransmission", "+ D1#1 D1#1!", (2, 1, "s", 1), "+ D1#1 - + D1#1!"),
    # Of a client with several filters, or of what was published again, it may be another copy.
    ("retransmission", "S:t S:# + D1q2#1 - + D1q2#2!", (6, 1, "s", 3), "S:t S:# + D1q2#1 - + D1q2#1! D1q2#2!"),
    (
        "retransmission",
        "S:t S:t + D1q2#1 - + D1q2#1! R#1 D1q2#2!",
        (8, 1, "s", 3),
        "S:t S:# + D1q2#1 - + D1q2#1! R#1 D1q2#2!",
    ),
    ("retransmission", "P1 + D1#1 K#1 - + D1#1", (6, 1, "s", 2), "P1 P1! + D1#1 K#1 - + D1#1"),
    ("retransmission", "S:t S:# + D1#1 K#1 - + D1#1!", (7, 1, "s", 3), "S:t S:# + D1#1 K#1 - + D1#1"),
    (
        "retransmission",
        "+ D1#1 D2#2 T1 - + D1#1! D2#2! - + D2#2! D1#1!",
        (11, 1, "s", 6),
        "+ D1#1 D2#2 T1 - + D1#1! D2#2! - + D1#1! D2#2!",
    ),
    ("retransmission", "+ D1#1 T1#1 D1#2 - + D1#1!", (6, 1, "s", 3), "+ D1#1 T1 D1#2 - + D1#1! D1#2!"),
    # What leaves the queue is not sent again, be its packet on its way; a copy under another identifier or a later
    # connection's is.
    ("retransmission", "+ D1#1 - +", (None, 1, "s", 1), "+ D1#1 T1#1 - +"),
    ("retransmission", "+ D1#1 D2#2 - + D2#2! -", (6, 1, "s", 1), "+ T1#1 D1#1 D2#2 - + D2#2! -"),
    ("retransmission", "+ T1#1 D1#2 - +", (None, 1, "s", 2), "+ E1#1 D1#1 - +"),
    ("retransmission", "+ T1#1 - + D1#1 - +", (None, 1, "s", 4), "+ T1#1 D1#1 - + D1#1"),
    ("retransmission", "+ T1#1 D2#1 - +", (None, 2, "s", 2), "+ T1#1 D2#1 K#1 D1#1 K#1 - +"),
    ("retransmission", "+ D1q2#1 R#1 - + D1q2#1!", (5, 1, "s", 1), "+ D1q2#1 R#1 - + L#1"),
    (
        "retransmission",
        "+ D1q2#1 D2q2#2 R#2 R#1 L#2 L#1 - + L#1 L#2",
        (10, 2, "s", 2),
        "+ D1q2#1 D2q2#2 R#2 R#1 L#2 L#1 - + L#2 L#1",
    ),
    ("retransmission", "+ D1q2#1 R#1 - +", (None, 1, "s", 1), "+ D1q2#1 R#1$145 - +"),
    # What was acknowledged before the connection was made does not come again, but in a new session or as another copy.
    ("retransmission", "+ D1#1 K#1 - + D1#1!", (5, 1, "s", 1), "+ D1#1 - + D1#1! K#1"),
    ("retransmission", "+ D1#1 K1 - + D1#1", (5, 1, "s", 1), "+ D1#1 D2#2 K#1 - + D2#2! D1#3"),
    ("retransmission", "+ D1#1 K#1 - + D1#1", (5, 1, "s", 1), "+ D1#1 D2#2 K#1 C - + D1#1 - + D1#1!"),
    ("retransmission", "+ D1#1 - K#1 + D1#1!", (5, 1, "s", 1), "+ D1#1 - + K#1 D1#1! K#1"),
    ("retransmission", "+ D1q2#1 R#1 L#1 K#1 - + L#1", (7, 1, "s", 1), "+ D1q2#1 R#1 L#1 - + L#1 K#1"),
    # An identifier is free once its message is acknowledged, removed or cleared, and not because a connection was lost.
    ("packet-id", "D1#1 D2#1", (1, 2, "s", 0), "D1#1 D1#1! K#1 D2#1"),
    ("packet-id", "D1#1>a D2#1>a", (1, 2, "a", 0), "D1#1>a D2#1>b"),
    ("packet-id", "+ D1#1 - + D2#1", (4, 2, "s", 1), "+ D1#1 - C + D2#1"),
    ("packet-id", "D1q2#1 R#1 D2q2#1", (2, 2, "s", 0), "D1q2#1 R#1 L#1 K#1 D2q2#1"),
    ("packet-id", "D1q2#1 R#1 L#1 D2q2#1", (3, 2, "s", 0), "D1q2#1 R#1 L#1 D2q2#2"),
    ("packet-id", "D1q2#1 R#1 D2q2#1", (2, 2, "s", 0), "D1q2#1 R#1$145 D2q2#1"),
    ("packet-id", "D1#1 D1#1:u", (1, 1, "s", 0), "D1#1 D1#2:u"),
    ("packet-id", "D1#1 D1#1~", (1, 1, "s", 0), "D1#1 D1#2~"),
    ("packet-id", "D1#1 T2#1 D2#1", (2, 2, "s", 0), "D1#1 T1#1 D2#1"),
    ("packet-id", "D1#1 D2q0#1 D3#1", (2, 3, "s", 0), "D1#1 D2q0#1 D3q2d0#1"),
    # On one connection, of PUBLISH packets with QoS above 0, by the CONNECT that opened it.
    ("receive-maximum", "+^2 D1#1 D2#2 D3#3", (3, 3, "s", None), "+^2 D1#1 D2#2 K#1 D3#3"),
    ("receive-maximum", "+^2 D1#1 D2#2 D3#3", (3, 3, "s", None), "+^2 D1#1 D2#2 - +^2 D1#1! D2#2!"),
    ("receive-maximum", "+^2 D1#1 D2#2 D3#3", (3, 3, "s", None), "+^2 D1#1 D2#2 D2#2! K#1 D3q0"),
    ("receive-maximum", "+^1 D1q2#1 R#1 L#1 D2q2#2", (4, 2, "s", None), "+^1 D1q2#1 R#1 L#1 K#1 D2q2#2"),
    ("receive-maximum", "+^1 D1q2#1 R#1 D2#2", (3, 2, "s", None), "+^1 D1q2#1 R#1$145 D2#2"),
    ("receive-maximum", "+^1 D1#1 - +^1 D1#1! D2#2", (5, 2, "s", None), "+^1 D1#1 - +^2 D1#1! D2#2"),
    ("receive-maximum", "+^1 D1#1 D2#2", (2, 2, "s", None), "+^1>s +>a D1#1>s D2#2>a D3#3>a"),
    ("receive-maximum", "+^1 D1q2#1 R#1 L#1 - +^1 D2#2 D3#3", (7, 3, "s", None), "+^1 D1q2#1 R#1 L#1 - +^1 L#1 D2#2"),
    # A Will with a delay of 50 ms: once, when it is due, if the client is not back by then and has not said goodbye.
    ("will", "+&50*1 @100 - @300 Z", (None, None, "s", 1), "+&50*1 @100 - @160 P1>s*1 A1>s*1 @300 Z"),
    ("will", "+&50*1 @100 - @160 P1>s*1 @300 Z", (None, 1, "s", 1), "+&50*1 @100 - @160 P1q0>s*1 @300 Z"),
    ("will", "+&50*1 @100 - @140 P1>s*1 A1>s*1 @300 Z", (2, 1, "s", 1), "+&50*1 @100 - @140 C P1>s*1 A1>s*1 @300 Z"),
    ("will", "+&50*1 @100 P1>s*1 A1>s*1 -", (1, 1, "s", 3), "+&0*1 @100 - P1>s*1 A1>s*1"),
    ("will", "+&50*1 @100 - @130 +&50*2 @160 P1>s*1 A1>s*1", (3, 1, "s", 1), "+&50*1 @100 - @155 P1>s*1 A1>s*1 +&50*2"),
    ("will", "+&50*1 @100 - @130 C +&50*2 @300 Z", (None, None, "s", 1), "+&50*1 @100 - @130 +&50*2 @300 Z"),
    ("will", "+&0*1 @100 - +&0*2 @300 Z", (None, None, "s", 1), "+&50*1 @100 - +&50*2 @300 Z"),
    ("will", "+&50*1 @100 -$0 @160 P1>s*1 A1>s*1", (2, 1, "s", 1), "+&50*1 @100 -$0 @300 Z"),
    (
        "will",
        "+&0*1 - P1>s*1 A1>s*1 P2>s*1 A2>s*1",
        (4, 2, "s", 2),
        "+&0*1 - P1>s*1 A1>s*1 P1!>s*1 +&0*2 - P2>s*2 A2>s*2",
    ),
    # To whom nothing matches, or nothing any more when it was published; what was published before may come, and a
    # SUBACK may come behind.
    ("subscribed", "S>a P1 D1>b", (2, 1, "b", 0), "S>a P1 D1>a"),
    ("subscribed", "S:u P1 D1", (2, 1, "s", 0), "S:t P1 D1"),
    ("subscribed", "S U P1 D1", (3, 1, "s", 1), "S P1 U D1"),
    ("subscribed", "S C P1 D1", (3, 1, "s", 1), "S P1 C D1"),
    ("subscribed", "S U P1 D1", (3, 1, "s", 1), "S U S P1 D1"),
    ("subscribed", "S U P1 D1", (3, 1, "s", 1), "S:t S:# U:t P1 D1"),
    ("subscribed", "S U P1 D1~", (3, 1, "s", 1), "S P1 U D1~"),
    ("subscribed", "S:a/+ P1:a/b/c D1:a/b/c", (2, 1, "s", 0), "S:a/# P1:a/b/c D1:a/b/c"),
    ("subscribed", "S:# P1:$SYS/a D1:$SYS/a", (2, 1, "s", 0), "S:$SYS/# P1:$SYS/a D1:$SYS/a"),
    ("subscribed", "S:$share/g/a/+ P1:t D1:t", (2, 1, "s", 0), "S:$share/g/a/+ P1:a/b D1:a/b"),
    # What is published to a topic that is spelt as a shared subscription is matched by no filter of that spelling.
    ("subscribed", "S:$share/g/a P1:$share/g/a D1:$share/g/a", (2, 1, "s", 0), "S:$share/g/a P1:a D1:a"),
    (
        "at-least-once",
        "S:t S:$share/g/a P1 A1",
        (None, 1, "s", None),
        "S:$share/g/a P1:$share/g/a A1:$share/g/a P2 A2 S",
    ),
    ("subscribed", "S:$share/g/a U:a P1:b D1:b", (3, 1, "s", 0), "S:$share/g/a U:a P1:a D1:a"),
    ("subscribed", "P1 D1 @200 S", (1, 1, "s", 2), "P1 D1 @101 S"),
    ("subscribed", "P1 D1 - + S", (1, 1, "s", 4), "- + P1 D1 S"),
    ("subscribed", "P1 D1 C S", (1, 1, "s", 3), "C P1 D1 S"),
    ("subscribed", "P1 D1 S>a", (1, 1, "s", 2), "P1 D1 S"),
    ("subscribed", "S U P1 P2 D1", (4, 1, "s", 1), "S P1 U P2 D1"),
    (
        "subscribed",
        "S U P1 D1",
        (3, 1, "s", 1),
        "S U P1 D2",
    ),  # what nobody published is `no-phantom`'s matter, where something once matched
    ("subscribed", "S C=4 P1 D1=5", (3, 1, "s", 1), "S C=4 P1 D1=4"),
    # The lower of the two, neither more nor less; of overlapping subscriptions, or of those that were in force in
    # between, any.
    ("granted-qos", "Sq1 P1q2 D1q2", (2, 1, "s", 0), "Sq1 P1q2 D1q2d1"),
    ("granted-qos", "Sq2 P1q2 D1q2d1", (2, 1, "s", 0), "Sq2 P1q1 D1q1d1"),
    ("granted-qos", "Sq2 P1q1 D1q1d0", (2, 1, "s", 0), "Sq0 P1q1 D1q1d0"),
    ("granted-qos", "Sq2 P1q1 D1q1d2", (2, 1, "s", 0), "Sq2 P1q2 D1q2d2"),
    ("granted-qos", "P1q0 D1q0d1", (1, 1, "s", None), "Sq1 P1q1 D1q1"),
    ("granted-qos", "Sq1:t Sq0:# P1q2 D1q2", (3, 1, "s", 1), "Sq1:t Sq0:# P1q2 D1q2d1 D1q2d0"),
    ("granted-qos", "Sq1 Sq2 P1q2 D1q2d1", (3, 1, "s", 1), "Sq1 P1q2 Sq2 D1q2d1"),
    ("granted-qos", "Sq1 P1q2 Sq2 P2q2 D2q2d1", (4, 2, "s", 2), "Sq1 P1q2 Sq2 D1q2"),
    ("granted-qos", "Sq1 P1q2 D1q2 @200 Sq2", (2, 1, "s", 0), "Sq1 P1q2 D1q2 @50 Sq2"),
    (
        "granted-qos",
        "P1q2 D1q2 Sq1",
        (1, 1, "s", 2),
        "P1q2 D1q2d1 Sq1",
    ),  # what comes before its SUBACK comes with the QoS that this grants
    ("granted-qos", "P1q2 D1q2d0 Sq1:t Sq2:#", (1, 1, "s", 2), "P1q2 D1q2d0 Sq1:t Sq0:#"),
    ("granted-qos", "Sq2 P1q2 D1q2d1", (2, 1, "s", 0), "S P1q2 D1q2d1"),
    ("granted-qos", "Sq2 U Sq1 P1q2 D1q2", (4, 1, "s", 2), "Sq2 P1q2 U Sq1 D1q2"),
    # PUBREL after PUBREC, PUBCOMP after PUBREL, PUBREC after PUBLISH, each of one exchange; what a reconnect repeats is
    # in order.
    ("handshake", "D1q2#1 L#1 R#1", (1, 1, "s", None), "D1q2#1 R#1 L#1"),
    ("handshake", "D1q2#1 R#1 L#1 K#1 D2q2#1 L#1", (5, 2, "s", 1), "D1q2#1 R#1 L#1 K#1 D2q2#1 R#1 L#1"),
    ("handshake", "D1q2#1 D2q2#2 R#1 L#2", (3, 2, "s", 2), "D1q2#1 D2q2#2 R#2 L#2"),
    ("handshake", "D1q2#1>a D1q2#1>b R#1>a L#1>b", (3, 1, "b", None), "D1q2#1>a D1q2#1>b R#1>a L#1>a"),
    ("handshake", "D1q2#1 R#1 K#1 L#1", (2, 1, "s", None), "D1q2#1 R#1 L#1 K#1"),
    ("handshake", "D1q2#1 K#1 R#1 L#1", (1, 1, "s", None), "D1q1#1 K#1 R#2 L#2"),
    ("handshake", "+ D1q2#1 R#1 L#1 K#1 L#1", (5, 1, "s", 2), "+ D1q2#1 R#1 L#1 - + L#1 K#1"),
    ("handshake", "D1q2#1 R#1 L#1 K#1 R#1", (4, 1, "s", 0), "D1q2#1 R#1 - + D1q2#1! R#1 L#1"),
    ("handshake", "C + L#1 R#2", (2, None, "s", None), "+ L#1 R#2 C"),
    ("handshake", "+ D1q2#1 R#1 - C + L#1", (6, 1, "s", 2), "+ D1q2#1 R#1 C + L#1"),
    ("handshake", "D1q2#1 R#1 K#1 D2q2#2 R#2 L#2", (2, 1, "s", None), "D1q2#1 R#1$145 D2q2#1 R#1 L#1"),
    ("handshake", "D1q2#1 R#1 L#1 D2q2#2 L#2", (4, 2, "s", 1), "D1q2#1 R#1 L#1 D2q2#1 L#1"),
    (
        "handshake",
        "R#9 D1q1d2#1 L#1",
        (2, 1, "s", 0),
        "C + D1q1d2#1 R#1 L#1",
    ),  # what is upgraded is `granted-qos`'s matter
    ("handshake", "D1q2#1 R#1 L#1 D2q2#2 L#2", (4, 2, "s", 1), "D1q2#1 R#1 L#1 D2q2#2 T2q2#2 L#2"),
    # What was overtaken is pending while its subscriber is away, and owed to nobody once it has unsubscribed (3.10.4).
    ("at-least-once", "S + P1 A1 P2 A2 D2", (None, 1, "s", None), "S + P1 A1 P2 A2 D1 -"),
    # What was overtaken is lost, whatever ends after that; what was not may be dropped with its subscription or
    # session.
    ("at-least-once", "S + P1 A1 P2 A2 D2 -", (None, 1, "s", None), "S + P1 A1 P2 A2 - D2>a"),
    ("at-least-once", "S P1 A1 P2 A2 D2 U", (None, 1, "s", None), "S P1 A1 P2 A2 U D2"),
    ("at-least-once", "S P1 A1 P2 A2 D2 C", (None, 1, "s", None), "S P1 A1 P2 A2 C D2"),
    ("at-least-once", "P1 A1 P2 A2 D2 C", (None, 1, "s", None), "P1 A1 P2 A2 D1 C"),
    ("at-least-once", "S P1 A1 P2 A2 D2 U S P3 A3 D3", (None, 1, "s", None), "S P1 A1 U S P2 A2 D2"),
    ("at-least-once", "S P1 A1 P2 A2 D2 U:t S:#", (None, 1, "s", None), "S P1 A1 P2 A2 D2 D1 U:t S:#"),
    ("at-least-once", "S P1 A1 P2 A2 D2 U", (None, 1, "s", None), "S P1 A1 P2 A2 D2 U T1"),
    (
        "at-least-once",
        "Sq1:t Sq2:# P1q2 A1q2 P2q2 A2q2 D2q2 D2q2d1 U:t C",
        (None, 1, "s", None),
        "Sq1:t Sq2:# P1q2 A1q2 P2q2 A2q2 D2q2 U:t C",
    ),
    ("at-least-once", "S P1 A1 P2 A2 D2 -", (None, 1, "s", None), "S P1 A1 P2 A2 D2d0 -"),
    ("at-least-once", "S + P1 A1 P2 A2 D2 - +", (None, 1, "s", None), "S + P1 A1 P2 A2 D1 - + -"),
    ("at-least-once", "S + P1 A1 P2 A2 D2", (None, 1, "s", None), "S + P1 A1 P2 A2 U S P3 A3 D3"),
    ("at-least-once", "S + P1 A1 P2 A2 D2 X", (None, 1, "s", None), "S + P1 A1 P2 A2 D1 - X"),
    # One saw it, another never did.
    ("agreement", "P1 D1>a P2 D2>a D2>b", (None, 1, "b", None), "P1 D1>a P2 D2>a D1>b D2>b"),
    ("agreement", "S>a S>b P1 D1>a", (None, 1, "b", None), "S>a S>b P1 D1>a ->b"),
    ("agreement", "S>a S>b P1 D1>a", (None, 1, "b", None), "S>a S>b P1 D1>a T1>b"),
    ("agreement", "S>a S>b P1 D1>a X>a", (None, 1, "b", None), "S>a S>b P1 D1>a X>b"),
    # Who never subscribed is no subscriber, what nobody published is no message: what such a one got is owed to nobody.
    ("agreement", "S>a S>b P1 D1>a", (None, 1, "b", None), "S>b S>a:u P1 D1>a"),
    ("agreement", "S>a S>b P1 D1>a U>a", (None, 1, "b", None), "S>a S>b P1 D2>a"),
    ("agreement", "S>b S>a:$share/g/+ P1 D1>a", (None, 1, "b", None), "S>b S>a:$share/g/u P1 D1>a"),
    ("agreement", "P1 D1>a D2>b", (None, 1, "b", None), "P1 P3 D1>a D1>b D2>a D3>b D3>a"),
    # The backlog at the heal, or at the connect if that is later, is gone 10 ms after.
    ("drain", "S P1 A1 H @20 D1", (4, 1, "s", None), "S P1 A1 H @13 D1"),
    ("drain", "S P1 A1 H @20 D1", (4, 1, "s", None), "S P1 A1 H @12 + @20 D1"),
    ("drain", "S P1 A1 H @20 P2", (None, 1, "s", None), "S H P1 A1 @20 D1"),
    ("drain", "S P1 A1 H @20 Z", (None, 1, "s", None), "S P1 A1 H @13 D1 @20 Z"),
    ("drain", "S P1 A1 H @20 D1", (4, 1, "s", None), "S P1 A1 H F @20 D1 H"),
]


@pytest.mark.parametrize(("law", "bad", "witness", "near_miss"), ANOMALIES)
def test_the_anomaly_is_found_and_its_near_miss_is_not(law, bad, witness, near_miss):
    found = verdict(law, bad)
    assert found.outcome is Outcome.VIOLATED
    seen = found.witness
    assert (seen.event_id, seen.sequence, seen.subscriber, seen.other_event_id) == witness
    assert found.work["violations"] >= 1
    accepted = verdict(law, near_miss)
    assert accepted.outcome is (Outcome.UNKNOWN if accepted.vacuous else Outcome.HOLDS)


CAUSAL = [
    ("P1.a:x D1.a>b:x P1.b:y D1.b>c:y D1.a>c:x", [0, 1, 2, 3, 4], "P1.a:x D1.a>b:x P1.b:y D1.a>c:x D1.b>c:y"),
    ("P1:x P1:y D1:y D1:x", [0, 1, 2, 3], "P1.a:x P1.b:y D1.b:y D1.a:x"),
    ("P1.a:x D1.a>b:x P1.b:y D1.b>c:y D1.a>c:x", [0, 1, 2, 3, 4], "P1.a:x P1.b:y D1.a>b:x D1.b>c:y D1.a>c:x"),
]


@pytest.mark.parametrize(("bad", "cycle", "near_miss"), CAUSAL)
def test_causal_order_with_its_cycle(bad, cycle, near_miss):
    found = verdict("causal", bad)
    assert [event["event_id"] for event in found.witness.events] == cycle
    assert verdict("causal", near_miss).outcome is Outcome.HOLDS


def test_the_witness_shows_the_rows_that_tell_the_story():
    found = verdict("fifo", "S + P1 A1 P2 A2 P3 D2#1 D1#2 D3#3")
    assert [event["event_id"] for event in found.witness.events] == [1, 2, 3, 4, 5, 7, 8]
    assert found.witness.events[-1] == {
        "event_id": 8,
        "time_us": 8000,
        "kind": "deliver",
        "publisher": "p",
        "topic": "t",
        "qos": 1,
        "subscriber": "s",
        "sequence": 1,
        "packet_id": 2,
    }


@pytest.mark.parametrize(
    ("law", "line"),
    [
        ("fifo", "P1 A1"),
        ("fifo", "P1 D1 D1! P1:x D1:x P1q2 D1q2 D1>a"),  # the first of each has nothing to be compared with
        ("fifo", "P1 D1 P2 D2~"),
        ("at-least-once", "P1 D1"),
        ("exactly-once", "P1 D1"),
        ("no-phantom", "D1"),
        ("agreement", "P1 D1"),
        ("expiry", "P1 D1"),
        ("retransmission", "+ D1#1 K#1"),
        ("drain", "S P1 A1 D1"),
        ("packet-id", "D1#1 K#1 D2#1 D3"),
        ("receive-maximum", "+ D1#1 D2#2 -"),
        ("will", "+ - P1 A1"),
        ("will", "+&50*1 P1 A1"),
        ("subscribed", "P1 D1"),
        ("subscribed", "S P1"),
        ("subscribed", "U P1 D1"),
        ("subscribed", "P1 D1 S"),
        ("granted-qos", "P1 D1"),
        ("granted-qos", "S P1 D1"),
        ("granted-qos", "Sq1 P1q0 D1q0"),
        ("handshake", "D1q2#1"),
        ("handshake", "D1q2#1 K#1"),  # nothing shows that PUBRECs and PUBRELs are recorded
        ("handshake", "D1q2#1 L#1"),
        ("handshake", "R#1 L#1 K#1"),  # begun before the recording
        ("causal", "P1"),
    ],
)
def test_a_history_that_does_not_put_a_law_to_the_test_says_so(law, line):
    found = verdict(law, line)
    assert found.outcome is Outcome.UNKNOWN
    assert found.vacuous
    assert any("vacuous" in note for note in found.not_covered)


def test_what_is_not_judged_is_said():
    untested, pending = verdict("at-least-once", "S P1 A1 -").not_covered
    assert untested.startswith(f"{VACUOUS}: its antecedent was met 0 times (a message with QoS 1 or 2 is acknowledged")
    assert (
        pending
        == "1 undelivered messages are pending: their subscriber is offline at the end, or the recording was cut"
    )
    assert "taken as expired" in verdict("at-least-once", "S P1%3 A1 @9 - +").not_covered[1]
    ends_too_early = verdict("drain", "S P1 A1 H")
    assert ends_too_early.outcome is Outcome.UNKNOWN
    assert "ends before the bound" in ends_too_early.not_covered[0]
    one_ms_short = verdict("drain", "S P1 A1 H @12 Z")  # healed at 3 ms, and the bound is 10 ms
    assert (one_ms_short.outcome, verdict("drain", "S P1 A1 H @13 Z").outcome) == (Outcome.UNKNOWN, Outcome.VIOLATED)
    assert (
        "at 0.012 s; one that goes on to 0.013 s decides it (simulate: drain_s higher by 0.001)"
        in one_ms_short.not_covered[0]
    )
    assert any("had not healed" in note for note in verdict("drain", "S P1 A1 F @30 Z").not_covered)


def test_what_comes_before_its_subscribe_row_is_counted_and_undecided_at_a_cut():
    assert (
        verdict("subscribed", "P1 D1 S")
        .not_covered[-1]
        .startswith("1 deliveries came up to 100 ms before the row of a SUBSCRIBE")
    )
    cut = verdict("subscribed", "S>a P1 D1 D1>a X")
    assert (cut.outcome, cut.work["antecedents"]) == (Outcome.UNKNOWN, 1)
    assert "just before the recording was cut" in cut.not_covered[0]
    assert verdict("subscribed", "S>a P1 D1 @200 D1>a X").outcome is Outcome.VIOLATED


def test_a_witness_shows_the_faults_that_may_be_to_blame():
    def struck(line):
        return [
            event["time_us"] // 1000
            for event in verdict("at-least-once", line).witness.events
            if event["kind"] == "fault"
        ]

    assert struck("S F H P1 A1 Z") == [1]  # long healed, and the only one there was
    assert struck("S F H P1 A1 F H Z") == [5]
    assert struck("S F P1 A1 F H Z") == [1, 4]  # the first was open when the message was published
    assert struck("S P1 A1 F H F H F H F H Z") == [3, 5, 7]
    assert struck("S P1 A1 Z") == []


def test_a_receive_maximum_that_no_row_says_comes_with_the_question():
    line = "+ D1#1 D2#2"
    assert verdict("receive-maximum", line).vacuous
    assert verdict("receive-maximum", line, receive_maximum=1).outcome is Outcome.VIOLATED
    assert verdict("receive-maximum", line, receive_maximum=2).outcome is Outcome.HOLDS
    assert verdict("receive-maximum", "+^2 D1#1 D2#2", receive_maximum=1).outcome is Outcome.HOLDS


def test_a_budget_ends_in_unknown_and_never_in_a_false_loss():
    history = parse_history("S P1 A1 D1").split([2])
    question = Question(laws=("at-least-once",), budget_s=0.0)
    (found,), rows = judge(in_memory("a line", history.batches, history.names), question)
    assert (found.outcome, rows) == (Outcome.UNKNOWN, 2)


def test_copies_for_overlapping_filters_and_shared_subscriptions_are_told():
    twice = "P1q2 D1q2#7 D1q2#8"
    assert "1 deliveries are explained by copies" in verdict("exactly-once", f"S:t S:# {twice}").not_covered[0]
    assert verdict("exactly-once", f"S:t S:u/# {twice}").not_covered == ()
    told = verdict("at-least-once", "S:$share/g/t P1 A1")
    assert told.vacuous
    assert "shared subscriptions" in told.not_covered[-1]


@pytest.mark.parametrize("line", ["P1 C D1=4", "P1 C=3 C D1=4", "P1 P2 C P1! D1=4 D2=4", "P1 C D1", "P1 C A1 D1"])
def test_a_clear_that_does_not_say_which_session_it_ended_leaves_no_phantom_open(line):
    found = verdict("no-phantom", line)
    assert found.outcome is Outcome.UNKNOWN
    assert "1 deliveries after a clear are undecided: published before it" in " ".join(found.not_covered)


@pytest.mark.parametrize("line", ["C P1 D1=4", "P1 C P1! D1=4", "P1 C D1~=4", "P1 C C=3 D1=4"])
def test_what_was_not_published_before_such_a_clear_is_no_phantom(line):
    assert verdict("no-phantom", line).outcome is Outcome.HOLDS
