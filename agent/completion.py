"""What `RLM.completion` returns, and the errors by which the paper's limits end one."""

from __future__ import annotations

from typing import Any

import msgspec

from agent.errors import BudgetSpent
from agent.outcome import Outcome
from state.records import Spend


class Usage(msgspec.Struct, frozen=True):
    """Calls, tokens and USD of a completion and all below it; `total_cost` is None when a call's price is unknown."""

    total_calls: int
    total_input_tokens: int
    total_output_tokens: int
    total_cost: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return them as a dict."""
        return msgspec.structs.asdict(self)


class Completion(msgspec.Struct, frozen=True):
    """A finished completion: the answer (`response`), how it ended, what it took, and where its trajectory is.

    `outcome.kind` is "done" for an answer that the model called ready; otherwise `response` is the answer so far.
    """

    response: str
    outcome: Outcome
    spend: Spend
    steps: int
    seconds: float
    rollout: str
    root_model: str
    prompt: Any = None

    @property
    def execution_time(self) -> float:
        """Seconds, under the name that the paper's library gives them."""
        return self.seconds

    @property
    def error(self) -> str | None:
        """Why there is no ready answer; None when there is one."""
        return None if self.outcome.kind == "done" else self.outcome.reason

    @property
    def usage_summary(self) -> Usage:
        """The spend, under the names that the paper's library gives its parts."""
        spend = self.spend
        cost = None if spend.unpriced_calls else spend.usd
        return Usage(spend.calls, spend.tokens_in, spend.tokens_out, cost)

    def __str__(self) -> str:
        return self.response


class LimitExceeded(BudgetSpent):
    """A `max_…` limit ended a completion; `partial_answer` is the answer so far, or None."""

    def __init__(self, message: str, completion: Completion) -> None:
        super().__init__(message, "raise the limit, or give it in limits= to get the partial completion instead")
        self.completion = completion
        self.partial_answer = completion.response or None


class BudgetExceededError(LimitExceeded):
    """`max_budget` is spent."""


class TimeoutExceededError(LimitExceeded):
    """`max_timeout` is over."""


class TokenLimitExceededError(LimitExceeded):
    """`max_tokens` are used."""


class ErrorThresholdExceededError(LimitExceeded):
    """`max_errors` steps in a row failed."""
