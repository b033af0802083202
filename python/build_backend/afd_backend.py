# SPDX-License-Identifier: Apache-2.0
"""Builds libafd_ops for a wheel: setuptools, and CMake for the library."""
import os
import pathlib
import subprocess

from setuptools.build_meta import *  # noqa: F401,F403  (the hooks that pip calls)
from setuptools.command.build_py import build_py
from wheel.bdist_wheel import bdist_wheel

ROOT = pathlib.Path(__file__).resolve().parents[2]


class BuildPy(build_py):
    """The package with the library and messages.desc beside it.

    AFD_BUILD_DIR: a tree that has built them, to take them from, instead of one for this wheel.
    """

    def run(self):
        super().run()
        target = pathlib.Path(self.build_lib) / "afd"
        prefix = pathlib.Path(self.build_lib).resolve().parent / "afd-prefix"
        tree = os.environ.get("AFD_BUILD_DIR")
        if tree is None:
            tree = str(prefix.parent / "afd-cmake")
            subprocess.run(["cmake", "-G", "Ninja", "-S", str(ROOT), "-B", tree,
                            "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG",
                            "-DAFD_BUILD_PYTHON=ON"], check=True)
            subprocess.run(["cmake", "--build", tree, "--target", "afd_ops_library", "afd_python"],
                           check=True)
        for pattern in ("calls/libafd_ops.so.?.?", "python/messages.desc"):
            found, = pathlib.Path(tree).glob(pattern)
            self.copy_file(str(found.resolve()), str(target / found.name))


class PlatformWheel(bdist_wheel):
    """Any version of Python 3, this machine's kind of processor."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]
