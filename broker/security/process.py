"""What a broker's process keeps from other users of the machine: new files, and its memory after a crash."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from klamm.config.broker_config import BrokerConfig

UMASKS: Final = {"private": 0o077, "group": 0o027}
NO_CORE: Final = 1
"""Not 0: the kernel ignores a limit of 0 when `core_pattern` is a program, and refuses a limit of 1 in both cases."""


def protect_process(config: BrokerConfig) -> None:
    """Set the umask and the limit of core dumps. Child processes inherit both."""
    os.umask(UMASKS[config.text("klamm.data.mode")])
    if not config.flag("klamm.core.dumps"):
        resource.setrlimit(resource.RLIMIT_CORE, (NO_CORE, NO_CORE))
