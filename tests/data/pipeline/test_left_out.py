import logging

import numpy as np

from object_detection.core.fields import InputFields as F
from object_detection.data.pipeline.left_out import DroppedObjectsReport, UnknownClassReport


def batch(ids, invalid, excess):
    return {
        'source_id': np.array(ids, object),
        F.INVALID_OBJECTS: np.array(invalid),
        F.NUM_EXCESS_OBJECTS: np.array(excess),
    }


def test_every_image_is_named_once(caplog):
    report = DroppedObjectsReport()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            report.update(
                batch([b'a', b'b', b'c'], [[0] * 5, [2, 0, 0, 1, 0], [0, 1, 3, 0, 4]], [5, 0, 0])
            )
    assert caplog.messages == [
        'Image a: objects are left out: 5 beyond max_number_of_boxes.',
        'Image b: objects are left out: 2 with an unknown class.',
        'Image b: objects are left out: 1 with a box without area.',
        'Image c: objects are left out: 1 with a box that has a NaN coordinate.',
        'Image c: objects are left out: 3 with a box whose maximum is less than its minimum.',
        'Image c: objects are left out: 4 with a box outside the image.',
    ]
    assert report.counts == {
        'unknown_class': 2,
        'nan_box': 1,
        'inverted_box': 3,
        'box_without_area': 1,
        'box_outside_image': 4,
        F.NUM_EXCESS_OBJECTS: 5,
    }


def test_the_number_of_warnings_is_bounded(caplog):
    report = DroppedObjectsReport(max_warnings=2)
    ids = [str(i).encode() for i in range(9)]
    with caplog.at_level(logging.WARNING):
        report.update(batch(ids, [[1, 0, 0, 0, 0]] * 9, [0] * 9))
    assert len(caplog.records) == 3
    assert 'Further images that lose objects with an unknown class' in caplog.text
    assert report.counts['unknown_class'] == 9


def test_unknown_classes_are_named_once(caplog):
    report = UnknownClassReport('map.pbtxt', max_warnings=2)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            report.update(np.array([b'zebra', b'', 'zebra\nBär'.encode()], object))
        report.update(np.array([b'cow', b'owl'], object))
    assert len(caplog.messages) == 3
    assert "Class 'zebra' of the records is not in the label map map.pbtxt" in caplog.messages[0]
    assert "'Bär'" in caplog.messages[1]
    assert caplog.messages[2].startswith('Further classes')
