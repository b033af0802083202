// SPDX-License-Identifier: Apache-2.0
// scripts/netem_registers.cc sets the registers of a process from the beginning of their image.
// Method: linked here, its ptrace is this program's; a stopped child is given the legacy part and
// the header, which every kernel refuses as an image. Oracle: the whole image that is read back.
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <vector>

namespace {

// Intel's manual, volume 1, 13.4: 512 bytes of FXSAVE with XMM0 at 160, and the header of 64.
constexpr size_t kXmm0 = 160;
constexpr size_t kBeginning = 512 + 64;

class StoppedProcess {
  public:
    StoppedProcess() : id_(fork()) {
        if (id_ == 0) {
            ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
            raise(SIGSTOP);
            _exit(0);
        }
        int status = 0;
        EXPECT_EQ(waitpid(id_, &status, 0), id_);
        EXPECT_TRUE(WIFSTOPPED(status));
    }
    ~StoppedProcess() {
        kill(id_, SIGKILL);
        waitpid(id_, nullptr, 0);
    }
    StoppedProcess(const StoppedProcess&) = delete;
    StoppedProcess& operator=(const StoppedProcess&) = delete;

    [[nodiscard]] std::vector<char> image() const {
        std::vector<char> bytes(65536);
        iovec span{bytes.data(), bytes.size()};
        EXPECT_EQ(ptrace(PTRACE_GETREGSET, id_, NT_X86_XSTATE, &span), 0);
        bytes.resize(span.iov_len);
        return bytes;
    }
    [[nodiscard]] long set(std::vector<char> bytes, size_t first) const {
        iovec span{bytes.data(), first};
        return ptrace(PTRACE_SETREGSET, id_, NT_X86_XSTATE, &span);
    }

  private:
    pid_t id_;
};

TEST(NetemRegisters, TheBeginningOfAnImageIsEnough) {
    const StoppedProcess process;
    std::vector<char> image = process.image();
    ASSERT_GT(image.size(), kBeginning) << "this processor has no registers after XMM";
    // A component that is marked as unused is read back as zeros.
    image[512] |= 2;
    image[kXmm0] ^= 0x55;
    ASSERT_EQ(process.set(image, kBeginning), 0);
    EXPECT_THAT(process.image(), testing::ElementsAreArray(image));
}

TEST(NetemRegisters, AWholeImageIsSetAsItIs) {
    const StoppedProcess process;
    std::vector<char> image = process.image();
    image[512] |= 2;
    image[kXmm0 + 15] ^= 0x33;
    ASSERT_EQ(process.set(image, image.size()), 0);
    EXPECT_THAT(process.image(), testing::ElementsAreArray(image));
}

}  // namespace
