"""Who is at work: the user of this process, as the system knows them."""

import os
import pwd
from functools import cache


@cache
def os_user() -> str:
    """The name of the process's user, or the number where there is no name for it. Variables cannot change it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container, mostly
        return str(os.getuid())
