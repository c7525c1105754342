"""Models as a configuration has them."""

from collections.abc import Mapping
from typing import Any

from orchestrator.config import ModelSettings


def tables_of(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, ModelSettings]:
    """`[models.NAME]` tables as they were written, read."""
    return {name: ModelSettings.model_validate(dict(table)) for name, table in tables.items()}
