"""Looks at everything a run would need, without running anything; says what is wrong, where, and what to do."""
