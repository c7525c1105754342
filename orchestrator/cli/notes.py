"""`notes`: lists what agents keep for later runs, and forgets what is wrong or no longer wanted."""

import json
import re
from argparse import Namespace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from orchestrator.cli.progress import printable, say
from orchestrator.cli.running import options
from orchestrator.errors import ConfigurationError
from orchestrator.runtime.who import os_user

if TYPE_CHECKING:
    from orchestrator.memory.notes import Note, Notes

_ID = re.compile(r"n?(\d{1,15})", re.ASCII)


async def notes(arguments: Namespace) -> int:
    """The notes of this user that runs here would find; exit 1 for one that is not among them."""
    from orchestrator.memory.notes import NotesError  # noqa: PLC0415 - only this command needs it

    try:
        return await _do(arguments)
    except NotesError as error:
        say(f"error: {error}")
        return 1


async def _do(arguments: Namespace) -> int:
    from orchestrator.memory.notes import Notes  # noqa: PLC0415

    chosen = options(arguments)
    kept = Notes(chosen.store(), chosen.project(chosen.load_settings()))
    if arguments.action == "forget":
        return await _forget(kept, arguments)
    found = await kept.find(os_user(), "", -1)
    if arguments.json:
        print(json.dumps([_row(note) for note in found], ensure_ascii=False))
        return 0
    for note in found:
        at = datetime.fromtimestamp(note.at).strftime("%Y-%m-%d %H:%M")
        print(f"n{note.id}  {at}  {printable(note.agent)}  {printable(' '.join(note.text.split()))}")
    if not found:
        print("no notes here")
    return 0


async def _forget(kept: "Notes", arguments: Namespace) -> int:
    if not arguments.ids:
        raise ConfigurationError("`notes forget` needs the id of a note, like n3; `orchestrator notes` lists them")
    if wrong := next((id for id in arguments.ids if not _ID.fullmatch(id)), None):
        raise ConfigurationError(f"{wrong!r} is no id of a note; one is like n3, and `orchestrator notes` lists them")
    ids = dict.fromkeys(int(id.removeprefix("n")) for id in arguments.ids)
    gone = {id: await kept.forget(os_user(), id) for id in ids}
    if arguments.json:
        print(json.dumps({"forgotten": [f"n{id}" for id, done in gone.items() if done]}))
    for id, done in gone.items():
        if not done:
            say(f"error: there is no note n{id} here; `orchestrator notes` lists them")
        elif not arguments.json:
            print(f"n{id} is forgotten")
    return 0 if all(gone.values()) else 1


def _row(note: "Note") -> dict[str, Any]:
    at = datetime.fromtimestamp(note.at).astimezone().isoformat(timespec="seconds")
    shown = {"id": f"n{note.id}", "note": note.text, "at": at, "by": note.user, "agent": note.agent}
    return {**shown, "run_id": note.run, "workspace": note.project}
