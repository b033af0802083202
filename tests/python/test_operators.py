# SPDX-License-Identifier: Apache-2.0
"""Every operator by its name: what the cases of tests/golden say, and what afd-op writes.

Method: the cases that afd-op is held to, called from Python, fast and reference; each result beside
the file that afd-op makes of the same tensors, byte by byte. Oracle of the values: NumPy, through
tests/golden, which holds afd-op to it.
"""
import functools
import inspect
import json
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys

import mla_cases
import numpy as np
import pytest
import routing_cases
import safetensors_np as st

import afd
from afd._operators import Operator, is_optional, is_read

DTYPES = {"BF16": np.uint16, "F16": np.float16, "F32": np.float32, "I8": np.int8, "I32": np.int32,
          "I64": np.int64, "U8": np.uint8, "BOOL": np.bool_}


def one_case_of_each():
    """The first case of every operator that the golden cases have."""
    cases = {}
    for make in (value for name, value in vars(routing_cases).items() if name.endswith("_cases")):
        for name, tensors, attributes, _ in make():
            cases.setdefault(name.split(".")[0], (tensors, attributes))
    name, attributes, tensors = mla_cases.prolog_case("211", "PA_BSND", True, 3)
    cases[name] = (tensors, attributes)
    return cases


CASES = one_case_of_each()


def array_of(kind, array):
    array = np.array(array, order="C", copy=True)
    if kind != "BF16":
        return np.asarray(array, DTYPES[kind])
    return afd.bf16(array if array.dtype == np.uint16 else array.astype(np.float32))


