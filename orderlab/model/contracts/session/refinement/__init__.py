"""Refinement: each step of a real store must be a step, or a stutter, of the abstract session.

The judge sees of a store what any caller can see: the reply to the operation, and a full listing (a fetch of
everything) after it. It keeps the account that the abstract session would keep and says, step by step, which law a
difference breaks. It knows nothing of Redis.
"""

from orderlab.model.contracts.session.refinement.account import Account, Judgement, ObservedMessage, Reply, SaveReplyRow
from orderlab.model.contracts.session.refinement.actions import (
    judge_acknowledge,
    judge_clear,
    judge_fetch,
    judge_open,
    judge_open_again,
    judge_quiet,
    judge_release,
    judge_stale_clear,
    judge_stale_open,
    judge_time,
)
from orderlab.model.contracts.session.refinement.saves import judge_save

__all__ = [
    "Account",
    "Judgement",
    "ObservedMessage",
    "Reply",
    "SaveReplyRow",
    "judge_acknowledge",
    "judge_clear",
    "judge_fetch",
    "judge_open",
    "judge_open_again",
    "judge_quiet",
    "judge_release",
    "judge_save",
    "judge_stale_clear",
    "judge_stale_open",
    "judge_time",
]
