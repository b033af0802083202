// SPDX-License-Identifier: Apache-2.0
//
// What a confined worker can still ask the kernel for (system_calls.h).
//
// Method: a child process starts a thread, confines itself and makes one call, in the thread or
// outside of it; its exit status says what came of the call. Oracle: the list of the header.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "daemon/worker/system_calls.h"
#include "model/weight_cache/sealed_file.h"
#include "ops/format/amx_support.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

// Errno of the call, 0 if it went well.
using Call = std::function<int()>;

int error_of(long result) {
    return result < 0 ? errno : 0;
}

constexpr int kNotConfined = 250;

// In a process of its own: 128 + signal if it was killed.
int in_confined_child(const Call& call, bool in_thread = false, Reach reach = Reach::kDescriptors) {
    const pid_t child = fork();
    if (child == 0) {
        std::promise<void> confined;
        int error = 0;
        std::thread thread([&] {
            confined.get_future().wait();
            if (in_thread) error = call();
        });
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        const bool ok = confine_system_calls(reach).ok();
        confined.set_value();
        thread.join();
        if (!in_thread) error = call();
        _exit(ok ? error : kNotConfined);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct Forbidden {
    const char* name;
    Call call;
    bool is_for_sockets = false;  // Who makes connections may.
};

std::vector<Forbidden> forbidden_calls() {
    return {
        {"execve",
         [] {
             char* const none[] = {nullptr};
             return error_of(execve("/bin/true", none, none));
         }},
        {"fork", [] { return error_of(syscall(SYS_fork)); }},
        {"clone", [] { return error_of(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }},
        {"clone3", [] { return error_of(syscall(SYS_clone3, nullptr, 0)); }},
        {"socket", [] { return error_of(socket(AF_INET, SOCK_STREAM, 0)); }, true},
        {"socket of a service", [] { return error_of(socket(AF_UNIX, SOCK_STREAM, 0)); }},
        {"socket for datagrams", [] { return error_of(socket(AF_INET, SOCK_DGRAM, 0)); }},
        {"socket of another netlink",
         [] { return error_of(socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC)); }},
        {"connect", [] { return error_of(connect(0, nullptr, 0)); }, true},
        {"bind", [] { return error_of(bind(0, nullptr, 0)); }, true},
        {"accept", [] { return error_of(accept4(0, nullptr, nullptr, 0)); }, true},
        {"open to read", [] { return error_of(open("/dev/null", O_RDONLY | O_CLOEXEC)); }, true},
        // Where the C library has openat().
        {"open by its old name to write",
         [] { return error_of(syscall(SYS_open, "/dev/null", O_WRONLY)); }},
        // Who may open files could read the memory of another process by these.
        {"lseek", [] { return error_of(lseek(0, 0, SEEK_CUR)); }},
        {"pread", [] { return error_of(pread(0, nullptr, 0, 0)); }},
        {"preadv", [] { return error_of(preadv(0, nullptr, 0, 0)); }},
        {"sendfile", [] { return error_of(sendfile(1, 0, nullptr, 0)); }},
        {"a doorbell that waits", [] { return error_of(fcntl(0, F_SETFL, 0)); }},
        {"open to make", [] { return error_of(open("/tmp/made", O_RDWR | O_CREAT, 0600)); }},
        {"open to write", [] { return error_of(open("/dev/null", O_WRONLY)); }},
        {"open to empty", [] { return error_of(open("/dev/null", O_RDWR | O_TRUNC)); }},
        {"open a directory", [] { return error_of(open("/", O_RDONLY | O_DIRECTORY)); }},
        {"unlink", [] { return error_of(unlink("/nowhere")); }},
        {"rename", [] { return error_of(rename("/nowhere", "/anywhere")); }},
        {"truncate", [] { return error_of(ftruncate(0, 0)); }},
        {"fchmod to give a right", [] { return error_of(fchmod(0, 0400)); }},
        {"kill another", [] { return error_of(kill(getppid(), 0)); }},
        {"signal by pidfd", [] { return error_of(syscall(SYS_pidfd_send_signal, 0, 0, 0, 0)); }},
        {"ptrace", [] { return error_of(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr)); }},
        {"process_vm_writev",
         [] {
             return error_of(syscall(SYS_process_vm_writev, getppid(), nullptr, 0, nullptr, 0, 0));
         }},
        {"memfd_create", [] { return error_of(syscall(SYS_memfd_create, "x", 0)); }, true},
        {"executable memory",
         [] {
             return mmap(
                        nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
                            MAP_FAILED
                        ? errno
                        : 0;
         }},
        {"memory that becomes executable",
         [] {
             void* memory = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
             return error_of(mprotect(memory, 4096, PROT_READ | PROT_EXEC));
         }},
        {"setuid", [] { return error_of(setuid(getuid())); }},
        {"prctl", [] { return error_of(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)); }},
        {"io_uring_setup", [] { return error_of(syscall(SYS_io_uring_setup, 1, nullptr)); }},
        {"bpf", [] { return error_of(syscall(SYS_bpf, 0, nullptr, 0)); }},
    };
}

// Under a sanitizer there is nothing to see.
TEST(SystemCalls, WhatAWorkerDoesNotNeedIsRefusedInEachThread) {
    if (!can_confine()) return;
    for (const Forbidden& forbidden : forbidden_calls()) {
        for (const bool in_thread : {false, true}) {
            EXPECT_EQ(in_confined_child(forbidden.call, in_thread), EPERM)
                << forbidden.name << (in_thread ? " in a thread" : "");
        }
        if (!forbidden.is_for_sockets) {
            EXPECT_EQ(in_confined_child(forbidden.call, true, Reach::kSockets), EPERM)
                << forbidden.name << " over ucx";
        }
    }
}

// What whoever makes connections needs, and what only looks like it.
TEST(SystemCalls, ConnectionsAreMadeWhereTheyMustBe) {
    if (!can_confine()) return;
    EXPECT_EQ(in_confined_child(
                  [] {
                      const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
                      sockaddr_in address{};
                      address.sin_family = AF_INET;
                      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
                      void* const name = &address;
                      socklen_t bytes = sizeof(address);
                      auto* const at = static_cast<sockaddr*>(name);
                      if (bind(listener, at, bytes) != 0 || listen(listener, 1) != 0) return errno;
                      if (getsockname(listener, at, &bytes) != 0) return errno;
                      const int client = socket(AF_INET, SOCK_STREAM, 0);
                      if (connect(client, at, bytes) != 0) return errno;
                      const int accepted = accept(listener, nullptr, nullptr);
                      return error_of(send(accepted, "x", 1, MSG_NOSIGNAL));
                  },
                  true,
                  Reach::kSockets),
              0);
    struct Allowed {
        const char* name;
        Call call;
    };
    const Allowed calls[] = {
        {"routes", [] { return error_of(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0)); }},
        {"neighbours", [] { return error_of(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0)); }},
        {"read", [] { return error_of(open("/proc/self/stat", O_RDONLY | O_CLOEXEC)); }},
        {"network namespace",
         [] {
             struct stat seen {};
             return error_of(stat("/proc/self/ns/net", &seen));
         }},
        {"device",
         [] {
             ifreq request{};
             std::strcpy(request.ifr_name, "lo");
             return error_of(ioctl(socket(AF_INET, SOCK_STREAM, 0), SIOCGIFMTU, &request));
         }},
        {"not to wait",
         [] {
             const int made = socket(AF_INET, SOCK_STREAM, 0);
             return error_of(fcntl(made, F_SETFL, fcntl(made, F_GETFL) | O_NONBLOCK));
         }},
        {"memory of a ring",
         [] {
             const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
             const int made = memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
             const bool is_made = made >= 0 && fchmod(made, 0600) == 0 &&
                                  posix_fallocate(made, 0, 4096) == 0 &&
                                  fcntl(made, F_ADD_SEALS, seals) == 0;
             return is_made ? 0 : errno;
         }},
    };
    for (const Allowed& allowed : calls) {
        EXPECT_EQ(in_confined_child(allowed.call, true, Reach::kSockets), 0) << allowed.name;
    }
    EXPECT_EQ(in_confined_child(
                  [] {
                      const int made = socket(AF_INET, SOCK_STREAM, 0);
                      return error_of(ioctl(made, SIOCSIFFLAGS, nullptr));
                  },
                  true,
                  Reach::kSockets),
              EPERM);
}

