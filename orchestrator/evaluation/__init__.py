"""How well agents do: the tasks of a file, each run many times, checked, measured, and compared with a baseline.

Stands on `Orchestrator` alone: a run here is a run as any other, with its journal and its trace.
"""
