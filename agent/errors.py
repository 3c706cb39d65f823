"""Every error a user can meet: what went wrong, where, and the way out.

Classes are named after the boundary that was crossed (task file, provider, sandbox, workspace). `kind` is the stable
word of `--json` errors, `exit_code` the process's exit code (design §10). The precise cause stays in `__cause__`.
"""

from __future__ import annotations


class AgentError(Exception):
    """Something went wrong inside rlm-agent itself."""

    kind = "internal"
    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(AgentError):
    """The command was given something it cannot use."""

    kind = "usage"
    exit_code = 2


class TaskError(UsageError):
    """The task file has a mistake; the message starts with `file:line:column`."""

    kind = "task"


class SandboxError(AgentError):
    """The REPL's sandbox could not be started."""

    kind = "sandbox"
    exit_code = 2


class ReplDied(AgentError):
    """The REPL process ended while it was needed."""

    kind = "repl"
    #: It was ended by a signal, as by a person or the kernel, and not by its own cell.
    signalled = False


class ProviderError(AgentError):
    """A model provider did not deliver; subclasses say what may be done about it."""

    kind = "provider"
    exit_code = 75
    #: The request was certainly not executed, so sending it again costs nothing.
    free = False
    #: Sending the same request again can help.
    retryable = False
    #: Seconds to wait before the next try, when the provider said so.
    retry_after: float | None = None


class NotExecuted(ProviderError):
    """Refused, unreachable, or rate limited before anything was computed: repeat freely, after a pause."""

    free = True
    retryable = True


class Ambiguous(ProviderError):
    """The request may have been executed and its answer lost: a repeat may be paid twice."""

    retryable = True


class ServerFailed(Ambiguous):
    """The provider answered with its own failure (5xx): counted as perhaps paid, but an outage is waited out."""


class RequestRejected(ProviderError):
    """The provider understood and said no; the same request will be refused again."""

    kind = "rejected"
    exit_code = 3


class ContextOverflow(RequestRejected):
    """The prompt does not fit the model's window."""

    kind = "context_overflow"


class KeyRejected(ProviderError):
    """The API key is missing or was refused."""

    kind = "key"
    exit_code = 77


class QuotaExhausted(ProviderError):
    """The account has no quota left; waiting or paying helps, repeating does not."""

    kind = "quota"


class BudgetSpent(AgentError):
    """A limit of the task is reached."""

    kind = "budget"
    exit_code = 124


class Parked(AgentError):
    """The run waits for the user's answer and needs no process meanwhile."""

    kind = "parked"
    exit_code = 10

    def __init__(self, question: str) -> None:
        super().__init__(f"question: {question}", 'answer with `rlm-agent say "…"`, then `rlm-agent resume`')


class Stopped(AgentError):
    """The run was asked to stop; `resume` goes on."""

    kind = "stopped"
    exit_code = 10
