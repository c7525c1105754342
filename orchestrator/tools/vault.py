"""Where the sign-in to one URL is kept: in the system's keyring, or in a file that only its owner reads."""

import hashlib
import logging
from importlib.util import find_spec
from pathlib import Path

import httpx2

from orchestrator.config.folders import write_private
from orchestrator.tools.web import shown

logger = logging.getLogger(__name__)

FOLDER = "sign-ins"
SERVICE = "orchestrator-mcp"
"""What the sign-ins are called in the keyring."""

IN_KEYRING = '{"in": "keyring"}'
"""All that the file says beside a keyring, which so is not asked about servers that nobody has signed in to."""


class Vault:
    """The sign-in to `url`, as text: in the keyring where the package `keyring` is there and works."""

    def __init__(self, store: Path, url: str) -> None:
        digest = hashlib.sha256(url.encode()).hexdigest()[:16]
        self.url = url
        self.file = store / FOLDER / f"{digest}.json"
        self._name = f"{shown(httpx2.URL(url))} {digest}"

    def load(self) -> str | None:
        try:
            text = self.file.read_text("utf-8")
            if text != IN_KEYRING:
                return text
            import keyring  # noqa: PLC0415 - optional, and slow to import

            return keyring.get_password(SERVICE, self._name)
        except FileNotFoundError:
            return None
        except Exception as error:  # noqa: BLE001 - keyrings raise what they like; without one there is no sign-in
            logger.warning("the sign-in to %s cannot be read: %s", shown(httpx2.URL(self.url)), error)
            return None

    def save(self, text: str) -> None:
        write_private(self.file, IN_KEYRING if self._in_keyring(text) else text)

    def forget(self) -> bool:
        """Whether there was anything to forget."""
        try:
            if self.file.read_text("utf-8") == IN_KEYRING:
                import keyring  # noqa: PLC0415 - optional, and slow to import

                keyring.delete_password(SERVICE, self._name)
        except FileNotFoundError:
            return False
        except Exception as error:  # noqa: BLE001 - keyrings raise what they like; the rest is still to be forgotten
            logger.warning("the keyring did not forget the sign-in to %s: %s", shown(httpx2.URL(self.url)), error)
        self.file.unlink()
        return True

    def _in_keyring(self, text: str) -> bool:
        if find_spec("keyring") is None:
            return False
        import keyring  # noqa: PLC0415 - optional, and slow to import

        try:
            keyring.set_password(SERVICE, self._name, text)
        except Exception as error:  # noqa: BLE001 - keyrings raise what they like; a file is the other way
            logger.info("the system's keyring cannot be used: %s", error)
            return False
        return True
