"""Weights of backbones as `keras.applications` publishes them and as Keras saves them.

There are two HDF5 layouts. The older one (`*_tf_dim_ordering_tf_kernels_notop.h5`) names layers and
variables. The layout of Keras 3 (`.weights.h5`) numbers the layers of each class and their
variables; only newer files also contain the layers' names. Unlike our backbones, these ResNets
expect BGR images, and their convolutions have biases. Most layers of Inception-ResNet v2 are named
only by numbers that count all layers of a program, so they are identified by their order.
MobileNet v1 and v2 and EfficientNets have the names and the images of our backbones.

Weights for a backbone 'keras:<network>' or 'keras_hub:<preset>' are read by Keras.
"""

import contextlib
import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import h5py
import numpy as np

from object_detection.core.detector import Detector
from object_detection.errors import CheckpointError, format_list
from object_detection.system import files
from object_detection.weights import backbones, networks
from object_detection.weights.interfaces import Entry, WeightSource

# End of the names of files of `keras.Model.save`, archives of which the weights alone are read.
KERAS_MODEL, _WEIGHTS_OF_MODEL = '.keras', 'model.weights.h5'
_SIGNATURE = b'\x89HDF\r\n\x1a\n'
# Keras' class in snake case -> its variables in the order in which Keras 3 saves them.
_NUMBERED = {
    networks.CONV: ('kernel', 'bias'),
    networks.DEPTHWISE: ('depthwise_kernel', 'bias'),
    networks.NORM: ('gamma', 'beta', 'moving_mean', 'moving_variance'),
    'dense': ('kernel', 'bias'),
}
_FIRST = 'conv1_conv/kernel'
_INCEPTION_RESNET = 'conv_7b/kernel'
# One kernel of each supported network: ResNet, Inception-ResNet, MobileNet v1, v2, EfficientNet.
_KNOWN = {_FIRST, _INCEPTION_RESNET, 'conv_pw_1/kernel', 'Conv1/kernel', 'stem_conv/kernel'}
# Prefixes of the names of backbone layers; other layers belong to the top.
_BACKBONE = ('conv', 'mixed_', 'block', 'Conv', 'bn_Conv1', 'expanded_conv', 'stem_', 'top_')
# Name of a variable of a depthwise convolution in files of Keras 3 -> in older ones and here.
_DEPTHWISE_VARIABLES = {'kernel': 'depthwise_kernel'}
# The top of MobileNet v1 is a convolution, of which a file without names has the number alone.
_TOP = ('conv_preds/', f'{networks.CONV}_')

# Block -> number of convolutions of each of its branches.
_BLOCK35, _BLOCK17, _BLOCK8 = (1, 2, 3), (1, 3), (1, 3)
_BLOCKS = (
    ('mixed_5b', (1, 2, 3, 1)),
    *((f'block35_{i}', _BLOCK35) for i in range(1, 11)),
    ('mixed_6a', (1, 3)),
    *((f'block17_{i}', _BLOCK17) for i in range(1, 21)),
    ('mixed_7a', (2, 2, 3)),
    *((f'block8_{i}', _BLOCK8) for i in range(1, 11)),
)


def is_hdf5(head: bytes) -> bool:
    """Whether a file that begins with these bytes is one of HDF5."""
    return head.startswith(_SIGNATURE)


