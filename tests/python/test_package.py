# SPDX-License-Identifier: Apache-2.0
"""The two ways to install the package, both without the network, each used from its new place."""
import os
import pathlib
import re
import shlex
import shutil
import site
import subprocess
import sys
import sysconfig
import venv
import zipfile

import afd

ROOT = pathlib.Path(__file__).parents[2]
README = (ROOT / "python" / "README.md").read_text(encoding="utf-8")
USE = ("import numpy, afd; r = afd.moe_gating_top_k(numpy.eye(3, dtype='f4'), k=1); "
       "assert r.expert_idx.ravel().tolist() == [0, 1, 2]; "
       "from afd._messages import messages; messages('control', 'Welcome'); print(afd.__file__)")


def run(*arguments, **environment):
    plain = {name: value for name, value in os.environ.items()
             if name != "PYTHONPATH"}
    done = subprocess.run([str(argument) for argument in arguments], capture_output=True, text=True,
                          check=False, cwd="/", env={**plain, **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def shown(program):
    """The words of the README's command of that name."""
    line, = re.findall(rf"^    {program} .*$", README, re.M)
    return shlex.split(line, comments=True)


def copy_source(folder):
    """The build writes beside the sources."""
    source = folder / "source"
    shutil.copytree(ROOT / "python", source / "python",
                    ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, source)
    return source


# Goal: the README's command, word by word but for its two folders, needs no network. Method: there
# is no index, so that what pip would fetch fails; of this tree's library, which is not built again.
# The second time over the first, from a source that has changed.
def test_pip_installs_it_as_the_readme_says(tmp_path):
    source = copy_source(tmp_path)
    words = ["~/afd-python", "."]
    assert [word for word in shown("pip") if word in words] == words
    places = dict(zip(words, (str(tmp_path / "site"), str(source))))
    for change in ("", "changed = True\n"):
        with open(source / "python" / "afd" / "_errors.py", "a", encoding="utf-8") as file:
            file.write(change)
        run(sys.executable, "-m", *(places.get(word, word) for word in shown("pip")),
            AFD_BUILD_DIR=os.environ["AFD_BUILD_DIR"], PIP_NO_INDEX="1")
        where = run(sys.executable, "-B", "-c", USE, PYTHONPATH=str(tmp_path / "site"))
        assert where.strip() == str(tmp_path / "site" / "afd" / "__init__.py")
    run(sys.executable, "-B", "-c", "import afd._errors; assert afd._errors.changed",
        PYTHONPATH=str(tmp_path / "site"))


# As above, in a virtual environment that shares the system's packages.
def test_pip_installs_it_into_a_virtual_environment(tmp_path):
    source = copy_source(tmp_path)
    venv.create(tmp_path / "venv", system_site_packages=True)
    python = tmp_path / "venv" / "bin" / "python"
    words = [word for word in shown("pip") if word not in ("--target", "~/afd-python", "--no-deps")]
    run(python, "-m", *(str(source) if word == "." else word for word in words),
        AFD_BUILD_DIR=os.environ["AFD_BUILD_DIR"], PIP_NO_INDEX="1")
    where = run(python, "-B", "-c", USE).strip()
    assert where.startswith(str(tmp_path / "venv")) and where.endswith("/afd/__init__.py")


def run_with_backend(lines, folder="/"):
    """Of a program that has the build backend in its path."""
    return subprocess.run([sys.executable, "-B", "-c", lines], capture_output=True, text=True,
                          check=False, cwd=folder,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "python" / "build_backend")})


def test_the_backend_takes_the_command_from_setuptools_or_from_wheel():
    without_wheel = "import sys; sys.modules['wheel'] = None\n"
    newer = ("import types; from setuptools import Command\n"
             "made = types.ModuleType('bdist_wheel'); made.bdist_wheel = Command\n"
             "sys.modules['setuptools.command.bdist_wheel'] = made\n")
    older = "sys.modules['setuptools.command.bdist_wheel'] = None\n"
    done = run_with_backend(without_wheel + newer + "import afd_backend\n"
                            "assert afd_backend.PlatformWheel.__bases__ == (Command,)")
    assert done.returncode == 0, done.stderr
    done = run_with_backend(without_wheel + older + "import afd_backend")
    assert done.stderr.endswith(
        "ImportError: to build the package this Python needs wheel, or setuptools 70.1 or later: "
        "pip install setuptools wheel (python/README.md)\n")


