"""Tests of two_phase_np.py: python3 -m unittest test_two_phase_np"""
import pathlib
import tempfile
import unittest

import numpy as np

import safetensors_np as st
import two_phase_np


def cases(operator: str):
    """(inputs, attributes) of the operator's cases with several senders."""
    for name, inputs, attrs in two_phase_np.all_cases():
        if name.startswith(f"{operator}.few."):
            yield inputs, attrs


class TwoPhase(unittest.TestCase):
    def problems(self, want, have) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder) / "actual", pathlib.Path(folder) / "expected"]
            st.write(paths[0], have)
            st.write(paths[1], want)
            return two_phase_np.compare(*paths)

    def test_compare_accepts_equal_tensors(self):
        for operator, function in two_phase_np.OPERATORS.items():
            for inputs, attrs in cases(operator):
                result = function(inputs, attrs)
                self.assertEqual(self.problems(result, result), [], operator)

    def test_compare_sees_rows_in_the_wrong_place(self):
        inputs, attrs = list(cases("two_phase_payload"))[-1]
        want = two_phase_np.two_phase_payload(inputs, attrs)
        dtype, rows = want["recv_x"]
        swapped = rows[np.r_[1, 0, 2:len(rows)]]
        self.assertEqual(self.problems(want, {**want, "recv_x": (dtype, swapped)}),
                         ["recv_x differs"])

    def test_grants_of_all_senders_cover_every_row_once(self):
        for inputs, attrs in cases("two_phase_offsets"):
            grants = two_phase_np.two_phase_offsets(inputs, attrs)
            counts, base = inputs["send_counts"][1], grants["base"][1]
            total = grants["recv_total"][1]
            ends = [int(total.sum())] if attrs["one_buffer"] else total.tolist()
            parts = [slice(None)] if attrs["one_buffer"] else list(range(len(total)))
            for part, end in zip(parts, ends):
                pairs = zip(base[:, part].ravel(), counts[:, part].ravel())
                rows = np.concatenate([np.arange(b, b + c) for b, c in pairs])
                self.assertEqual(sorted(rows.tolist()), list(range(end)))

    def test_blocks_give_the_same_counts_and_the_same_slots(self):
        for inputs, attrs in cases("two_phase_layout"):
            one = two_phase_np.two_phase_layout(inputs, {**attrs, "block_size": 1})
            whole = two_phase_np.two_phase_layout(inputs, {**attrs, "block_size": 8192})
            np.testing.assert_array_equal(one["send_counts"][1], whole["send_counts"][1])
            self.assertEqual(sorted(one["sorted_indices"][1]), sorted(whole["sorted_indices"][1]))


if __name__ == "__main__":
    unittest.main()
