# SPDX-License-Identifier: Apache-2.0
"""Builds a wheel: setuptools, and CMake for what is compiled (python/CMakeLists.txt)."""
import os
import pathlib
import subprocess
import sys
import sysconfig

from setuptools.build_meta import *  # noqa: F401,F403  (the hooks that pip calls)
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel  # Since setuptools 70.1.
except ImportError:
    try:
        from wheel.bdist_wheel import bdist_wheel
    except ImportError:
        raise ImportError("to build the package this Python needs wheel, or setuptools 70.1 or "
                          "later: pip install setuptools wheel (python/README.md)") from None



class UnsupportedOperation(Exception):
    """By this name front ends know a refusal from a failure (PEP 517)."""


# setuptools would leave out what CMake compiles, and this file.
def build_sdist(sdist_directory, config_settings=None):
    raise UnsupportedOperation("there is no source distribution of afd: build a wheel from a "
                               "clone, pip wheel . (python/README.md)")


ROOT = pathlib.Path(__file__).resolve().parents[2]


class BuildPy(build_py):
    """The package with the binding, the library and messages.desc.

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
                            "-DAFD_BUILD_PYTHON=ON", f"-DAFD_NUMPY_PYTHON={sys.executable}"],
                           check=True)
            subprocess.run(["cmake", "--build", tree, "--target", "afd_python"], check=True)
        made = pathlib.Path(tree) / "python" / "afd"
        # A tree may have bindings for several Pythons.
        binding = made / ("_native" + sysconfig.get_config_var("EXT_SUFFIX"))
        if not binding.exists():
            raise FileNotFoundError(f"there is no {binding}: {tree} was built for another Python; "
                                    f"configure it with -DAFD_NUMPY_PYTHON={sys.executable}")
        library, = made.glob("libafd_ops.so.?.?")
        for found in (binding, library, made / "messages.desc"):
            self.copy_file(str(found.resolve()), str(target / found.name))


class PlatformWheel(bdist_wheel):
    """This version of Python, this machine's kind of processor: as setuptools says of extensions."""

    def finalize_options(self):
        self.distribution.has_ext_modules = lambda: True
        super().finalize_options()
