"""ringpipe's log lines in Python's logging, as the logger "ringpipe".

Which lines there are, RINGPIPE_LOG_LEVEL says (error, warning, info, debug).
They arrive on the threads that call the package: when a call begins, waits on
the main thread, or ends.
"""

from __future__ import annotations

import logging

LOGGER = logging.getLogger("ringpipe")

_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)


def deliver(level: int, line: str) -> None:
    """Logs a line of a ringpipe_log_level; the extension calls this."""
    LOGGER.log(_LEVELS[min(level, len(_LEVELS) - 1)], "%s", line)