// What it needs no call for any more: a worker that has not computed yet keeps the tiles of AMX.
// Says something where the processor has them.
TEST(SystemCalls, TilesAreThereWhereTheyWereBefore) {
    if (!can_confine()) return;
    // In the child alone: whoever asks keeps them.
    const int confined = in_confined_child([] { return ops::amx_support().is_offered ? 1 : 2; });
    EXPECT_EQ(confined, ops::amx_support().is_offered ? 1 : 2) << ops::amx_support().reason;
}

TEST(SystemCalls, MemoryDescriptorsAndTheEndStay) {
    if (!can_confine()) return;
    EXPECT_EQ(in_confined_child([] {
                  // Beyond the threshold of malloc: a mapping of its own.
                  std::vector<char> memory(size_t{8} << 20, 'a');
                  memory.resize(size_t{16} << 20);
                  const int copied = memory[12345];
                  fprintf(stderr, "still here\n");
                  usleep(1000);
                  return copied == 'a' ? 0 : 1;
              }),
              0);
    // An assertion's way out.
    EXPECT_EQ(in_confined_child([] {
                  std::abort();
                  return 0;
              }),
              128 + SIGABRT);
}

// Goal: a confined worker finds that its mapped weights cannot be read, and no signal does. Method:
// their file is cut short before the child confines itself. Oracle: the child's end; the file's
// mode.
TEST(SystemCalls, MappedWeightsThatCannotBeReadAreCondemned) {
    if (!can_confine()) return;
    const test::TemporaryDirectory directory;
    const std::string path = directory.path("weights");
    const std::array<size_t, 1> sizes = {8192};
    auto writer = model::SealedFileWriter::create(path, "key", sizes);
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    ASSERT_TRUE(writer.value().write(0, std::vector<std::byte>(sizes[0])).ok());
    ASSERT_TRUE(writer.value().seal().ok());
    const auto file = model::SealedFile::open(path, "key", sizes);
    ASSERT_TRUE(file.ok()) << file.error().message;
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
    ASSERT_EQ(truncate(path.c_str(), 4096), 0);
    const auto use = [&file] {
        if (file.value().verify(0).ok()) return 1;
        file.value().condemn();
        return 0;
    };
    EXPECT_EQ(in_confined_child(use, true), 0);
    EXPECT_TRUE(model::SealedFile::is_condemned(path));
}

}  // namespace
}  // namespace afd::daemon
