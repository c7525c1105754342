"""The closed union that a run is folded from, and its events as lines."""

from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from orchestrator.errors import JournalError, UnknownEvent
from orchestrator.events.calls import CallEvent
from orchestrator.events.checks import CheckEvent
from orchestrator.events.memory import MemoryEvent
from orchestrator.events.models import ModelEvent
from orchestrator.events.persons import PersonEvent
from orchestrator.events.runs import LifeEvent

JournalEvent = LifeEvent | ModelEvent | CallEvent | PersonEvent | CheckEvent | MemoryEvent

_adapter: TypeAdapter[JournalEvent] = TypeAdapter(Annotated[JournalEvent, Field(discriminator="type")])


def dump(event: JournalEvent) -> bytes:
    """One journal line: JSON in UTF-8.

    Raises:
        JournalError: it holds half of a surrogate pair, which is no character and has no UTF-8.
    """
    try:
        return event.__pydantic_serializer__.to_json(event, exclude_defaults=False)
    except PydanticSerializationError as error:
        raise JournalError(f"an event ({event.type}) cannot be written: {error}") from error


def load(line: bytes | str) -> JournalEvent:
    """Reads one journal line.

    Raises:
        UnknownEvent: its type or version is not of this release.
    """
    try:
        return _adapter.validate_json(line)
    except ValidationError as error:
        raise UnknownEvent(
            f"the journal holds an event that this version of orchestrator cannot read ({error.errors()[0]['msg']}): "
            f"{bytes(line[:120], 'utf-8') if isinstance(line, str) else line[:120]!r}. Use the version that wrote it."
        ) from error
