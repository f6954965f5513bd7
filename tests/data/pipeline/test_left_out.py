import logging

import numpy as np

from object_detection.core.fields import InputFields as F
from object_detection.data.pipeline.left_out import DroppedObjectsReport, UnknownClassReport


def batch(ids, invalid, excess):
    return {
        'source_id': np.array(ids, object),
        F.NUM_INVALID_OBJECTS: np.array(invalid),
        F.NUM_EXCESS_OBJECTS: np.array(excess),
    }


def test_every_image_is_named_once(caplog):
    report = DroppedObjectsReport()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            report.update(batch([b'a', b'b', b'c'], [0, 2, 1], [5, 0, 0]))
    assert len(caplog.records) == 3
    assert 'Image a: 5 objects are more than max_number_of_boxes' in caplog.text
    assert 'Image b: 2 objects have an unknown class' in caplog.text
    assert report.counts == {F.NUM_INVALID_OBJECTS: 3, F.NUM_EXCESS_OBJECTS: 5}


def test_the_number_of_warnings_is_bounded(caplog):
    report = DroppedObjectsReport(max_warnings=2)
    ids = [str(i).encode() for i in range(9)]
    with caplog.at_level(logging.WARNING):
        report.update(batch(ids, [1] * 9, [0] * 9))
    assert len(caplog.records) == 3
    assert 'Further images' in caplog.text
    assert report.counts[F.NUM_INVALID_OBJECTS] == 9


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
