"""MobileNets and EfficientNets from Keras weights files of both layouts."""

import functools
import types

import h5py
import keras
import numpy as np
import pytest
from keras.src.legacy.saving import legacy_h5_format

from object_detection.core.variable_names import PLAIN_NAMES
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.meta_architectures.ssd.feature_extractor import SingleShotOptions, build_ssd
from object_detection.meta_architectures.ssd.variable_names import SSD_NAMES
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.normalization import BatchNormParams
from object_detection.weights import networks, restore
from object_detection.weights.keras_applications import KerasArrays, KerasWeights
from tests import slow_cases

# Keras' own writers rely on it.
pytestmark = pytest.mark.filterwarnings('ignore:__array__ implementation:DeprecationWarning')

APPLICATIONS = {
    'MobileNet v1': functools.partial(keras.applications.MobileNet, alpha=0.25),
    'MobileNet v2': functools.partial(keras.applications.MobileNetV2, alpha=0.35),
    'EfficientNet-B0': keras.applications.EfficientNetB0,
}
SLOW = ('EfficientNet-B0',)


def expected_of(model) -> dict[str, np.ndarray]:
    """The weights of the layers that are no top, by the names of our backbones."""
    depthwise = networks.depthwise_layers()
    top = ('conv_preds', 'predictions', 'normalization')
    prefixes = dict.fromkeys(depthwise, 'depthwise_')
    return {
        f'backbone/{layer.name}/{prefixes.get(layer.name, "")}{variable.name}': variable.numpy()
        for layer in model.layers
        if not layer.name.startswith(top)
        for variable in layer.weights
    }


@pytest.fixture(
    scope='module',
    params=[pytest.param(t, marks=pytest.mark.slow) if t in SLOW else t for t in APPLICATIONS],
)
def model(request):
    network = APPLICATIONS[request.param](weights=None, input_shape=(64, 64, 3), classes=5)
    rng = np.random.default_rng(0)
    for layer in network.layers:
        for variable in layer.weights:
            if len(variable.shape) == 1:
                variable.assign(rng.uniform(0, 1, variable.shape))
    return network


@slow_cases.parametrize(1, 'layout', ['legacy', 'named', 'numbered'])
def test_all_weights_but_the_top(tmp_path, model, layout):
    path = str(tmp_path / 'network.weights.h5')
    if layout == 'legacy':
        with h5py.File(path, 'w') as file:
            legacy_h5_format.save_weights_to_hdf5_group(file, model)
    else:
        model.save_weights(path)
    if layout == 'numbered':  # as files of the first releases of Keras 3
        with h5py.File(path, 'r+') as file:
            file.visititems(lambda _, item: item.attrs.pop('name', None) and None)
    expected = expected_of(model)
    detector = types.SimpleNamespace(
        parts=dict, named_variables=lambda: expected, variable_names=PLAIN_NAMES
    )
    with KerasWeights(KerasArrays(path)) as source:
        entries = source.entries(detector)
        assert entries.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(entries[name].read(), value, err_msg=name)


def test_networks_are_recognised_by_the_names_and_numbers_of_their_layers():
    v1, v2, b0 = (networks.by_counts(*counts) for counts in ((14, 13), (35, 17), (65, 16)))
    assert [v1.title, v2.title, b0.title] == list(APPLICATIONS)
    assert networks.by_counts(53, 0).title == 'ResNet-50'
    assert networks.by_counts(14, 12) is None
    names = {each.title: [f'backbone/{name}/' for name, _ in each.layers] for each in (v1, v2, b0)}
    assert networks.differing(names['MobileNet v1'], names['MobileNet v2']) == (
        'MobileNet v1',
        'MobileNet v2',
    )
    ours, theirs = networks.differing(
        names['EfficientNet-B0'],
        [f'backbone/{name}/' for name, _ in networks.by_counts(104, 26).layers],
    )
    assert ours == 'EfficientNet-B0 (1, 2, 2, 3, 3, 4, 1 blocks)'
    assert theirs == 'EfficientNet-B3 (2, 3, 3, 5, 5, 6, 2 blocks)'
    for title in names:
        assert networks.differing(names[title], names[title]) is None
        assert networks.differing(names[title], ['head/kernel']) is None


class _Extractor:
    """A feature extractor as the parts of a single-shot detector."""

    num_classes = 3
    name = 'detector'
    variable_names = SSD_NAMES
    quantization = None
    named_variables = DetectionModel.named_variables

    def __init__(self, type_name, **options):
        hyperparams = LayerHyperparams(batch_norm=BatchNormParams(scale=True))
        options = SingleShotOptions(
            hyperparams=hyperparams, batch_norm_trainable=False, min_depth=8, **options
        )
        self.extractor = build_ssd(type_name, options)
        self.parts, self.normalize = self.extractor.parts, self.extractor.normalize


@pytest.mark.slow
@pytest.mark.parametrize(
    ('type_name', 'application', 'alpha', 'outputs'),
    [
        ('ssd_mobilenet_v2_keras', 'MobileNetV2', 1.0, ['block_13_expand_relu', 'out_relu']),
        pytest.param(
            # The type of which the factor counts once, as `alpha` does.
            'ssd_mobilenet_v1',
            'MobileNet',
            0.25,
            ['conv_pw_11_relu', 'conv_pw_13_relu'],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            'ssd_efficientnet-b0_bifpn_keras',
            'EfficientNetB0',
            None,
            ['block3b_add', 'block5c_add', 'block7a_project_bn'],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_features_are_those_of_keras(tmp_path, type_name, application, alpha, outputs):
    keras.utils.set_random_seed(0)
    scaled = {} if alpha is None else {'alpha': alpha}
    model = getattr(keras.applications, application)(
        weights=None, include_top=False, input_shape=(64, 64, 3), **scaled
    )
    rng = np.random.default_rng(0)
    for layer in model.layers:
        for variable in layer.weights:
            if isinstance(layer, keras.layers.BatchNormalization):
                low = 0.5 if variable.name in ('gamma', 'moving_variance') else -0.2
                variable.assign(rng.uniform(low, low + 0.5, variable.shape))
            elif isinstance(layer, keras.layers.Normalization) and variable.name != 'count':
                # Of ImageNet, in 0..1, as in Keras's own files.
                mean = variable.name == 'mean'
                values = [0.485, 0.456, 0.406] if mean else np.square([0.229, 0.224, 0.225])
                variable.assign(np.reshape(values, variable.shape))
        if isinstance(layer, keras.layers.Normalization):
            layer.finalize_state()
    path = str(tmp_path / 'network.weights.h5')
    model.save_weights(path)
    detector = _Extractor(type_name, **({} if alpha is None else {'depth_multiplier': alpha}))
    report = restore.restore(detector, path, 'classification')
    assert {name.partition('/')[0] for name in report.missing} <= {'fpn', 'backbone'}
    images = rng.uniform(0, 255, (1, 64, 64, 3)).astype(np.float32)
    inputs = images if alpha is None else images / 127.5 - 1.0
    expected = keras.Model(model.input, [model.get_layer(name).output for name in outputs])(inputs)
    received = detector.parts()['backbone'](detector.normalize(images))
    for ours, theirs in zip(received, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4 * np.std(theirs))
