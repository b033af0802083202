// SPDX-License-Identifier: Apache-2.0
#include "daemon/worker/system_calls.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <memory>

#include "model/weight_cache/sealed_file.h"
#include "ops/format/amx_support.h"
#include "proto/failure.h"
#include "proto/sanitizers.h"

namespace afd::daemon {
namespace {

using Filter = std::unique_ptr<void, decltype(&seccomp_release)>;

// Whatever their arguments are.
constexpr int kAllowed[] = {
    // Waiting, and what wakes.
    SCMP_SYS(futex),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(nanosleep),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(sched_yield),
    SCMP_SYS(restart_syscall),
    // Descriptors that are there: control channel, doorbells, log, segments.
    SCMP_SYS(read),
    SCMP_SYS(readv),
    SCMP_SYS(write),
    SCMP_SYS(writev),
    SCMP_SYS(recvmsg),
    SCMP_SYS(sendmsg),
    SCMP_SYS(close),
    SCMP_SYS(fstat),
    // Memory; what makes it executable is left out below.
    SCMP_SYS(brk),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    // What the C library asks for itself.
    SCMP_SYS(clock_gettime),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(getrandom),
    SCMP_SYS(sysinfo),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(rseq),
    // The end.
    SCMP_SYS(exit),
    SCMP_SYS(exit_group)};

// For connections: what Reach::kSockets has beyond that, whatever the arguments are.
constexpr int kAllowedForSockets[] = {SCMP_SYS(connect),
                                      SCMP_SYS(bind),
                                      SCMP_SYS(listen),
                                      SCMP_SYS(accept),
                                      SCMP_SYS(accept4),
                                      SCMP_SYS(getsockname),
                                      SCMP_SYS(getpeername),
                                      SCMP_SYS(getsockopt),
                                      SCMP_SYS(setsockopt),
                                      SCMP_SYS(sendto),
                                      SCMP_SYS(recvfrom),
                                      SCMP_SYS(shutdown)};
// Of the requests to a network device those that UCX 1.13 makes. They change nothing, but for
// SIOCETHTOOL with a right that workers should not have.
constexpr uint64_t kDeviceRequests[] = {SIOCGIFFLAGS, SIOCGIFMTU, SIOCGIFHWADDR, SIOCETHTOOL};

class Rules {
  public:
    explicit Rules(scmp_filter_ctx filter) : filter_(filter) {}

    // Allowed if all comparisons hold.
    void allow(int call, std::initializer_list<scmp_arg_cmp> comparisons = {}) {
        if (error_ != 0) return;
        error_ = seccomp_rule_add_array(filter_,
                                        SCMP_ACT_ALLOW,
                                        call,
                                        static_cast<unsigned>(comparisons.size()),
                                        comparisons.begin());
    }
    // 0, or minus errno of the first rule that could not be added.
    int error() const { return error_; }

