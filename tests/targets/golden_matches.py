"""Matches against those that the reference recorded."""

import numpy as np


def check_golden_matches(matches, case):
    """Compares matches int32 [N] with all that a case says of them."""
    columns = np.flatnonzero(matches >= 0)
    actual = {
        'match_results': matches,
        'matched_columns': columns,
        'unmatched_columns': np.flatnonzero(matches == -1),
        'ignored_columns': np.flatnonzero(matches == -2),
        'matched_row_indices': matches[columns],
        'num_matched_rows': len(set(matches[columns])),
    }
    assert actual.keys() == case.outputs.keys()
    for name, value in actual.items():
        np.testing.assert_array_equal(value, case.outputs[name], err_msg=name)
