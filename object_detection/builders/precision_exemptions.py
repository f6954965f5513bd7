"""Layers that compute in float32 while the others compute in 16 bits."""

import logging
import re
from collections.abc import Iterator, Sequence

import keras

from object_detection.builders import variable_rules
from object_detection.errors import ConfigError
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.models.precision import TF32
from object_detection.system import private_names

_logger = logging.getLogger(__name__)

_FIELD = variable_rules.EXEMPTIONS


def apply(detector: DetectionModel, patterns: Sequence[str], precision: str) -> None:
    """Makes the layers of a detector that match compute in float32; to be called before it is run.

    Args:
      detector: with all variables built.
      patterns: of `TrainConfig.precision_exempt_patterns`; an expression may be found anywhere in
        the name of a layer, such as backbone/conv1_conv or, of a whole part, backbone/, or of one
        of its variables.
      precision: of the other layers; a key of `precision.POLICIES`.

    Raises:
      ConfigError: if an expression is not valid or matches nothing, or if the precision is that of
        all layers or none.
    """
    problems = list(variable_rules.exemption_problems(patterns, uses_tf32=precision == TF32))
    if problems:
        raise ConfigError('\n'.join(problems))
    if not patterns:
        return
    layers = list(_layers(detector))
    exempt: dict[str, keras.layers.Layer] = {}
    for index, pattern in enumerate(patterns):
        matching = {name: layer for name, layer in layers if _is_found(pattern, name, layer)}
        if not matching:
            some = ', '.join(name for name, _ in layers[1 :: len(layers) // 4])
            raise ConfigError(
                f'{_FIELD}[{index}]: expected a regular expression that is found in the name of a '
                f'layer or variable, such as {some}. Received: {pattern!r}.'
            )
        exempt |= matching
    # A model casts its inputs, which would round what an exempt first layer reads.
    parts = {name.partition('/')[0] for name in exempt}
    models = [top for part, top in detector.parts().items() if part in parts]
    models = [top for top in models if isinstance(top, keras.Model)]
    for layer in [*exempt.values(), *models]:
        layer.dtype_policy = 'float32'
    _logger.info('%d of %d layers compute in float32 (%s)', len(exempt), len(layers), _FIELD)


def _layers(detector: DetectionModel) -> Iterator[tuple[str, keras.layers.Layer]]:
    """All layers by name, those without variables and the parts themselves (`rpn/`) too."""
    for part, top in detector.parts().items():
        for layer in private_names.layers_in(top):
            # A layer without variables may have no path.
            path = layer.path or layer.name
            yield f'{part}/{"" if layer is top else path.removeprefix(top.name + "/")}', layer


def _is_found(pattern: str, name: str, layer: keras.layers.Layer) -> bool:
    paths = [variable.path.rpartition('/') for variable in layer.weights]
    # Not those of layers in it.
    own = [f'{name}/{last}' for path, _, last in paths if path == layer.path]
    return any(re.search(pattern, text) for text in [name, *own])
