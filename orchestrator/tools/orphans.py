"""No process of a server outlives us, however we end.

A server that ends at the end of its input needs no help. For the others, and for what `npx` and its like started, a
shell is told which process groups are ours. It reads a pipe that ends with this process, even by SIGKILL, and then ends
the groups that are left. It costs one process of a few hundred kilobytes, and works on every POSIX system; Linux's
`PR_SET_PDEATHSIG` would not reach what a server itself started, and would slow every start down.
"""

import asyncio
import logging
import os
import signal
import subprocess
from contextlib import suppress

logger = logging.getLogger(__name__)

PATIENCE = 2
"""Seconds until SIGTERM after we are gone, and again until SIGKILL; as long as when we end servers ourselves."""

_SCRIPT = f"""
trap '' INT TERM HUP
groups=' '
while read -r sign group; do
  case $sign in
    +) groups="$groups$group " ;;
    -) groups="${{groups%% $group *}} ${{groups#* $group }}" ;;
  esac
done
[ "$groups" = ' ' ] && exit
for signal in TERM KILL; do
  sleep {PATIENCE}
  for group in $groups; do kill -s $signal -- "-$group"; done
done
"""


class Watcher:
    """Ends the process groups that it was told of and that still run when this process is gone."""

    def __init__(self) -> None:
        self._shell: subprocess.Popen[bytes] | None = None

    def watch(self, group: int) -> None:
        """From now on the group ends with us. The shell is started with the first one."""
        if self._shell is None:
            try:
                self._shell = _start()
            except OSError as error:
                logger.debug("no shell to watch over the servers' processes: %s", error)
                return
        self._tell("+", group)

    def release(self, group: int) -> None:
        """The group has ended."""
        self._tell("-", group)

    async def close(self) -> None:
        """Ends the shell; where groups are left, it ends them first."""
        if self._shell is not None:
            assert self._shell.stdin is not None
            with suppress(OSError):
                self._shell.stdin.close()
            await asyncio.to_thread(self._shell.wait)
            self._shell = None

    def _tell(self, sign: str, group: int) -> None:
        if self._shell is not None and self._shell.stdin is not None:
            with suppress(OSError):  # someone ended the shell: the servers work without it
                self._shell.stdin.write(f"{sign} {group}\n".encode())


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", _SCRIPT],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,  # who waits for the end of our output does not wait for the shell
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ.get("PATH", os.defpath)},
        cwd="/",
        start_new_session=True,
        bufsize=0,
    )


def end_group(group: int, number: signal.Signals) -> None:
    """Sends a signal to all processes of a group that are left."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
