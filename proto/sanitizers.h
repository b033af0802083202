// SPDX-License-Identifier: Apache-2.0
#pragma once

// What this build is instrumented with, as 0 or 1, for g++ and clang: AFD_ASAN (the address
// sanitizer), AFD_TSAN (that of threads), AFD_SANITIZED (either). For #if where code must differ,
// and for tests that have less time then.

#if defined(__has_feature)
#define AFD_HAS_FEATURE(name) __has_feature(name)
#else
#define AFD_HAS_FEATURE(name) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || AFD_HAS_FEATURE(address_sanitizer)
#define AFD_ASAN 1
#else
#define AFD_ASAN 0
#endif

#if defined(__SANITIZE_THREAD__) || AFD_HAS_FEATURE(thread_sanitizer)
#define AFD_TSAN 1
#else
#define AFD_TSAN 0
#endif

#define AFD_SANITIZED (AFD_ASAN || AFD_TSAN)
