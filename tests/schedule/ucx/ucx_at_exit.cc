// SPDX-License-Identifier: Apache-2.0
//
// The workers of these tests are never destroyed: a listener of UCX 1.13 that ends while its thread
// runs crashes it. What UCX holds for them is no leak of ours, and its threads still read what its
// own destructors take away at the end of the process, which once in some hundred ends was a crash
// behind a test that had passed. So these programs end without destructors, behind the look for
// leaks.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

// Called by LeakSanitizer and by ThreadSanitizer, where there is one.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions();
extern "C" [[gnu::weak]] void __lsan_do_leak_check();

namespace {

// Registered behind the handlers of the libraries, hence called before them.
const bool kEndsWithoutDestructors = ::on_exit(
                                         [](int status, void*) {
                                             if (__lsan_do_leak_check != nullptr) {
                                                 __lsan_do_leak_check();
                                             }
                                             std::fflush(nullptr);
                                             ::_exit(status);
                                         },
                                         nullptr) == 0;

}  // namespace

extern "C" const char* __lsan_default_suppressions() {
    return "leak:libucs\nleak:libuct\nleak:libucp\nleak:libucm\n";
}

extern "C" const char* __tsan_default_suppressions() {
    // Races whose stack goes through this library: Debian's is built without the sanitizer.
    return "race:libucs.so\n";
}
