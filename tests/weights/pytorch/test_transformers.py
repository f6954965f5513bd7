"""Weights of detection transformers in files of transformers, today's and earlier ones."""

import json
import logging
import re

import numpy as np
import pytest

from object_detection.builders import model_builder
from object_detection.errors import CheckpointError
from object_detection.export import exporter
from object_detection.meta_architectures.detr import transformers_config
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.weights import restore, sources
from object_detection.weights.pytorch import transformers
from tests.conftest import SHARED
from tests.meta_architectures.detr.transformers_configs import config
from tests.weights.pytorch import literal_names, writers

# The second version of RT-DETR differs from the first one in one variable.
_V2 = pytest.param('rt_detr_v2', marks=pytest.mark.slow)
KINDS = ('rt_detr', _V2, 'd_fine', 'rf_detr', 'detr')
_SIDE = 64
_RECORDED = {
    'rt_detr': 'rt_detr_r18',
    'rt_detr_v2': 'rt_detr_v2_r50',
    'd_fine': 'd_fine_default',
    'rf_detr': 'rf_detr_default',
    'detr': 'detr_r50',
}


def pipeline_of(kind, **changes):
    pipeline = TrainEvalPipelineConfig()
    detr = pipeline.model.detr
    changes = literal_names.CHANGES.get(kind, {}) | changes
    detr.CopyFrom(transformers_config.translate(config(kind, **changes)).detr)
    resizer = detr.image_resizer.fixed_shape_resizer
    resizer.height = resizer.width = _SIDE
    return pipeline


@pytest.fixture(scope='module')
def detectors():
    """Kind -> a small detector, each built once."""
    built = {}

    def detector(kind):
        if kind not in built:
            built[kind] = model_builder.build(pipeline_of(kind).model, is_training=False)
            built[kind].build_variables()
        return built[kind]

    return detector


def in_their_layout(name, array):
    if name.endswith('depthwise_kernel'):
        return array.transpose(2, 3, 0, 1)
    if array.ndim == 4:
        return array.transpose(3, 2, 0, 1)
    return array.T if name.endswith('/kernel') else array


def file_of(detector, kind):
    """Random arrays by the names of today, and what they are here, by our names."""
    random = np.random.default_rng(7)
    title = {'rt_detr': 'RT-DETR of', 'rt_detr_v2': 'RT-DETR v2', 'd_fine': 'D-FINE'}
    title |= {'rf_detr': 'RF-DETR', 'detr': 'DETR of'}
    (found,) = [each for each in transformers.KINDS if each.title.startswith(title[kind])]
    here, there = {}, {}
    for name, variable in detector.named_variables().items():
        array = random.uniform(0.5, 1.5, tuple(variable.shape)).astype(np.float32)
        part, _, rest = name.partition('/')
        if part == 'backbone':
            key = backbone_key(kind, rest)
        else:
            key = transformers.transformers_names.key(name, found.rows)
        here[name], there[key] = array, np.ascontiguousarray(in_their_layout(name, array))
    return here, there


_NORM = {
    **{'gamma': 'weight', 'beta': 'bias'},
    **{'moving_mean': 'running_mean', 'moving_variance': 'running_var'},
}


def backbone_key(kind, name):
    """The name there of a variable of a backbone, such as 'conv2_block1_1_bn/gamma'."""
    layer, variable = name.split('/')
    if kind == 'rf_detr':
        return f'model.backbone.backbone.{dinov2_key(layer, variable)}'
    if kind == 'd_fine':
        return f'model.backbone.model.{hgnet_key(layer, variable)}'
    end = 'convolution.weight'
    if layer.endswith('_bn'):
        end = f'normalization.{_NORM[variable]}'
    layer = layer.removesuffix('_bn').removesuffix('_conv')
    if match := re.fullmatch(r'conv1(?:_(\d))?', layer):
        number = '' if match[1] is None else f'.{int(match[1]) - 1}'
        return f'model.backbone.model.embedder.embedder{number}.{end}'
    stage, block, conv = map(int, re.fullmatch(r'conv(\d)_block(\d+)_(\d)', layer).groups())
    where = 'shortcut' if conv == 0 else f'layer.{conv - 1}'
    if kind != 'detr' and conv == 0 and stage > 2:
        where = 'shortcut.1'
    unit = f'encoder.stages.{stage - 2}.layers.{block - 1}'
    return f'model.backbone.model.{unit}.{where}.{end}'


