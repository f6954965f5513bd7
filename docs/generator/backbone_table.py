"""Writes the section about backbones in docs/models.md: parameters, operations, strides, weights.

    python docs/generator/backbone_table.py

It builds every backbone, which takes some minutes.
"""

import functools
import inspect
import pathlib
import re

import keras
import tensorflow as tf

from object_detection.dataset_tools.downloads.known_files import WEIGHTS, Weights
from object_detection.errors import UserError
from object_detection.meta_architectures.center_net.extractors import EXTRACTORS as CENTER_NET
from object_detection.meta_architectures.faster_rcnn.extractors import EXTRACTORS as FASTER_RCNN
from object_detection.meta_architectures.ssd.extractors import EXTRACTORS as SSD
from object_detection.models.backbones import table
from object_detection.models.backbones.table import BACKBONES, KERAS, Backbone, BackboneOptions
from object_detection.training.monitoring import model_summary

PAGE = pathlib.Path(__file__).resolve().parents[1] / 'models.md'
HEADING, NEXT_HEADING = '## Backbones', '## Networks of KerasHub'
# A multiple of what every network halves.
_SIDE = 384
_FAMILIES = (CENTER_NET, FASTER_RCNN, SSD)
_INTRODUCTION = f"""
Values of the field `backbone` of the types `ssd`, `ssd_fpn`, `ssd_bifpn`, `ssd_ppn`, `faster_rcnn`,
`faster_rcnn_fpn`, `center_net` and `center_net_fpn` of feature extractors
([howto/backbone.md](howto/backbone.md)). Parameters are those up to the last map, without a
classifier; operations, two a multiplication with addition, are for an image of {_SIDE} x {_SIDE}.
`tfod weights download NAME` gets ImageNet weights; licences are those that their authors state.
`keras_hub:PRESET` names a network of KerasHub; [its classes](#networks-of-kerashub) follow.

| backbone | parameters, M | GFLOP | strides | weights | licence |
|---|---|---|---|---|---|
"""
# Beginning of the name of a network of Keras -> licence of its weights.
_LICENCES = {
    'ConvNeXt': 'MIT',
    'DenseNet': 'BSD 3-Clause',
    'EfficientNet': 'Apache 2.0',
    'Inception': 'Apache 2.0',
    'MobileNet': 'Apache 2.0',
    'NASNet': 'Apache 2.0',
    r'ResNet\d+$': 'MIT',
    'VGG': 'CC BY 4.0',
}


def names() -> list[str]:
    """Returns the backbones in the order of the table."""
    functions = inspect.getmembers(keras.applications, inspect.isfunction)
    return [
        *(name for name in BACKBONES if name in BACKBONES.built_in),
        *(f'{KERAS}{name}' for name, _ in functions),
    ]


def line(name: str) -> str:
    """Returns the line of a backbone, which it builds."""
    row = table.find(name)
    try:
        model, levels = _build(row)
    except UserError as error:
        return f'| `{name}` | | | none: {str(error).partition(": ")[2]} | | |'
    image = tf.TensorSpec([1, _SIDE, _SIDE, 3])
    graph = tf.function(functools.partial(model, training=False)).get_concrete_function(image).graph
    operations = model_summary.count(graph).total
    weights = next((known for known, each in WEIGHTS.items() if name in _fits(each)), '')
    licence = _licence(WEIGHTS[weights].network) if weights else ''
    strides = ', '.join(str(row.stride(level)) for level in levels)
    parameters = f'{model.count_params() / 1e6:.1f} | {operations / 1e9:.1f}'
    return f'| `{name}` | {parameters} | {strides} | {weights} | {licence} |'


def _build(row: Backbone) -> tuple[keras.Model, list[int]]:
    """Returns a backbone with all of its maps, and their levels."""
    try:
        return row.trunk(row.levels, _options(row)), [*row.levels]
    except UserError:  # Not every network has a map of each stride.
        levels = [level for level in row.levels if _has(row, level)]
        return row.trunk(levels or row.levels, _options(row)), levels


def _has(row: Backbone, level: int) -> bool:
    try:
        row.trunk([level], _options(row))
    except UserError:
        return False
    return True


def _options(row: Backbone) -> BackboneOptions:
    return BackboneOptions(hyperparams=row.hyperparams, batch_norm_trainable=True)


def _fits(weights: Weights) -> set[str]:
    """Returns the backbones that may begin with some weights."""
    rows = [
        family[type_name]
        for family in _FAMILIES
        for type_name in weights.extractors
        if type_name in family
    ]
    return {weights.backbone, *(row.backbone for row in rows)}


def _licence(network: str) -> str:
    found = (text for pattern, text in _LICENCES.items() if re.match(pattern, network))
    return next(found, 'not stated')


def section() -> str:
    """Returns the section, without its heading."""
    lines = []
    for name in names():
        lines.append(line(name))
        keras.backend.clear_session()
    return _INTRODUCTION + '\n'.join(lines) + '\n'


def rows(page: str) -> dict[str, str]:
    """Returns the lines of the table in the text of the page, by their backbone."""
    text = page.partition(f'{HEADING}\n')[2].partition(NEXT_HEADING)[0]
    return {match[1]: match[0] for match in re.finditer(r'^\| `(.+?)` \|.*$', text, re.M)}


def main() -> None:
    before, heading, rest = PAGE.read_text().partition(f'{HEADING}\n')
    after = rest.partition(NEXT_HEADING)[2]
    PAGE.write_text(f'{before}{heading}{section()}\n{NEXT_HEADING}{after}')


if __name__ == '__main__':
    main()
