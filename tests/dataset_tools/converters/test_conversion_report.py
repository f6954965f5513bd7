from object_detection.data.formats import shapes
from object_detection.dataset_tools.converters import conversion_report
from object_detection.dataset_tools.converters.conversion_report import Tally


def _report(*tallies: Tally) -> dict:
    facts = {'num_shards': 1, 'label_map_is_renumbered': False}
    return conversion_report.total(tallies).report() | facts


def test_summary_counts_groups():
    first, second = Tally(), Tally()
    first.notes.update({shapes.JOINED_SHAPES: 3, shapes.JOINED_OBJECTS: 1})
    second.notes.update({shapes.JOINED_SHAPES: 2, shapes.JOINED_OBJECTS: 1})
    second.notes.update({shapes.SEPARATE_SHAPES: 4})
    lines = conversion_report.summary(_report(first, second)).splitlines()
    assert lines[1:] == [
        '5 shapes of one class and group each are joined to 2 objects',
        '4 shapes that share a class and a group stay separate objects; --groups all joins them',
    ]
    assert _report(first, second)['notes'][shapes.JOINED_SHAPES] == 5