def hgnet_key(layer, variable):
    end = 'convolution.weight'
    for suffix, begin, names in (('_bn', 'normalization', _NORM), ('_lab', 'lab', {})):
        if layer.endswith(suffix):
            end = f'{begin}.{names.get(variable, variable)}'
    layer = re.sub(r'_(bn|lab|conv)$', '', layer)
    if layer.startswith('stem'):
        return f'embedder.{layer}.{end}'
    stage = f'encoder.stages.{int(layer[5]) - 1}'
    if layer.endswith('_downsample'):
        return f'{stage}.downsample.{end}'
    pattern = r'stage\d_block(\d+)_(layer|aggregation)(\d+)(?:_(pointwise|depthwise))?'
    block, row, number, part = re.fullmatch(pattern, layer).groups()
    row = 'layers' if row == 'layer' else row
    part = {None: '', 'pointwise': 'conv1.', 'depthwise': 'conv2.'}[part]
    return f'{stage}.blocks.{int(block) - 1}.{row}.{int(number) - 1}.{part}{end}'


def dinov2_key(layer, variable):
    end = {'kernel': 'weight', 'gamma': 'weight', 'beta': 'bias', 'scale': 'lambda1'}
    end = end.get(variable, variable)
    if layer == 'embeddings':
        return f'embeddings.{variable}'
    if layer in ('norm', 'patch_embeddings'):
        there = {'norm': 'layernorm', 'patch_embeddings': 'embeddings.patch_embeddings.projection'}
        return f'{there[layer]}.{end}'
    block, part = re.fullmatch(r'block(\d+)_(\w+)', layer).groups()
    parts = {each: f'attention.{each[0]}_proj' for each in ('query', 'key', 'value')}
    parts |= {'output': 'attention.o_proj', 'fc1': 'mlp.fc1', 'fc2': 'mlp.fc2'}
    parts |= {'scale1': 'layer_scale1', 'scale2': 'layer_scale2'}
    return f'encoder.layer.{block}.{parts.get(part, part)}.{end}'


def check_restored(detector, path, here):
    """All variables are those of the file, and nothing of it is left but what is named here."""
    for variable in detector.named_variables().values():
        variable.assign(np.zeros(variable.shape, np.float32))
    report = restore.restore(detector, path, 'full')
    assert not report.missing
    for name, variable in detector.named_variables().items():
        np.testing.assert_array_equal(variable, here[name], err_msg=name)
    return report


def write(path, arrays):
    return writers.write_safetensors(path, *writers.header_of(arrays))


@pytest.mark.parametrize('kind', KINDS)
def test_all_weights_are_those_of_the_file(kind, detectors, tmp_path):
    detector = detectors(kind)
    here, there = file_of(detector, kind)
    there['model.norm.num_batches_tracked'] = np.zeros((), np.int64)
    report = check_restored(detector, write(tmp_path / 'model.safetensors', there), here)
    assert not report.unused
    path = writers.write_zip(tmp_path / 'pytorch_model.bin', writers.tensors(there))
    check_restored(detector, path, here)


@pytest.mark.parametrize('kind', KINDS)
def test_names_are_those_that_are_written_out(kind, detectors):
    here, there = file_of(detectors(kind), kind)
    for ours, theirs in literal_names.NAMES[kind].items():
        assert theirs in there, ours
        np.testing.assert_array_equal(there[theirs], in_their_layout(ours, here[ours]), theirs)


# Pattern of a name of today -> what earlier versions had.
_EARLIER = (
    (r'^model\.position_embedding\.', 'model.backbone.position_embedding.'),
    (r'(_attn)\.o_proj\.', r'\1.out_proj.'),
    (r'^(model\.\w+\..*layers\.\d+)\.mlp\.fc([12])\.', r'\1.fc\2.'),
    (r'^model\.encoder\.aifi\.', 'model.encoder.encoder.'),
    (r'^model\.backbone\.model\.', 'model.backbone.conv_encoder.model.'),
)


@pytest.mark.parametrize('kind', ['rt_detr', _V2, 'd_fine', 'detr'])
def test_names_of_earlier_versions(kind, detectors, tmp_path):
    detector = detectors(kind)
    here, there = file_of(detector, kind)
    earlier = {}
    for name, array in there.items():
        if kind == 'd_fine':
            hidden = r'^(model\.\w+\..*layers\.\d+)\.mlp\.layers\.([01])\.'
            name = re.sub(hidden, lambda m: f'{m[1]}.fc{int(m[2]) + 1}.', name)
        for pattern, other in _EARLIER:
            name = re.sub(pattern, other, name)
        # Files of RT-DETR and D-FINE have the heads of the layers twice.
        earlier[re.sub(r'^model\.decoder\.((?:class|bbox)_embed)\.', r'\1.', name)] = array
    assert len(earlier) == len(there)
    assert len(earlier.keys() - there.keys()) > 10
    check_restored(detector, write(tmp_path / 'model.safetensors', earlier), here)


