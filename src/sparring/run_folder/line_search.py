"""Searches the raw lines of a log without parsing them, at about a gigabyte per second.

The lines found are candidates: the caller parses the record to decide whether it matches.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from sparring.run_folder.sharded_log import ShardedLog

WINDOW_BYTES = 4_000_000
MAX_BYTES = 200_000_000  # limit of bytes read for one page
_PLAIN = re.compile(r"[ -~]+")


def needle_of(text: str) -> bytes:
    """Return the longest ASCII part of a text, in lower case, as it appears in a JSON line.

    Other characters are left to the comparison with the record, because their lower case is not
    unique. A few characters that become ASCII in lower case, such as the Kelvin sign, are missed.
    """
    parts = _PLAIN.findall(text)
    longest = max(parts, key=len, default="")
    return json.dumps(longest)[1:-1].lower().encode()


def candidates(
    log: ShardedLog, needles: Sequence[bytes], ranges: Sequence[range]
) -> Iterator[tuple[int, bool]]:
    """Yield `(position, True)` for each line that contains every needle. After `MAX_BYTES`, yield
    `(position, False)` with the first unread position, and end."""
    wanted = [each for each in needles if each]
    read = 0
    for each in ranges:
        for window in log.windows(each.start, each.stop, WINDOW_BYTES):
            if read >= MAX_BYTES:
                yield window.start, False
                return
            read += len(window.data)
            data = window.data.lower()
            if all(needle in data for needle in wanted):
                for number, (low, high) in enumerate(window.places):
                    if all(data.find(needle, low, high) >= 0 for needle in wanted):
                        yield window.start + number, True
