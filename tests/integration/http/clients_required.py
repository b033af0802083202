# SPDX-License-Identifier: Apache-2.0
"""What a test does whose client is not there: skipped on somebody's machine, a failure in CI.

Where the client would have to be fetched and the network does not answer, it is skipped in CI, too:
that says nothing about the tree.
"""

import os

SKIPPED = 77
# Of npm, when no answer came, or that the registry cannot answer now.
UNREACHABLE = ("EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "EHOSTUNREACH", "ENETUNREACH",
               "ENOTFOUND", "ETIMEDOUT", "ERR_SOCKET_TIMEOUT", "E429", "E500", "E502", "E503",
               "E504")
VARIABLE = "AFD_CLIENTS_REQUIRED"


def is_unreachable(why: str) -> bool:
    return any(code in why for code in UNREACHABLE)


def is_missing(why: str) -> int:
    """The exit code of the test, with the reason printed."""
    if os.environ.get(VARIABLE) and not is_unreachable(why):
        print(f"failed: {VARIABLE} is set, and {why}")
        return 1
    print(f"skipped: {why}")
    return SKIPPED