# Pattern of a name of today -> RF-DETR's own; the first ones of layers are in one array.
_OWN = (
    (r'^model\.backbone\.backbone\.', 'backbone.0.encoder.encoder.'),
    (r'^model\.backbone\.projector\.layer_norm\.', 'backbone.0.projector.stages.0.1.'),
    (r'^model\.backbone\.projector\.projector_layer\.', 'backbone.0.projector.stages.0.0.'),
    (r'\.bottlenecks\.', '.m.'),
    (r'(stages\.0\.0\..*)conv([12])\.norm\.', r'\1cv\2.bn.'),
    (r'(stages\.0\.0\..*)conv([12])\.', r'\1cv\2.'),
    (r'attention\.q_proj', 'attention.attention.query'),
    (r'attention\.k_proj', 'attention.attention.key'),
    (r'attention\.v_proj', 'attention.attention.value'),
    (r'attention\.o_proj', 'attention.output.dense'),
    (r'^model\.reference_point_embed\.', 'refpoint_embed.'),
    (r'^model\.query_feat\.', 'query_feat.'),
    (r'^model\.', 'transformer.'),
    (r'\.self_attn_layer_norm\.', '.norm1.'),
    (r'\.cross_attn_layer_norm\.', '.norm2.'),
    (r'(layers\.\d+)\.layer_norm\.', r'\1.norm3.'),
    (r'(decoder\.layers\.\d+)\.mlp\.fc', r'\1.linear'),
    (r'decoder\.layernorm\.', 'decoder.norm.'),
    (r'self_attn\.o_proj', 'self_attn.out_proj'),
)


def test_names_of_rf_detrs_own_files(detectors, tmp_path):
    detector = detectors('rf_detr')
    here, there = file_of(detector, 'rf_detr')
    own, joined = {}, {}
    for name, array in there.items():
        for pattern, other in _OWN:
            name = re.sub(pattern, other, name)
        if match := re.fullmatch(r'(.*self_attn)\.([qkv])_proj\.(\w+)', name):
            joined.setdefault(f'{match[1]}.in_proj_{match[3]}', {})[match[2]] = array
        else:
            own[name] = array
    own |= {name: np.concatenate([parts[k] for k in 'qkv']) for name, parts in joined.items()}
    assert not own.keys() & {name for name in there if name.startswith('model.')}
    report = check_restored(detector, write(tmp_path / 'model.safetensors', own), here)
    assert not report.unused


def numbered(names):
    return {re.sub(r'\d+', 'N', name) for name in names}


@pytest.mark.parametrize('kind', KINDS)
def test_names_are_those_of_the_recorded_models(kind, detectors):
    path = SHARED / 'goldens' / 'peers' / f'transformers_{_RECORDED[kind]}.json'
    if not path.is_file():
        pytest.skip('needs ../shared/goldens/peers, recorded detectors of transformers')
    recorded = numbered(row[0] for row in json.loads(path.read_text())['variables'])
    _, there = file_of(detectors(kind), kind)
    mine = numbered(there)
    # Small models differ in what the recorded ones lack: noisy queries, blocks of other kinds.
    others = {'model.denoising_class_embed.weight'}
    others |= {f'model.position_embedding.{each}_embeddings.weight' for each in ('row', 'column')}
    assert {n for n in mine - recorded if '.lab.' not in n and 'backbone' not in n} <= others
    left = {n for n in recorded - mine if 'backbone.' not in n and 'num_batches' not in n}
    assert all(re.match(r'(class|bbox)_embed\.', n) or '.conv3.' in n for n in left), left


@pytest.mark.parametrize('kind', ['rt_detr', 'detr'])
def test_heads_of_other_classes_begin_anew(kind, detectors, tmp_path, caplog):
    here, there = file_of(detectors(kind), kind)
    path = write(tmp_path / 'model.safetensors', there)
    labels = {str(i): f'label {i}' for i in range(7)}
    other = model_builder.build(pipeline_of(kind, id2label=labels).model, is_training=False)
    with caplog.at_level(logging.INFO, 'object_detection'):
        report = restore.restore(other, path, 'full')
    assert 'num_classes is 7, and 3 there' in caplog.text
    expected = 2 if kind == 'detr' else 2 * 2 + 2 + 1
    assert len(report.mismatched) == expected
    assert all('class' in name or 'score' in name for name in report.mismatched)
    assert set(report.restored) == set(here) - set(report.mismatched)


