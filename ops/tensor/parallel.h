// SPDX-License-Identifier: Apache-2.0
#pragma once

// Parallel: how an operator asks its caller for threads. ops/ makes none of its own.
//
// Operators cut their work into tasks whose results do not depend on which thread runs them, nor
// on how many there are.

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace afd::ops {

// A non-owning reference to a callable; valid only during the call that it is passed to.
template <typename Signature>
class FunctionRef;

template <typename R, typename... Args>
class FunctionRef<R(Args...)> {
  public:
    template <typename F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> &&
             std::is_invocable_r_v<R, F&, Args...>)
        FunctionRef(F&& callable)  // Implicit, so that lambdas pass as arguments.
        : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
          call_([](void* object, Args... args) -> R {
              return (*static_cast<std::remove_reference_t<F>*>(object))(
                  std::forward<Args>(args)...);
          }) {}

    R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

  private:
    void* object_;
    R (*call_)(void*, Args...);
};

class Parallel {
  public:
    virtual ~Parallel() = default;

    // At least 1; constant over the object's life.
    virtual unsigned num_threads() const = 0;

    // Calls body(task, thread) once for every task in [0, num_tasks), in any order and on any
    // thread in [0, num_threads()), and returns when all calls have returned. What a task wrote is
    // visible to the caller afterwards. A thread index is never in two calls at once.
    // REQUIRES: not called from inside a task.
    virtual void run(size_t num_tasks, FunctionRef<void(size_t task, unsigned thread)> body) = 0;
};

// Runs every task on the calling thread, in order.
class SerialParallel final : public Parallel {
  public:
    unsigned num_threads() const override { return 1; }
    void run(size_t num_tasks, FunctionRef<void(size_t, unsigned)> body) override {
        for (size_t task = 0; task < num_tasks; ++task) body(task, 0);
    }
};

}  // namespace afd::ops
