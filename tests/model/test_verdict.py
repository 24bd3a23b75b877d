"""The outcome of several laws together: what was not tested neither holds nor stands in the way of what
was."""

import pytest

from orderlab.model.verdict import UNFINISHED, Outcome, Verdict, joint_verdicts, overall

HELD = Verdict("fifo", Outcome.HOLDS, None, {"antecedents": 3})
UNTESTED = Verdict("expiry", Outcome.UNKNOWN, None, {"antecedents": 0})
BROKEN = Verdict("drain", Outcome.VIOLATED, "it", {"antecedents": 0})
UNDECIDED = Verdict("agreement", Outcome.UNKNOWN, None, {"antecedents": 5})
CUT_SHORT = Verdict("causal", Outcome.UNKNOWN, None, {"antecedents": 0, UNFINISHED: 1})


@pytest.mark.parametrize(
    ("verdicts", "named", "outcome"),
    [
        ([HELD], (), Outcome.HOLDS),
        ([HELD, UNTESTED], (), Outcome.HOLDS),
        ([HELD, UNTESTED], ("expiry",), Outcome.UNKNOWN),
        ([HELD, UNTESTED], ("fifo",), Outcome.HOLDS),
        ([UNTESTED], (), Outcome.UNKNOWN),
        ([], (), Outcome.UNKNOWN),
        ([HELD, UNDECIDED], (), Outcome.UNKNOWN),
        ([HELD, CUT_SHORT], (), Outcome.UNKNOWN),
        ([HELD, BROKEN, UNTESTED], ("expiry",), Outcome.VIOLATED),
        ([UNTESTED, Verdict("expiry", Outcome.HOLDS, None, {"antecedents": 1})], ("expiry",), Outcome.HOLDS),
    ],
)
def test_the_outcome_of_laws_that_were_judged_together(verdicts, named, outcome):
    assert overall(verdicts, named) is outcome


def test_vacuity_is_forgiven_and_nothing_else_is():
    assert overall([UNTESTED], allow_vacuous=True) is Outcome.HOLDS
    assert overall([HELD, UNTESTED], ("expiry",), allow_vacuous=True) is Outcome.HOLDS
    assert overall([CUT_SHORT], allow_vacuous=True) is Outcome.UNKNOWN
    assert overall([BROKEN], allow_vacuous=True) is Outcome.VIOLATED
    assert (UNTESTED.vacuous, BROKEN.vacuous, CUT_SHORT.vacuous) == (True, False, False)


def test_one_run_that_breaks_a_law_breaks_it_for_all():
    def told(outcome):
        witness = {"message": 1} if outcome is Outcome.VIOLATED else None
        return [Verdict("fifo", outcome, witness), Verdict("expiry", Outcome.HOLDS)]

    runs = [(1, told(Outcome.HOLDS)), (5, told(Outcome.VIOLATED)), (6, told(Outcome.VIOLATED))]
    fifo, expiry = joint_verdicts(runs)
    assert fifo == {
        "law": "fifo",
        "outcome": "violated",
        "vacuous": False,
        "runs": {"holds": 1, "violated": 2},
        "seed": 5,
    }
    assert expiry["seed"] is None


def test_a_law_that_no_run_tests_is_vacuous_and_one_that_some_run_tests_is_not():
    untested = Verdict("fifo", Outcome.UNKNOWN, None, {"antecedents": 0})
    tested = Verdict("fifo", Outcome.HOLDS, None, {"antecedents": 3})
    (none,) = joint_verdicts([(1, [untested]), (2, [untested])])
    assert (none["outcome"], none["vacuous"], none["runs"], none["seed"]) == ("unknown", True, {"vacuous": 2}, 1)
    (some,) = joint_verdicts([(1, [untested]), (2, [tested])])
    assert (some["outcome"], some["vacuous"], some["runs"], some["seed"]) == (
        "holds",
        False,
        {"vacuous": 1, "holds": 1},
        None,
    )