def test_images_of_another_normalisation_are_logged(detectors, tmp_path, caplog):
    """The config says what weights were trained with, as a preprocessor_config.json may."""
    pipeline = pipeline_of('detr')
    here, there = file_of(detectors('detr'), 'detr')
    path = write(tmp_path / 'model.safetensors', there)
    pipeline.model.detr.feature_extractor.preprocess.ClearField('mean')
    detector = model_builder.build(pipeline.model, is_training=False)
    detector.build_variables()
    with caplog.at_level(logging.INFO, 'object_detection'):
        check_restored(detector, path, here)
    assert 'mostly see images of the mean [123.675, 116.28, 103.53]' in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, 'object_detection'):
        check_restored(detectors('detr'), path, here)
    assert 'mostly see' not in caplog.text


def test_it_is_loaded_and_listed(detectors, tmp_path):
    here, there = file_of(detectors('rt_detr'), 'rt_detr')
    path = write(tmp_path / 'model.safetensors', there)
    listing = sources.list_file(path)
    assert listing.description == f'RT-DETR of transformers {path}'
    assert listing.types == ('classification', 'detection', 'full')
    detector = exporter.load_detector(pipeline_of('rt_detr'), path)
    assert detector.named_variables().keys() == here.keys()


@pytest.mark.parametrize(
    ('drop', 'reshape', 'message'),
    [
        (r'model\.decoder\.layers\.1\.mlp', None, 'decoder/layers_1/mlp/fc1/kernel'),
        (None, r'model\.decoder\.layers\.1\.mlp\.fc1\.weight', 'of another shape'),
    ],
)
def test_a_file_that_does_not_fit_is_an_error(drop, reshape, message, detectors, tmp_path):
    detector = detectors('rt_detr')
    _, there = file_of(detector, 'rt_detr')
    there = {
        name: array[:-1] if reshape and re.match(reshape, name) else array
        for name, array in there.items()
        if not (drop and re.match(drop, name))
    }
    with pytest.raises(CheckpointError, match=message):
        restore.restore(detector, write(tmp_path / 'model.safetensors', there), 'full')


@pytest.mark.parametrize(
    ('kind', 'key'),
    [
        ('detr', 'model.decoder.layers.2.mlp.fc1.bias'),
        ('detr', 'model.encoder.layers.1.fc1.bias'),
        ('rt_detr', 'model.decoder.layers.2.encoder_attn.value_proj.bias'),
        ('rt_detr', 'model.encoder.aifi.0.layers.1.mlp.fc1.bias'),
    ],
)
def test_a_deeper_model_is_refused_where_all_counts(kind, key, detectors, tmp_path):
    """A training may begin with the first layers; detections need all of them."""
    here, there = file_of(detectors(kind), kind)
    there[key] = np.zeros(8, np.float32)
    path = write(tmp_path / 'model.safetensors', there)
    detector = detectors(kind)
    with pytest.raises(CheckpointError, match=f'deeper model .* lacks: {re.escape(key)}'):
        restore.restore_exactly(detector, path, averages=False)
    report = check_restored(detector, path, here)
    assert report.unused == [key]
    # Heads that are in the file twice, and further variables, are no layers.
    del there[key]
    there['model.decoder.something'] = np.zeros(8, np.float32)
    restore.restore_exactly(detector, write(tmp_path / path, there), averages=False)


def test_odd_shapes_are_no_crash(detectors, tmp_path):
    """Joined arrays without three parts, scalars, and lists in place of kernels."""
    detector = detectors('rf_detr')
    for shape in ((), (4,), (0,), (2, 2, 2, 2)):
        arrays = {
            'refpoint_embed.weight': np.zeros(shape, np.float32),
            'transformer.decoder.layers.0.self_attn.in_proj_weight': np.zeros(shape, np.float32),
            'backbone.0.encoder.encoder.embeddings.patch_embeddings.projection.weight': np.zeros(
                shape, np.float32
            ),
        }
        with pytest.raises(CheckpointError):
            restore.restore(detector, write(tmp_path / 'model.safetensors', arrays), 'full')
