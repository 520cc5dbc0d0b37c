"""Remedies for groups that stand still, each as a command and as a call of the API. The functions are pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from lakelog.model.group import MAX_WINDOW, GroupKind
from lakelog.model.stuck import Remedy, RemedyCall


@dataclass(frozen=True, slots=True)
class Remedies:
    """The remedies of a group in a partition of a topic."""

    group: str
    topic: str
    partition: int

    def resume(self, *, is_whole: bool) -> tuple[Remedy, ...]:
        """Deliver again, of the topic or of all topics."""
        only = "" if is_whole else f" --topic {self.topic}"
        body = {} if is_whole else {"topic": self.topic}
        return (self._remedy("Resume it", f"resume {self.group}{only}", "POST", "resume", body),)

    def past(self, offset: int, kind: GroupKind) -> tuple[Remedy, ...]:
        """Give up messages that cannot be read."""
        restore = Remedy(label="Restore the file; the group then continues by itself")
        if kind is GroupKind.CURSOR:
            return restore, self._seek(f"Give up the messages below {offset}", offset)
        return restore, self._skip(f"Give up the messages below {offset}", offset)

    def start(self) -> tuple[Remedy, ...]:
        """Give the group a position."""
        arguments = f"seek {self.group} {self.topic} --to earliest"
        body = {"topic": self.topic, "position": "earliest"}
        worker = Remedy(label=f"Start a worker of group '{self.group}'")
        return worker, self._remedy("Begin with the oldest message", arguments, "POST", "seek", body)

    def skip_one(self, offset: int) -> tuple[Remedy, ...]:
        """Give up one message, which is the first unfinished one."""
        return (self._skip(f"Give up message {offset}", offset + 1),)

    def again(self, offset: int) -> tuple[Remedy, ...]:
        """Deliver everything from the first unfinished message on again, now."""
        return (self._seek(f"Revoke all leases and forget retries: deliver again from {offset}", offset),)

    def window(self, window: int) -> tuple[Remedy, ...]:
        """Allow more messages to be leased."""
        wider = min(MAX_WINDOW, window * 2)
        if wider == window:
            return ()
        return (self._alter(f"Raise the window to {wider}", f"--window {wider}", {"window": wider}),)

    def unordered(self) -> tuple[Remedy, ...]:
        """Deliver messages of one key at the same time."""
        return (self._alter("Deliver messages in any order", "--order none", {"order": "none"}),)

    def unfiltered(self, *, is_whole: bool) -> tuple[Remedy, ...]:
        """Remove the filter of the group, or that of the topic, and deliver what it has left out."""
        only = "" if is_whole else f"--topic {self.topic} "
        body = {"filter": ""} if is_whole else {"topic": self.topic, "filter": ""}
        again = {"topic": self.topic, "position": "earliest"}
        return (
            self._alter("Remove the filter", f"{only}--filter ''", body),
            self._remedy(
                "Deliver the messages that were left out",
                f"seek {self.group} {self.topic} --to earliest",
                "POST",
                "seek",
                again,
            ),
        )

    def keep_longer(self) -> tuple[Remedy, ...]:
        """Keep messages until the group has read them."""
        shown = f"lakelog topics describe {self.topic}"
        return (Remedy(label="Look at the retention, and keep messages for longer or start more workers", cli=shown),)

    def _skip(self, label: str, offset: int) -> Remedy:
        arguments = f"skip {self.group} {self.topic} --partition {self.partition} --to {offset}"
        return self._remedy(label, arguments, "POST", "skip", self._place(offset))

    def _seek(self, label: str, offset: int) -> Remedy:
        arguments = f"seek {self.group} {self.topic} --partition {self.partition} --to {offset}"
        return self._remedy(label, arguments, "POST", "seek", self._place(offset))

    def _place(self, offset: int) -> Mapping[str, str | int]:
        return {"topic": self.topic, "partition": self.partition, "offset": offset}

    def _alter(self, label: str, options: str, body: Mapping[str, str | int]) -> Remedy:
        return self._remedy(label, f"alter {self.group} {options}", "PATCH", "", body)

    def _remedy(self, label: str, arguments: str, method: str, verb: str, body: Mapping[str, str | int]) -> Remedy:
        path = f"/v1/groups/{quote(self.group, safe='')}{f'/{verb}' if verb else ''}"
        return Remedy(
            label=label, cli=f"lakelog groups {arguments}", http=RemedyCall(method=method, path=path, body=dict(body))
        )
