"""The pipeline config of a config.json of transformers, and the command that writes it."""

import json
import pathlib

import pytest
from click.testing import CliRunner

import object_detection
from object_detection.cli.config import command
from object_detection.config import ranges
from object_detection.config.reader import read_pipeline
from object_detection.data import label_map
from object_detection.errors import ConfigError, UserError
from object_detection.meta_architectures.detr import rules, transformers_pipeline
from tests import rows
from tests.conftest import SHARED
from tests.meta_architectures.detr.transformers_configs import CONFIGS, config

SAMPLES = pathlib.Path(object_detection.__file__).parent / 'samples' / 'configs'
UNIT = pytest.approx(1 / 255)


def written(folder, values, processor=None):
    """Writes a config.json, and what lies beside it; returns its path."""
    path = folder / 'config.json'
    path.write_text(json.dumps(values))
    if processor is not None:
        (folder / 'preprocessor_config.json').write_text(json.dumps(processor))
    return str(path)


def made(folder, kind, processor=None, **changes):
    path = written(folder, config(kind, **changes), processor)
    return transformers_pipeline.make(path).pipeline


@rows.parametrize('kind', CONFIGS)
def test_it_is_a_whole_pipeline(kind, tmp_path):
    pipeline = made(tmp_path, kind)
    assert not ranges.find(pipeline).errors
    assert not list(rules.check(pipeline.model.detr))
    train = pipeline.train_config
    assert min(train.batch_size, train.num_epochs, train.gradient_clipping_by_norm) > 0
    assert train.optimizer.adamw_optimizer.weight_decay > 0
    (factor,) = train.optimizer.learning_rate_multiplier
    assert (factor.variables, factor.multiplier) == ('^backbone/', pytest.approx(0.1))
    assert train.data_augmentation_options[-1].HasField('random_horizontal_flip')
    for reader in (pipeline.train_input_reader, *pipeline.eval_input_reader):
        assert 'PATH_TO_BE_CONFIGURED' in reader.label_map_path
        assert 'PATH_TO_BE_CONFIGURED' in reader.tf_record_input_reader.input_path[0]


@rows.parametrize(
    ('kind', 'processor', 'expected'),
    [
        ('rt_detr', None, (640, 640)),
        ('rt_detr', {'size': {'height': 320, 'width': 416}}, (320, 416)),
        # A multiple of the windows' patches, 2 * 16 pixels.
        ('rf_detr', None, (64, 64)),
        ('rf_detr', {'size': {'height': 96, 'width': 96}}, (96, 96)),
        ('detr', {'size': {'height': 96, 'width': 64}}, (96, 64)),
        # The form of earlier versions.
        ('rt_detr', {'size': [320, 640]}, (320, 640)),
        ('detr', {'size': [96, 64]}, (96, 64)),
    ],
)
def test_the_size_of_images(kind, processor, expected, tmp_path):
    resizer = made(tmp_path, kind, processor).model.detr.image_resizer.fixed_shape_resizer
    assert (resizer.height, resizer.width, resizer.half_pixel_centers) == (*expected, True)


def test_images_of_detr_keep_their_shape(tmp_path):
    edges = {'shortest_edge': 400, 'longest_edge': 600}
    for processor, sides in (
        (None, (800, 1333)),
        ({'size': {'shortest_edge': 400}}, (400, 1333)),
        ({'size': edges, 'max_size': 1000}, (400, 600)),
        # The published file of DETR's ResNet-50.
        ({'size': 800, 'max_size': 1333, 'do_normalize': True}, (800, 1333)),
        ({'size': 480, 'max_size': 640}, (480, 640)),
        ({'size': 480}, (480, 1333)),
        # Of one number alone.
        ({'max_size': 1000}, (800, 1333)),
    ):
        resizer = made(tmp_path, 'detr', processor).model.detr.image_resizer
        resizer = resizer.keep_aspect_ratio_resizer
        assert (resizer.min_dimension, resizer.max_dimension) == sides
        assert list(resizer.per_channel_pad_value) == pytest.approx([123.675, 116.28, 103.53])


def test_padding_is_zero_after_the_normalisation_of_the_file(tmp_path):
    for processor, padding in (
        ({'image_mean': [0.5, 0.25, 1]}, [127.5, 63.75, 255]),
        ({'do_normalize': False}, []),
        ({'rescale_factor': 0.5, 'image_mean': [1, 2, 3]}, [2, 4, 6]),
    ):
        resizer = made(tmp_path, 'detr', processor).model.detr.image_resizer
        found = list(resizer.keep_aspect_ratio_resizer.per_channel_pad_value)
        assert found == pytest.approx(padding)


