"""The state machine: a pure fold over a run's journal, and the shell that performs what it decides."""
