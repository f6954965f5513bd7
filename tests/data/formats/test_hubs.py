"""Data sets of hubs, made here and read offline."""

import numpy as np
import pytest
from click.testing import CliRunner

from object_detection.cli.convert import command
from object_detection.data.file_access import LocalFiles
from object_detection.data.formats import formats, source
from object_detection.data.formats.hubs.hf import HfSource
from object_detection.data.formats.hubs.tfds import TfdsSource
from object_detection.errors import UserError
from object_detection.system import extras
from tests import rows

# The packages use what others have deprecated.
pytestmark = pytest.mark.filterwarnings('ignore')
FILES = LocalFiles()
# Of an image 30 wide and 20 high: x, y, width, height, and what they are in records.
XYWH, BOX = [3, 2, 6, 8], [2 / 20, 3 / 30, 10 / 20, 9 / 30]


def read(made):
    """The images of a data set, those that cannot be read as problems, and its opened form."""
    data = made.open(FILES, None)
    images, problems = [], []
    for entry in source.entries_of(made, FILES, data.reader):
        result = source.read(data.reader, entry, FILES)
        images.append(result)
        problems += [(error.reason, str(error)) for _, error in result.problems]
    assert len(images) == data.num_images
    return images, problems, data


@pytest.fixture(scope='module')
def hf(tmp_path_factory):
    """Makes a folder of parquet files as the hub has them: (objects, features) -> folder."""
    datasets = pytest.importorskip('datasets', reason='needs the extra hf: datasets')
    cache = str(tmp_path_factory.mktemp('cache'))

    def make(png, name, rows_of_objects, objects, splits=('train', 'validation')):
        folder = tmp_path_factory.mktemp(name)
        features = datasets.Features(
            {'image_id': datasets.Value('int64'), 'image': datasets.Image(), 'objects': objects}
        )
        content = {
            'image_id': [5 + i for i in range(len(rows_of_objects))],
            'image': [{'bytes': png, 'path': f'{i}.png'} for i in range(len(rows_of_objects))],
            'objects': rows_of_objects,
        }
        made = datasets.Dataset.from_dict(content, features=features)
        for split in splits:
            made.to_parquet(str(folder / 'data' / f'{split}-00000-of-00001.parquet'))
        return str(folder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, 'HF_DATASETS_CACHE', cache)
        yield make


def features_of(kind, box_length=4):
    import datasets

    box = datasets.Sequence(datasets.Value('float32'), box_length)
    return {'bbox': datasets.Sequence(box), 'category': datasets.Sequence(kind)}


def test_parquet_files_of_the_hub(hf, png, monkeypatch):
    import datasets

    objects = features_of(datasets.ClassLabel(names=['cat', 'dog']))
    objects['iscrowd'] = datasets.Sequence(datasets.Value('bool'))
    objects['segmentation'] = datasets.Sequence(datasets.Value('string'))
    found = {
        'bbox': [XYWH, [0, 0, 0, 4], XYWH],
        'category': [1, 0, 0],
        'iscrowd': [False, False, True],
        'segmentation': ['x', 'x', 'x'],
    }
    folder = hf(png(30, 20), 'coco', [found, {key: [] for key in found}], objects)
    sets = formats.detect(folder, FILES)
    assert {item.name: item.source for item in sets['hf']} == {
        'train': HfSource(data=folder, split='train'),
        'validation': HfSource(data=folder, split='validation'),
    }
    (first, second), problems, data = read(HfSource(data=folder, split='validation'))
    np.testing.assert_allclose(first.image.boxes, [BOX, BOX])
    assert first.image.class_texts == ('dog', 'cat')
    assert first.image.class_labels.tolist() == [2, 1]
    assert first.image.is_crowd.tolist() == [False, True]
    assert (first.image.file_name, first.image.source_id) == ('0.png', '5')
    assert (first.image.height, first.image.width, first.image.format) == (20, 30, 'png')
    assert first.notes['not_converted: segmentation'] == 3
    assert len(second.image) == 0
    assert [reason for reason, _ in problems] == ['box_without_area']
    assert [label.text for label in data.labels.values()] == ['cat', 'dog']
    with pytest.raises(UserError, match='expected a split by --set, one of train, validation'):
        HfSource(data=folder).open(FILES, None)


