// SPDX-License-Identifier: Apache-2.0

#include "ops/format/amx_support.h"

#if defined(AFD_OPS_X86) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#endif

namespace afd::ops {
namespace {

#if defined(AFD_OPS_X86) && defined(__linux__)

// CPUID leaf 7, EDX.
constexpr unsigned kAmxBf16 = 1u << 22;
constexpr unsigned kAmxTile = 1u << 24;
constexpr unsigned kAmxInt8 = 1u << 25;
constexpr unsigned kAmxParts = kAmxBf16 | kAmxTile | kAmxInt8;

bool processor_has_amx() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kAmxParts) == kAmxParts;
}

// Configuration and data of tiles are among the registers that the operating system saves.
bool system_saves_tiles() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned kOsxsave = 1u << 27;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsxsave) == 0) return false;
    uint32_t low = 0;
    uint32_t high = 0;
    asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    constexpr uint32_t kTileState = 3u << 17;
    return (low & kTileState) == kTileState;
}

bool kernel_permits_tiles() {
    constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
    constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
    return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

AmxSupport find_support() {
    if (!processor_has_amx()) return {false, "this processor has no AMX"};
    if (!system_saves_tiles()) return {false, "the operating system does not save AMX registers"};
    if (!kernel_permits_tiles()) {
        return {false, "the kernel refuses AMX to this process (ARCH_REQ_XCOMP_PERM)"};
    }
    return {true, {}};
}

#else

AmxSupport find_support() {
    return {false, "this build has no AMX kernels"};
}

#endif

}  // namespace

const AmxSupport& amx_support() {
    static const AmxSupport kSupport = find_support();
    return kSupport;
}

}  // namespace afd::ops