class KerasArrays:
    """An open weights file.

    Attributes:
      path: path of the file, for messages.
      shapes, dtypes: 'conv1_conv/kernel' -> shape or dtype, for all variables of the file.

    Raises:
      CheckpointError: if the file is corrupt.
    """

    def __init__(self, path: str):
        self.path = path
        try:
            source = io.BytesIO(files.read_bytes(path)) if '://' in path else path
            if path.endswith(KERAS_MODEL):
                with zipfile.ZipFile(source) as archive:
                    member = archive.getinfo(_WEIGHTS_OF_MODEL)
                    if member.compress_type != zipfile.ZIP_STORED:
                        # Else a small file could fill the memory.
                        raise OSError(f'{_WEIGHTS_OF_MODEL} compressed, which Keras does not write')
                    source = io.BytesIO(archive.read(_WEIGHTS_OF_MODEL))
            with contextlib.ExitStack() as after_failure:
                self._file = after_failure.enter_context(h5py.File(source, 'r'))
                self._datasets = _name_by_order(_find_datasets(self._file))
                after_failure.pop_all()
        except (OSError, KeyError, RuntimeError, zipfile.BadZipFile) as error:
            raise CheckpointError(
                f'{path}: expected a whole HDF5 file. Received: {error}.'
            ) from error
        self.shapes = {name: dataset.shape for name, dataset in self._datasets.items()}
        self.dtypes = {name: dataset.dtype.name for name, dataset in self._datasets.items()}

    def close(self) -> None:
        self._file.close()

    def read(self, name: str) -> np.ndarray:
        """Returns one array; raises CheckpointError if the file is corrupt there."""
        try:
            return np.asarray(self._datasets[name][()], np.float32)
        except (OSError, TypeError, ValueError) as error:
            raise CheckpointError(f'{self.path}: {name} cannot be read: {error}.') from error


class KerasWeights(WeightSource):
    """The weights of an image classifier, with or without its top."""

    def __init__(self, arrays: KerasArrays):
        super().__init__(arrays, f'Keras weights {arrays.path}', arrays.shapes)

    def entries(self, detector: Detector) -> dict[str, Entry]:
        """Returns the file's entries for a detector, by the detector's names.

        Raises:
          CheckpointError: if it belongs to a network that this module does not support.
        """
        names = detector.named_variables()
        by_keras = [part for part in detector.parts().values() if hasattr(part, 'read_weights')]
        if by_keras:
            return self._entries_by_keras(names, by_keras)
        if not _KNOWN & self.shapes.keys():
            layers = list(dict.fromkeys(name.rpartition('/')[0] for name in self.shapes))
            received = format_list(layers, 4) or 'no layers'
            raise CheckpointError(
                f'{self._arrays.path}: expected the weights of a ResNet of keras.applications '
                '(layers conv1_conv, conv1_bn, conv2_block1_1_conv, ...), of its Inception-ResNet '
                'v2 (conv_7b, conv_7b_bn, block35_1_conv, ...), MobileNet v1 (conv1, conv_dw_1, '
                '...), MobileNet v2 (Conv1, expanded_conv_depthwise, ...) or EfficientNet '
                f'(stem_conv, block1a_dwconv, ...). Received: {received}.'
            )
        if _FIRST in self.shapes:
            backbones.warn_of_images(self.description, detector)
        parts = detector.variable_names.backbone_parts
        convolutional = (
            name
            for name in self.shapes
            if (name.startswith(_BACKBONE) and not name.startswith(_TOP))
            or f'{parts[0]}/{name}' in names
        )
        entries = {
            backbones.name_in_detector(name, names, parts): self._entry(name)
            for name in convolutional
        }
        # A bias before a batch norm is subtracted from the norm's mean.
        biased = [name for name in entries if name.endswith('_conv/bias') and name not in names]
        return {name: entry for name, entry in entries.items() if name not in biased}

    def _entries_by_keras(self, names: Mapping[str, Any], parts: Sequence[Any]) -> dict[str, Entry]:
        """Returns the entries for parts of a network of keras.applications, which Keras reads."""
        by_variable = {id(variable): name for name, variable in names.items()}
        keys = tuple(self.shapes)  # Keras does not say which one it takes.
        values = (pair for part in parts for pair in part.read_weights(self._arrays.path))
        return {
            by_variable[id(variable.value)]: Entry(keys, value.shape, value.copy)
            for variable, value in values
        }

    def _entry(self, name: str) -> Entry:
        """Returns one variable, converted to the conventions of our backbones."""
        keys = [name]
        bias = name.replace('_bn/moving_mean', '_conv/bias')
        if bias != name and bias in self.shapes:
            keys.append(bias)

        def read() -> np.ndarray:
            array = self._arrays.read(name)
            if name == _FIRST:
                array = array[:, :, ::-1]  # [7, 7, BGR, 64] -> [7, 7, RGB, 64]
            return array - self._arrays.read(bias) if len(keys) > 1 else array

        return Entry(tuple(keys), self.shapes[name], read)


