"""A family of detectors is a folder and a row."""

import pathlib
import re

import numpy as np
import pytest

from object_detection.builders import dataset_builder, evaluator_builder, model_builder
from object_detection.config import families
from object_detection.core.fields import InputFields
from object_detection.errors import ConfigError
from object_detection.training import setup
from object_detection.validation.validate import validate
from tests import toy_family
from tests.validation.pipelines import sound_pipeline

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / 'object_detection'
# Where the family of Faster R-CNN may be named.
ITS_FOLDERS = ('meta_architectures/faster_rcnn/', 'protos/')
# Files elsewhere that name it. None may be added.
ELSEWHERE = {
    'builders/box_coder_builder.py': 'a box coder is named so, as its message is',
    'config/families.py': 'the row of the table',
    'meta_architectures/ssd/rules.py': 'a box coder is named so, as its message is',
    'cli/summary.py': 'an example in a help text',
    'dataset_tools/downloads/known_files.py': 'types of feature extractors',
    'dataset_tools/starter_single_shot.py': 'a box coder is named so, as its message is',
    'dataset_tools/starter_two_stage.py': 'writes configs of this family alone',
    'export/formats/tflite_graph.py': 'a box coder is named so, as its field is',
    'exporter_main_v2.py': 'an example in a help text',
}


def _names_it(path: pathlib.Path) -> bool:
    return re.search(r'\bfaster_rcnn', path.read_text()) is not None


def test_nothing_else_names_faster_rcnn():
    files = (path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob('*.py'))
    found = {
        file for file in files if not file.startswith(ITS_FOLDERS) and _names_it(PACKAGE / file)
    }
    assert found == ELSEWHERE.keys()


def test_modules_of_a_family_are_imported_through_the_tables_alone():
    pattern = re.compile(
        r'(?:builders|meta_architectures)(?:\.| import )(\w+)|protos(?:\.| import )(\w+)_pb2'
    )
    found = set()
    for path in PACKAGE.rglob('*.py'):
        file = path.relative_to(PACKAGE).as_posix()
        named = {name for pair in pattern.findall(path.read_text()) for name in pair}
        for family in named & families.FAMILIES.keys():
            if not file.startswith((f'meta_architectures/{family}/', 'protos/')):
                found.add((family, file))
    assert found == {
        ('center_net', 'config/families.py'),
        ('faster_rcnn', 'config/families.py'),
        ('ssd', 'config/families.py'),
    }


@pytest.fixture
def toy(monkeypatch):
    """Puts the toy family in the place of the one whose message it takes."""
    monkeypatch.setitem(families.FAMILIES._rows, 'center_net', toy_family.FAMILY)


@pytest.fixture
def pipeline(toy, tmp_path):
    config = sound_pipeline(tmp_path)
    resizer = config.model.faster_rcnn.image_resizer
    config.model.center_net.image_resizer.CopyFrom(resizer)
    config.model.center_net.num_classes = 2
    config.eval_config.metrics_set[:] = ['coco_detection_metrics']
    for reader in (config.train_input_reader, config.eval_input_reader[0]):
        reader.load_instance_masks = False
    return config


def test_it_is_validated(pipeline, caplog):
    validate(pipeline, for_what=['train', 'eval', 'export'])
    assert not caplog.text


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (
            lambda config: config.model.center_net.ClearField('num_classes'),
            'model.center_net.num_classes: expected at least 1. Received: 0.',
        ),
        (
            lambda config: config.eval_config.metrics_set.append('coco_mask_metrics'),
            'eval_config.metrics_set has coco_mask_metrics, but the model predicts no masks.',
        ),
        (
            lambda config: setattr(config.model.center_net, 'num_classes', 1),
            r'model.center_net.num_classes is 1, but train_input_reader.label_map_path .* has ids '
            'up to 2',
        ),
        (
            lambda config: config.train_input_reader.aspect_ratio_buckets.add(height=64, width=64),
            'expected model.center_net.image_resizer.keep_aspect_ratio_resizer with them',
        ),
    ],
)
def test_mistakes_are_reported_with_its_paths(pipeline, change, message):
    change(pipeline)
    with pytest.raises(ConfigError, match=message):
        validate(pipeline, for_what=['train', 'eval'])


def test_cautions_name_it(pipeline, caplog):
    pipeline.train_input_reader.num_keypoints = 3
    validate(pipeline, for_what='train')
    assert 'keypoints are decoded, but not used by Toy' in caplog.text


def test_it_trains_and_detects(pipeline):
    detector = setup.build_detector(pipeline)
    assert isinstance(detector, toy_family.ToyDetector)
    data = dataset_builder.build_train(pipeline, seed=1)
    step = setup.build_step(pipeline.train_config, detector, data.element_spec, seed=1)
    before = {name: each.numpy() for name, each in detector.named_trainable_variables().items()}
    losses = step(next(iter(data)))
    assert set(detector.loss_names()) <= losses.keys()
    assert not detector.needs_masks
    assert not detector.needs_keypoints
    assert all(np.isfinite(value) for value in losses.values())
    after = detector.named_trainable_variables()
    assert before.keys() == {
        'boxes/kernel', 'boxes/bias', 'classes/kernel', 'classes/bias'
    }  # fmt: skip
    assert any((after[name].numpy() != value).any() for name, value in before.items())

    batch = next(iter(data))
    shapes = batch[InputFields.TRUE_IMAGE_SHAPE]
    images = detector.normalize(batch[InputFields.IMAGE])
    detections = detector.postprocess(detector.predict(images, shapes), shapes)
    assert detections['detection_boxes'].shape == [2, 1, 4]


def test_its_metrics_are_known(pipeline):
    names = evaluator_builder.metric_names(pipeline, 0)
    detector = model_builder.build(pipeline.model)
    assert set(detector.loss_names()) <= set(names)
    assert evaluator_builder.has_losses(pipeline, 0)
    assert detector.num_classes == 2
