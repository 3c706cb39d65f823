"""The journal's records as they cross into other rooms: frozen, and free of SQL."""

from __future__ import annotations

import msgspec


class RunRecord(msgspec.Struct, frozen=True):
    """One execution of a task; `active_s` counts the seconds in which a daemon worked on it."""

    id: str
    name: str
    goal: str
    task_digest: str
    created_at: float
    active_s: float = 0.0
    outcome: str | None = None
    reason: str | None = None
    answer: str | None = None


class RolloutRecord(msgspec.Struct, frozen=True):
    """One trajectory of the loop: the root (depth 0) or a child started by the call `call_id`.

    `number` counts the children of one step, from 1. `branch` is the one that it works on in a tree of its own, if it does.
    `grant` is what its parent let it have at most, encoded by whoever wrote it; None means all that is left.
    """

    id: str
    parent: str | None
    call_id: str | None
    depth: int
    model: str
    prompt: str
    context: bytes | None
    created_at: float
    outcome: str | None = None
    reason: str | None = None
    answer: str | None = None
    grant: bytes | None = None
    number: int = 0
    branch: str | None = None


class StepRecord(msgspec.Struct, frozen=True):
    """One step and how far it came: planned, asked, replied, running or done.

    `answer` is the one that ended the rollout, `partial` the one that stood there, ready or not. `tree` and `commit` name
    its checkpoint in git, `branch` what was checked out then, `base` the newest step up to it whose REPL namespace is stored.
    """

    rollout: str
    seq: int
    state: str
    started_at: float
    prompt_hash: str | None = None
    prompt_tokens: int | None = None
    reply: str | None = None
    cell: str | None = None
    observation: str | None = None
    failed: int = 0
    answer: str | None = None
    partial: str | None = None
    tree: str | None = None
    commit: str | None = None
    branch: str | None = None
    ref_pending: int = 0
    base: int | None = None
    namespace: bytes | None = None
    variables: str | None = None
    compute_s: float = 0.0
    ended_at: float | None = None


class CallKey(msgspec.Struct, frozen=True):
    """What makes a call the same call when its cell is run again."""

    rollout: str
    step: int
    kind: str
    args_hash: str
    n: int


class CallRecord(msgspec.Struct, frozen=True):
    """One call: started, returned (result stored, effects to be finished), or done (settled)."""

    id: str
    rollout: str
    step: int
    kind: str
    args_hash: str
    n: int
    state: str
    epoch: int
    started_at: float
    model: str | None = None
    request: bytes | None = None
    outcome: bytes | None = None
    ok: int | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float | None = None
    reserved_usd: float = 0.0
    git_before: str | None = None
    git_after: str | None = None
    ref: str | None = None
    ref_pending: int = 0
    ended_at: float | None = None

    @property
    def settled(self) -> bool:
        """Say whether the outcome is final: it is returned, never fetched again."""
        return self.state == "done"


class FoldRecord(msgspec.Struct, frozen=True):
    """A contiguous range of steps shown as a summary; `merged_into` names the coarser fold that replaced it."""

    id: str
    rollout: str
    first: int
    last: int
    level: int
    summary: str
    source: str
    tokens: int
    raw_tokens: int
    created_at: float
    call_id: str | None = None
    merged_into: str | None = None


class BranchRecord(msgspec.Struct, frozen=True):
    """A branch and what became of it: `state` is open, merged, abandoned, or rewound (undone with the step that made it).

    `base` is the commit it began at, `origin` the branch that was, `ended_step` the step that merged or abandoned it. While its
    merge waits for conflicts to be resolved, `merging` names the branch that it goes into and `theirs` the commit that does.
    """

    id: str
    name: str
    purpose: str
    origin: str
    base: str | None
    rollout: str
    step: int
    state: str
    created_at: float
    summary: str | None = None
    ended_step: int | None = None
    merging: str | None = None
    theirs: str | None = None


class MilestoneRecord(msgspec.Struct, frozen=True):
    """A COMMIT: the `number`-th of its branch, by the call `id`; it covers the entries log_first to log_last of the branch's log.

    `progress` sums up all before it; `origin` is the branch that it merged, `own` 0 where the loop made it by itself.
    """

    id: str
    branch: str
    number: int
    rollout: str
    step: int
    summary: str
    contribution: str
    progress: str
    log_first: int
    log_last: int
    origin: str = ""
    own: int = 1


class LogRow(msgspec.Struct, frozen=True):
    """The `number`-th entry of a branch's log: a step of a rollout, which `origin` tells was merged from another branch.

    `by_rollout` and `by_step` say which step put it there.
    """

    branch: str
    number: int
    rollout: str
    step: int
    by_rollout: str
    by_step: int
    origin: str = ""


class EventRecord(msgspec.Struct, frozen=True):
    """Something else that happened; `body` is JSON, its keys depend on `kind`."""

    seq: int
    at: float
    rollout: str | None
    step: int | None
    kind: str
    body: str


class Spend(msgspec.Struct, frozen=True):
    """What was used so far, over the whole tree of rollouts."""

    calls: int = 0
    usd: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    unpriced_calls: int = 0
    maybe_paid_twice: int = 0
