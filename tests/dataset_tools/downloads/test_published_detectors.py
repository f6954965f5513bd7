import json
import os
import pathlib
import re
import subprocess

import pytest

import object_detection
from object_detection.dataset_tools.downloads.published_detectors import (
    DETECTORS,
    HUGGING_FACE,
    TENSORFLOW_ZOO,
    TORCHVISION,
)
from tests.conftest import SHARED

SAMPLES = pathlib.Path(object_detection.__file__).parent / 'samples' / 'configs'
# Configs of the zoo of which no trained detector is published.
WITHOUT_ARCHIVE = {
    'center_net_deepmac_1024x1024_non_voc_only_tpu-128',
    'center_net_deepmac_1024x1024_voc_only_tpu-128',
    'center_net_deepmac_512x512_voc_only_tpu-32',
    'faster_rcnn_resnet50_v1_fpn_640x640_coco17_tpu-8',
}
OTHER_NAMES = {'center_net_deepmac_1024x1024_coco_tpu-128': 'deepmac_1024x1024_coco17'}
# Published detectors whose configs are in their archives alone.
WITHOUT_CONFIG = (
    'faster_rcnn_inception_resnet_v2_',
    'centernet_resnet50_v',
    'centernet_mobilenetv2fpn_',
)


def names(publisher):
    return {name for name, row in DETECTORS.items() if row.publisher == publisher}


def archive_of(config):
    """The name of the archive of a config: of EfficientDets and hourglasses a shorter one."""
    if match := re.match(r'ssd_(efficientdet_d\d)_', config):
        return f'{match[1]}_coco17_tpu-32'
    return OTHER_NAMES.get(config, config.replace('hourglass', 'hg'))


def test_each_config_of_the_zoo_has_an_archive_or_is_known_to_have_none():
    keys = SHARED / 'goldens' / 'zoo_keys'
    if not keys.is_dir():
        pytest.skip('needs ../shared/goldens/zoo_keys, the detectors of the reference')
    configs = {path.stem for path in keys.glob('*.json')}
    assert len(configs) == 40
    assert configs >= WITHOUT_ARCHIVE
    archives = {archive_of(config) for config in configs - WITHOUT_ARCHIVE}
    assert archives <= names(TENSORFLOW_ZOO)
    assert all(name.startswith(WITHOUT_CONFIG) for name in names(TENSORFLOW_ZOO) - archives)


def test_each_archive_is_named_as_its_folder_and_has_no_sample():
    for name in names(TENSORFLOW_ZOO):
        row = DETECTORS[name]
        assert row.is_archive
        assert re.fullmatch(rf'.*/tf2/202[01]\d{{4}}/{re.escape(name)}\.tar\.gz', row.file.path)


def test_each_sample_of_torchvision_has_a_file_and_each_file_a_sample():
    samples = {path.stem for path in SAMPLES.glob('torchvision_*.config')}
    assert names(TORCHVISION) == samples
    for name, row in DETECTORS.items():
        assert row.is_archive or row.beside or (SAMPLES / f'{row.sample}.config').is_file(), name


def test_a_file_of_torchvision_ends_with_the_beginning_of_its_checksum():
    for name in names(TORCHVISION):
        row = DETECTORS[name]
        assert re.fullmatch(rf'[a-z0-9_]+-{row.file.checksum}\.pth', row.file.path)
        assert re.fullmatch('[0-9a-f]{8}', row.file.checksum)
        assert 10 < row.mebibytes < 300


def test_the_header_of_a_sample_says_what_is_published():
    """A sample also of several files says what those give."""
    for name in names(TORCHVISION):
        text = (SAMPLES / f'{DETECTORS[name].sample}.config').read_text()
        header = ' '.join(line.lstrip('# ') for line in text.splitlines() if line.startswith('#'))
        (published,) = re.findall(r'torchvision publishes ([^;]*) on val2017', header)
        figures = [float(figure) for figure in re.findall(r'\d+\.\d', published)]
        assert figures == list(DETECTORS[name].metrics.values()), name


def test_the_documents_have_the_table():
    text = (pathlib.Path(__file__).parents[3] / 'docs' / 'models.md').read_text()
    rows = re.findall(r'^\| `([\w-]+)` \| ((?:box|mask|keypoint) AP.*) \|$', text, re.MULTILINE)
    published = {name: row.accuracy for name, row in DETECTORS.items() if row.accuracy}
    assert dict(rows) == published


def test_a_detector_of_the_hub_is_in_a_folder_of_its_own_with_its_config():
    for name in names(HUGGING_FACE):
        row = DETECTORS[name]
        assert re.fullmatch(rf'[\w-]+/{name}/resolve/main/model\.safetensors', row.file.path)
        folder = row.file.path.rpartition('/')[0]
        assert [each.path for each in row.files[1:]] == [
            f'{folder}/config.json',
            f'{folder}/preprocessor_config.json',
        ]


def test_addresses_are_secure_and_licences_stated():
    for row in DETECTORS.values():
        assert row.publisher.base_url.startswith('https://')
        assert row.publisher.page.startswith('https://')
        assert row.publisher.licence


def test_the_recorded_enumerations_of_torchvision_are_these(torchvision_source):
    """The table against the source itself, where an interpreter has it."""
    for name in names(TORCHVISION):
        row = DETECTORS[name]
        published = torchvision_source[row.file.name]
        assert published['url'] == f'{TORCHVISION.base_url}/{row.file.path}'
        assert published['_file_size'] == row.mebibytes
        kinds = {'box_map': 'box', 'mask_map': 'mask', 'kp_map': 'keypoint'}
        assert {kinds[k]: v for k, v in published['metrics'].items()} == dict(row.metrics)


SCRIPT = """
import json, torchvision
from torchvision.models import get_model_weights, list_models
found = {}
for model in list_models(module=torchvision.models.detection):
    for weights in get_model_weights(model):
        found[weights.url.rsplit('/', 1)[1]] = {
            'url': weights.url,
            '_file_size': weights.meta['_file_size'],
            'metrics': weights.meta['_metrics']['COCO-val2017'],
        }
print(json.dumps(found))
"""


@pytest.fixture(scope='module')
def torchvision_source():
    python = os.environ.get('TORCHVISION_PYTHON')
    if not python:
        pytest.skip('needs TORCHVISION_PYTHON, an interpreter that has torchvision')
    environment = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
    result = subprocess.run(
        [python, '-c', SCRIPT], capture_output=True, text=True, check=True, env=environment
    )
    return json.loads(result.stdout)
