"""The effects server, which also ends or stops the process that called it: LEDGER PID SIGNAL PLACE N.

It sends the signal to PID `before` or `after` the effect of the Nth call. With KILL, none of the calls up to then is
answered, as they would all be under way; and one that kills `before` has no effect.
"""

import os
import signal
import sys
import threading

from effects_server import EffectsServer


class DeadlyServer(EffectsServer):
    def __init__(self, ledger: str, pid: str, number: str, place: str, nth: str) -> None:
        super().__init__(ledger)
        self.victim, self.signal, self.place = int(pid), signal.Signals[f"SIG{number}"], place
        self.left, self.counting = int(nth), threading.Lock()

    def note(self, **facts: object) -> None:
        with self.counting:
            self.left -= 1
            mine, silent = self.left == 0, self.left >= 0 and self.signal == signal.SIGKILL
            if mine and self.place == "before":
                os.kill(self.victim, self.signal)
            if not (mine and self.place == "before" and silent):
                super().note(**facts)
            if mine and self.place == "after":
                os.kill(self.victim, self.signal)
        if silent:
            sys.exit()  # ends this call's thread


if __name__ == "__main__":
    DeadlyServer(*sys.argv[1:]).serve()