# Goal: nobody gets a source distribution that cannot be built. Oracle: PEP 517's way to say no.
def test_the_backend_makes_no_source_distribution(tmp_path):
    done = run_with_backend("import afd_backend\n"
                            "try:\n"
                            f"    afd_backend.build_sdist({str(tmp_path)!r})\n"
                            "except afd_backend.UnsupportedOperation as error:\n"
                            "    print(error)\n", tmp_path)
    assert (done.returncode, done.stdout) == (
        0, "there is no source distribution of afd: build a wheel from a clone, pip wheel . "
           "(python/README.md)\n"), done.stderr
    assert "`python -m build --wheel`" in README
    assert list(tmp_path.iterdir()) == []


# Goal: of a tree that was built for several Pythons, a wheel has the binding of its own.
def test_a_wheel_has_the_binding_of_its_python(tmp_path):
    source = copy_source(tmp_path)
    tree = tmp_path / "tree"
    built = pathlib.Path(os.environ["AFD_BUILD_DIR"]) / "python" / "afd"
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    (tree / "python" / "afd").mkdir(parents=True)
    for name in ("libafd_ops.so.0.1", "messages.desc", "_native" + suffix):
        shutil.copy(built / name, tree / "python" / "afd" / name)
    (tree / "python" / "afd" / "_native.cpython-39-x86_64-linux-gnu.so").write_bytes(b"another")
    run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index",
        "-w", tmp_path, source, AFD_BUILD_DIR=str(tree))
    wheel, = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as made:
        names = [name for name in made.namelist() if "_native" in name]
    assert names == ["afd/_native" + suffix]
    (tree / "python" / "afd" / ("_native" + suffix)).unlink()
    done = subprocess.run([sys.executable, "-m", "pip", "wheel", "--no-build-isolation",
                           "--no-deps", "--no-index", "-w", tmp_path, source], capture_output=True,
                          text=True, check=False, cwd="/",
                          env={**os.environ, "AFD_BUILD_DIR": str(tree)})
    assert done.returncode != 0
    assert f"configure it with -DAFD_NUMPY_PYTHON={sys.executable}" in done.stdout + done.stderr


def test_pip_installs_it_from_the_source(tmp_path):
    source = copy_source(tmp_path)
    run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index",
        "-w", tmp_path, source, AFD_BUILD_DIR=os.environ["AFD_BUILD_DIR"])
    wheel, = tmp_path.glob("*.whl")
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert re.fullmatch(rf"afd-0\.1\.0-{python}-{python}-linux_\w+\.whl", wheel.name)
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target",
        tmp_path / "site", wheel)
    where = run(sys.executable, "-B", "-c", USE, PYTHONPATH=str(tmp_path / "site"))
    assert where.strip() == str(tmp_path / "site" / "afd" / "__init__.py")
    for name in ("__init__.pyi", "py.typed"):
        assert (tmp_path / "site" / "afd" / name).exists()
    metadata = (tmp_path / "site" / "afd-0.1.0.dist-info" / "METADATA").read_text()
    for line in ("Name: afd", "Requires-Dist: numpy (>=1.24)", "Requires-Python: >=3.10"):
        assert line in metadata


def test_cmake_installs_it_beside_the_library(tmp_path):
    run("cmake", "--install", os.environ["AFD_BUILD_DIR"], "--component", "python", "--prefix",
        tmp_path / "prefix")
    package, = (tmp_path / "prefix").glob("lib/python*/*-packages")
    where = run(sys.executable, "-B", "-c", USE, PYTHONPATH=str(package))
    assert where.strip() == str(package / "afd" / "__init__.py")


# Goal: what is installed can be imported. Oracle: Python's own list of folders, with the prefix of
# the README where the system's Python looks, and that of this Python where it is another.
def test_cmake_installs_it_where_python_looks(tmp_path):
    run("cmake", "--install", os.environ["AFD_BUILD_DIR"], "--component", "python", "--prefix",
        tmp_path)
    package, = tmp_path.glob("lib/python*/*-packages")
    words = shown("cmake")
    prefix = words[words.index("--prefix") + 1] if sys.prefix == "/usr" else sys.prefix
    assert f"{prefix}/{package.relative_to(tmp_path)}" in site.getsitepackages()


def test_the_versions_agree():
    assert f'version = "{afd.__version__}"' in (ROOT / "pyproject.toml").read_text()


def test_a_package_without_its_compiled_part_says_where_that_is():
    done = subprocess.run([sys.executable, "-B", "-c", "import afd"], capture_output=True,
                          text=True, check=False, cwd=ROOT,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    assert done.returncode == 1
    assert "ImportError: afd: cannot import name '_native' from " in done.stderr
    assert "in build/PRESET/python of a build, for the version of Python" in done.stderr