def _find_datasets(file: h5py.File) -> dict[str, h5py.Dataset]:
    """Returns the variables of either layout as 'layer/kernel'."""
    datasets: dict[str, h5py.Dataset] = {}
    numbered: dict[str, h5py.Group] = {}

    def visit(path: str, item: h5py.Group | h5py.Dataset) -> None:
        if isinstance(item, h5py.Group):
            if path.endswith('/vars') and len(item):
                numbered[path] = item
        elif 'vars' not in path.split('/') and not path.startswith('optimizer'):
            layer, _, variable = '/'.join(path.removesuffix(':0').split('/')[-2:]).rpartition('/')
            if layer in networks.depthwise_layers():
                variable = _DEPTHWISE_VARIABLES.get(variable, variable)
            datasets[f'{layer}/{variable}' if layer else variable] = item

    file.visititems(visit)
    return datasets | _name_numbered(numbered)


def _name_numbered(groups: Mapping[str, h5py.Group]) -> dict[str, h5py.Dataset]:
    """Names the variables of groups '.../conv2d_7/vars', which hold them under '0', '1', ..."""
    classes = {path: _class_and_number(path.split('/')[-2]) for path in groups}
    kinds = [kind for kind, _ in classes.values()]
    counts = kinds.count(networks.CONV), kinds.count(networks.DEPTHWISE)
    network = networks.by_counts(*counts)
    if network is None and counts[1]:
        # The top of MobileNet v1 is another convolution.
        network = networks.by_counts(counts[0] - 1, counts[1])
    datasets = {}
    for path, group in groups.items():
        kind, number = classes[path]
        if kind not in _NUMBERED:
            continue
        layer = group.attrs.get('name')
        if layer is None:
            order = network.of_kind(kind) if network else []
            layer = order[number] if number < len(order) else path.split('/')[-2]
        # A batch norm without a scale, as in Inception-ResNet v2, has three variables.
        first = 1 if kind == 'batch_normalization' and len(group) == 3 else 0
        for index, variable in enumerate(_NUMBERED[kind][first : first + len(group)]):
            datasets[f'{layer}/{variable}'] = group[str(index)]
    return datasets


def _name_by_order(datasets: Mapping[str, h5py.Dataset]) -> Mapping[str, h5py.Dataset]:
    """Gives the numbered layers of an Inception-ResNet v2 our names."""
    if _INCEPTION_RESNET not in datasets:
        return datasets
    convolutions = list(_numbered_convolutions())
    ours = {'conv2d': convolutions, 'batch_normalization': [f'{name}_bn' for name in convolutions]}
    layers = sorted({name.rpartition('/')[0] for name in datasets}, key=_class_and_number)
    names = {}
    for kind, expected in ours.items():
        numbered = [layer for layer in layers if _class_and_number(layer)[0] == kind]
        names |= dict(zip(numbered, expected, strict=False))
    # Data sets outside of layers are not variables of the network, and keep their names.
    return {
        f'{names.get(layer, layer)}{slash}{variable}': dataset
        for name, dataset in datasets.items()
        for layer, slash, variable in [name.rpartition('/')]
    }


def _class_and_number(name: str) -> tuple[str, int]:
    """'conv2d_7' -> ('conv2d', 7); the first of its class, 'conv2d', has the number 0."""
    kind, _, number = name.rpartition('_')
    return (kind, int(number)) if number.isdigit() else (name, 0)


def _numbered_convolutions() -> Iterator[str]:
    """Yields our names of the convolutions of an Inception-ResNet v2, in Keras' order of creation.

    The norm that follows a convolution has the suffix `_bn`, and the same position among the norms.
    """
    yield from ('conv_1a', 'conv_2a', 'conv_2b', 'conv_3b', 'conv_4a')
    for block, branches in _BLOCKS:
        for branch, count in enumerate(branches):
            yield from (f'{block}_branch{branch}_{i}' for i in range(1, count + 1))
