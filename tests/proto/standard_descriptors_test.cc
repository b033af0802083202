// SPDX-License-Identifier: Apache-2.0
#include "proto/standard_descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

namespace afd {
namespace {

// The exit status of a child that does `body`.
int status_of_child(const std::function<int()>& body) {
    const pid_t pid = fork();
    if (pid == 0) _exit(body());
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Oracle: what reading and writing say, and the number of the next file that is opened.
TEST(StandardDescriptors, WhatIsClosedIsNotTakenByAnotherFile) {
    EXPECT_EQ(status_of_child([] {
                  for (const int fd : {0, 1, 2}) close(fd);
                  open_standard_descriptors();
                  char byte = 'x';
                  if (read(0, &byte, 1) != 0) return 1;
                  if (write(1, &byte, 1) != -1 || errno != EBADF) return 2;
                  if (write(2, &byte, 1) != 1) return 3;
                  return open("/dev/null", O_RDONLY) > 2 ? 0 : 4;
              }),
              0);
}

TEST(StandardDescriptors, WhatIsOpenStays) {
    EXPECT_EQ(status_of_child([] {
                  int ends[2];
                  if (pipe(ends) != 0 || dup2(ends[1], 1) != 1) return 1;
                  close(0);
                  open_standard_descriptors();
                  char byte = 'x';
                  if (write(1, &byte, 1) != 1 || read(ends[0], &byte, 1) != 1) return 2;
                  return read(0, &byte, 1) == 0 ? 0 : 3;
              }),
              0);
}

}  // namespace
}  // namespace afd
