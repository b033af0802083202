// SPDX-License-Identifier: Apache-2.0
// Preloaded into Debian's user-mode kernel by scripts/netem-kernel. Linux 6.1 as a program sets the
// vector registers of its processes from an image of 2696 bytes (AVX-512 and protection keys), and
// a kernel whose processor has more, as AMX has, refuses an image that is not whole (EFAULT): the
// user-mode kernel then ends at its first process. Here the image is filled up with what the
// process has, so that what the user-mode kernel does not know of stays as it is.
#include <dlfcn.h>
#include <elf.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#include <cstdarg>
#include <cstdint>
#include <cstring>

// The user-mode kernel has one thread that traces, so the image can be kept.
extern "C" long ptrace(__ptrace_request request, ...) noexcept {
    using Ptrace = long (*)(__ptrace_request, pid_t, void*, void*);
    static const auto system_ptrace = reinterpret_cast<Ptrace>(dlsym(RTLD_NEXT, "ptrace"));
    va_list arguments;
    va_start(arguments, request);
    const pid_t process = va_arg(arguments, pid_t);
    void* const address = va_arg(arguments, void*);
    void* const data = va_arg(arguments, void*);
    va_end(arguments);
    if (request != PTRACE_SETREGSET || reinterpret_cast<std::uintptr_t>(address) != NT_X86_XSTATE) {
        return system_ptrace(request, process, address, data);
    }

    // AMX's is 11008 bytes.
    alignas(64) static char image[65536];
    iovec whole{image, sizeof image};
    if (const long code = system_ptrace(PTRACE_GETREGSET, process, address, &whole); code != 0) {
        return code;
    }
    const auto* given = static_cast<const iovec*>(data);
    if (given->iov_len >= whole.iov_len) {
        return system_ptrace(request, process, address, data);
    }
    std::memcpy(image, given->iov_base, given->iov_len);
    return system_ptrace(request, process, address, &whole);
}
