"""Searches the raw lines of a log for texts, without parsing them: a gigabyte in about a second.

What is found is a candidate. Its record decides whether it matches.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from sparring.run_folder.sharded_log import ShardedLog

WINDOW_BYTES = 4_000_000
MAX_BYTES = 200_000_000  # read for one page
_PLAIN = re.compile(r"[ -~]+")


def needle_of(text: str) -> bytes:
    """Return the longest part of a text that every spelling of it has in a line: ASCII, lower case.

    Other letters have more than one spelling in lower case, and are left to the record. A few
    letters become ASCII in lower case, such as the Kelvin sign; ASCII does not find those.
    """
    parts = _PLAIN.findall(text)
    longest = max(parts, key=len, default="")
    return json.dumps(longest)[1:-1].lower().encode()


def candidates(
    log: ShardedLog, needles: Sequence[bytes], ranges: Sequence[range]
) -> Iterator[tuple[int, bool]]:
    """Yield positions of lines that contain every needle. A pair with False says up to where the
    log has been read: it comes last, if the page has read enough."""
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
