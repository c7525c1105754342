"""What every table of `orchestrator.toml` has in common."""

from pydantic import BaseModel, ConfigDict


class Table(BaseModel):
    """Unknown keys are mistakes, and no value stands in a message: it may be a secret."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
