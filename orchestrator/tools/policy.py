"""Whether a call goes ahead, is asked for, or is refused.

The first line that fits decides:

    1   a built-in tool that shows what the run has already: no notes                 allow
    2   a role of the run, or of an agent on the way to it, does not have the tool    deny   (agents apart)
    3   `[policy] deny`                                                               deny
    4   a server that is not trusted changed the tool since it was first seen         ask
    5   the card's `approve`                                                          ask
    6   `[policy] ask`                                                                ask
    7   `[policy] allow`, or the server's own `auto_approve`                          allow
    8   the call of an agent of this process (its own calls are judged in turn)       allow
    9   it is about notes: they are the user's own, and the configuration has them    allow
    10  the server says that the tool only reads                                      allow
    11  a bundled server says that the tool destroys nothing                          allow
    12  anything else, no annotation included                                         ask

Then `--approve all` turns ask into allow, and `--approve none` turns ask into deny.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from mcp_types import Tool

from orchestrator.config import PolicySettings, RoleSettings, ServerSettings
from orchestrator.tools.toolset import AGENTS, BUILTIN, NOTES, Offer

Mode = Literal["ask", "all", "none"]
Verdict = Literal["allow", "ask", "deny"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What is done with a call, and why, for whoever asks."""

    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules of an orchestrator. `roles` are globs of tools by role name."""

    rules: PolicySettings = field(default_factory=PolicySettings)
    roles: Mapping[str, RoleSettings] = field(default_factory=dict[str, RoleSettings])
    servers: Mapping[str, ServerSettings] = field(default_factory=dict[str, ServerSettings])

    def decide(self, offer: Offer, *, roles: Sequence[str], approve: Sequence[str], mode: Mode) -> Decision:
        """Judges a call. `roles` are all that hold for it, the run's and its agents'; `approve` is the card's."""
        decision = self._decide(offer, roles, approve)
        if decision.verdict != "ask" or mode == "ask":
            return decision
        if mode == "all":
            return Decision("allow", "every call is approved (--approve all)")
        return Decision("deny", f"{decision.reason}, and nobody is asked (--approve none)")

    def _decide(self, offer: Offer, roles: Sequence[str], approve: Sequence[str]) -> Decision:
        notes = offer.server.name == BUILTIN and offer.tool.name in NOTES
        if offer.server.name == BUILTIN and offer.effect == "read" and not notes:
            return Decision("allow", "it shows what the run has already")
        for role in roles if not _ours(offer) else ():
            if not _matches(offer, self.roles[role].tools if role in self.roles else ()):
                return Decision("deny", f"the role {role!r} does not have this tool")
        if _matches(offer, self.rules.deny):
            return Decision("deny", "the policy refuses it")
        if offer.change:
            return Decision("ask", offer.change)
        if _matches(offer, approve):
            return Decision("ask", "the agent's card asks for approval")
        if _matches(offer, self.rules.ask):
            return Decision("ask", "the policy asks for approval")
        server = self.servers.get(offer.server.name)
        if _matches(offer, self.rules.allow) or (server is not None and _own(offer, server.auto_approve)):
            return Decision("allow", "the configuration allows it")
        if _ours(offer):
            return Decision("allow", "an agent's own calls are judged in turn")
        if notes:
            return Decision("allow", "notes are turned on, and nothing else is changed")
        return _by_annotation(offer.tool, bundled=server is not None and server.bundled)


def _by_annotation(tool: Tool, *, bundled: bool) -> Decision:
    hints = tool.annotations
    if hints is not None and hints.read_only_hint:
        return Decision("allow", "it only reads")
    if bundled and hints is not None and hints.destructive_hint is False:
        return Decision("allow", "a bundled server says that it destroys nothing")
    if hints is None:
        return Decision("ask", "its server does not say whether it changes anything")
    return Decision("ask", "it may change or send something")


def _ours(offer: Offer) -> bool:
    """Whether it is an agent of this process. One of another orchestrator is a tool like any other."""
    return offer.server.name == AGENTS


def _matches(offer: Offer, globs: Iterable[str]) -> bool:
    """Whether a glob over `server__tool` means this tool; an agent may be meant by its name alone."""
    names = [offer.name, f"{offer.server.name}__{offer.tool.name}"]
    if _ours(offer):
        names.append(offer.tool.name)
    return any(fnmatchcase(name, glob) for glob in globs for name in names)


def _own(offer: Offer, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(offer.tool.name, glob) for glob in globs)
