"""Timing of calls."""

from object_detection.benchmarking import rows


def test_functions_take_turns():
    order = []
    functions = {name: lambda name=name: order.append(name) for name in 'ab'}
    seconds = rows.turns(functions, 3)
    assert order == ['a', 'b'] * 3
    assert [len(times) for times in seconds.values()] == [3, 3]
