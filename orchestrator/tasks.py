"""Background tasks that belong to a block."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import anyio.abc


@asynccontextmanager
async def background() -> AsyncGenerator[anyio.abc.TaskGroup]:
    """A task group that is joined on leaving, and that does not wrap what the block itself raises.

    A plain task group turns every exception of its body into an `ExceptionGroup`; a user who wrote `except ValueError`
    around our block would miss it. Exceptions of the tasks themselves still leave as a group.
    """
    raised: BaseException | None = None
    try:
        async with anyio.create_task_group() as group:
            try:
                yield group
            except BaseException as error:
                raised = error
                raise
    except BaseExceptionGroup as errors:
        if raised is None or errors.exceptions != (raised,):
            raise
    if raised is not None:
        raise raised