@rows.parametrize(
    ('boxes', 'relative', 'numbers'),
    [
        ('xyxy', False, [3, 2, 9, 10]),
        ('xyxy', True, [3 / 30, 2 / 20, 9 / 30, 10 / 20]),
        ('cxcywh', True, [6 / 30, 6 / 20, 6 / 30, 8 / 20]),
        ('xywh', False, XYWH),
    ],
)
def test_other_forms_of_boxes_and_texts_as_classes(hf, png, boxes, relative, numbers):
    import datasets

    objects = [features_of(datasets.Value('string'))]
    objects = [{'bbox': objects[0]['bbox'].feature, 'category': datasets.Value('string')}]
    found = [{'bbox': numbers, 'category': 'dog'}, {'bbox': numbers, 'category': 'ant'}]
    folder = hf(png(30, 20), 'texts', [found], objects, splits=('train',))
    ((first,), _, data) = read(HfSource(data=folder, boxes=boxes, relative=relative))
    np.testing.assert_allclose(first.image.boxes, [BOX, BOX], atol=1e-6)
    assert {label.text: label.label for label in data.labels.values()} == {'ant': 1, 'dog': 2}
    assert first.image.class_labels.tolist() == [2, 1]


def test_tables_without_objects_and_other_folders_are_refused(hf, png, tmp_path):
    import datasets

    folder = hf(png(3, 2), 'plain', [[1]], datasets.Sequence(datasets.Value('int32')), ['train'])
    with pytest.raises(UserError, match='a column of images, and one of objects with bbox'):
        HfSource(data=folder).open(FILES, None)
    with pytest.raises(UserError, match='cannot be opened by the package datasets'):
        HfSource(data=str(tmp_path)).open(FILES, None)
    with pytest.raises(UserError, match=r'--boxes: expected xywh, xyxy or cxcywh\. Received: yxyx'):
        HfSource(data=folder, boxes='yxyx').open(FILES, None)


@pytest.fixture(scope='module')
def tfds_folder(tmp_path_factory):
    """A data set as TFDS prepares it: three images with 0, 1 and 2 objects."""
    tfds = pytest.importorskip('tensorflow_datasets', reason='needs the extra tfds')
    folder = tmp_path_factory.mktemp('tfds')

    class Things(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version('1.0.0')
        pkg_dir_path = folder

        def _info(self):
            thing = {
                'bbox': tfds.features.BBoxFeature(),
                'label': tfds.features.ClassLabel(names=['cat', 'dog']),
                'is_crowd': np.bool_,
            }
            features = {
                'image': tfds.features.Image(encoding_format='png'),
                'image/id': np.int64,
                'objects': tfds.features.Sequence(thing),
            }
            features = tfds.features.FeaturesDict(features)
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, manager):
            return {name: self._generate_examples() for name in ('train', 'test')}

        def _generate_examples(self):
            thing = {'bbox': tfds.features.BBox(*BOX), 'label': 'dog', 'is_crowd': True}
            for i in range(3):
                image = np.full((20, 30, 3), i, np.uint8)
                yield i, {'image': image, 'image/id': 5 + i, 'objects': [thing] * i}

    tfds.disable_progress_bar()
    builder = Things(data_dir=str(folder))
    builder.download_and_prepare()
    return str(builder.data_path)


def test_prepared_data_sets_of_tfds(tfds_folder):
    images, problems, data = read(TfdsSource(data=tfds_folder, split='test'))
    assert not problems
    by_id = {int(each.image.source_id): each.image for each in images}
    assert [len(by_id[number]) for number in (5, 6, 7)] == [0, 1, 2]
    np.testing.assert_allclose(by_id[7].boxes, [BOX, BOX], atol=1e-6)
    assert by_id[6].class_texts == ('dog',)
    assert by_id[6].class_labels.tolist() == [2]
    assert by_id[6].is_crowd.tolist() == [True]
    assert [label.text for label in data.labels.values()] == ['cat', 'dog']
    with pytest.raises(UserError, match=r'one of train, test\. Received: dev'):
        TfdsSource(data=tfds_folder, split='dev').open(FILES, None)


def test_names_that_the_catalog_lacks_are_refused(tfds_folder, tmp_path):
    with pytest.raises(UserError, match=r'cannot be prepared by TFDS: .*not found') as caught:
        TfdsSource(data='nothing_of_the_kind', data_dir=str(tmp_path)).open(FILES, None)
    assert 'Available' not in str(caught.value)


def test_a_conversion_by_the_command(tfds_folder, tmp_path):
    arguments = ['tfds', tfds_folder, '--set', 'train', '--output', str(tmp_path / 'train')]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    assert '3 examples' in result.output or '3 images' in result.output
    assert 'name: "dog"' in (tmp_path / 'train_label_map.pbtxt').read_text()


@rows.parametrize('name', ['hf', 'tfds'])
def test_packages_that_are_not_installed_are_named(name, monkeypatch, tmp_path):
    monkeypatch.setattr(extras.importlib.util, 'find_spec', lambda name: None)
    arguments = [name, str(tmp_path / 'absent'), '--output', str(tmp_path / 'a')]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 1
    assert f'tfod convert {name}: needs the Python package' in result.output
