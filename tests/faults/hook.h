// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hook: what a program of a test does before it becomes another one.

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/integration/instance.h"

namespace afd::test {

class Hook {
  public:
    Hook() { set(""); }

    // Shell; "$@" are the flags of the program.
    void set(const std::string& text) const {
        std::ofstream(file() + ".new") << text << "\n";
        std::filesystem::rename(file() + ".new", file());
    }
    // Whoever begins from now on does not go on before let_go(), and then does `text`. It ends with
    // the directory.
    void hold(const std::string& text = "") const {
        std::filesystem::remove(go());
        set("while [ ! -e " + go() + " ]; do [ -d " + directory_ +
            " ] || exit 1; sleep 0.02; done\n" + text);
    }
    void let_go() const { std::ofstream{go()}; }

    // Becomes a program that can be started, in directory(), and that becomes `command`.
    std::string install(const std::string& name, const std::string& command) const {
        const std::string path = directory() + "/" + name;
        std::ofstream(path) << "#!/bin/bash\n. " << file() << "\nexec " << command << " \"$@\"\n";
        std::filesystem::permissions(path, std::filesystem::perms(0700));
        return path;
    }
    const std::string& directory() const { return directory_; }

  private:
    std::string file() const { return directory_ + "/hook"; }
    std::string go() const { return directory_ + "/go"; }

    const std::string directory_ = make_directory();
};

}  // namespace afd::test
