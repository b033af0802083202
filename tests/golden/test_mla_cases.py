"""Tests of mla_np.py and mla_cases.py: python3 -m unittest test_mla_cases"""
import json
import pathlib
import tempfile
import unittest

import numpy as np

import mla_cases
import mla_np
import safetensors_np as st


def run(name: str):
    operator, attrs, given = mla_cases.all_cases()[name]()
    return attrs, given, mla_np.OPERATORS[operator](mla_cases.widen(given), attrs)


class MlaCases(unittest.TestCase):
    def verdict(self, name, change) -> int:
        """What compare says to the expected tensors after `change` of one of them."""
        attrs, _, expected = run(name)
        metadata = {"attributes": json.dumps(attrs)}
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder) / "expected", pathlib.Path(folder) / "actual"]
            for path in paths:
                tensors = {key: (mla_cases.dtype_of(key, array), array.copy())
                           for key, array in expected.items()}
                if path is paths[1]:
                    change({key: array for key, (_, array) in tensors.items()})
                st.write(path, tensors, metadata)
            return int(bool(mla_cases.compare(paths[1], paths[0])))

    def test_compare_accepts_equal_tensors(self):
        for name in ("mla_prolog_v3.000.PA_NZ.t", "mla_prolog_v3.231.PA_BSND.t",
                     "mla_attention_v3.30.TND.t"):
            self.assertEqual(self.verdict(name, lambda tensors: None), 0, name)

    def test_compare_sees_rows_in_the_wrong_place(self):
        def swap(key):
            def change(tensors):
                rows = tensors[key].reshape(-1, tensors[key].shape[-1])
                rows[[1, 2]] = rows[[2, 1]]
            return change
        for scenario in mla_cases.SCENARIOS:
            for key in ("query", "query_rope", "query_norm"):
                name = f"mla_prolog_v3.{scenario}.PA_BSND.t"
                self.assertEqual(self.verdict(name, swap(key)), 1, (name, key))
        self.assertEqual(self.verdict("mla_attention_v3.31.BSND.bs", swap("attention_out")), 1)

    def test_compare_sees_a_cache_row_that_was_not_written(self):
        for name in ("mla_prolog_v3.000.PA_BSND.t", "mla_prolog_v3.130.PA_BSND.t"):
            _, given, _ = run(name)
            index = int(given["cache_index"][1][2])

            def unwrite(tensors):
                cache = tensors["kv_cache"].reshape(-1, tensors["kv_cache"].shape[-1])
                cache[index] = given["kv_cache"][1].reshape(cache.shape)[index]
            self.assertEqual(self.verdict(name, unwrite), 1, name)

    def test_all_cache_modes_hold_the_same_rows(self):
        """Oracle: PA_NZ's 32-byte columns undone by hand are PA_BSND's rows."""
        _, attrs, given = mla_cases.prolog_case("120", "PA_BSND", True, 5)
        plain = mla_np.mla_prolog_v3(mla_cases.widen(given), attrs)["kv_cache"]
        attrs["cache_mode"] = "PA_NZ"
        columns = mla_np.mla_prolog_v3(mla_cases.widen(given), attrs)["kv_cache"]
        blocks = columns.reshape(mla_cases.BLOCK_NUM, -1, mla_cases.BLOCK_SIZE, 32)
        rows = blocks.transpose(0, 2, 1, 3).reshape(plain.shape)
        for row in given["cache_index"][1]:
            at = divmod(int(row), mla_cases.BLOCK_SIZE)
            np.testing.assert_array_equal(rows[at], plain[at])

    def test_fractal_nz_is_column_major_over_fractals(self):
        weight = np.arange(20 * 40, dtype=np.uint16).reshape(20, 40)
        stored = mla_np.to_fractal_nz(weight)
        self.assertEqual(stored.shape, (3, 2, 16, 16))
        self.assertEqual(stored[1, 1, 2, 3], weight[18, 19])
        self.assertEqual(stored[2, 1, 4, 0], 0)
        np.testing.assert_array_equal(mla_np.matrix(stored, 20, 40), weight)

    def test_cases_are_the_same_every_time(self):
        first, second = (run("mla_prolog_v3.211.TND.t")[2] for _ in range(2))
        for key, array in first.items():
            np.testing.assert_array_equal(array, second[key])


if __name__ == "__main__":
    unittest.main()
