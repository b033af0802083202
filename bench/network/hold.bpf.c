// SPDX-License-Identifier: Apache-2.0

// hold: what a device sends leaves HOLD_NS later, for want of a queue that holds packets (netem). The
// core that sends waits meanwhile, so this is a delay for one message at a time, and one that is
// exact to some 0.1 us. Packets without rows (TCP's own) pass at once. wire.py compiles it and hangs
// it into a device.

typedef unsigned int u32;
typedef unsigned long long u64;

// As far as it is looked at: linux/bpf.h.
struct __sk_buff {
    u32 len;
};
static u64 (*const ktime_get_ns)(void) = (void*)5;

enum { kUnspecified = -1, kOwnBytesMax = 256, kLooksMax = 3900 };

__attribute__((section("tc"), used)) int hold(struct __sk_buff* packet) {
    if (packet->len < kOwnBytesMax) return kUnspecified;
    const u64 start_ns = ktime_get_ns();
    for (int look = 0; look < kLooksMax; ++look) {
        if (ktime_get_ns() - start_ns >= HOLD_NS) break;
    }
    return kUnspecified;
}
