// SPDX-License-Identifier: Apache-2.0
#pragma once

// GilRelease: other Python threads run while one lives.

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace afd::python {

// pybind11's own takes the lock back in a destructor that must not throw. A daemon thread that does
// so when the interpreter has ended is ended there by pthread_exit(), which unwinds the stack: the
// process would be aborted instead. Such a thread sleeps here until the process is gone.
class GilRelease {
  public:
    // REQUIRES: this thread has the lock.
    GilRelease() : state_(PyEval_SaveThread()) {}
    ~GilRelease() noexcept(false) {
        try {
            PyEval_RestoreThread(state_);
        } catch (const abi::__forced_unwind&) {
            while (true) ::pause();
        }
    }
    GilRelease(const GilRelease&) = delete;
    GilRelease& operator=(const GilRelease&) = delete;

  private:
    PyThreadState* const state_;
};

}  // namespace afd::python