  private:
    scmp_filter_ctx filter_;
    int error_ = 0;
};

// The argument has none of these bits.
scmp_arg_cmp without(unsigned argument, uint64_t bits) {
    return {argument, SCMP_CMP_MASKED_EQ, bits, 0};
}

scmp_arg_cmp equals(unsigned argument, uint64_t value) {
    return {argument, SCMP_CMP_EQ, value, 0};
}

void allow_all(Rules& rules) {
    for (const int call : kAllowed) rules.allow(call);
    rules.allow(SCMP_SYS(mmap), {without(2, PROT_EXEC)});
    rules.allow(SCMP_SYS(mprotect), {without(2, PROT_EXEC)});
    // fstat() of the C library.
    rules.allow(SCMP_SYS(newfstatat), {equals(3, AT_EMPTY_PATH)});
    // What is handed over later is looked at before it is mapped.
    rules.allow(SCMP_SYS(fcntl), {equals(1, F_GET_SEALS)});
    rules.allow(SCMP_SYS(geteuid));
    // SealedFile::condemn(), and nothing that gives a right.
    rules.allow(SCMP_SYS(fchmod), {equals(1, model::kCondemnedMode)});
    // abort(), which an assertion ends in, and nobody else.
    const auto self = static_cast<uint64_t>(::getpid());
    rules.allow(SCMP_SYS(tgkill), {equals(0, self)});
    rules.allow(SCMP_SYS(kill), {equals(0, self)});
}

// Of one type, and of one protocol or of its family's own.
void allow_socket(Rules& rules, uint64_t domain, uint64_t type, uint64_t protocol) {
    constexpr uint32_t kType = ~uint32_t{SOCK_CLOEXEC | SOCK_NONBLOCK};
    const auto allow_one = [&](uint64_t one) {
        rules.allow(SCMP_SYS(socket),
                    {equals(0, domain), {1, SCMP_CMP_MASKED_EQ, kType, type}, equals(2, one)});
    };
    allow_one(0);
    if (protocol != 0) allow_one(protocol);
}

void allow_sockets(Rules& rules) {
    for (const int call : kAllowedForSockets) rules.allow(call);
    allow_socket(rules, AF_INET, SOCK_STREAM, IPPROTO_TCP);
    allow_socket(rules, AF_INET6, SOCK_STREAM, IPPROTO_TCP);
    allow_socket(rules, AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    allow_socket(rules, AF_UNIX, SOCK_SEQPACKET, 0);
    rules.allow(SCMP_SYS(fcntl), {equals(1, F_GETFL)});
    // Not to wait: a doorbell that waits would hold up whoever else rings it.
    rules.allow(SCMP_SYS(fcntl),
                {equals(1, F_SETFL), {2, SCMP_CMP_MASKED_EQ, O_NONBLOCK, O_NONBLOCK}});
    for (const uint64_t request : kDeviceRequests) {
        rules.allow(SCMP_SYS(ioctl), {equals(1, request)});
    }
    // Memory of a ring between neighbours, as Segment::create_unnamed() makes it. The mode is also
    // that of a file that a worker has condemned: it can take that back.
    rules.allow(SCMP_SYS(memfd_create), {equals(1, MFD_CLOEXEC | MFD_ALLOW_SEALING)});
    rules.allow(SCMP_SYS(fchmod), {equals(1, 0600)});
    rules.allow(SCMP_SYS(fallocate), {equals(1, 0)});
    rules.allow(SCMP_SYS(fcntl),
                {equals(1, F_ADD_SEALS), equals(2, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)});
    // UCX must find that its peer over loopback is of the same network namespace.
    rules.allow(SCMP_SYS(newfstatat));
    constexpr uint32_t kMoreThanRead = ~uint32_t{O_CLOEXEC};
    rules.allow(SCMP_SYS(openat), {without(2, kMoreThanRead)});
    rules.allow(SCMP_SYS(open), {without(1, kMoreThanRead)});
}

}  // namespace

bool can_confine() {
#if AFD_SANITIZED
    return false;
#else
    return true;
#endif
}

Result<> confine_system_calls(Reach reach) {
    // Asks the kernel while it may: kernels are chosen by the first product, which may come later
    // and would then compute class amx without its instructions.
    ops::amx_support();
    const Filter filter(seccomp_init(SCMP_ACT_ERRNO(EPERM)), &seccomp_release);
    if (!filter) return resource_exhausted("no memory for a seccomp filter", with());
    Rules rules(filter.get());
    allow_all(rules);
    if (reach == Reach::kSockets) allow_sockets(rules);
    int error = rules.error();
    // All threads at once: those of the pool and of the control channel are there already.
    if (error == 0) error = seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_TSYNC, 1);
    if (error == 0) error = seccomp_load(filter.get());
    if (error == 0) return {};
    return Error{
        Code::kUnimplemented,
        std::string("system calls cannot be confined (seccomp): ") + std::strerror(-error)};
}

}  // namespace afd::daemon
