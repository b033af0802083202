// SPDX-License-Identifier: Apache-2.0
//
// The workers of these tests are never destroyed: a listener of UCX 1.13 that ends while its thread
// runs crashes it. What UCX holds for them is no leak of ours, and its threads still read what its
// own destructors take away at the end of the process.

// Called by LeakSanitizer and by ThreadSanitizer, where there is one.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions();

extern "C" const char* __lsan_default_suppressions() {
    return "leak:libucs\nleak:libuct\nleak:libucp\nleak:libucm\n";
}

extern "C" const char* __tsan_default_suppressions() {
    // Races whose stack goes through this library: Debian's is built without the sanitizer.
    return "race:libucs.so\n";
}
