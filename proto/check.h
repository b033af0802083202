// SPDX-License-Identifier: Apache-2.0
#pragma once

// AFD_ASSERT: a contract of our own code, checked in every build; a violation prints the
// expression and the values and aborts. Never for bytes of another process, file or client:
// those are validated and cost only the one who sent them (proto/status.h).
//
// A stderr without any room is waited for no longer than a second, and one without a reader not at
// all: whoever waited there would neither live nor be replaced. A macro and no inline function: the
// kernels of each instruction set include this, and the linker would keep one of their copies for
// all.

#include <poll.h>

#include <cstdio>
#include <cstdlib>

#define AFD_ASSERT(condition, ...)                                                            \
    do {                                                                                      \
        if (!(condition)) [[unlikely]] {                                                      \
            pollfd afd_output{.fd = 2, .events = POLLOUT, .revents = 0};                      \
            if (::poll(&afd_output, 1, 1000) == 1 && afd_output.revents == POLLOUT) {         \
                std::fprintf(                                                                 \
                    stderr, "%s:%d: assertion failed: %s: ", __FILE__, __LINE__, #condition); \
                std::fprintf(stderr, __VA_ARGS__);                                            \
                std::fputc('\n', stderr);                                                     \
            }                                                                                 \
            std::abort();                                                                     \
        }                                                                                     \
    } while (false)

// The same for hot loops: checked unless NDEBUG is defined.
#ifdef NDEBUG
#define AFD_DASSERT(condition, ...) \
    do {                            \
    } while (false)
#else
#define AFD_DASSERT(condition, ...) AFD_ASSERT(condition, __VA_ARGS__)
#endif
