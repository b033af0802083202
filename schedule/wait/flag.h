// SPDX-License-Identifier: Apache-2.0
#pragma once

// Accessors of the int32 words that two processes share: descriptor flags, result flags,
// acknowledged rounds and doorbells. Every access to such a word goes through here (afd.FfnWorker
// has NumPy's loads and stores instead, which is right on x86-64 alone).
//
// Ordering of the word that the other process looks at, publish -> observe:
//   result flag        publish_release -> observe (kAcquire): the row is complete.
//   descriptor flag    publish_seq_cst -> observe: rows, ids and layer_id are complete.
//   acknowledged round publish_seq_cst -> observe: every result of the round is published and the
//                      acknowledger reads no row of it any more.
// What a transport keeps for itself of a word that it sends in messages is publish_release: there
// the receiver stores the word that is looked at. kSeqCst is for the look between arming a doorbell
// and sleeping (doorbell.h); everywhere else kAcquire is enough.

#include <atomic>
#include <cstdint>

namespace afd::schedule {

static_assert(std::atomic_ref<int32_t>::is_always_lock_free,
              "lock-free atomics are address-free, so they work across mappings");
static_assert(std::atomic_ref<int32_t>::required_alignment == 4, "the windows align words to 4");

enum class Order { kAcquire, kSeqCst };

// Loads do not store, also on a read-only mapping; atomic_ref<const T> comes only with C++26.
inline int32_t observe(const int32_t& word, Order order) {
    std::atomic_ref<int32_t> shared(const_cast<int32_t&>(word));
    // Pairs with publish_seq_cst: the sleeper's second look of R9 must not pass its arming store.
    if (order == Order::kSeqCst) return shared.load(std::memory_order_seq_cst);
    // Pairs with publish_release and publish_seq_cst.
    return shared.load(std::memory_order_acquire);
}

// A word of the caller's own process that nobody else writes, or that a dead predecessor wrote.
// Over shared memory only the calling thread writes it. Over UCX two threads of the process do,
// with the lock of the UcxWorker: the data thread, and the one that receives, which stores what a
// welcome says of rounds taken over (UcxDispatch::read_welcome) and what arrives.
inline int32_t observe_own(const int32_t& word) {
    // Acquire, for readers without that lock. Pairs with publish_seq_cst of read_welcome: who sees
    // a flag taken over sees the acknowledgement that was stored before it. Free on x86.
    return observe(word, Order::kAcquire);
}

// A word that is judged by its value, of a process that may not keep to the protocol. What is
// checked must be what is used: a plain load could be repeated by the compiler between the two.
template <typename Word>
Word load_once(const Word& word) {
    // Relaxed: what has to come before it came with an observe() of the word that published it.
    return std::atomic_ref<Word>(const_cast<Word&>(word)).load(std::memory_order_relaxed);
}

inline void publish_release(int32_t& word, int32_t value) {
    // Pairs with observe: whoever reads this value sees what was stored before it.
    std::atomic_ref<int32_t>(word).store(value, std::memory_order_release);
}

inline void publish_seq_cst(int32_t& word, int32_t value) {
    // Pairs with observe; seq_cst so that the publisher's look at the doorbell comes after (R9).
    std::atomic_ref<int32_t>(word).store(value, std::memory_order_seq_cst);
}

}  // namespace afd::schedule