@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.parametrize("reference", [False, True])
def test_the_bytes_are_those_of_afd_op(name, reference, tmp_path):
    tensors, attributes = CASES[name]
    if reference and name.endswith("scheduler"):
        with pytest.raises(afd.InvalidArgument, match="there is one implementation"):
            getattr(afd, name)(**{key: array_of(*value) for key, value in tensors.items()},
                               **attributes, reference=True)
        return
    st.write(tmp_path / "in", tensors)
    flags = ["--reference"] if reference else []
    done = subprocess.run([os.environ["AFD_OP"], "run", name, "--in", tmp_path / "in", "--out",
                           tmp_path / "out", "--attrs", json.dumps(attributes), *flags],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    want = st.read(tmp_path / "out", widen=False)
    arrays = {key: array_of(*value) for key, value in tensors.items()}
    result = getattr(afd, name)(**arrays, **attributes, reference=reference)
    have = {key: value for key, value in (result._asdict() if result else {}).items()
            if value is not None}
    have |= {tensor["name"]: arrays[tensor["name"]] for tensor in afd.record(name)["tensors"]
             if tensor["role"].startswith("in place") and tensor["name"] in arrays}
    assert set(have) == set(want)
    for key, expected in want.items():
        assert np.asarray(have[key]).tobytes() == expected.tobytes(), key
        assert have[key].shape == expected.shape, key


# What has a row for each token.
OF_TOKENS = {
    "moe_gating_top_k": ["x"], "moe_init_routing_v3": ["x", "expert_idx"],
    "moe_finalize_routing": ["expanded_x", "expanded_row_idx", "scales"],
    "grouped_matmul_swiglu": ["x"], "attention_worker_combine": ["expert_scales"],
    "attention_to_ffn": ["x", "expert_ids", "active_mask"],
    "ffn_to_attention": ["x", "session_ids", "micro_batch_ids", "token_ids", "expert_offsets"],
    "mla_prolog_v3": ["token_x", "rope_sin", "rope_cos", "cache_index", "dequant_scale_x"]}


@pytest.mark.parametrize("name", OF_TOKENS)
@pytest.mark.parametrize("reference", [False, True])
def test_zero_tokens_are_an_ordinary_input(name, reference):
    """Goal: results of no rows have their shape, also in memory of the caller's."""
    tensors, attributes = CASES[name]
    arrays = {key: array_of(*value) for key, value in tensors.items()}
    arrays |= {key: arrays[key][:0] for key in OF_TOKENS[name]}
    if name == "grouped_matmul_swiglu":
        arrays["group_list"][:] = 0
    operator = getattr(afd, name)
    result = operator(**arrays, **attributes, reference=reference)
    if result is None:
        return
    made = {key: value for key, value in result._asdict().items() if value is not None}
    assert any(0 in value.shape for value in made.values())
    again = operator(**arrays, **attributes, reference=reference, out=made)
    for key, value in made.items():
        assert again._asdict()[key] is value


def test_every_operator_is_there_with_its_record():
    assert len(afd.operators()) >= 16
    for name in afd.operators():
        operator, record = getattr(afd, name), afd.record(name)
        assert getattr(afd, "npu_" + name) is operator
        assert isinstance(operator, Operator) and operator.__name__ == name
        parameters = inspect.signature(operator).parameters
        for tensor in record["tensors"]:
            text = f"{' or '.join(tensor['dtypes'])} {tensor['shape']}): {tensor['meaning']}"
            assert text in operator.__doc__ and text in afd.describe(name)
            if is_read(tensor):
                assert (parameters[tensor["name"]].default is None) >= is_optional(tensor)
            else:
                assert tensor["name"] in operator.outputs
        for attribute in record["attributes"]:
            default = parameters[attribute["name"]].default
            assert (default is inspect.Parameter.empty) == (not attribute["default"])


def test_the_results_have_the_classes_that_the_stubs_say():
    stubs = (pathlib.Path(afd.__file__).parent / "__init__.pyi").read_text(encoding="utf-8")
    classes = re.findall(r"^class (\w+Result)\(NamedTuple\):", stubs, re.M)
    assert len(classes) >= 12
    assert classes == [getattr(afd, name).__name__ for name in classes]
    result = afd.moe_gating_top_k(np.eye(3, dtype=np.float32), k=1)
    assert isinstance(result, afd.MoeGatingTopKResult)


def test_operators_and_results_go_to_other_processes():
    for name in afd.operators():
        operator = getattr(afd, name)
        assert pickle.loads(pickle.dumps(operator)) is operator
    assert pickle.loads(pickle.dumps(Operator("moe_gating_top_k"))) is afd.moe_gating_top_k
    x = afd.bf16(np.ones((2, 8), np.float32))
    result = afd.moe_init_routing_v3(x, np.array([[1], [0]], np.int32), expert_num=2)
    again = pickle.loads(pickle.dumps(result))
    assert type(again) is afd.MoeInitRoutingV3Result
    assert isinstance(again.expanded_x, afd.BFloat16)
    np.testing.assert_array_equal(again.expanded_x, result.expanded_x)


def test_every_operator_is_fuzzed():
    folder = pathlib.Path(__file__).resolve().parents[1] / "fuzz"
    named = re.findall(r"\w+", (folder / "CMakeLists.txt").read_text())
    for name in afd.operators():
        assert name in named, name
        assert len(list((folder / "corpus" / f"operator_{name}").glob("seed-*"))) >= 2, name


def test_every_class_of_this_processor_and_any_number_of_threads():
    random = np.random.default_rng(1)
    x = afd.bf16(random.standard_normal((64, 4096)).astype(np.float32))
    weight = afd.bf16(random.standard_normal((2, 4096, 128)).astype(np.float32) / 50)
    groups = np.array([30, 64], np.int64)
    classes = afd.numeric_classes()
    assert classes[0] == "portable"
    outputs = {}
    for name in classes:
        one = afd.grouped_matmul_swiglu(x, weight, groups, numeric_class=name)
        two = afd.grouped_matmul_swiglu(x, weight, groups, numeric_class=name, num_threads=3)
        assert one.output.tobytes() == two.output.tobytes()
        outputs[name] = one.output.float32()
        np.testing.assert_allclose(outputs[name], outputs["portable"], rtol=0.05, atol=0.5)
    if "avx512-bf16" in outputs:  # Pairs of products: another order, so other bits here and there.
        assert (outputs["avx512-bf16"] != outputs["portable"]).any()
    # Which one is the processor's own is not the order of the list: amx runs everywhere.
    best = afd.grouped_matmul_swiglu(x, weight, groups).output
    assert any(np.array_equal(best.float32(), output) for output in outputs.values())


def test_only_the_classes_of_pairs_take_subnormals_as_zero():
    x = afd.bf16(np.full((1, 8), 2.0 ** -130, np.float32))
    weight = afd.bf16(np.full((1, 8, 2), 2.0 ** 127, np.float32))
    groups = np.array([1], np.int64)
    # gate = up = 8 * 2^-3 = 1, and silu(1) rounded.
    for name in afd.numeric_classes():
        expected = 0 if name in ("avx512-bf16", "amx") else 0.73046875
        assert afd.grouped_matmul_swiglu(x, weight, groups,
                                         numeric_class=name).output.float32() == expected, name
        assert afd.grouped_matmul_swiglu(x, weight, groups, numeric_class=name,
                                         reference=True).output.float32() == expected, name
    assert afd.grouped_matmul_swiglu(x, weight, groups,
                                     reference=True).output.float32() == 0.73046875


def test_the_reference_of_attention_takes_subnormals_as_the_class_that_is_named():
    def constant(value, *shape):
        return afd.bf16(np.full(shape, value, np.float32))

    def call(**options):
        return float(afd.mla_attention_v3(
            constant(1, 1, 1, 16), constant(0, 1, 1, 2),
            kv_cache=constant(2.0 ** -130, 1, 16, 1, 16), kr_cache=constant(0, 1, 16, 1, 2), positions=np.zeros(1, np.int32),
            sequence_index=np.zeros(1, np.int32), block_table=np.zeros((1, 1), np.int32),
            weight_uv=constant(2.0 ** 127, 1, 1, 16), **options).attention_out.float32()[0, 0])

    assert call(reference=True) == 16 * 2.0 ** -3
    for name in afd.numeric_classes():
        expected = call(numeric_class=name)
        assert call(numeric_class=name, reference=True) == expected, name
        assert expected == (0 if name in ("avx512-bf16", "amx") else 2), name


def test_timeit_says_bytes_operations_and_rates():
    x = afd.bf16(np.ones((8, 64), np.float32))
    weight = afd.bf16(np.ones((1, 64, 32), np.float32))
    timing = afd.timeit(afd.grouped_matmul_swiglu, x, weight, np.array([8], np.int64), repeat=5)
    assert (timing.repeats, timing.operations) == (5, 2 * 8 * 64 * 32)
    assert timing.num_bytes == 2 * (8 * 64 + 64 * 32 + 8 * 16) + 8
    bytes_rate, operation_rate = afd.machine_limits(1)
    assert timing.bytes_ratio == pytest.approx(timing.num_bytes / timing.median_s / bytes_rate)
    assert timing.operations_ratio == pytest.approx(
        timing.operations / timing.median_s / operation_rate)
    assert "us of 5; 5384 bytes" in str(timing) and "operations" in str(timing)
    with pytest.raises(ValueError, match="repeat is 0; it must be at least 1"):
        afd.timeit(afd.grouped_matmul_swiglu, x, weight, np.array([8], np.int64), repeat=0)


def test_timeit_repeats_the_first_call():
    """Goal: an operator that changes what it reads is timed with the same work each time. Oracle:
    memory after one plain call; a second one would take the other micro-batch."""
    def scheduled(call):
        context = afd.ScheduleContext.create(
            session_num=1, micro_batch_num=2, micro_batch_size=3, selected_expert_num=2,
            expert_num=4, attn_to_ffn_token_size=512, ffn_to_attn_token_size=512)
        window = np.zeros(context.ffn_window_bytes, np.uint8)
        control = np.zeros(context.ffn_control_bytes, np.uint8)
        context.ffn_descriptors(window)[0, :, 0] = 5
        call(context, window, control, policy="all")
        return context.ffn.polling_index, bytes(control)
    assert scheduled(afd.ffn_worker_scheduler)[0] == 1
    for repeat in (1, 2):
        assert scheduled(functools.partial(
            afd.timeit, afd.ffn_worker_scheduler, repeat=repeat)) == scheduled(
                afd.ffn_worker_scheduler)


def resident_bytes():
    statm = pathlib.Path("/proc/self/statm").read_text(encoding="ascii")
    return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_the_scratch_of_a_large_call_is_given_back():
    x, ids = np.ones((4, 8), np.float32), np.array([[0], [1], [2], [0]], np.int32)
    many = (1 << 25) + (1 << 22)
    with pytest.raises(afd.ResourceExhausted, match=r"workspace 30\d{7},"):
        afd.moe_init_routing_v3(x, ids, expert_num=many, memory_max=1)
    before = resident_bytes()
    afd.moe_init_routing_v3(x, ids, expert_num=many)
    assert resident_bytes() - before < 100 << 20


# Goal: a daemon thread in the middle of an operator does not disturb the end of the process. Method:
# calls of a few milliseconds, so that the interpreter is gone when the thread comes back from one.
def test_a_daemon_thread_in_an_operator_does_not_abort_the_exit():
    program = """
import threading, time
import numpy as np
import afd
x = afd.bf16(np.ones((256, 512), np.float32))
weight = afd.bf16(np.ones((1, 512, 512), np.float32))
groups = np.array([256], np.int64)
def work():
    while True:
        afd.grouped_matmul_swiglu(x, weight, groups)
threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
"""
    for _ in range(3):
        done = subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, text=True,
                              check=False, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")


# Also of a clone behind a symbolic link, which Python's own list of folders does not show.
def test_the_stubs_are_current(tmp_path):
    root = pathlib.Path(__file__).parents[2].resolve()
    (tmp_path / "clone").symlink_to(root)
    for script in (root / "python" / "stubs.py", tmp_path / "clone" / "python" / "stubs.py"):
        done = subprocess.run([sys.executable, "-B", script, "--check"], capture_output=True,
                              text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


# Goal: what the message says can be run as it is. Method: a copy without the types.
def test_stubs_that_are_out_of_date_say_how_to_write_them(tmp_path):
    script = tmp_path / "stubs.py"
    shutil.copy(pathlib.Path(__file__).parents[2] / "python" / "stubs.py", script)
    done = subprocess.run([sys.executable, "-B", script, "--check"], capture_output=True, text=True,
                          check=False)
    assert (done.returncode, done.stderr) == (
        1, f"{tmp_path.resolve()}/afd/__init__.pyi is out of date; run "
           "PYTHONPATH=build/release/python python/stubs.py\n")
