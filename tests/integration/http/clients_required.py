# SPDX-License-Identifier: Apache-2.0
"""What a test does whose client is not there: skipped on somebody's machine, a failure in CI.

Where the client would have to be fetched and the network does not answer, it is skipped in CI, too:
that says nothing about the tree.
"""

import os

SKIPPED = 77
# Of npm, when no answer came.
UNREACHABLE = ("EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "EHOSTUNREACH", "ENETUNREACH",
               "ENOTFOUND", "ETIMEDOUT")
VARIABLE = "AFD_CLIENTS_REQUIRED"


def is_missing(why: str) -> int:
    """The exit code of the test, with the reason printed."""
    is_unreachable = any(code in why for code in UNREACHABLE)
    if os.environ.get(VARIABLE) and not is_unreachable:
        print(f"failed: {VARIABLE} is set, and {why}")
        return 1
    print(f"skipped: {why}")
    return SKIPPED
