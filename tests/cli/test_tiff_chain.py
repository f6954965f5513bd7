"""TIFF files of 16 bits and five channels: converted, read directly, trained on, looked at."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest
from google.protobuf import text_format
from PIL import Image

from object_detection.builders import dataset_builder, image_resizer_builder
from object_detection.config import families
from object_detection.core.fields import InputFields as F
from object_detection.dataset_tools import shapes
from object_detection.models import image_channels
from object_detection.protos import pipeline_pb2
from object_detection.training.monitoring import history
from tests import quick_graphs, toy_family
from tests.cli import test_chain
from tests.data.test_tiff_files import tiff

pytestmark = pytest.mark.usefixtures('graphs_as_they_are')

# Values are 16 times those of the 8 bits from which they are made.
CONFIG = test_chain.CONFIG.replace('height: 64 width: 64 }', 'height: 64 width: 64 } RANGE', 1)
CONFIG = CONFIG.replace('RANGE', 'value_range { min: 0 max: 4080 }')
DIRECT = (
    "coco_input_reader { image_dir: 'shapes/val' annotation_file: 'shapes/instances_val.json' }"
)


class Detector(test_chain.Detector):
    """Takes images of any number of channels."""

    @property
    def num_image_channels(self):
        return self.boxes.kernel.shape[0]

    def build_variables(self):
        for part in self.parts().values():
            part.build([None, image_channels.current()])


def build(config, is_training):
    resizer = image_resizer_builder.build(config.image_resizer)
    return Detector(num_classes=config.num_classes, resizer=resizer)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('tiff')
    with pytest.MonkeyPatch.context() as patch, quick_graphs.unoptimized():
        row = dataclasses.replace(toy_family.FAMILY, build=build)
        patch.setitem(families.FAMILIES._rows, 'toy', row)
        patch.chdir(folder)
        shapes.write_shapes('shapes', num_train=2, num_val=2, image_size=64)
        for split in ('train', 'val'):
            _make_tiff_files(folder / 'shapes', split)
            test_chain.run(
                *('convert', 'coco', '--images', f'shapes/{split}', '--shards', '1'),
                *('--annotations', f'shapes/instances_{split}.json', '--output', f'data/{split}'),
            )
        readers = CONFIG.replace('tf_record_input_reader', 'num_channels: 5 tf_record_input_reader')
        (folder / 'toy.config').write_text(readers)
        yield folder


def _make_tiff_files(folder: pathlib.Path, split: str) -> None:
    for path in (folder / split).glob('*.jpg'):
        values = np.asarray(Image.open(path)).astype(np.uint16) * 16
        values = np.concatenate([values, 4080 - values[..., :2]], axis=-1)
        layout = {'tiled': True, 'blockxsize': 16, 'blockysize': 32, 'compress': 'lzw'}
        tiff(values, path.with_suffix('.tif'), **layout)
    file = folder / f'instances_{split}.json'
    file.write_text(file.read_text().replace('.jpg', '.tif'))


def _images(reader: str) -> np.ndarray:
    """The images of an evaluation, in the order of their files."""
    pipeline = text_format.Parse(CONFIG, pipeline_pb2.TrainEvalPipelineConfig())
    if 'coco' in reader:
        pipeline.eval_input_reader[0].ClearField('tf_record_input_reader')
    text_format.Merge(reader, pipeline.eval_input_reader[0])
    pipeline.train_input_reader.num_channels = pipeline.eval_input_reader[0].num_channels
    (batch,) = dataset_builder.build_eval(pipeline, batch_size=2)
    return batch[F.IMAGE].numpy()[np.argsort(batch[F.SOURCE_ID].numpy())]


def test_records_and_direct_readers_have_all_values_and_channels(folder):
    report = json.loads((folder / 'data/val.report.json').read_text())
    assert report['changed_images'] == {'tiff': 2}
    paths = sorted((folder / 'shapes/val').glob('*.jpg'))
    originals = np.stack([np.asarray(Image.open(path)) for path in paths]).astype(np.float32)
    for reader in ('', DIRECT):
        np.testing.assert_allclose(_images(reader), originals, atol=1e-4)
    five = _images('num_channels: 5')
    np.testing.assert_allclose(five[..., :3], originals, atol=1e-4)
    np.testing.assert_allclose(five[..., 3:], 255 - originals[..., :2], atol=1e-4)
    np.testing.assert_array_equal(_images(DIRECT + ' num_channels: 5'), five)


def test_a_training_on_five_channels_of_16_bits_and_its_predictions(folder):
    assert 'ready to train' in test_chain.run('config', 'check', 'toy.config')
    test_chain.run('data', 'check', 'data/train-00000-of-00001')
    test_chain.run('train', '--config', 'toy.config', '--model_dir', 'model', '--log_every_n', '1')
    entries = history.read(folder / 'model/train/history.jsonl')
    losses = [value for entry in entries for value in entry['losses'].values()]
    assert len(losses) >= 4
    assert np.isfinite(losses).all()
    test_chain.run(
        *('predict', '--config', 'toy.config', '--checkpoint_dir', 'model', '--output', 'found'),
        *('--input', 'shapes/val/*.tif', '--min_score', '0'),
    )
    listed = json.loads((folder / 'found/images.json').read_text())
    assert [pathlib.Path(each['file_name']).suffix for each in listed] == ['.tif'] * 2
    picture = np.asarray(Image.open(folder / 'found' / listed[0]['picture']))
    # What is drawn on has the brightness that the model sees.
    original = Image.open(pathlib.Path(folder / listed[0]['file_name']).with_suffix('.jpg'))
    small = np.asarray(Image.fromarray(picture).resize(original.size)).astype(float)
    assert np.median(np.abs(small - np.asarray(original))) < 3
