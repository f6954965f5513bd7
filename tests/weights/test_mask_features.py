"""A checkpoint whose masks are predicted from other features says which setting fits."""

import pytest

from object_detection.errors import CheckpointError
from object_detection.weights import checkpoints, restore
from tests import slow_cases
from tests import tiny_models as tiny

DETECTORS = {
    'crops': '',
    'vector': 'model { faster_rcnn { masks_from_crops: false } }',
}
OTHER_CLASSES = 'model { faster_rcnn { num_classes: 3 } }'
ADVICE = {
    'crops': r'from crops of the feature pyramid: set model\.faster_rcnn\.masks_from_crops: true',
    'vector': r'set model\.faster_rcnn\.masks_from_crops: false and remove .*mask_roi_align',
}


@pytest.fixture(scope='module')
def saved(tmp_path_factory):
    """Prefix of a checkpoint, by what its masks are predicted from."""
    folder = tmp_path_factory.mktemp('checkpoints')
    return {
        name: checkpoints.save_model(
            str(folder / name), tiny.tiny_detector(text).named_variables(), 0
        )
        for name, text in DETECTORS.items()
    }


@slow_cases.parametrize(1, ('there', 'here'), [('crops', 'vector'), ('vector', 'crops')])
def test_resuming_names_the_field(saved, there, here):
    detector = tiny.tiny_detector(DETECTORS[here])
    with pytest.raises(CheckpointError, match=ADVICE[there]):
        restore.restore_exactly(detector, saved[there], averages=False)


@slow_cases.parametrize(1, 'classes', [OTHER_CLASSES, ''])
def test_fine_tuning_names_the_field(saved, classes):
    detector = tiny.tiny_detector(DETECTORS['vector'], classes)
    with pytest.raises(CheckpointError, match=ADVICE['crops']):
        restore.restore(detector, saved['crops'], 'full')


def test_other_differences_get_no_such_advice(saved):
    wide = 'model { faster_rcnn { feature_extractor { box_head_depth: 32 } } }'
    detector = tiny.tiny_detector(DETECTORS['crops'], wide)
    with pytest.raises(CheckpointError, match='Use the config that it was trained with'):
        restore.restore_exactly(detector, saved['crops'], averages=False)


@slow_cases.parametrize(1, 'name', DETECTORS)
def test_the_same_features_load(saved, name):
    detector = tiny.tiny_detector(DETECTORS[name], seed=1)
    checkpoints.restore_model(saved[name], detector.named_variables(), averages=False)