@rows.parametrize(
    ('processor', 'message'),
    [
        ({'size': {'max_height': 800, 'max_width': 800}}, 'size.max_height: expected none; short'),
        ({'size': 800, 'max_size': 0}, 'max_size: expected a whole number from 1'),
        ({'size': {'shortest_edge': 5000}}, 'size.shortest_edge: expected at most 4096'),
        ({'size': {'height': 96, 'width': 96, 'shortest_edge': 9}}, 'shortest_edge: expected none'),
    ],
)
def test_a_wrong_size_of_detr_is_refused(processor, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        made(tmp_path, 'detr', processor)


@rows.parametrize('kind', ['rt_detr', 'd_fine', 'rf_detr'])
def test_one_number_is_no_square(kind, tmp_path):
    """It is the shortest edge there, of which images of one size have none."""
    with pytest.raises(ConfigError, match='shortest_edge: expected none; height and width'):
        made(tmp_path, kind, {'size': 640})


def test_fields_of_the_preprocessor_that_are_not_read_are_listed(tmp_path):
    processor = {
        'image_processor_type': 'DetrImageProcessor',
        'do_pad': False,
        'resample': 2,
        'crop_size': 9,
        'size': {'shortest_edge': 400, 'longest_edge': 600, 'depth': 3},
        'max_size': 1000,
    }
    path = written(tmp_path, config('detr', two_stage=True), processor)
    found = transformers_pipeline.make(path)
    of = 'of preprocessor_config.json'
    assert found.translated.unknown == [
        *('two_stage', f'crop_size {of}', f'max_size {of}', f'size.depth {of}')
    ]
    (note,) = found.notes()
    assert 'two_stage' in note
    assert 'size.depth' in note


def test_a_backbone_whose_images_are_no_multiple_of_its_windows_gets_larger_ones(tmp_path):
    path = written(tmp_path, {'model_type': 'rf_detr'})
    detr = transformers_pipeline.make(path).pipeline.model.detr
    # Position embeddings are of 518 pixels, 37 patches; four windows need a multiple of 56.
    assert detr.image_resizer.fixed_shape_resizer.height == 560


@rows.parametrize(
    ('kind', 'processor', 'mean', 'scale'),
    [
        ('rt_detr', None, [], UNIT),
        ('rt_detr', {'do_normalize': False, 'image_mean': [1, 2, 3]}, [], UNIT),
        ('rt_detr', {'do_normalize': True, 'image_mean': [0.5, 0.25, 1]}, [0.5, 0.25, 1], UNIT),
        ('rf_detr', None, pytest.approx([0.485, 0.456, 0.406]), UNIT),
        # Fields that are left out are those of the class there.
        ('rt_detr', {'image_mean': [0.5, 0.25, 1]}, [], UNIT),
        ('rf_detr', {'image_mean': [0.5, 0.25, 1]}, [0.5, 0.25, 1], UNIT),
        ('detr', {'image_mean': [0.5, 0.25, 1]}, [0.5, 0.25, 1], UNIT),
        ('detr', {'do_normalize': False}, [], UNIT),
        ('detr', {'rescale_factor': 0.5}, pytest.approx([0.485, 0.456, 0.406]), 0.5),
    ],
)
def test_the_normalisation_of_images(kind, processor, mean, scale, tmp_path):
    preprocess = made(tmp_path, kind, processor).model.detr.feature_extractor.preprocess
    assert list(preprocess.mean) == mean
    assert len(preprocess.std) == len(preprocess.mean)
    assert preprocess.scale == scale


@rows.parametrize(
    ('processor', 'message'),
    [
        ([], 'preprocessor_config.json: the file: expected an object of JSON'),
        ({'size': '640'}, 'size: expected an object'),
        ({'size': [100, 100]}, 'size.height: expected a multiple of 32'),
        ({'size': [640]}, 'size: expected height and width'),
        ({'size': {'height': 640}}, 'size.width: expected a whole number, as size.height'),
        ({'size': {'width': 640}}, 'size.height: expected a whole number, as size.width'),
        ({'size': {'shortest_edge': 640}}, 'size.shortest_edge: expected none; height and width'),
        ({'size': {'max_height': 9, 'max_width': 9}}, 'size.max_height: expected none'),
        ({'do_resize': False}, 'do_resize: expected true; the images of a batch'),
        ({'do_center_crop': True}, 'do_center_crop: expected false'),
        ({'resample': 3}, 'resample: expected 2; that is bilinear'),
        ({'pad_size': {'height': 640, 'width': 640}}, 'pad_size: expected none'),
        ({'size': {'height': 10**6, 'width': 1}}, 'size.height: expected'),
        ({'size': {'height': 8000, 'width': 640}}, 'size.height: expected at most 4096'),
        ({'size': {'height': 100, 'width': 100}}, 'size.height: expected a multiple of 32'),
        ({'do_rescale': False}, 'do_rescale: expected true'),
        ({'rescale_factor': 0}, 'rescale_factor: expected a number above 0'),
        ({'rescale_factor': 'x'}, 'rescale_factor: expected a number'),
        ({'do_normalize': True, 'image_std': [0, 1, 1]}, 'image_std: expected three numbers above'),
        ({'do_normalize': True, 'image_mean': [1, 1]}, 'image_mean: expected three numbers'),
    ],
)
def test_a_wrong_preprocessor_is_refused(processor, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        made(tmp_path, 'rt_detr', processor)


@rows.parametrize(
    ('content', 'message'),
    [
        (b'', 'expected JSON'),
        (b'{"model_type": "rt_detr"', 'expected JSON'),
        (b'[' * 100_000, 'expected JSON'),
        (b'\xff\xfe\x00', 'expected'),
        (b'\x89PNG\r\n', 'expected'),
        (b'null', 'expected an object of JSON'),
        (b'{"model_type": "rt_detr", "num_queries": NaN}', 'config.json: num_queries: expected'),
        (b' ' * (17 << 20), 'expected at most'),
    ],
)
def test_a_file_that_is_no_config_is_refused(content, message, tmp_path):
    (tmp_path / 'config.json').write_bytes(content)
    with pytest.raises(UserError, match=message):
        transformers_pipeline.make(str(tmp_path / 'config.json'))
    with pytest.raises(ConfigError, match='no_file: expected a file of JSON'):
        transformers_pipeline.make(str(tmp_path / 'no_file'))
    with pytest.raises(ConfigError, match='expected a file of JSON'):
        transformers_pipeline.make(str(tmp_path))


def invoke(*words):
    return CliRunner().invoke(command, ['from_transformers', *map(str, words)])


def test_the_command_writes_config_and_label_map(tmp_path):
    path = written(tmp_path, config('detr', two_stage=True))
    output, names = tmp_path / 'a' / 'pipeline.config', tmp_path / 'a' / 'names.pbtxt'
    words = [path, '--output', output, '--label_map', names, '--weights', 'w/model.safetensors']
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    assert "Not read, nor by transformers: 'two_stage'." in result.output
    pipeline = read_pipeline(str(output))
    assert (
        pipeline
        == transformers_pipeline.make(
            path, label_map=str(names), weights='w/model.safetensors'
        ).pipeline
    )
    assert pipeline.train_config.fine_tune_checkpoint_type == 'full'
    assert pipeline.train_input_reader.label_map_path == str(names)
    # Ids begin with 1; two classes are called N/A.
    found = label_map.load(str(names)).name_to_id
    assert found == {'N/A 1': 1, 'cat': 2, 'N/A 3': 3}
    assert invoke(*words).exit_code == 1
    assert 'exists; give another name' in invoke(*words).output
    assert invoke(*words, '--force').exit_code == 0


def test_the_command_says_what_is_not_built(tmp_path):
    path = written(tmp_path, config('rt_detr', eval_size=[640, 640]))
    result = invoke(path, '--output', tmp_path / 'a.config')
    assert result.exit_code == 1
    assert f'{path}: eval_size: expected none; the encoder' in str(result.exception)
    assert not (tmp_path / 'a.config').exists()


def test_samples_are_those_of_the_recorded_models(tmp_path):
    folder = SHARED / 'goldens' / 'peers'
    names = sorted(path.stem for path in folder.glob('transformers_*.json'))
    if not names:
        pytest.skip('needs ../shared/goldens/peers, recorded detectors of transformers')
    assert names == sorted(path.stem for path in SAMPLES.glob('transformers_*.config'))
    for name in names:
        values = json.loads((folder / f'{name}.json').read_text())['full_config']
        text = transformers_pipeline.make(written(tmp_path, values)).text()
        assert text == (SAMPLES / f'{name}.config').read_text()
