"""HGNetV2 against maps that transformers computed, and detectors on it."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import tensorflow as tf

from object_detection.builders import model_builder
from object_detection.errors import UserError
from object_detection.models import precision, rounding
from object_detection.models.backbones import hgnet_v2
from object_detection.models.backbones.hgnet_v2 import HgNetV2Spec
from object_detection.models.backbones.table import BackboneOptions, find
from object_detection.models.quantization import Quantization, QuantizationParams
from object_detection.protos import pipeline_pb2
from object_detection.weights.pytorch import transformers_backbones
from tests import rows, slow_cases
from tests.meta_architectures.ssd.configs import tiny
from tests.models.backbones import peers
from tests.tiny_models import (
    SEEDS,
    random_groundtruth,
    random_images,
    tiny_pipeline,
    train_losses,
)

_NORM = ('weight', 'bias', 'running_mean', 'running_var')
_STEM = ('stem1', 'stem2a', 'stem2b', 'stem3', 'stem4')
PLAIN = HgNetV2Spec(
    stem_channels=(3, 16, 20),
    stage_in_channels=(20, 32, 48),
    stage_mid_channels=(16, 16, 24),
    stage_out_channels=(32, 48, 64),
    stage_num_blocks=(1, 2, 1),
    stage_downsample=(False, True, True),
    stage_downsample_strides=(2, 2, 2),
    stage_light_block=(False, False, True),
    stage_kernel_size=(3, 3, 5),
    stage_numb_of_layers=(2, 3, 2),
)
AFFINE = HgNetV2Spec(
    stem_channels=(3, 16, 16),
    stem_strides=(2, 1, 1, 1, 2),
    stage_in_channels=(16, 32),
    stage_mid_channels=(16, 16),
    stage_out_channels=(32, 48),
    stage_num_blocks=(2, 1),
    stage_downsample=(True, True),
    stage_downsample_strides=(1, 3),
    stage_light_block=(True, False),
    stage_kernel_size=(5, 1),
    stage_numb_of_layers=(2, 1),
    use_learnable_affine_block=True,
    activation='silu',
)


def network(spec, out_indices, *, is_trained=True, **settings):
    options = BackboneOptions(
        hyperparams=hgnet_v2.default_hyperparams(),
        batch_norm_trainable=is_trained,
        settings=settings,
    )
    return hgnet_v2.network(spec, out_indices, options)


def layers(spec: HgNetV2Spec) -> Iterator[tuple[str, bool]]:
    """Yields the convolutions as transformers names them, and whether an activation follows."""
    yield from ((f'embedder.{layer}', True) for layer in _STEM)
    for i, blocks in enumerate(spec.stage_num_blocks):
        if spec.stage_downsample[i]:
            yield f'encoder.stages.{i}.downsample', False
        for block in range(blocks):
            scope = f'encoder.stages.{i}.blocks.{block}'
            for layer in range(spec.stage_numb_of_layers[i]):
                if spec.stage_light_block[i]:
                    yield f'{scope}.layers.{layer}.conv1', False
                    yield f'{scope}.layers.{layer}.conv2', True
                else:
                    yield f'{scope}.layers.{layer}', True
            yield from ((f'{scope}.aggregation.{layer}', True) for layer in range(2))


def keys(spec: HgNetV2Spec) -> Iterator[str]:
    for layer, is_activated in layers(spec):
        yield f'{layer}.convolution.weight'
        yield from (f'{layer}.normalization.{name}' for name in _NORM)
        if is_activated and spec.use_learnable_affine_block:
            yield from (f'{layer}.lab.{name}' for name in ('scale', 'bias'))


def case(spec: HgNetV2Spec, out_indices: Sequence[int], *samples) -> peers.Case:
    return peers.Case(
        lambda: network(spec, out_indices),
        [*keys(spec)],
        transformers_backbones.HGNET_V2.translate,
        (75, 96),
        samples,
    )


CASES = {
    'plain': case(
        PLAIN,
        [0, 1, 2, 3],
        [0.4629022, 0.267378, 0.5276527, 0.2500984, -0.3662799, -0.622067],
        [-0.05356355, 0.016921, -0.6118389, -0.2087424, 0.1950116, 0.4627939],
        [-0.218985, 0.4326275, 0.1495462, -0.6868349, 0.4036274, -1.289702],
        [0.2507118, 0.691787, 1.085734, 1.26521, 1.132901, 1.036937],
    ),
    'affine': case(
        AFFINE,
        [1, 2],
        [-0.4742031, 0.490121, -0.143786, 0.03494338, 0.5266683, 0.8735706],
        [1.016049, -0.338017, 0.3950607, 0.02755268, 1.018397, -0.2370394],
    ),
}


@rows.parametrize('name', CASES)
def test_maps_are_those_of_transformers(name):
    peers.check(CASES[name])


def test_everything_learns():
    peers.check_learning(peers.build(CASES['affine']), (64, 64))


def test_bfloat16():
    with precision.scope(precision.BFLOAT16):
        mixed = network(AFFINE, [1, 2])
    peers.check_bfloat16(network(AFFINE, [1, 2]), mixed, (64, 96))


def test_strides_and_channels():
    for spec in (PLAIN, AFFINE):
        count = len(spec.stage_in_channels) + 1
        outputs = network(spec, range(count))(tf.zeros([1, 144, 96, 3]))
        assert [tuple(each.shape) for each in outputs] == [
            (1, 144 // spec.stride(i), 96 // spec.stride(i), spec.channels(i)) for i in range(count)
        ]


def test_frozen_stages_and_norms():
    model = network(AFFINE, [2], is_trained=False, frozen_stages=2)
    trained = {variable.path.split('_')[0] for variable in model.trainable_variables}
    assert trained == {'stage2'}
    before = [variable.numpy() for variable in model.non_trainable_variables]
    model(tf.ones([2, 64, 64, 3]), training=True)
    for old, variable in zip(before, model.non_trainable_variables, strict=True):
        assert (old == variable.numpy()).all(), variable.path


def test_affine_blocks_are_quantized():
    quantization = Quantization(QuantizationParams())
    with rounding.rounded_by(quantization):
        model = network(AFFINE, [1])
    pixels = peers.images((32, 32))
    plain = peers.maps(model, pixels, training=False)[0]
    layers = [(layer.name, layer) for layer in model.layers]
    quantization.build(layers, lambda: model(pixels, training=False))
    assert 'stem4_lab/moving_max' in quantization.ranges
    # The ranges of a network that was never trained are -6 to 6, of 255 levels.
    rounded = peers.maps(model, pixels, training=False)[0]
    off = np.abs(np.subtract(rounded, plain))
    assert 0 < off.max() < 1


@rows.parametrize(
    ('field', 'value'),
    [
        ('stage_num_blocks', (1, 1, 1)),
        ('stage_light_block', (True,)),
        ('stage_mid_channels', (0, 1, 1, 1)),
        ('stem_channels', (3, 32)),
        ('stem_strides', (2, 2, 1, 2, 1)),
        ('stage_kernel_size', (3, 3, 4, 5)),
        ('stage_in_channels', (48, 128, 512, 512)),
    ],
)
def test_networks_that_are_none(field, value):
    with pytest.raises(UserError, match=f'HGNetV2: {field}: expected '):
        HgNetV2Spec(**{field: value})


def ssd(backbone: str) -> pipeline_pb2.TrainEvalPipelineConfig:
    pipeline = pipeline_pb2.TrainEvalPipelineConfig(model=tiny('num_classes: 4'))
    extractor = pipeline.model.ssd.feature_extractor
    for field in ('depth_multiplier', 'min_depth', 'num_layers'):
        extractor.ClearField(field)
    extractor.type, extractor.backbone = 'ssd_fpn', backbone
    extractor.fpn.min_level, extractor.fpn.max_level = 3, 5
    return pipeline


def faster_rcnn(backbone: str) -> pipeline_pb2.TrainEvalPipelineConfig:
    return tiny_pipeline(
        f"""model {{ faster_rcnn {{
          feature_extractor {{ type: 'faster_rcnn_fpn' backbone: '{backbone}' }} }} }}"""
    )


@slow_cases.parametrize(
    2,
    ('pipeline', 'backbone'),
    [
        (faster_rcnn, 'hgnet_v2_b0'),
        (ssd, 'resnet_vd_18'),
        (ssd, 'hgnet_v2_b0'),
        (faster_rcnn, 'resnet_vd_18'),
    ],
)
def test_detectors_learn(pipeline, backbone):
    detector = model_builder.build(pipeline(backbone).model, is_training=True)
    detector.build_variables()
    named = detector.named_trainable_variables()
    first = {'hgnet_v2_b0': 'stem1_conv', 'resnet_vd_18': 'conv1_1_conv'}[backbone]
    kernel = named[f'backbone/{first}/kernel']
    with tf.GradientTape() as tape:
        losses = train_losses(detector, random_images(1), random_groundtruth(1), SEEDS[:1])
        total = tf.add_n([*losses.values()])
    assert np.isfinite(total)
    gradient = tape.gradient(total, kernel)
    assert np.isfinite(gradient).all()
    assert np.any(gradient)


def test_rows():
    # Inner channels of stem and stages, and blocks and convolutions in a row.
    for name, channels in (('hgnet_v2_b0', [64, 256, 512, 1024]), ('hgnet_v2_b5', [128, 512])):
        row = find(name)
        options = BackboneOptions(hyperparams=row.hyperparams, batch_norm_trainable=True)
        model = row.trunk(range(2, 2 + len(channels)), options)
        assert [output.shape[-1] for output in model.outputs] == channels
        has_affine = any(layer.name.endswith('_lab') for layer in model.layers)
        assert has_affine == (name == 'hgnet_v2_b0')
