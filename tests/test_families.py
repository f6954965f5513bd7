"""A family of detectors is a folder and a row."""

import pathlib
import re

import numpy as np
import pytest

from object_detection.builders import dataset_builder, evaluator_builder, model_builder
from object_detection.config import families, show
from object_detection.core.fields import InputFields
from object_detection.errors import ConfigError, UserError
from object_detection.protos.model_pb2 import DetectionModel
from object_detection.training import setup
from object_detection.validation import resumption
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
    'dataset_tools/downloads/published_detectors.py': 'names of archives of the zoo',
    'dataset_tools/starter_parts.py': 'writes configs of these families alone',
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
        ('detr', 'config/families.py'),
        ('faster_rcnn', 'config/families.py'),
        ('ssd', 'config/families.py'),
    }


def test_each_row_is_a_family():
    titles = {name: family.title for name, family in families.FAMILIES.items()}
    assert titles == {
        'faster_rcnn': 'Faster R-CNN',
        'ssd': 'SSD',
        'center_net': 'CenterNet',
        'detr': 'DETR',
    }


def test_a_config_without_a_model_says_so():
    with pytest.raises(ConfigError, match=r'^model is not set; expected model \{ '):
        model_builder.build(DetectionModel())


@pytest.fixture
def toy(monkeypatch):
    """Registers the toy family."""
    monkeypatch.setitem(families.FAMILIES._rows, 'toy', toy_family.FAMILY)


@pytest.fixture
def pipeline(toy, tmp_path):
    return toy_pipeline(tmp_path)


@pytest.fixture(scope='module')
def toy_data(tmp_path_factory):
    """A config of the toy family, and the data of its training; neither is to be changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(families.FAMILIES._rows, 'toy', toy_family.FAMILY)
        config = toy_pipeline(tmp_path_factory.mktemp('toy'))
        data = dataset_builder.build_train(config, seed=1)
        yield config, data.element_spec, next(iter(data))


def toy_pipeline(folder):
    """A config of the toy family with its files; the family is to be registered."""
    config = sound_pipeline(folder)
    resizer = config.model.faster_rcnn.image_resizer
    config.model.experimental_model.image_resizer.CopyFrom(resizer)
    config.model.experimental_model.num_classes = 2
    config.model.experimental_model.name = 'toy'
    config.eval_config.metrics_set[:] = ['coco_detection_metrics']
    config.train_input_reader.shuffle = False
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
            lambda config: config.model.experimental_model.ClearField('num_classes'),
            r'model.experimental_model.num_classes: expected at least 1. Received: 0 \(not set\)',
        ),
        (
            lambda config: setattr(config.model.experimental_model, 'num_classes', 100),
            'model.experimental_model.num_classes: expected at most 99. Received: 100.',
        ),
        (
            lambda config: config.eval_config.metrics_set.append('coco_mask_metrics'),
            'eval_config.metrics_set has coco_mask_metrics, but the model predicts no masks.',
        ),
        (
            lambda config: setattr(config.model.experimental_model, 'num_classes', 1),
            r'model.experimental_model.num_classes is 1, but train_input_reader.label_map_path .* '
            'has ids up to 2',
        ),
        (
            lambda config: config.train_input_reader.aspect_ratio_buckets.add(height=64, width=64),
            'expected model.experimental_model.image_resizer.keep_aspect_ratio_resizer with them',
        ),
    ],
)
def test_mistakes_are_reported_with_its_paths(pipeline, change, message):
    change(pipeline)
    with pytest.raises(ConfigError, match=message):
        validate(pipeline, for_what=['train', 'eval'])


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (
            lambda named: setattr(named, 'name', 'toi'),
            r"model.experimental_model.name: expected one of toy, which .*'toi'. .* 'toy'",
        ),
        (
            lambda named: named.ClearField('name'),
            "model.experimental_model.name: expected one of toy, .* Received: ''",
        ),
        (
            lambda named: setattr(named, 'name', 'ssd'),
            "'ssd', which is a part of this package and has options of its own.",
        ),
        (
            lambda named: named.options.update(bright='1'),
            r'model.experimental_model.options\[bright\]: expected one of brightness. .*',
        ),
        (
            lambda named: named.options.update(brightness='high'),
            r"options\[brightness\]: expected a finite number \(float\). Received: 'high'",
        ),
        (
            lambda named: named.options.update(brightness='0'),
            r'model.experimental_model \(toy\): brightness: expected above 0. Received: 0.',
        ),
        (
            lambda named: named.ClearField('image_resizer'),
            'model.experimental_model.image_resizer is not set',
        ),
    ],
)
def test_what_configs_and_builders_refuse_of_its_message(pipeline, change, message):
    change(pipeline.model.experimental_model)
    with pytest.raises(ConfigError, match=message):
        validate(pipeline, for_what=['train', 'eval'])
    with pytest.raises(ConfigError, match=message):
        model_builder.build(pipeline.model)


def test_a_row_that_is_no_family_is_refused(pipeline, monkeypatch):
    monkeypatch.setitem(families.FAMILIES._rows, 'toy', toy_family.ToyDetector)
    with pytest.raises(UserError, match="family 'toy': expected a ModelFamily"):
        model_builder.build(pipeline.model)


def test_its_options_reach_it(pipeline):
    pipeline.model.experimental_model.options['brightness'] = '0.5'
    assert model_builder.build(pipeline.model).normalize(255.0) == 0.5


def test_numbers_of_classes_are_compared_within_a_family(pipeline, tmp_path):
    show.write_pipeline(pipeline, tmp_path / resumption.CONFIG_FILE_NAME)
    pipeline.model.experimental_model.num_classes = 3
    with pytest.raises(ConfigError, match=r'model\.experimental_model\.num_classes is 3'):
        resumption.check(pipeline, str(tmp_path))
    pipeline.model.experimental_model.name = 'another'
    resumption.check(pipeline, str(tmp_path))


def test_warnings_name_it(pipeline, caplog):
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
